"""What a command fails of: errexit and pipefail, without the writers whose readers had enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.mapping.parallel import Outcome
from tarkit.mapping.scratch import Rules
from tarkit.mapping.shellpool import ShellPool
from tarkit.mapping.shellrules import flags_of, pod_words, what_is_missing
from tarkit.runs.counts import TooManyErrorsError
from tarkit.samples.sample import Sample

SAMPLE: Sample = {"__key__": "k", "__url__": "x.tar", "cls": b"1\n", "txt": b"one\ntwo\n"}
LOSER = "yes | head -1 > sample.y"

GOES_ON = {
    "pipeline": f"{LOSER}; echo on",
    "last": f"echo on; {LOSER}",
    "two readers": "yes | head -5 | head -1 > sample.y; echo on",
    "function": f"f() {{ {LOSER}; echo on; }}; f",
    "end of a function, twice": f"f() {{ {LOSER}; }}; f; {LOSER}; f; echo a | cat | cat >&2; echo on",
    "end of a function": f"f() {{ {LOSER}; }}; f; echo on",
    "subshell": f"({LOSER}; echo on)",
    "end of a subshell": f"({LOSER}); echo on",
    "group": f"{{ {LOSER}; }}; echo on",
    "loop": "yes | while read x; do break; done; echo on",
    "in a loop": f"for i in 1 2; do {LOSER}; done; echo on",
    "twice": f"{LOSER}; {LOSER}; yes | cat | head -1 > sample.y; {LOSER} || true; echo on",
    "twice, redirected": f"{LOSER}; yes | head -1 >&2; yes 2>&1 | head -1 2>&1 > sample.z; echo on",
    "twice, compound": f"{LOSER}; yes | {{ head -5; }} | tail -1 >&2; yes 1 | while read x; do break; done; echo on",
    "twice, compound last": f"{LOSER}; cat sample.txt | while read x; do case $x in one) echo on;; esac; done",
    "twice, function": f"f() {{ local x=1; g; }}; g() {{ echo on; }}; {LOSER}; f",
    "twice, subshell": f"{LOSER}; (local=1; yes | head -1; ) >&2; ({LOSER}); x=$(echo on); echo $x",
    "case": f"{LOSER}; case x in x) for i in; do :; done;; esac; {LOSER}; case x in x) echo on;; esac",
    "case and nothing": f"echo on; {LOSER}; case x in y) ;; esac",
    "return": f"f() {{ {LOSER}; return 0; }}; f; (( 1 )); [[ a ]]; echo on",
    "exit": f"echo on; {LOSER}; exit 0",
    "exit trap": f"trap 'echo on' EXIT; {LOSER}",
    "set +e": "set +e; false; nosuch x 2>&- | cat; echo on",
    "set +e, and a pipeline before it": f"{LOSER}; set +e; false; echo on",
    "|| true": f"{LOSER} || true; false || true; nosuch 2>&- | cat || true; echo on",
    "own test of the status": f"{LOSER} || [ $? = 141 ]; echo on",
    "condition": "if cat none 2>&-; then :; elif cat sample.cls | grep -q 2; then :; fi; ! true; echo on",
    "comment": f"echo on; {LOSER} # the end",
    "here-document": "cat <<E | head -1\non\nE",
    "not ended": "cat <<E | head -1\non",
    "IFS": f"IFS=4; {LOSER}; echo on",
    "nounset": f"set -u; {LOSER}; echo on",
    "last command": "echo on; ! false | true",
    "loop of a function": f"f() {{ while read x; do {LOSER}; done < sample.txt; }}; f; echo on",
    "loop at the end": f"echo on; while read x; do {LOSER}; done < sample.txt",
    "substitution": "x=$(yes on | head -1); echo $x",
    "writer in a loop": "for i in 1 2; do cat /dev/zero; done | head -c 1 > sample.y; echo on",
    "set -x": f"set -x; {LOSER}; echo on",
    "background": "{ true | false; } & echo on",
}
FAILS = {
    # exit code, the end of the message without its hint
    "false; echo no": (1, "line 1: false"),
    "true\n\nnosuch x\necho no": (127, "line 3: nosuch x"),
    "nosuch x | cat > sample.y; echo no": (127, "line 1: nosuch x | cat > sample.y (exit codes 127 | 0)"),
    "cat sample.cls > /dev/full; echo no": (1, "line 1: cat sample.cls > /dev/full"),
    "false | yes | head -1; echo no": (141, "line 1: false | yes | head -1 (exit codes 1 | 141 | 0)"),
    "yes | (head -1; exit 4); echo no": (4, "line 1: a pipeline with ( head -1; exit 4 ) (exit codes 141 | 4)"),
    "cat none |\n cat; echo no": (1, "line 2: cat none | cat (exit codes 1 | 0)"),
    "f() {\n false\n echo no\n}\nf": (1, "line 2: false"),
    "(false; echo no); echo no": (1, "line 1: false"),
    "{ false; } | cat; echo no": (1, "line 1: false"),
    "x=$(false); echo no": (1, "line 1: x=$(false)"),
    f"{LOSER}; false; echo no": (1, "line 1: false"),
    f"{LOSER}; (false; echo no); echo no": (1, "line 1: false"),
    f"({LOSER}; false; echo no); echo no": (1, "line 1: false"),
    f"set +e; {LOSER}; set -e; false; echo no": (1, "line 1: false"),
    f"trap 'echo bye' EXIT; {LOSER}; exit 3": (3, None),
    "exit 3 | cat; echo no": (3, "line 1: exit 3 | cat (exit codes 3 | 0)"),
    "sh -c 'kill -PIPE $$'; echo no": (141, "line 1: sh -c 'kill -PIPE $$'"),
    "eval 'false; echo no'": (1, "line 1: false"),
    "true | false": (1, "line 1: true | false (exit codes 0 | 1)"),
    "false & wait $!; echo no": (1, "line 1: wait $!"),
    # The status of a condition is that of the whole command.
    "[ -e none ] && echo no": (1, "line 1: [ -e none ] && echo no"),
    "! true": (1, "line 1: ! true"),
    "true\n{ ! true\n}": (1, "line 1: true { ! true }"),
    "false || ! true": (1, "line 1: false || ! true"),
    "! true | true": (1, "line 1: ! true | true"),
    "if true || false\nthen [ -e none ] && echo no\nfi": (
        1,
        "line 1: if true || false then [ -e none ] && echo no fi",
    ),
    # Bash cannot know, or has skipped a step.
    "trap 'echo own' ERR; yes | head -1 > sample.y; echo no": (
        141,
        "line 1: yes | head -1 > sample.y (exit codes 141 | 0)",
    ),
    f"{LOSER}; [[ a = b ]]; echo no": (1, "line 1: [[ a = b ]]"),
    f"{LOSER}; ((0)); echo no": (1, "line 1: ((0))"),
    f"{LOSER}; {{ cat; }} < none; echo no": (1, "line 1: head -1 > sample.y"),
    f"{{ {LOSER} && echo no; }} | cat; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    "(if yes | grep -q y; then rm sample.cls; fi); echo no": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
    "{ x=$(false | yes | head -1; exit 141); echo no; } | cat; echo no": (
        141,
        "line 1: x=$(false | yes | head -1; exit 141)",
    ),
    "if x=$(yes | head -1); then echo no; fi": (141, "line 1: yes | head -1 (exit codes 141 | 0)"),
    "n=$(if yes | grep -q y; then :; fi); echo no": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
    f"{LOSER}; {{ {LOSER} || echo no; }} | cat; echo no": (
        141,
        "line 1: yes | head -1 > sample.y (exit codes 141 | 0)",
    ),
    f"f() {{ {LOSER} || echo no; }}; {LOSER}; f; echo no": (
        141,
        "line 1: yes | head -1 > sample.y (exit codes 141 | 0)",
    ),
    f"{{ cat sample.txt | while read x; do {LOSER}; done; echo no; }} | cat; echo no": (
        141,
        "line 1: a pipeline with cat sample.txt (exit codes 0 | 141)",
    ),
    f"{LOSER}; for i in 1; do false; echo no; done": (1, "line 1: false"),
    "echo | cat; trap : DEBUG; yes | head -1 && echo no": (125, "line 1: trap : DEBUG"),
    f"{LOSER}; {LOSER} && echo no; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER}; {LOSER} || echo no; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER} && echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER} && rm sample.cls; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"cat sample.cls; ({LOSER}) && rm sample.cls; echo no": (
        141,
        "line 1: yes | head -1 > sample.y (exit codes 141 | 0)",
    ),
    f"f() {{ {LOSER}; }}; f && rm sample.cls; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER} || echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    "if yes | grep -q y; then rm sample.cls; fi": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
    "if ! yes | grep -q y; then rm sample.cls; fi": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
    "f() { if yes | grep -q y; then :; fi; }; f; echo no": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
    "while yes | grep -q y; do :; done; exit 0": (141, "line 1: yes | grep -q y (exit codes 141 | 0)"),
}
FILTERS = {
    # exit code: None keeps the sample, 1 drops it
    "grep -qx 1 sample.cls": None,
    "grep -qx 2 sample.cls": 1,
    "grep -qx 2 none": 2,
    "! grep -qx 1 sample.cls": 1,
    "nosuch": 127,
    "nosuch | grep -q x": 125,
    "false | grep -q x": 125,
    "cat sample.txt | grep -q two": None,
    "cat sample.txt | grep -q x": 1,
    "yes | head -1 | grep -q n": 1,
    "yes | grep -q y": None,
    "false; grep -qx 1 sample.cls": 125,
    "(false; true)": 125,
    "(cat sample.cls | grep -q 2)": 1,
    "f() { grep -q 2 sample.cls; }; f": 1,
    "f() { grep -q 2 sample.cls; true; }; f": 125,
    "n=$(grep -c x sample.txt); [ $n = 0 ]": 125,
    "n=$(grep -c x sample.txt || true); [ $n = 0 ]": None,
    "[ -e sample.jpg ] && grep -q 1 sample.cls": 1,
    "if grep -q 2 sample.cls; then exit 0; fi; exit 1": 1,
    "exit 2": 2,
    "kill -TERM $BASHPID": 143,
    "rm sample.cls; echo new > sample.new": None,
    "": None,
}


def run(folder: Path, command: str, **options: Any) -> Outcome:
    options = {"rules": Rules(), "flags": None, **options}
    with ShellPool(command, str(folder), **options) as pool:
        for ticket in range(2):
            # The second one in the same shell.
            pool.submit(ticket, [dict(SAMPLE)])
            ((_, outcome),) = pool.collect()
    return outcome


def in_a_pod(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    for name, content in (("cls", b"1\n"), ("txt", b"one\ntwo\n")):
        (folder / f"sample.{name}").write_bytes(content)
    words = pod_words(command, "/bin/bash") or ["-c"]
    argv = ["/bin/bash", "-euo", "pipefail", *words, command]
    return subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", GOES_ON)
def test_a_writer_whose_reader_had_enough_has_not_failed(tmp_path: Path, name: str) -> None:
    outcome = run(tmp_path, GOES_ON[name])
    assert (outcome.failure, outcome.printed.stdout.read()) == (None, b"on\n")
    pod = in_a_pod(tmp_path, GOES_ON[name])
    assert (pod.returncode, pod.stdout) == (0, "on\n"), pod.stderr


@pytest.mark.parametrize("command", FAILS)
def test_any_part_that_fails_fails_the_command_and_is_named(tmp_path: Path, command: str) -> None:
    code, why = FAILS[command]
    failure = run(tmp_path, command).failure
    assert failure is not None and failure.code == code
    found, _, _hint = failure.message.partition(": ")[2].rpartition("; ")
    assert found.partition(";")[0] == (why or "").partition(";")[0]
    assert why is None or "add `|| true`" in failure.message or "use --shell-flags" in failure.message
    pod = in_a_pod(tmp_path, command)
    assert (pod.returncode, "no" in pod.stdout.split()) == (code, False)
    assert "|" not in command.replace("||", "") or why is None or f"tarkit: exit code {code}: {why}; " in pod.stderr


@pytest.mark.parametrize("put", ["mkdir", "mkfifo", "ln -s /dev/zero", "touch", "printf '3 \\377' >"])
def test_what_a_command_puts_in_the_place_of_the_reason_does_no_harm(tmp_path: Path, put: str) -> None:
    for number, end in enumerate(("exit 3", "(exit 3)")):
        (folder := tmp_path / str(number)).mkdir()
        failure = run(folder, f'{put} "$PWD.why"; {end}', timeout=20).failure
        assert failure is not None and failure.message.startswith("exit code 3")


@pytest.mark.parametrize("command", FILTERS)
def test_only_the_last_command_of_a_filter_drops_a_sample(tmp_path: Path, command: str) -> None:
    outcome = run(tmp_path, command, is_filter=True)
    code = FILTERS[command]
    if code in (None, 1):
        assert (outcome.failure, outcome.made) == (None, [[SAMPLE] if code is None else []])
    else:
        assert outcome.failure is not None and outcome.failure.code == code
        assert not outcome.made


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("curl -s file://$PWD/big | head -c 5 > sample.x; echo on", 0),
        ("curl -sSL --fail file://$PWD/big 2>&1 | (exit 3)", 3),
        ("curl -s file://$PWD/none | cat; echo no", 37),
        ("curl -so /dev/full file://$PWD/big | cat; echo no", 23),
        ("curl -s file://$PWD/big > /dev/full; echo no | cat", 23),
        ("{ curl -s file://$PWD/big > /dev/full; } | cat; echo no", 23),
        ("curl -s file://$PWD/big | (exit 0); curl -s file://$PWD/none && echo no; echo on | cat", 0),
    ],
)
def test_curl_of_a_pod_may_have_a_reader_that_had_enough(tmp_path: Path, command: str, code: int) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "big").write_bytes(bytes(3_000_000))
    pod = in_a_pod(tmp_path, command)
    assert (pod.returncode, pod.stdout) == (code, "" if code else "on\n"), pod.stderr


def test_a_manifest_has_the_rules_only_where_they_differ_from_those_of_the_shell() -> None:
    assert pod_words("a; b", "/bin/bash") is None and pod_words("a | b", "/bin/sh") is None
    words = pod_words("a | b", "/bin/bash")
    assert words is not None and words[0] == "-c" and "curl()" not in words[-1] and "$$" not in "".join(words)


@pytest.mark.parametrize(
    ("shell", "flags", "words", "line"),
    [
        ("bash", None, ["-eo", "pipefail"], None),
        ("/bin/zsh", None, ["-eo", "pipefail"], None),
        ("dash", None, ["-e"], "has no pipefail"),
        ("dash", "", [], None),
        ("dash", "-u", ["-u"], None),
        ("python3", None, [], "its own rules decide"),
        ("no-such-sh", "", [], None),
    ],
)
def test_shells_have_the_rules_that_they_can_have(
    shell: str, flags: str | None, words: list[str], line: str | None
) -> None:
    assert flags_of(shell, flags) == words
    if shell == "dash" and shutil.which("dash") is None:
        pytest.skip("dash is not installed")
    found = what_is_missing(shell, flags)
    # A newer dash has pipefail.
    assert found == line if line is None or (found is None and shell == "dash") else line in str(found)


@pytest.mark.parametrize("shell", ["dash", "zsh"])
def test_other_shells_stop_at_the_first_failure(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    has_pipefail = what_is_missing(shell, None) is None
    for command, fails in (("false; true", True), ("true", False), ("false | true", has_pipefail)):
        assert (run(tmp_path, command, shell=shell).failure is not None) is fails
        assert run(tmp_path, command, shell=shell, flags="").failure is None


def test_other_flags_are_those_of_a_shell_for_each_sample(tmp_path: Path) -> None:
    outcome = run(tmp_path, "false; shopt -q extglob; echo $# ${x-unset}", flags="-O extglob")
    assert (outcome.failure, outcome.printed.stdout.read()) == (None, b"0 unset\n")
    assert run(tmp_path, "echo $x", flags="-u").failure is not None


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    with tarkit.TarWriter(str(tmp_path / "in.tar"), encoder=False) as writer:
        for number in range(6):
            writer.write({"__key__": f"k{number}", "cls": b"%d\n" % (number % 3), "txt": b"x"})
    return tmp_path / "in.tar"


def test_a_filter_keeps_samples_as_they_are(shard: Path, tmp_path: Path) -> None:
    counts = tarkit.process(shard, output=tmp_path / "out.tar", filter="grep -qx [12] sample.cls", parallel=2)
    assert (counts.read, counts.out, counts.filtered, counts.failed) == (6, 4, 2, 0)
    assert [sample["cls"] for sample in tarkit.read_samples(str(tmp_path / "out.tar"))] == [b"1\n", b"2\n"] * 2
    counts = tarkit.process(
        shard, output=tmp_path / "more.tar", filter="grep -qx [12] sample.cls; rm sample.txt; touch sample.new"
    )
    assert (counts.out, counts.filtered, counts.failed) == (4, 0, 2)
    assert all({*sample} >= {"cls", "txt"} for sample in tarkit.read_samples(str(tmp_path / "more.tar")))
    again = tarkit.process(
        retry_failed=tmp_path / "more.tar.failed.tar", output=tmp_path / "rest.tar", filter="grep -qx 0 sample.cls"
    )
    assert (again.out, again.filtered) == (2, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "true"}, "give one of -c"),
        ({"batch": 2}, "--batch does not go with --filter"),
        ({"subdirs": True}, "--subdirs does not go with --filter"),
        ({"errors": "ignore"}, "--errors ignore does not go with --filter"),
        ({"shell": "dash", "filter": "true; false"}, "only bash can tell"),
    ],
)
def test_what_does_not_go_with_a_filter(shard: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tarkit.process(shard, **{"filter": "true", **options})


def test_flags_go_with_a_command(shard: Path) -> None:
    with pytest.raises(UsageError, match="--shell-flags goes with -c"):
        tarkit.process(shard, script="true", shell_flags="-e")


def test_the_pipeline_of_the_readme_with_a_program_that_is_missing(shard: Path, tmp_path: Path) -> None:
    """It published samples without their pictures, and ended with 0."""
    out, command = tmp_path / "out.tar", "no-convert sample.txt sample.jpg; rm sample.txt"
    with pytest.raises(TooManyErrorsError) as caught:
        tarkit.process(shard, output=out, command=command)
    assert caught.value.exit_code == 127 and not out.exists()
    assert tarkit.process(shard, output=out, command=command, shell_flags="").out == 6


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "commands-that-fail.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code_of(cell: str) -> str:
    assert cell[0] == cell[-1] == "`"
    return cell[1:-1]


def fails(folder: Path, command: str, **options: Any) -> bool:
    sample = {**SAMPLE, "cls": b"1", "json": b"{}"}
    with ShellPool(command, str(folder), rules=Rules(), **options) as pool:
        pool.submit(0, [sample])
        ((_, outcome),) = pool.collect()
    return outcome.failure is not None


@pytest.mark.parametrize("row", rows("Commands that now fail"), ids=lambda row: row[0])
def test_what_fails_on_the_page_and_how_to_write_it(tmp_path: Path, row: list[str]) -> None:
    command, _, right = row
    if shutil.which(name := code_of(command).split()[0]) is None and name in ("jq", "timeout", "diff", "cmp"):
        pytest.skip(f"{name} is not installed")
    assert fails(tmp_path, code_of(command))
    assert not fails(tmp_path, code_of(right))
    if "grep -q y" not in command:
        assert not fails(tmp_path, code_of(command), flags="")


@pytest.mark.parametrize("row", rows("Failures that are not detected"), ids=lambda row: row[0])
def test_what_is_not_seen_on_the_page_and_how_to_write_it(tmp_path: Path, row: list[str]) -> None:
    command, _, right = row
    assert not fails(tmp_path, code_of(command))
    assert fails(tmp_path, code_of(right))


@pytest.mark.parametrize("row", rows("Filters"), ids=lambda row: row[0])
def test_the_filters_of_the_page(tmp_path: Path, row: list[str]) -> None:
    outcome = run(tmp_path, code_of(row[0]), is_filter=True)
    made = {"keeps": [[SAMPLE]], "drops": [[]], "fails": []}[row[1]]
    assert (outcome.made, outcome.failure is not None) == (made, row[1] == "fails")
