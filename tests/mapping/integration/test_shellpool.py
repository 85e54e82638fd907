"""The kept shells of ``tarkit.mapping.shellpool`` against ``bash -c`` and ``dash -c``, command by
command.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from tarkit.errors import CommandNotRunnableError, StreamError
from tarkit.mapping import leftrunning, shellpool
from tarkit.mapping.output import IN_MEMORY
from tarkit.mapping.parallel import Batch, Outcome
from tarkit.mapping.scratch import Rules, collect, extract
from tarkit.mapping.shellpool import ShellPool
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import FieldFile

SAMPLE: Sample = {"__key__": "a/b", "__url__": "x.tar", "cls": b"7\n", "txt": b"one\ntwo\n"}
SAMPLE_OUT: Sample = {name: value for name, value in SAMPLE.items() if name != "__url__"}

# Each leaves the same exit code, output and files whether it has a shell of its own or not.
COMMANDS = {
    "nothing": "",
    "comment": "# nothing",
    "true": "true",
    "false": "false",
    "exit 0": "exit 0; echo not reached",
    "exit 3": "echo before; exit 3; echo after",
    "exit 255": "exit 255",
    "exit 256": "exit 256",
    "exit -1": "exit -1",
    "exit of a function": "f() { exit 4; }; f; echo after",
    "exit of a subshell": "(exit 5); echo $?; exit 6",
    "status first": "echo $?",
    "last status": "false; true; (exit 9)",
    "set -e": "set -e; echo a; false; echo b",
    "set -e, start of a pipeline": "set -e; false | true; echo b",
    "set -e, end of a pipeline": "set -e; true | false; echo b",
    "set -e, condition": "set -e; if false; then :; fi; false || echo c; ! true; echo d",
    "set -e, function": "set -e; f() { false; echo in f; }; f; echo b",
    "set -e, function in a condition": "set -e; f() { false; echo in f; }; f || echo no; echo b",
    "set -e, subshell": "set -e; (false; echo in); echo b",
    "set -e, substitution": "set -e; x=$(false); echo b",
    "set -f": "set -f; echo *",
    "cd": "cd ..; cd /; pwd; echo x > sample.new || true",
    "cd into a new folder": "mkdir d; cd d; echo hello > f; cp f ../sample.new",
    "exec": "exec ls; echo not reached",
    "exec missing": "exec no-such-program-here; echo not reached",
    "exec redirection": "exec > sample.log; echo kept",
    "trap EXIT": "trap 'echo bye; cp sample.cls sample.bye' EXIT; echo hi",
    "trap EXIT and exit": "trap 'echo bye $?' EXIT; exit 7",
    "trap EXIT changes the code": "trap 'exit 8' EXIT; exit 7",
    "trap EXIT, set -e": "trap 'echo bye $?' EXIT; set -e; false",
    "trap TERM": "trap 'echo got it; exit 9' TERM; sh -c 'kill -TERM $PPID'; echo after",
    "syntax error": "if",
    "syntax error after a line": "echo a\nif then",
    "open quote": "echo 'a",
    "command not found": "no-such-program-here; echo $?; no-such-program-here",
    "not executable": "./sample.cls; echo $?; ./sample.cls",
    "is a folder": "mkdir d; ./d",
    "heredoc": "cat > sample.doc <<END\nkey $(cat __key__)\nEND\ncat <<'END'\n$HOME `x`\nEND",
    "lines": "\n   cat sample.txt\n   rm sample.txt\n\n",
    "continued line": "echo a \\\n  b",
    "quotes": """echo 'single "x"' "double 'y' $((1+1))" \\$z `echo back` a\\ b""",
    "parameters": """echo $#; echo "[$*]"; for x in "$@"; do echo $x; done""",
    "name": "echo $0",
    "set parameters": "set -- x y; echo $# $2; shift; echo $1",
    "background job": "sleep 0.2 & echo started",
    "background job and wait": "(sleep 0.1; echo late > sample.late) & wait; echo done",
    "background failure": "(exit 5) & wait $!",
    "wait for nothing": "wait; echo $?",
    "jobs": "sleep 1000 & jobs | wc -l; kill -KILL $!",
    "read": "read x; echo $? [$x]",
    "cat": "cat; echo $?",
    "while read": "while read x; do echo $x; done < sample.txt; while read y; do echo no; done",
    "stdin": "readlink /proc/self/fd/0; [ -t 0 ] || echo no terminal",
    "stdin of ssh-like programs": "for i in 1 2 3; do cat > /dev/null; echo $i; done",
    "umask": "umask; umask 077; umask; touch sample.u; stat -c %a sample.u",
    "ulimit": "ulimit -n 50; ulimit -n; ulimit -c 0; ulimit -c",
    "alias": "alias say=echo\nsay hello",
    "return": "return 3; echo after",
    "return of a function": "f() { return 3; }; f; echo $?",
    "loops": "for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done; while :; do break; done",
    "variables": "echo [$leak]; leak=1; export leak; leak2=x; echo [$leak2]",
    "functions": "type leaky >/dev/null 2>&1 && echo leaked; leaky() { echo; }",
    "IFS": "IFS=:; set -- $(echo a:b); echo $#",
    "PATH lost": "PATH=/nowhere; ls; echo $?",
    "unset": "unset PATH HOME; echo ok",
    "IFS lost": "unset IFS; echo $(cat sample.txt)",
    "close descriptors": "exec 0<&- 1>&- 2>&-; echo a; true",
    "more descriptors": "ls /proc/self/fd | wc -l",
    "glob": "echo sample.*; echo none*",
    "redirection error": "cat < missing; echo $?; echo x > /no/such/folder/x",
    "redirection error of exec": "exec < missing; echo after",
    "readonly": "readonly r=1; r=2; echo after",
    "division by zero": "echo $((1/0)); echo after",
    "unicode": "echo 'größer ✓ 日本語' > sample.ü; cat sample.ü",
    "not utf-8": "printf '\\377\\376' | od -An -tx1; echo $'\\377'",
    "no newline": "printf abc",
    "NUL bytes": "printf 'a\\0b'",
    "long command": "x='" + "y" * 100_000 + "'; echo ${#x}",
    "remove all": "rm -f sample.*",
    "remove key": "rm __key__; ls",
    "new key": "echo other > __key__",
    "stderr": "echo out; echo err >&2; ls nothing-here 2>/dev/null",
    "kill of a child": "sh -c 'kill -9 $$'; echo $?",
    "SIGPIPE": "yes | (head -1; exit 3); echo $?",
    "shift too far": "shift; echo $?",
    "eval": "eval 'echo a; exit 5'; echo b",
    "colon": ":",
    "exclamation": "! true",
    "and or": "true && false || exit 11",
    "case": "case $(cat sample.cls) in 7) echo seven;; *) echo other;; esac",
    "environment": "env | sort | grep -v -e '^_=' -e PWD=",
    "own folder": '[ "$PWD" = "$(pwd -P)" ] && [ -f "$PWD/sample.cls" ] && echo same',
}
ONLY_BASH = {
    "break": "break; echo after $?",
    "continue": "continue; echo after $?",
    "set -o pipefail": "set -o pipefail; false | true; echo $?; set -e; false | true; echo b",
    "errtrace": "trap 'echo err $?' ERR; false; true",
    "kill -9 of the command": "echo a; kill -9 $BASHPID; echo b",
    "kill -TERM of the command": "kill $BASHPID; echo b",
    "kill -SEGV of the command": "kill -SEGV $BASHPID; echo b",
    "nullglob": "shopt -s nullglob; echo x none*; shopt -u sourcepath; shopt -s extglob",
    "arrays": "a=(1 2 3); echo ${#a[@]} ${a[-1]}",
    "PIPESTATUS": "false | true; echo ${PIPESTATUS[@]}",
    "process substitution": "diff <(echo a) <(echo a) && echo equal",
    "here string": "cat <<< hello",
    "function export": "f() { echo in f; }; export -f f; bash -c f",
    "double brackets": "[[ $(cat __key__) == a/* ]] && echo yes",
    "brace expansion": "echo {1..3}",
    "options": "case $- in *e*) shopt -o errexit pipefail nounset; esac",
    "line number": "echo $LINENO\necho $LINENO",
    "source": "echo 'return 4' > s; source ./s; echo $?",
    "exit trap in a function": "f() { trap 'echo f' RETURN; }; f; echo x",
    "time": "TIMEFORMAT=taken; time true",
    "set -o posix": "set -o posix; echo a; return; echo b",
    "arguments": "echo $BASH_ARGC ${FUNCNAME[@]} ${#BASH_SOURCE[@]}",
    "coproc": "coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x",
    "stray variables": "compgen -v | grep -v -e '^__tarkit_' -e '^OLDPWD$' -e '^PIPESTATUS$' | sort; declare -F; alias",
}


def _jobs(pool: ShellPool, batches: Sequence[Batch]) -> list[Outcome]:
    """The outcomes of batches, in order."""
    outcomes: dict[int, Outcome] = {}
    ticket = 0
    while len(outcomes) < len(batches):
        while ticket < len(batches) and pool.has_room():
            pool.submit(ticket, batches[ticket])
            ticket += 1
        outcomes.update(pool.collect())
    return [outcomes[number] for number in range(len(batches))]


def _outcomes(tmp_path: Path, command: str, count: int = 1, **options: Any) -> list[Outcome]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    options.setdefault("rules", Rules())
    with ShellPool(command, str(scratch), **options) as pool:
        return _jobs(pool, [[dict(SAMPLE)]] * count)


def _said(text: bytes) -> list[bytes]:
    """What was printed, without the shells' own complaints, whose line numbers differ."""
    return [line for line in text.splitlines() if not line.startswith((b"bash: ", b"dash: ", b"sh: ", b"./"))]


def _result(outcome: Outcome) -> tuple[Any, ...]:
    code = 0 if outcome.failure is None else outcome.failure.code
    said = [_said(output.read()) for output in (outcome.printed.stdout, outcome.printed.stderr)]
    return code, *said, outcome.made, outcome.stray


def _alone(folder: Path, shell: str, command: str, *flags: str) -> tuple[Any, ...]:
    """The same, of a shell started for the command alone."""
    extract(SAMPLE, str(folder), "sample")
    done = subprocess.run([shell, *flags, "-c", command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    made, stray = collect(str(folder), SAMPLE, Rules())
    return code, _said(done.stdout), _said(done.stderr), [made], stray


def _agree(tmp_path: Path, shell: str, command: str, *alone: str, flags: str | None = None) -> None:
    expected = _alone(tmp_path / "alone", shell, command, *alone)
    # Three times in the same shell, so that nothing one of them did is seen by the next.
    # However long what they leave running takes.
    options: dict[str, Any] = {"slots": 1, "ignore_status": True, "clock": lambda: 0.0}
    for outcome in _outcomes(tmp_path, command, 3, shell=shell, flags=flags, **options):
        assert _result(outcome) == expected


@pytest.mark.parametrize("name", [*COMMANDS, *ONLY_BASH])
def test_as_bash_c(tmp_path: Path, name: str) -> None:
    _agree(tmp_path, "bash", {**COMMANDS, **ONLY_BASH}[name], "-eo", "pipefail")


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if re.match("exit|set|cd|exec|trap|syntax|read|background|heredoc|kill", name)]
)
def test_as_dash_c(tmp_path: Path, name: str) -> None:
    if shutil.which("dash") is None:
        pytest.skip("dash is not installed")
    _agree(tmp_path, "dash", COMMANDS[name], "-e")


DIFFERENT = {
    # command: (as a shell of its own, here)
    "set -u; echo a; echo $nothing_here; echo b": (127, 1),
    "echo ${x:?unset}; echo after": (127, 1),
}


@pytest.mark.parametrize("command", DIFFERENT)
def test_known_differences(tmp_path: Path, command: str) -> None:
    """An unset variable ends bash -c with 127, but a subshell with 1."""
    code, said, *_ = _alone(tmp_path / "alone", "bash", command)
    (outcome,) = _outcomes(tmp_path, command)
    assert outcome.failure is not None
    assert (code, outcome.failure.code) == DIFFERENT[command]
    assert _said(outcome.printed.stdout.read()) == said


def test_set_x_marks_one_level_more(tmp_path: Path) -> None:
    (outcome,) = _outcomes(tmp_path, "set -x; echo a")
    assert (outcome.printed.stdout.read(), outcome.printed.stderr.read()) == (b"a\n", b"++ echo a\n")


def test_shell_of_the_slot_and_process_of_the_sample(tmp_path: Path) -> None:
    """$$ is the slot's shell, $BASHPID the sample's own; OLDPWD is where the run was started."""
    outcomes = _outcomes(tmp_path, "echo $$ $BASHPID $OLDPWD", 3)
    words = [outcome.printed.read().split() for outcome in outcomes]
    assert len({shell for shell, _, _ in words}) == 1
    assert len({process for _, process, _ in words}) == 3
    assert {folder for _, _, folder in words} == {os.fsencode(os.getcwd())}


def test_exported_functions_and_options_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_FUNC_greet%%", "() { echo hello; }")
    (outcome,) = _outcomes(tmp_path, "greet")
    assert outcome.printed.read() == b"hello\n"


def test_set_e_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELLOPTS", "errexit:braceexpand")
    outcomes = _outcomes(tmp_path, "echo a; (exit 5); echo b", 2)
    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == [5, 5]
    assert outcomes[1].failure is not None and outcomes[1].failure.kind == "exit"


@pytest.mark.parametrize("kill", ["kill -9 $$", "kill -9 0"])
def test_killed_shell_is_replaced(tmp_path: Path, kill: str) -> None:
    outcomes = _outcomes(tmp_path, f"echo hi; {kill}", 3, slots=2)
    for outcome in outcomes:
        assert outcome.failure is not None and outcome.failure.kind == "shell-died"
        assert "killed by SIG" in outcome.failure.message
        assert outcome.printed.read() == b"hi\n"


def test_only_the_sample_whose_shell_died_fails(tmp_path: Path) -> None:
    command = "case $PWD in *1) kill -9 $$;; esac; echo $PWD"
    outcomes = _outcomes(tmp_path, command, 5, slots=1)
    assert [outcome.failure is None for outcome in outcomes] == [True, False, True, True, True]


def test_timeout_with_terminate_and_kill(tmp_path: Path) -> None:
    for command, how in (("sleep 1000", "(terminated|killed)"), ("while :; do sleep 1; done", "killed")):
        up = tmp_path / how
        trap = "trap '' TERM; " if how == "killed" else ""
        with ShellPool(f"{trap}touch '{up}'; {command}", str(tmp_path), timeout=0.2, grace=0.4) as pool:
            pool.submit(0, [dict(SAMPLE)])
            wait_for(up.exists)
            ((_, outcome),) = pool.collect()
        assert outcome.failure is not None
        # The first of process ids may be slow to reap what ended at once.
        assert re.fullmatch(f"timed out after 0.2 s, and was {how}", outcome.failure.message)


@pytest.mark.parametrize("timeout", [1e7, float("inf")])
def test_a_timeout_longer_than_the_system_can_wait(tmp_path: Path, timeout: float) -> None:
    (outcome,) = _outcomes(tmp_path, "true", timeout=timeout)
    assert outcome.failure is None


def test_timeout_of_one_leaves_the_others_alone(tmp_path: Path) -> None:
    command = f"case $PWD in *1) touch {tmp_path}/hangs; sleep 1000;; esac; sleep 0.05; cat sample.cls"
    ahead = 0.0
    outcomes: dict[int, Outcome] = {}
    clock: dict[str, Any] = {"timeout": 100, "grace": 0.3, "clock": lambda: time.monotonic() + ahead}
    with ShellPool(command, str(tmp_path), slots=2, rules=Rules(), **clock) as pool:
        for ticket in (0, 1):
            pool.submit(ticket, [dict(SAMPLE)])
        wait_for((tmp_path / "hangs").exists)
        outcomes.update(pool.collect())
        ahead = 60
        pool.submit(2, [dict(SAMPLE)])
        # Of the two that run, the time of one is over.
        ahead = 100
        for ticket in range(3, 7):
            while len(outcomes) < ticket:
                outcomes.update(pool.collect())
            pool.submit(ticket, [dict(SAMPLE)])
        while len(outcomes) < 7:
            outcomes.update(pool.collect())
    assert [ticket for ticket in range(7) if outcomes[ticket].failure is not None] == [1]
    assert all(outcome.printed.read() == b"7\n" for outcome in outcomes.values() if outcome.failure is None)


def test_not_a_second_too_early(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    clock: dict[str, Any] = {"timeout": 5, "clock": lambda: 4.99 if begun.exists() else 0.0}
    (outcome,) = _outcomes(tmp_path, f"touch {begun}; sleep 0.3; echo done", **clock)
    assert outcome.failure is None and outcome.printed.read() == b"done\n"


def test_files_of_what_is_printed_are_gone(tmp_path: Path) -> None:
    command = "echo lost; case $PWD in *1) rm -f ../slot-*;; esac; echo err >&2"
    outcomes = _outcomes(tmp_path, command, 4)
    assert [outcome.failure for outcome in outcomes] == [None] * 4
    assert [outcome.printed.read() for outcome in outcomes] == [b"lost\nerr\n", b"", *[b"lost\nerr\n"] * 2]


LEFT_RUNNING = {
    # command: what is named
    "half a file": ("(printf 01234; sleep 30; printf 56789) > sample.x &", "sleep"),
    "nothing of it is open": ("(sleep 30; echo late > sample.x) </dev/null >/dev/null 2>&1 &", "sleep"),
    "a program's child": ('python3 -c \'import subprocess; subprocess.Popen(["sleep", "30"])\'', "sleep"),
    "another session": ("setsid sleep 30 </dev/null >/dev/null 2>&1 &", "sleep"),
    "a daemon that holds a file": ("cd /; setsid sleep 30 </dev/null >/dev/null &", "sleep"),
    "a daemon and its children": ("setsid sh -c 'sleep 30 & sleep 31' &", "sh"),
    "the shell itself": ("(while :; do :; done) &", "bash"),
    "deaf": ("(trap '' TERM HUP INT; exec sleep 30) &", "sleep"),
    "many": ("sleep 30 & sleep 31 & sleep 32 & sleep 33 &", "sleep"),
}


def _of_command(tmp_path: Path) -> list[str]:
    """Programs of processes that were started in the scratch folder or below, or still hold a file
    there.
    """
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            places = [os.readlink(f"/proc/{pid}/{each}") for each in ("cwd", "fd/1", "fd/2")]
            if int(pid) != os.getpid() and any(place.startswith(f"{tmp_path}/") for place in places):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0])
    return found


def _clock_from(tmp_path: Path, program: str, count: int = 1) -> Callable[[], float]:
    """A clock that stands still until so many processes of a program run, and is fast then."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += _of_command(tmp_path).count(program) >= count
        return now

    return clock


@pytest.mark.parametrize(("case", "ignore_status"), [*((case, False) for case in LEFT_RUNNING), ("half a file", True)])
def test_what_is_left_running_fails_its_sample_and_is_named_and_killed(
    tmp_path: Path, case: str, ignore_status: bool
) -> None:
    """Its half file was published: 10 of 25 bytes, exit 0.

    Now it writes into no later sample either.
    """
    command, name = LEFT_RUNNING[case]
    clock = _clock_from(tmp_path, name, 4 if case == "many" else 1)
    command = f"case $PWD in *0) {command}\nesac; echo own"
    outcomes = _outcomes(tmp_path, command, 2, ignore_status=ignore_status, clock=clock)
    failure = outcomes[0].failure
    assert failure is not None and failure.kind == "left-running" and outcomes[0].made == []
    expected = rf"the command ended and left {name} \(process \d+\).* running; end it, or add `wait` to the command"
    assert re.fullmatch(expected, failure.message)
    assert case != "many" or "and 1 more" in failure.message
    assert outcomes[1].failure is None and outcomes[1].made == [[SAMPLE_OUT]]
    assert [outcome.printed.read() for outcome in outcomes] == [b"own\n", b"own\n"]
    # What is killed takes a moment to end.
    wait_for(lambda: not _of_command(tmp_path))


def test_a_command_that_failed_by_itself_keeps_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shellpool, "_PATIENCE", 0.0)
    (outcome,) = _outcomes(tmp_path, "sleep 30 & exit 5")
    assert outcome.failure is not None and (outcome.failure.kind, outcome.failure.code) == ("exit", 5)
    wait_for(lambda: not _of_command(tmp_path))


def test_a_command_that_ended_in_time_has_not_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it left running is named, and not a time-out of the command."""
    monkeypatch.setattr(shellpool, "_PATIENCE", 1e9)

    def clock() -> float:
        return 10.0 if any(slot.code is not None for slot in pools[0]._workers) else 0.0

    pools: list[ShellPool] = []
    with ShellPool("sleep 30 &", str(tmp_path), timeout=5, clock=clock) as pool:
        pools.append(pool)
        pool.submit(0, [dict(SAMPLE)])
        ((_, outcome),) = pool.collect()
    assert outcome.failure is not None and outcome.failure.kind == "left-running"


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_what_ends_soon_is_waited_for(tmp_path: Path, shell: str) -> None:
    """As the last program of ``> >(gzip > sample.gz)`` does."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    late = "(sleep 0.05; cat sample.txt > sample.late; echo late; echo $$ >&2) &"
    outcomes = _outcomes(tmp_path, f"rm sample.cls; {late}", 3, shell=shell, clock=lambda: 0.0)
    assert [outcome.failure for outcome in outcomes] == [None] * 3
    assert all(each.made == [[{"__key__": "a/b", "txt": SAMPLE["txt"], "late": SAMPLE["txt"]}]] for each in outcomes)
    assert all(outcome.printed.stdout.read() == b"late\n" for outcome in outcomes)
    # In the same shell, which is not disturbed by processes that it did not start.
    assert len({outcome.printed.stderr.read() for outcome in outcomes}) == 1


def test_while_one_sample_waits_for_what_it_left_the_others_go_on(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    command = f"case $PWD in *0) (touch {begun}; until [ -e {go} ]; do sleep 0.01; done) & ;; esac"
    (tmp_path / "scratch").mkdir()
    with ShellPool(command, str(tmp_path / "scratch"), slots=2, clock=lambda: 0.0) as pool:
        pool.submit(0, [dict(SAMPLE)])
        wait_for(begun.exists)
        for ticket in range(1, 5):
            pool.submit(ticket, [dict(SAMPLE)])
            assert [done for done, _ in pool.collect()] == [ticket]
        go.touch()
        assert [(done, outcome.failure) for done, outcome in pool.collect()] == [(0, None)]


def test_a_service_that_a_command_started_is_left_alone(tmp_path: Path) -> None:
    """Such as gpg-agent: of its own session, and nothing of it is in the run's folder."""
    outcomes = _outcomes(tmp_path, "cd /; setsid sleep 30 </dev/null >/dev/null 2>&1 & echo $!", 2)
    try:
        assert [outcome.failure for outcome in outcomes] == [None, None]
    finally:
        for outcome in outcomes:
            os.kill(int(outcome.printed.read()), signal.SIGKILL)


@pytest.mark.parametrize("way", ["no adoption", "adoption is refused", "no /proc"])
def test_what_is_left_running_where_the_kernel_lists_no_children(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS; a daemon that left the process group is not found there."""

    def refuse() -> None:
        raise OSError("refused")

    monkeypatch.setattr(leftrunning, "_adoption", lambda: refuse if way == "adoption is refused" else None)
    if way == "no /proc":
        if shutil.which("ps") is None:
            pytest.skip("ps is not installed")
        monkeypatch.setattr(leftrunning, "_has_proc", lambda: False)
    command = "case $PWD in *0) sleep 30 & esac; echo own"
    outcomes = _outcomes(tmp_path, command, 2, clock=_clock_from(tmp_path, "sleep"))
    assert outcomes[0].failure is not None and "left sleep (process" in outcomes[0].failure.message
    assert outcomes[1].failure is None and outcomes[1].made == [[SAMPLE_OUT]]
    wait_for(lambda: not _of_command(tmp_path))


def test_where_a_kernel_has_no_list_of_children_no_process_adopts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leftrunning._adoption() is not None
    with monkeypatch.context() as patch:
        patch.setattr(leftrunning, "_children_path", lambda pid: "/no/such/file")
        assert leftrunning._adoption() is None
    with monkeypatch.context() as patch:
        # Of another namespace, where this number is another process's.
        patch.setattr(os, "getpid", lambda: 1)
        assert leftrunning._adoption() is None
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert leftrunning._adoption() is None


@pytest.mark.parametrize("size", [IN_MEMORY, IN_MEMORY + 1, 3_000_000])
def test_long_and_short_outputs_in_turn(tmp_path: Path, size: int) -> None:
    command = (
        f"case $PWD in *1) head -c {size} /dev/zero; head -c {size} /dev/zero >&2;; *2) echo out; echo err >&2;; esac"
    )
    outcomes = _outcomes(tmp_path, command, 4)
    sizes = [(outcome.printed.stdout.size, outcome.printed.stderr.size) for outcome in outcomes]
    assert sizes == [(0, 0), (size, size), (4, 4), (0, 0)]
    assert outcomes[1].printed.held == (2 * size if size <= IN_MEMORY else 0)
    assert outcomes[2].printed.read() == b"out\nerr\n"


@pytest.mark.parametrize("shell", ["/no/such/bash", "/no/such/sh"])
def test_missing_shell(tmp_path: Path, shell: str) -> None:
    with pytest.raises(CommandNotRunnableError) as caught:
        _outcomes(tmp_path, "true", shell=shell)
    assert caught.value.exit_code == 127


def test_shell_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "bash").write_text("not a program")
    with pytest.raises(CommandNotRunnableError) as caught:
        _outcomes(tmp_path, "true", shell=str(tmp_path / "bash"))
    assert caught.value.exit_code == 126


def test_a_shell_whose_log_cannot_be_written_names_the_scratch_folder(tmp_path: Path) -> None:
    (tmp_path / "shell.log").mkdir()
    with pytest.raises(StreamError, match="a shell cannot be started: Is a directory; set TMPDIR") as caught:
        ShellPool("true", str(tmp_path))
    assert caught.value.url == str(tmp_path)


def test_shell_that_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "bash").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "bash").chmod(0o755)
    with (
        pytest.raises(CommandNotRunnableError, match="status 4"),
        ShellPool("true", str(tmp_path), shell=str(tmp_path / "bash")) as pool,
    ):
        # The shell is seen to end before it gets a sample, or with the sample.
        pool.collect()


def test_command_longer_than_the_kernel_takes(tmp_path: Path) -> None:
    with pytest.raises(CommandNotRunnableError, match="too long; put it into a file and use --script") as caught:
        _outcomes(tmp_path, "echo " + "x" * 200_000)
    assert caught.value.exit_code == 126


def test_other_shells(tmp_path: Path) -> None:
    for outcome in _outcomes(tmp_path, "import os; print(len(os.listdir()))", 2, shell="python3"):
        assert outcome.failure is None and outcome.printed.read() == b"4\n"
    (outcome,) = _outcomes(tmp_path, "import sys; sys.exit('it\\'s over')", shell="python3")
    assert outcome.failure is not None and outcome.failure.code == 1
    assert outcome.printed.read() == b"it's over\n"


def test_shell_that_is_found_by_no_path(tmp_path: Path) -> None:
    (outcome,) = _outcomes(tmp_path, "true", shell="no-such-shell")
    assert outcome.failure is not None and outcome.failure.code == 127


def test_batches_have_a_folder_for_each(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = "for d in */; do cat $d/__key__; echo; rm $d/sample.txt; done"
    batches = [[{**SAMPLE, "__key__": f"k{2 * b + n}"} for n in range(2)] for b in range(3)]
    with ShellPool(command, str(scratch), slots=2, rules=Rules(), batched=True) as pool:
        outcomes = _jobs(pool, batches)
    assert [outcome.printed.read() for outcome in outcomes] == [b"k0\nk1\n", b"k2\nk3\n", b"k4\nk5\n"]
    assert [[each["__key__"] for made in outcome.made for each in made] for outcome in outcomes] == [
        ["k0", "k1"],
        ["k2", "k3"],
        ["k4", "k5"],
    ]
    assert outcomes[0].made[0] == [{"__key__": "k0", "cls": b"7\n"}]


def test_slots_run_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    # Each waits for all the others.
    command = f"touch {tmp_path}/here/$BASHPID; until [ $(ls {tmp_path}/here | wc -l) = 8 ]; do sleep 0.02; done"
    assert [outcome.failure for outcome in _outcomes(tmp_path, command, 8, slots=8, timeout=120)] == [None] * 8


def test_scratch_that_is_gone(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ShellPool("true", str(scratch), rules=Rules()) as pool:
        shutil.rmtree(scratch)
        with pytest.raises(StreamError, match="cannot be extracted") as caught:
            pool.submit(0, [dict(SAMPLE)])
    assert caught.value.key == SAMPLE["__key__"]


@contextmanager
def open_files_left(count: int) -> Iterator[None]:
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_not_reported_as_a_full_disk_or_a_bad_sample(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    message = r"cannot be \w+: Too many open files; raise the limit of open files"
    with ShellPool("true", str(scratch), rules=Rules()) as pool:
        # The other one that is under way is no reason to try again.
        pool.submit(0, [dict(SAMPLE)])
        with open_files_left(0), pytest.raises(StreamError, match=message) as caught:
            pool.submit(1, [dict(SAMPLE)])
        assert caught.value.key == SAMPLE["__key__"]
        with open_files_left(1), pytest.raises(StreamError, match=message):
            pool.collect()


def test_a_field_that_cannot_be_read_is_not_blamed_on_the_scratch_folder(tmp_path: Path) -> None:
    path = tmp_path / "field"
    path.write_bytes(bytes(100))
    sample: Sample = {"__key__": "k", "__url__": "x.tar", "bin": FieldFile.at(str(path))}
    path.write_bytes(b"")
    (tmp_path / "scratch").mkdir()
    with (
        ShellPool("true", str(tmp_path / "scratch")) as pool,
        pytest.raises(StreamError, match=r"field: the file was cut while it was read: 100 of 100 bytes are missing$"),
    ):
        pool.submit(0, [sample])


@pytest.mark.parametrize("size", [10, 200_000])
def test_what_a_command_leaves_by_two_names_is_read_before_the_next_command_begins(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command writes to the same file, and gives it to its sample with ln."""

    def slowly(*arguments: Any) -> tuple[list[Sample], list[str]]:
        time.sleep(0.1)
        return collect(*arguments)

    monkeypatch.setattr("tarkit.mapping.shellpool.collect", slowly)
    shared = tmp_path / "shared"
    command = f"head -c {size} /dev/zero | tr '\\0' $(cat sample.cls) > {shared}; ln {shared} sample.bin"
    samples: list[Sample] = [{**SAMPLE, "cls": b"%d" % number} for number in range(6)]
    (tmp_path / "scratch").mkdir()
    with ShellPool(command, str(tmp_path / "scratch"), rules=Rules(large=100_000)) as pool:
        outcomes = _jobs(pool, [[sample] for sample in samples])
    for number, outcome in enumerate(outcomes):
        ((sample,),) = outcome.made
        content = sample["bin"].read() if isinstance(sample["bin"], FieldFile) else sample["bin"]
        assert content == b"%d" % number * size


def test_the_callers_signals_are_not_inherited(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a command must not."""
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    (outcome,) = _outcomes(tmp_path, "yes | head -1 >/dev/null; echo ${PIPESTATUS[0]}")
    assert outcome.printed.read() == b"141\n"


def test_many_samples_in_one_shell(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ShellPool("cat __key__", str(scratch), slots=2) as pool:
        outcomes = _jobs(pool, [[{"__key__": f"k{number}", "a": b"x"}] for number in range(500)])
    assert [outcome.printed.read() for outcome in outcomes] == [b"k%d" % number for number in range(500)]
    assert {name.partition("-")[0] for name in os.listdir(scratch)} == {"shell.log", "slot"}


def test_an_idle_shell_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """By the system for want of memory, or by what an earlier command left behind."""
    with ShellPool("true", str(tmp_path), slots=1) as pool:
        for ticket in range(3):
            pool.submit(ticket, [{"__key__": f"k{ticket}", "x": b"1"}])
            (done,) = pool.collect()
            assert done[0] == ticket and done[1].failure is None
            os.kill(pool._workers[0].process.pid, signal.SIGKILL)
            pool._workers[0].process.wait()
