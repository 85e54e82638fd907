"""Where settings come from, which of two wins, and what is reported of those that cannot be."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import MAIN, alone, at, env_of, kubetpl, one, printed, refused

from tarkit.k8s.configuration import FOLDER_FILES, read_settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def write(path: Path | str, content: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content if isinstance(content, str) else yaml.safe_dump(content))


# Sources from the lowest to the highest.
SOURCES = ["home", *FOLDER_FILES, "-l first", "-l second", "command line"]


def say(source: str, folder: Path, settings: dict[str, Any]) -> list[str]:
    """Let a source set something; returns the words of the command line that this needs."""
    if source == "home":
        write(folder.parent / "home" / ".config" / "kubetpl" / "config.yaml", settings)
    elif source.startswith("-l "):
        write(folder / source[3:], settings)
        return ["-l", source[3:]]
    elif source == "command line":
        return [word for name, value in settings.items() for each in _each(value) for word in (f"--{name}", each)]
    else:
        write(folder / source, settings)
    return []


def _each(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{key}={each}" for key, each in value.items()]
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(("low", "high"), list(itertools.pairwise(SOURCES)), ids=lambda source: source)
def test_the_higher_of_two_neighbours_wins(low: str, high: str, folder: Path) -> None:
    """Lists and pairs are put together; settings of the lower source alone stay."""
    words = say(low, folder, {
        "image": "low", "memory": "7G", "env": {"A": "low", "B": "low"}, "port": ["1", "2"],
    })  # fmt: skip
    words += say(high, folder, {
        "image": "high", "env": {"B": "high", "C": "high"}, "port": ["2", "3"],
    })  # fmt: skip
    document = yaml.safe_load(printed("job", *words))
    assert at(document, f"{MAIN} image") == "high"
    assert at(document, f"{MAIN} resources limits memory") == "7G"
    assert env_of(document) == {"TMPDIR": "/scratch", "HOME": "/scratch", "A": "low", "B": "high", "C": "high"}
    assert [each["containerPort"] for each in at(document, f"{MAIN} ports")] == [1, 2, 3]


def test_the_users_own_file_is_in_the_folder_of_xdg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "xdg" / "kubetpl" / "config.yaml", "image: xdg\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    assert at(one("job"), f"{MAIN} image") == "xdg"


def test_forms_of_the_original(folder: Path) -> None:
    """Pairs as a list, one value in place of a list, numbers; and a file serves all generators."""
    write("kubetpl.yaml", "env:\n- A=1\n- B=x=y\nlabel: team=a\nport: 80\ncpu: 1.0\nttl: 1d\nshards: x\n")
    document = one("job")
    assert {"A": "1", "B": "x=y"}.items() <= env_of(document).items()
    assert document["metadata"]["labels"]["team"] == "a"
    assert at(document, f"{MAIN} resources requests cpu") == "1"
    assert one("service", "-a", "web")["spec"]["ports"] == [{"port": 80, "targetPort": 80}]
    assert one("pod")["spec"]["containers"][0]["ports"] == [{"containerPort": 80}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("imagge: x\n", "no setting 'imagge'; did you mean image?"),
        ("config-mapp: x\n", "no setting 'config-mapp'; did you mean config_map?"),
        ("zzzzqqq: x\n", "no setting 'zzzzqqq'; kubetpl job --help lists what there is"),
        ("1: x\n", "no setting '1'; kubetpl job --help lists what there is"),
        ("- image\n", "a configuration is one mapping, such as image: ubuntu:24.04"),
        ("image: x\n---\nimage: y\n", "a configuration is one mapping, such as image: ubuntu:24.04"),
        ("image: [\n", "line 2, column 1: this cannot be used as YAML: "),
        ("image: x\nimage: y\n", "line 2, column 1: this cannot be used as YAML: the key 'image'"),
        ("image: [a, b]\n", "image (--image) is a text; got "),
        ("env: {A: yes}\n", "env (--env) is a text, and YAML reads this as true or false"),
        ("env: {A: [1]}\n", "env (--env) is a text; got "),
        ("env: [A]\n", "env (--env) is NAME=VALUE; got 'A'"),
        ("gpu: 1.5\n", "gpu (--gpu) is a whole number, and not negative; got '1.5'"),
        ("security: high\n", "security (--security) is one of restricted, baseline, none; got 'high'"),
        ("port: [1, {}]\n", "port (--port) is a text; got "),
        ("raw: 3\n", "raw (--raw) is true or false; got '3'"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, said: str) -> None:
    write("kubetpl.yaml", text)
    assert refused("job").startswith(f"kubetpl.yaml: {said}")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}\n", "image:\n", "env:\nport:\n"])
def test_an_empty_file_sets_nothing(text: str) -> None:
    plain = printed("job")
    write("kubetpl.yaml", text)
    assert printed("job") == plain


def test_numbers_are_the_texts_that_were_written() -> None:
    """YAML 1.1 reads 012 as 10, 1:30 as 90, 1.10 as 1.1: nobody means that of a variable or an
    image's tag.
    """
    texts = [
        "1",
        "1.5",
        "012",
        "0x1f",
        "1_000",
        "1e3",
        "1:30",
        "2026-11-21",
        "=",
        "1.10",
        "0o17",
        "+1",
        ".5",
        "6.02e+23",
    ]
    write("kubetpl.yaml", "env:\n" + "".join(f"  V{number}: {text}\n" for number, text in enumerate(texts)))
    found = env_of(one("job"))
    assert [found[f"V{number}"] for number in range(len(texts))] == texts


def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "latin").write_bytes(b"image: \xff\n")
    assert refused("job", "-l", "latin") == "latin: this cannot be used as YAML: invalid leading UTF-8 octet"
    assert refused("job", "-l", "missing") == "--config missing: no such file"
    outcome = kubetpl("job", "-l", ".")
    assert (outcome.code, outcome.out, "Is a directory" in outcome.err) == (1, "", True)
    (folder / "bom.yaml").write_bytes(b"\xef\xbb\xbfimage: x\r\nmemory: 2G\r\n")
    assert at(one("job", "-l", "bom.yaml"), f"{MAIN} image") == "x"
    (folder / "kubetpl.yaml").mkdir()
    assert one("job", "-I", "i")


def test_false_zero_and_empty_in_a_higher_source_win(folder: Path) -> None:
    write("a", "raw: true\ngpu: 2\nretries: 3\nshell_flags: -x\ngac: /key\n")
    write("b", "raw: false\ngpu: 0\nretries: 0\nshell_flags: ''\ngac: none\n")
    found = read_settings({}, ["a", "b"])
    assert (found.raw, found.gpu, found.retries, found.shell_flags, found.gac) == (False, 0, 0, "", "none")


def test_shards_given_here_are_not_added_to_those_of_a_file() -> None:
    write("kubetpl.yaml", "shards: ['s3://b/old-{0..9}.tar']\nimage: x\noutdir: s3://b/out\n")
    manifest = one("indexed", "-n", "x", "-c", "true", "--shards", "s3://b/new-{0..2}.tar")
    assert manifest["metadata"]["annotations"]["tarkit.dev/inputs"] == '["s3://b/new-{0..2}.tar"]'
    manifest = one("indexed", "-n", "x", "-c", "true")
    assert manifest["metadata"]["annotations"]["tarkit.dev/shards"] == "10"


IDLE = [
    ("config_map_path", "/x", ("job",), ("--config-map", "files")),
    ("gpu_resource", "amd.com/gpu", ("pod",), ("--gpu", "1")),
    ("param", "k=v", ("job",), ("--command", "echo {k}")),
]


@pytest.mark.parametrize(("name", "value", "words", "needed"), IDLE, ids=[each[0] for each in IDLE])
def test_flags_without_effect(name: str, value: str, words: tuple[str, ...], needed: tuple[str, str]) -> None:
    flag = f"--{name.replace('_', '-')}"
    said = refused(*words, flag, value)
    assert said.startswith(flag) and f"has no effect without {needed[0]}" in said
    assert one(*words, flag, value, *needed)
    # The other one may come from elsewhere; and a file, which serves commands of all kinds, may
    # have one alone.
    write("kubetpl.yaml", {needed[0].removeprefix("--"): needed[1]})
    assert one(*words, flag, value)
    write("kubetpl.yaml", {name: value})
    assert one(*words)


def test_params_without_effect() -> None:
    said = refused("job", "-c", "echo {a}", "-p", "a=1", "-p", "b=2")
    assert said.startswith("--param b has no effect: there is no {b} in --command")
    # Of jobs, these two are what --over gives.
    for key in ("i", "n"):
        said = refused("jobs", "-n", "j{i}", "-c", "echo {i} {n}", "--over", "{0..1}", "-p", f"{key}=x")
        assert said == f"--param {key}: {{{key}}} stands for an item of --over; use another name"
