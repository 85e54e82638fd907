"""Any command reaches its container byte for byte, and the same input is the same output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubetplrun import MAIN, alone, at, documents, kubetpl, one, printed, refused

from tarkit.k8s.fill import fill_template
from tarkit.k8s.podfields import substitute
from tarkit.k8s.settings import Request, Settings
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.yamltext import dump_documents

KUBETPL = str(Path(sys.executable).parent / "kubetpl")
PIECES = [
    *"\n \t\r'\"`{}$)\\|>#%@é日😀=~\x01\x7f", "\n\n\n", "    ", "\r\n", "''", "{i}", "{n}", "{}", "${HOME}", "$$", "$(",
    "$(date)", "$(HOME)", "$(TMPDIR)", "$(A)", "$(B)", "$((1+2))", "\\n", " #", ": ", "- ", "---\n", "...\n", "&a",
    "*a", "!x", "\u2028", "\x85", "\ufeff", "\u00a0", "\x1b[0m", "<<EOF\n", "a", "yes", "1e3", "{{ x }}", "{% x %}",
    "null",
]  # fmt: skip
COMMANDS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60
)
HARD = [
    "", " ", "\n", "\n\n x\n\n\n", "  lead\nx", "\tx\n", "x\n ", "x \ny", "cat <<EOF\n\n\n  a\nEOF\n",
    "$(A)$$(A)$$$(A)", "$(A", "echo $$ $(HOME) ${HOME} $(date)", "-c", "--", "-", "true", "1", "null", "{}", "[]", "#",
    "\u2028", "\x85x", "\ufeffx", "x\r\ny\r\n", "\rx",
]  # fmt: skip
# A container's variables, in the order in which a kubelet knows them.
ENV = {"TMPDIR": "/scratch", "HOME": "/scratch", "A": "value of A", "B": "$(A)"}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the whole module, since Hypothesis runs a test's function many times in one."""
    with pytest.MonkeyPatch.context() as patch:
        yield alone(tmp_path_factory.mktemp("commands"), patch)


def untouched(text: str) -> bool:
    """Whether there is nothing in it that a kubelet would change."""
    return "$$" not in text and not any(f"$({name})" in text for name in (*ENV, "JOB_COMPLETION_INDEX"))


def seen(container: dict[str, Any], text: str) -> str:
    """A text as the container gets it: a kubelet knows the variables one after the other."""
    known: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:
            known[each["name"]] = substitute(each["value"], known)
    return substitute(text, known)


def check(container: dict[str, Any], command: str) -> None:
    (text,) = container["args"]
    assert seen(container, text) == command
    if untouched(command):
        assert text == command


@pytest.mark.exhaustive
@given(COMMANDS)
@settings(max_examples=200, deadline=None)
def test_commands_of_a_job_come_back(command: str) -> None:
    """Through generators and both texts, without the command line."""
    made = Settings(name="x", command=command, env={"A": "value of A"})
    documents_ = fill_template(Request(made, read_template(template_path("job"))))
    check(at(documents(dump_documents(documents_))[0], MAIN), command)
    assert at(json.loads(json.dumps(documents_))[0], MAIN) == at(documents(dump_documents(documents_))[0], MAIN)


@pytest.mark.parametrize("generator", ["job", "pod"])
def test_commands_come_back_through_the_whole_program(generator: str) -> None:
    for command in (*HARD, "--help"):
        outcome = kubetpl(generator, "-c", command, "-e", "A=value of A")
        assert (outcome.code, outcome.err) == (0, "")
        spec = documents(outcome.out)[0]["spec"]
        check(spec["containers"][0] if generator == "pod" else spec["template"]["spec"]["containers"][0], command)


@given(COMMANDS, COMMANDS)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_of_variables_are_not_touched(first: str, second: str) -> None:
    """They are the API's own: ``$(A)`` in one means the variable A, as people expect who know Kubernetes."""
    outcome = kubetpl("job", "-e", f"A={first}", "-e", f"B={second}")
    assert (outcome.code, outcome.err) == (0, "")
    env = {each["name"]: each.get("value", "") for each in at(documents(outcome.out)[0], f"{MAIN} env")}
    assert (env["A"], env["B"]) == (first, second)


@pytest.mark.exhaustive
@given(COMMANDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_commands_of_indexed_come_back(command: str) -> None:
    words = ["indexed", "-n", "x", "-I", "i", "--shards", "s3://b/{0..3}.tar", "-O", "s3://b/o", "-c", command]
    outcome = kubetpl(*words, "-e", "A=value of A")
    assert outcome.code == 0, outcome.err
    container = at(documents(outcome.out)[0], MAIN)
    arguments = container["args"]
    place = arguments.index("-c") + 1
    assert seen(container, arguments[place]) == command
    outcome = kubetpl(*words, "-e", "A=value of A", "--raw")
    check(at(documents(outcome.out)[0], MAIN), command)


def test_only_what_would_change_is_escaped() -> None:
    """Also where the variables come from elsewhere: their names are not known here."""
    command = "echo $(A) $(TMPDIR) $(date) $(JOB_COMPLETION_INDEX) $HOME $x"
    found = at(one("job", "-c", command), f"{MAIN} args")
    assert found == ["echo $(A) $$(TMPDIR) $(date) $$(JOB_COMPLETION_INDEX) $HOME $x"]
    Path("from.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: main\n"
        "    image: i:1\n    resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}\n"
        "    envFrom: [{configMapRef: {name: c}}]\n"
    )
    found = one("pod", "--template", "from.yaml", "-c", command)["spec"]["containers"][0]["args"]
    assert found == ["echo $$(A) $$(TMPDIR) $$(date) $$(JOB_COMPLETION_INDEX) $HOME $x"]


# The real program, and a parser that is not ours.


def test_kubectl_reads_the_same(tmp_path: Path, kubectl_program: str) -> None:
    # What kustomize writes of a line end of Unicode, PyYAML reads as another one.
    commands = [
        *(each for each in HARD if "\x85" not in each),
        "\n\n x 'y' \"z\" \\ $$ {i}\n\n\n",
        "echo $(HOME) 日本 😀\n\t#\n",
    ]
    texts = [
        printed("job", "-n", f"x{number}", "-c", command, "-e", "A=value of A", "-e", "B=1e3")
        for number, command in enumerate(commands)
    ]
    (tmp_path / "jobs.yaml").write_text("---\n".join(texts), "utf-8", newline="")
    (tmp_path / "kustomization.yaml").write_text("resources: [jobs.yaml]\n")
    read = subprocess.run([kubectl_program, "kustomize", str(tmp_path)], capture_output=True, check=True)
    found = {each["metadata"]["name"]: each for each in documents(read.stdout.decode())}
    for number, command in enumerate(commands):
        assert found[f"x{number}"] == documents(texts[number])[0]
        check(at(found[f"x{number}"], MAIN), command)


def run(words: list[bytes | str], folder: Path, **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [KUBETPL, *words], cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words", [["job", "-c", b"a\xffb", "-e", b"A=\xff"], ["job", "-l", b"\xff"], [b"\xff"]]
)  # fmt: skip
def test_bytes_that_are_no_text_are_refused(words: list[bytes | str], tmp_path: Path) -> None:
    code, out, err = run(words, tmp_path, LC_ALL="C.UTF-8")
    assert (code, out) == (2, b"")
    assert all(line.startswith("kubetpl: ") for line in err.decode("ascii", "replace").splitlines())
    assert b"bug in tarkit" not in err


def test_another_locale_changes_nothing(tmp_path: Path) -> None:
    """The manifest is UTF-8 whatever the terminal is."""
    outputs = {
        run(["job", "-c", "é", "-e", "A=日"], tmp_path, **env)
        for env in ({"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"})
    }
    assert [code for code, *_ in outputs] == [0]


@pytest.mark.parametrize("name", ["command", "env", "name"])
def test_a_nul_is_refused(name: str) -> None:
    """No argument can hold one, but a file can."""
    Path("nul.json").write_text(json.dumps({name: "A=\0"}))
    assert "NUL" in refused("job", "-l", "nul.json")


# The same bytes.


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    words = [
        "jobs",
        "--over",
        "{0..3}",
        "-n",
        "j{i}",
        "-c",
        "echo\n\n$$",
        "-e",
        "B=1",
        "-e",
        "A=2",
        "-L",
        "z=1",
        "-L",
        "a=2",
    ]
    outputs = set()
    for number in range(2):
        home = tmp_path / f"home{number}"
        home.mkdir()
        env = {"PYTHONHASHSEED": str(number), "USER": f"u{number}", "HOSTNAME": f"h{number}", "TZ": f"UTC{number}"}
        outputs.add(run(words, home, **env))
    ((code, text, err),) = outputs
    assert (code, err) == (0, b"")
    assert b"/tmp" not in text
    assert os.uname().nodename.encode() not in text


# Nothing but YAML on stdout.


def test_errors_are_one_line_and_print_nothing() -> None:
    for words in (
        ["job", "--nope"], ["job", "-n"], ["job", "extra"], ["job", "-o", "xml"], ["job", "--set", "x"],
        ["job", "--deadline", "x"], ["job", "--shards", "x"], ["--nope", "job"], ["-n"], ["jobs"], ["indexed"],
        ["service"], ["configmap"], ["job", "--security", "x"], ["pod", "--retries", "1"],
        ["service", "-c", "x"], ["configmap", "-I", "x"],
    ):  # fmt: skip
        assert refused(*words)


def test_json_is_what_yaml_is() -> None:
    for words in (["job", "-c", "\n x\n"], ["jobs", "--over", "{0..2}"], ["service", "-a", "x", "-P", "1"]):
        found = json.loads(printed(*words, "-o", "json"))
        expected = documents(printed(*words))
        assert (found["items"] if found["kind"] == "List" else [found]) == expected


def test_a_pipe_that_is_closed_is_no_error(tmp_path: Path) -> None:
    script = f"{KUBETPL} jobs --over '{{0..300}}' -n 'j{{i}}' | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "apiVersion: batch/v1\n", "")
