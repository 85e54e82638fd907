"""Where settings come from, which of two wins, and what is said of those that cannot be."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import MAIN, SPEC, alone, at, env_of, kubetpl, one, printed, refused

from tarkit.errors import UsageError
from tarkit.k8s.configuration import FOLDER_FILES, read_environment, read_file
from tarkit.k8s.settings import TABLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def write(path: Path | str, content: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content if isinstance(content, str) else yaml.safe_dump(content))


def image(*arguments: str) -> Any:
    return at(one("job", *arguments), f"{MAIN} image")


# Sources from the lowest to the highest.
SOURCES = [
    "template", "home", "kubetpl.yaml", "kubetpl.yml", ".kubetpl.yaml", ".kubetpl.yml", "-l first", "-l second",
    "environment", "command line",
]  # fmt: skip


def say(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> list[str]:
    """Let a source say something; what it needs on the command line."""
    if source == "template":
        return []
    if source == "home":
        write(folder.parent / "home" / ".config" / "kubetpl" / "config.yaml", settings)
    elif source.startswith("-l "):
        write(folder / source[3:], settings)
        return ["-l", source[3:]]
    elif source == "environment":
        for name, value in settings.items():
            monkeypatch.setenv(
                f"KUBETPL_{name.upper()}", json.dumps(value) if isinstance(value, (dict, list)) else value
            )
    elif source == "command line":
        pairs = [(name, each) for name, value in settings.items() for each in _each(value)]
        return [word for name, each in pairs for word in (f"--{name}", each)]
    else:
        write(folder / source, settings)
    return []


def _each(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{key}={each}" for key, each in value.items()]
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(("low", "high"), list(itertools.pairwise(SOURCES)), ids=lambda source: source)
def test_the_higher_of_two_neighbours_wins(low: str, high: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = say(low, folder, monkeypatch, {"image": "low", "memory": "7G"})
    words += say(high, folder, monkeypatch, {"image": "high"})
    document = one("job", *words)
    assert at(document, f"{MAIN} image") == "high"
    # What the higher one does not say stays.
    assert at(document, f"{MAIN} resources limits memory") == ("1G" if low == "template" else "7G")


@pytest.mark.parametrize(("low", "high"), list(itertools.pairwise(SOURCES[1:])), ids=lambda source: source)
def test_lists_and_pairs_of_neighbours_are_put_together(
    low: str, high: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = say(low, folder, monkeypatch, {"env": {"A": "low", "B": "low"}, "port": ["1", "2"]})
    words += say(high, folder, monkeypatch, {"env": {"B": "high", "C": "high"}, "port": ["2", "3"]})
    document = one("job", *words)
    assert env_of(document) == {"TMPDIR": "/scratch", "HOME": "/scratch", "A": "low", "B": "high", "C": "high"}
    assert [each["containerPort"] for each in at(document, f"{MAIN} ports")] == [1, 2, 3]


def test_all_sources_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = []
    for number, source in enumerate(SOURCES[1:]):
        words += say(source, folder, monkeypatch, {"env": {f"V{number}": source, "X": source}, "image": f"i{number}"})
    document = one("job", *words)
    assert at(document, f"{MAIN} image") == "i8"
    assert env_of(document)["X"] == "command line"
    assert [env_of(document)[f"V{number}"] for number in range(9)] == SOURCES[1:]


@pytest.mark.parametrize("name", FOLDER_FILES)
def test_a_file_of_the_folder_is_read_by_itself(name: str, folder: Path) -> None:
    write(folder / name, {"image": name.strip(".")})
    assert image() == name.strip(".")


def test_the_users_own_file_stands_where_xdg_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "xdg" / "kubetpl" / "config.yaml", "image: xdg\n")
    write(folder.parent / "home" / ".config" / "kubetpl" / "config.yaml", "image: home\n")
    assert image() == "home"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    assert image() == "xdg"


def test_reset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("kubetpl.yaml", {"env": {"A": "1"}, "port": [1], "image": "x"})
    monkeypatch.setenv("KUBETPL_ENV", "B=2")
    document = one("job", "--reset", "env", "-e", "C=3")
    assert env_of(document) == {"TMPDIR": "/scratch", "HOME": "/scratch", "C": "3"}
    assert at(document, f"{MAIN} ports") == [{"containerPort": 1}]
    document = one("job", "--reset", "env", "--reset", "port", "--reset", "image")
    assert at(document, f"{MAIN} ports") == "missing"
    assert at(document, f"{MAIN} image") == "ubuntu:24.04"
    assert "no setting 'enf'; did you mean env?" in refused("job", "--reset", "enf")
    assert one("job", "--reset", "config-map") == one("job")


def test_compat_lists(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the original had it: any -e drops the file's variables."""
    write("kubetpl.yaml", {"env": {"A": "1"}, "port": [1], "label": {"x": "y"}})
    monkeypatch.setenv("KUBETPL_PORT", "2")
    document = one("job", "--compat-lists", "-e", "B=2")
    assert env_of(document) == {"TMPDIR": "/scratch", "HOME": "/scratch", "B": "2"}
    assert [each["containerPort"] for each in at(document, f"{MAIN} ports")] == [1, 2]
    assert document["metadata"]["labels"]["x"] == "y"
    assert one("job", "--compat-lists") == one("job")


def test_the_originals_lists_of_pairs(folder: Path) -> None:
    write("kubetpl.yaml", "env:\n- A=1\n- B=x=y\n- {C: 3}\nlabel: team=a\n")
    document = one("job")
    assert {"A": "1", "B": "x=y", "C": "3"}.items() <= env_of(document).items()
    assert document["metadata"]["labels"]["team"] == "a"


# Profiles and generators' sections.


def test_profiles_and_sections(folder: Path) -> None:
    write("kubetpl.yaml", {
        "image": "top", "memory": "2G", "cpu": 1, "env": {"A": "top"},
        "job": {"image": "section", "env": {"B": "section"}},
        "pod": {"image": "pod"},
        "profiles": {"big": {"memory": "64G", "env": {"C": "big"}}, "other": {"image": "profile"}},
    })  # fmt: skip
    assert image() == "section"
    assert one("pod")["spec"]["containers"][0]["image"] == "pod"
    assert one("jobs", "--over", "a")["spec"]["template"]["spec"]["containers"][0]["image"] == "top"
    document = one("job", "--profile", "big")
    assert at(document, f"{MAIN} resources limits memory") == "64G"
    assert {"A": "top", "B": "section", "C": "big"}.items() <= env_of(document).items()
    assert image("--profile", "other") == "profile"
    assert image("--profile", "other", "-I", "flag") == "flag"
    assert one("--profile", "other", "job") == one("job", "--profile", "other")
    assert refused("job", "--profile", "bug") == "--profile bug: no such profile; there are big, other"


def test_a_profile_of_a_lower_file_is_below_the_top_of_a_higher_one(folder: Path) -> None:
    write("kubetpl.yaml", {"profiles": {"p": {"image": "low", "memory": "3G"}}})
    write("high.yaml", {"image": "high"})
    document = one("job", "-l", "high.yaml", "--profile", "p")
    assert at(document, f"{MAIN} image") == "high"
    assert at(document, f"{MAIN} resources limits memory") == "3G"


def test_a_profile_may_be_empty_or_in_several_files(folder: Path) -> None:
    write("kubetpl.yaml", "profiles: {p: , q: {image: one}}\n")
    write("kubetpl.yml", "profiles: {q: {memory: 3G}}\n")
    assert image("--profile", "p") == "ubuntu:24.04"
    document = one("job", "--profile", "q")
    assert at(document, f"{MAIN} image") == "one"
    assert at(document, f"{MAIN} resources limits memory") == "3G"


def test_a_profile_needs_a_file() -> None:
    assert refused("job", "--profile", "x") == "--profile x: no such profile; no configuration file has any"


def test_a_setting_of_another_generator_does_no_harm(folder: Path) -> None:
    """One file serves all of them."""
    write("kubetpl.yaml", {"shards": ["s3://b/{0..3}.tar"], "outdir": "s3://b/o", "port": 80, "app": "a", "ttl": "1d"})
    assert one("job", "--reset", "ttl", "--reset", "port") == one("job", "-a", "a", "--reset", "ttl", "--reset", "port")
    assert one("pod")["spec"].keys() == one("pod", "-P", "80")["spec"].keys()
    assert one("service")["metadata"]["name"] == "a"


# What cannot be.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("imagge: x\n", "kubetpl.yaml: no setting 'imagge'; did you mean image?"),
        ("config-mapp: x\n", "kubetpl.yaml: no setting 'config-mapp'; did you mean config_map?"),
        ("profile: {}\n", "kubetpl.yaml: no setting 'profile'; did you mean profiles?"),
        ("zzzzqqq: x\n", "kubetpl.yaml: no setting 'zzzzqqq'; kubetpl job --help lists what there is"),
        ("job: {imagge: x}\n", "kubetpl.yaml: job: no setting 'imagge'; did you mean image?"),
        ("pod: {imagge: x}\n", "kubetpl.yaml: pod: no setting 'imagge'; did you mean image?"),
        ("profiles: {p: {memry: 1}}\n", "kubetpl.yaml: profiles.p: no setting 'memry'; did you mean memory?"),
        ("profiles: [p]\n", "kubetpl.yaml: profiles holds settings by name; got \"['p']\""),
        ("profiles: {p: 3}\n", "kubetpl.yaml: profiles.p holds settings by name; got '3'"),
        ("job: x\n", "kubetpl.yaml: job holds settings by name; got 'x'"),
        ("- image\n", "kubetpl.yaml: a configuration is one mapping, such as image: ubuntu:24.04"),
        ("image\n", "kubetpl.yaml: a configuration is one mapping, such as image: ubuntu:24.04"),
        ("image: x\n---\nimage: y\n", "kubetpl.yaml: a configuration is one mapping, such as image: ubuntu:24.04"),
        ("image: [\n", "kubetpl.yaml: line 2, column 1: this cannot be used as YAML: "),
        ("image: x\nimage: y\n", "kubetpl.yaml: line 2, column 1: this cannot be used as YAML: the key 'image'"),
        ("1: x\n", "kubetpl.yaml: no setting '1'; kubetpl job --help lists what there is"),
        ("image: [a, b]\n", "kubetpl.yaml: image (--image) is a text; got "),
        ("image: {a: b}\n", "kubetpl.yaml: image (--image) is a text; got "),
        (
            "env: {A: yes}\n",
            "kubetpl.yaml: env (--env) is a text, and YAML reads this as true or false",
        ),
        (
            "env: {A: off}\n",
            "kubetpl.yaml: env (--env) is a text, and YAML reads this as true or false",
        ),
        ("env: {A: [1]}\n", "kubetpl.yaml: env (--env) is a text; got "),
        ("env: [A]\n", "kubetpl.yaml: env (--env) is NAME=VALUE; got 'A'"),
        ("env: 3\n", "kubetpl.yaml: env (--env) is NAME=VALUE; got '3'"),
        (
            "image: no\n",
            "kubetpl.yaml: image (--image) is a text, and YAML reads this as true or false",
        ),
        ("gpu: many\n", "kubetpl.yaml: gpu (--gpu) is a whole number, and not negative; got 'many'"),
        ("gpu: 1.5\n", "kubetpl.yaml: gpu (--gpu) is a whole number, and not negative; got '1.5'"),
        ("spot: gcp\n", "kubetpl.yaml: spot (--spot) is one of gke, eks, aks, karpenter; got 'gcp'"),
        ("raw: 3\n", "kubetpl.yaml: raw (--raw) is true or false; got '3'"),
        ("price: {cpu: 1}\n", "kubetpl.yaml: price.cpu: no such price; there are cpu_hour, gib_hour, spot"),
        ("price: {cpu_hour: x}\n", "kubetpl.yaml: price.cpu_hour is a number, and not negative; got 'x'"),
        ("price: {cpu_hour: -1}\n", "kubetpl.yaml: price.cpu_hour is a number, and not negative; got '-1'"),
        ("price: {cpu_hour: .nan}\n", "kubetpl.yaml: price.cpu_hour is a number, and not negative; got '.nan'"),
        ("price: {cpu_hour: .inf}\n", "kubetpl.yaml: price.cpu_hour is a number, and not negative; got '.inf'"),
        ("price: {cpu_hour: %s}\n" % ("9" * 400), "kubetpl.yaml: price.cpu_hour is a number, and not negative; got"),
        ("price: {cpu_hour: yes}\n", "kubetpl.yaml: price.cpu_hour is a number, and not negative; got 'True'"),
        ("price: 3\n", "kubetpl.yaml: price holds settings by name; got '3'"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, said: str, folder: Path) -> None:
    write("kubetpl.yaml", text)
    for words in (["job"], ["job", "--print-config"], ["-n", "x", "job"]):
        assert refused(*words).startswith(said)
    (folder / "kubetpl.yaml").rename(folder / "x.yaml")
    assert refused("job", "-l", "x.yaml").startswith(said.replace("kubetpl.yaml", "x.yaml", 1))


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}\n", "image:\n", "env:\nport:\n", "job:\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    plain = one("job")
    write("kubetpl.yaml", text)
    assert one("job") == plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", "1"), ("1.5", "1.5"), ("012", "012"), ("0x1f", "0x1f"), ("1_000", "1_000"), ("1e3", "1e3"),
        ("1:30", "1:30"), ("2026-11-21", "2026-11-21"), ("'yes'", "yes"), ("=", "="), ("1.0", "1.0"), ("1.10", "1.10"),
        ("0o17", "0o17"), ("+1", "+1"), ("1e-7", "1e-7"), (".5", ".5"),
        ("12345678901234567890", "12345678901234567890"),
        ("6.02e+23", "6.02e+23"), ("''", ""),
    ],
)  # fmt: skip
def test_numbers_are_the_texts_that_were_written(text: str, value: str) -> None:
    """YAML 1.1 reads 012 as 10, 1:30 as 90, 1.10 as 1.1: nobody means that of a variable or an image's tag."""
    write("kubetpl.yaml", f"env:\n  A: {text}\n")
    assert env_of(one("job"))["A"] == value


def test_files_that_can_not_be_read(folder: Path) -> None:
    write("latin", "")
    (folder / "latin").write_bytes(b"image: \xff\n")
    assert refused("job", "-l", "latin") == "latin: this cannot be used as YAML: invalid leading UTF-8 octet"
    assert refused("job", "-l", "missing") == "--config missing: no such file"
    outcome = kubetpl("job", "-l", ".")
    assert (outcome.code, outcome.out) == (1, "")
    assert "Is a directory" in outcome.err
    (folder / "bom.yaml").write_bytes(b"\xef\xbb\xbfimage: x\r\nmemory: 2G\r\n")
    assert image("-l", "bom.yaml") == "x"


def test_a_folder_called_as_a_configuration_is_none(folder: Path) -> None:
    (folder / "kubetpl.yaml").mkdir()
    assert one("job") == one("job", "-n", "mytask", "-a", "mytask")


# The environment.


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KUBETPL_IMAGGE", "x", "no setting 'KUBETPL_IMAGGE'; did you mean image?"),
        ("KUBETPL_", "x", "no setting 'KUBETPL_'"),
        ("KUBETPL_GPU", "many", "KUBETPL_GPU: gpu (--gpu) is a whole number, and not negative; got 'many'"),
        ("KUBETPL_SPOT", "x", "KUBETPL_SPOT: spot (--spot) is one of gke, eks, aks, karpenter; got 'x'"),
        ("KUBETPL_ENV", "A", "KUBETPL_ENV: env (--env) is NAME=VALUE; got 'A'"),
        ("KUBETPL_ENV", "{bad", "KUBETPL_ENV: this is not JSON: "),
        (
            "KUBETPL_ENV",
            '{"A": true}',
            "KUBETPL_ENV: env (--env) is a text, and YAML reads this as true or false",
        ),
        ("KUBETPL_PORT", "[1, {}]", "KUBETPL_PORT: port (--port) is a text; got "),
        ("KUBETPL_RAW", "maybe", "KUBETPL_RAW: raw (--raw) is true or false; got 'maybe'"),
        ("KUBETPL_MEMORY", "9GB", "--memory: 9GB is not a quantity"),
    ],
)
def test_bad_variables_are_refused_by_name(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert said in refused("job")


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original never read them."""
    monkeypatch.setenv("KUBETPL_MEMORY", "9G")
    monkeypatch.setenv("KUBETPL_ENV", "A=1, B=x=y,")
    monkeypatch.setenv("KUBETPL_PORT", '[1, "2"]')
    monkeypatch.setenv("KUBETPL_LABEL", '{"x": "1.2", "y": 3}')
    document = one("job")
    assert at(document, f"{MAIN} resources limits memory") == "9G"
    assert {"A": "1", "B": "x=y"}.items() <= env_of(document).items()
    assert [each["containerPort"] for each in at(document, f"{MAIN} ports")] == [1, 2]
    assert {"x": "1.2", "y": "3"}.items() <= document["metadata"]["labels"].items()


@pytest.mark.parametrize("name", ["ENV", "PORT", "IMAGE", "COMMAND", "MEMORY"])
def test_an_empty_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As most programs have it: set to nothing is not set."""
    plain = one("job")
    monkeypatch.setenv(f"KUBETPL_{name}", "")
    assert one("job") == plain


def test_variables_of_a_service_called_kubetpl_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kubelet sets where there is such a service; else kubetpl would not run in that namespace's pods."""
    plain = one("job")
    for variable, value in {
        "KUBETPL_SERVICE_HOST": "10.0.0.1", "KUBETPL_SERVICE_PORT": "80", "KUBETPL_SERVICE_PORT_HTTP": "80",
        "KUBETPL_PORT": "tcp://10.0.0.1:80", "KUBETPL_PORT_80_TCP": "tcp://10.0.0.1:80",
        "KUBETPL_PORT_80_TCP_PROTO": "tcp", "KUBETPL_PORT_80_TCP_PORT": "80", "KUBETPL_PORT_80_TCP_ADDR": "10.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    assert one("job") == plain
    monkeypatch.setenv("KUBETPL_SERVICE_ACCOUNT", "etl")
    assert at(one("job"), f"{SPEC} serviceAccountName") == "etl"


# What is shown.


def test_what_is_shown_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("kubetpl.yaml", {
        "image": "x:1", "cpu": 1, "port": [7880], "env": {"A": "yes", "B": " two\nlines\n\n", "C": "1e3"},
        "price": {"cpu_hour": 0.5, "spot_factor": 1}, "profiles": {"p": {"memory": "3G"}}, "job": {"ttl": "1d"},
    })  # fmt: skip
    monkeypatch.setenv("KUBETPL_LABEL", "x=y")
    command = "\n  lead # no comment\n\n\tx: y\n'\"{}\n"
    words = ["-c", command, "-e", "A=no", "-n", "n", "--profile", "p", "--gpu", "1", "--toleration", "a=b:NoSchedule"]
    expected = printed("job", *words)
    shown = printed("job", *words, "--print-config")
    assert printed("job", *words, "--print_config") == shown
    assert printed("--print_config", *words, "job") == shown
    write("again.yaml", shown)
    (folder / "kubetpl.yaml").unlink()
    monkeypatch.delenv("KUBETPL_LABEL")
    assert printed("job", "-l", "again.yaml") == expected
    again = yaml.safe_load(printed("job", "-l", "again.yaml", "--print-config"))
    assert again == yaml.safe_load(shown)
    assert again["price"] == {"cpu_hour": 0.5, "spot_factor": 1.0}
    assert again["command"] == command


def test_the_origin_of_each_value_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("kubetpl.yaml", {
        "image": "x", "port": [1], "env": {"A": "1"}, "job": {"cpu": 2}, "profiles": {"p": {"memory": "3G"}},
    })  # fmt: skip
    monkeypatch.setenv("KUBETPL_GPU", "1")
    monkeypatch.setenv("KUBETPL_ENV", "B=2")
    lines = printed("job", "--profile", "p", "-e", "A=3", "-P", "2", "-n", "nn", "--print-config").splitlines()
    found = {line.split("  # ")[0].strip(): line.split("  # ")[1] for line in lines if "  # " in line}
    assert found == {
        "name: nn": "command line", "image: x": "kubetpl.yaml", "cpu: '2'": "kubetpl.yaml, job",
        "memory: 3G": "kubetpl.yaml, profile p", "gpu: 1": "KUBETPL_GPU", "- '1'": "kubetpl.yaml",
        "- '2'": "command line", "A: '3'": "command line", "B: '2'": "KUBETPL_ENV",
    }  # fmt: skip


def test_nothing_set_is_shown_as_nothing() -> None:
    shown = printed("job", "--print-config")
    assert yaml.safe_load(shown) is None
    write("again.yaml", shown)
    assert one("job", "-l", "again.yaml") == one("job")


def test_a_multi_line_value_in_a_profile_of_a_file_with_a_strange_name(folder: Path) -> None:
    """The name stands in a comment: it must not end it."""
    write(folder / "a\nimage: evil", {"command": "x\ny\n", "cpu": 1})
    shown = printed("job", "-l", "a\nimage: evil", "--print-config")
    assert set(yaml.safe_load(shown)) == {"command", "cpu"}


def test_every_generator_shows_its_configuration() -> None:
    write("kubetpl.yaml", {"image": "x", "app": "a"})
    for generator in ("job", "pod", "jobs", "indexed", "service", "configmap"):
        assert yaml.safe_load(printed(generator, "--print-config")) == {"image": "x", "app": "a"}


def test_zero_and_empty_are_something(folder: Path) -> None:
    """``--retries 0``, ``-G 0`` and ``-e A=`` say something, so they are shown."""
    shown = yaml.safe_load(
        printed("job", "--retries", "0", "-G", "0", "-e", "A=", "--shell-flags", "", "--print-config")
    )
    assert shown == {"retries": 0, "gpu": 0, "env": {"A": ""}, "shell_flags": ""}


def test_false_in_a_higher_source_is_shown_and_wins(folder: Path) -> None:
    write("kubetpl.yaml", "raw: true\n")
    write("b.yaml", "raw: false\n")
    assert yaml.safe_load(printed("indexed", "--print-config")) == {"raw": True}
    assert yaml.safe_load(printed("indexed", "-l", "b.yaml", "--print-config")) in ({"raw": False}, None)


# The library, without files.


def test_read_file_gives_layers_from_low_to_high() -> None:
    text = "image: a\njob: {image: b}\nprofiles: {p: {image: c}, q: {}}\nprice: {gib_hour: 1}\n"
    layers, prices, names = read_file(text, "x", "job", "p")
    assert [(each.origin, each.values["image"]) for each in layers] == [
        ("x", "a"), ("x, job", "b"), ("x, profile p", "c"),
    ]  # fmt: skip
    assert prices == {"gib_hour": 1.0}
    assert names == {"p", "q"}


def test_read_environment_looks_at_its_own_only() -> None:
    assert read_environment({"PATH": "x", "KUBETPL": "x", "kubetpl_image": "x"}).values == {}
    assert set(read_environment({f"KUBETPL_{each.name.upper()}": "1" for each in TABLE.values()}).values) == {
        each.name for each in TABLE.values()
    }
    with pytest.raises(UsageError, match="KUBETPL_X"):
        read_environment({"KUBETPL_X": "1"})


def test_the_folder_is_the_current_one_only(folder: Path) -> None:
    write("kubetpl.yaml", "image: x\n")
    (folder / "below").mkdir()
    os.chdir(folder / "below")
    assert image() == "ubuntu:24.04"


def test_shards_given_here_are_not_added_to_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kubetpl.yaml").write_text("shards: ['s3://b/old-{0..9}.tar']\nimage: x\noutdir: s3://b/out\n")
    manifest = one("indexed", "-n", "x", "-c", "true", "--shards", "s3://b/new-{0..2}.tar")
    assert manifest["metadata"]["annotations"]["tarkit.dev/inputs"] == '["s3://b/new-{0..2}.tar"]'
    manifest = one("indexed", "-n", "x", "-c", "true")
    assert manifest["metadata"]["annotations"]["tarkit.dev/shards"] == "10"


INDEXED = ("indexed", "-n", "x", "-c", "echo {k}", "-I", "i:1", "--shards", "s3://b/{0..9}.tar", "-O", "s3://b/o")
IDLE = [
    ("slice_target", "5m", INDEXED, ("--shard-seconds", "9")),
    ("min_parallelism", 2, (*INDEXED, "-j", "4"), ("--queue", "q")),
    ("config_map_path", "/x", ("job",), ("--config-map", "files")),
    ("gpu_resource", "amd.com/gpu", ("pod",), ("-G", "1")),
    ("param", {"k": "v"}, ("job",), ("--command", "echo {k}")),
]


@pytest.mark.parametrize(("name", "value", "words", "needed"), IDLE, ids=lambda each: str(each)[:20])
def test_flags_without_effect(
    name: str, value: Any, words: tuple[str, ...], needed: tuple[str, str], folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    flag = f"--{name.replace('_', '-')}"
    given = [flag, *("k=v" if isinstance(value, dict) else str(value),)]
    other = next(each.flags[-1] for each in TABLE.values() if needed[0] in each.flags)
    said = refused(*words, *given)
    assert said.startswith(flag) and f"has no effect without {other}" in said
    assert one(*words, *given, *needed)
    # The other one may come from elsewhere; and one file serves commands of all kinds.
    write("kubetpl.yaml", {other.removeprefix("--"): needed[1]})
    assert one(*words, *given)
    write("kubetpl.yaml", {name: value})
    assert one(*words)
    os.remove("kubetpl.yaml")
    monkeypatch.setenv(f"KUBETPL_{name.upper()}", given[1])
    assert one(*words)


def test_params_without_effect() -> None:
    assert refused("job", "-c", "echo {a}", "-p", "a=1", "-p", "b=2").startswith(
        "--param b has no effect: there is no {b}"
    )
    assert "there is no {b} in --command" in refused(*INDEXED, "-p", "k=1", "-p", "b=2")
    # Of jobs, these two are what --over gives.
    for key in ("i", "n"):
        said = refused("jobs", "-n", "j{i}", "-c", "echo {i} {n}", "--over", "{0..1}", "-p", f"{key}=x")
        assert said == f"--param {key}: {{{key}}} stands for an item of --over; use another name"


def test_a_queue_may_be_in_a_label_or_a_template(folder: Path) -> None:
    label = "kueue.x-k8s.io/queue-name"
    words = (*INDEXED, "-j", "4", "--min-parallelism", "2")
    assert one(*words, "-L", f"{label}=q")["metadata"]["labels"][label] == "q"
    document = one(*INDEXED, "--queue", "own")
    write("t.yaml", document)
    assert one(*words, "--template", "t.yaml")["metadata"]["labels"][label] == "own"
