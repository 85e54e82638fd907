"""What a command fails of: errexit and pipefail, without the writers whose readers had enough."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tarkit.mapping.parallel import Outcome
from tarkit.mapping.scratch import Rules
from tarkit.mapping.shellpool import ShellPool
from tarkit.mapping.shellrules import pod_words
from tarkit.samples.sample import Sample

SAMPLE: Sample = {"__key__": "k", "__url__": "x.tar", "cls": b"1\n", "txt": b"one\ntwo\n"}
LOSER = "yes | head -1 > sample.y"

GOES_ON = {
    "pipeline": f"{LOSER}; echo on",
    "last": f"echo on; {LOSER}",
    "two readers": "yes | head -5 | head -1 > sample.y; echo on",
    "function": f"f() {{ {LOSER}; echo on; }}; f",
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
    # Bash cannot know, or has skipped a step.
    "trap 'echo own' ERR; yes | head -1 > sample.y; echo no": (
        141,
        "line 1: yes | head -1 > sample.y (exit codes 141 | 0)",
    ),
    "x=$(yes | head -1); echo no": (141, "line 1: x=$(yes | head -1)"),
    f"{LOSER}; {LOSER} && echo no; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER}; {LOSER} || echo no; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER} && echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
    f"{LOSER} && rm sample.cls; echo no": (141, "line 1: yes | head -1 > sample.y (exit codes 141 | 0)"),
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
    found, _, hint = failure.message.partition(": ")[2].rpartition("; ")
    assert found.partition(";")[0] == (why or "").partition(";")[0]
    assert why is None or "add `|| true`" in failure.message
    pod = in_a_pod(tmp_path, command)
    assert (pod.returncode, "no" in pod.stdout.split()) == (code, False)
    assert "|" not in command or why is None or f"tarkit: exit code {code}: {why}; " in pod.stderr


@pytest.mark.parametrize("command", FILTERS)
def test_only_the_last_command_of_a_filter_drops_a_sample(tmp_path: Path, command: str) -> None:
    outcome = run(tmp_path, command, is_filter=True)
    code = FILTERS[command]
    if code in (None, 1):
        assert (outcome.failure, outcome.made) == (None, [[SAMPLE] if code is None else []])
    else:
        assert outcome.failure is not None and outcome.failure.code == code
        assert not outcome.made
