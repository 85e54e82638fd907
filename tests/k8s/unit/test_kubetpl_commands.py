"""Any command reaches its container byte for byte, and the same input is the same output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from containercommands import HARD, check, seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubetplrun import MAIN, alone, at, documents, kubetpl, one, printed, refused

from tarkit.k8s.fill import fill_template
from tarkit.k8s.settings import Request, Settings
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.yamltext import dump_documents

PIECES = [
    *"\n \t\r'\"`{}$)\\|>#%@é日😀=~\x01\x7f", "\n\n\n", "    ", "\r\n", "''", "{i}", "{n}", "{}", "${HOME}", "$$", "$(",
    "$(date)", "$(HOME)", "$(TMPDIR)", "$(A)", "$(B)", "$((1+2))", "\\n", " #", ": ", "- ", "---\n", "...\n", "&a",
    "*a", "!x", "\u2028", "\x85", "\ufeff", "\u00a0", "\x1b[0m", "<<EOF\n", "a", "yes", "1e3", "{{ x }}", "{% x %}",
    "null",
]  # fmt: skip
COMMANDS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60
)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the whole module, since Hypothesis runs a test's function many times in one."""
    with pytest.MonkeyPatch.context() as patch:
        yield alone(tmp_path_factory.mktemp("commands"), patch)


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
    """They are the API's own: ``$(A)`` in one means the variable A, as people expect who know
    Kubernetes.
    """
    outcome = kubetpl("job", "-e", f"A={first}", "-e", f"B={second}")
    assert (outcome.code, outcome.err) == (0, "")
    env = {each["name"]: each.get("value", "") for each in at(documents(outcome.out)[0], f"{MAIN} env")}
    assert (env["A"], env["B"]) == (first, second)


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


@pytest.mark.parametrize("name", ["command", "env", "name"])
def test_a_nul_is_refused(name: str) -> None:
    """No argument can hold one, but a file can."""
    Path("nul.json").write_text(json.dumps({name: "A=\0"}))
    assert "NUL" in refused("job", "-l", "nul.json")


# The same bytes.


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
