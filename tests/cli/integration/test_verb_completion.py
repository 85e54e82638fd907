"""Completion of command lines, in the shells themselves, at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from tarkit.cli.verbs.completion import _EPILOG

from tarkit.formats.registry import FORMATS
from tarkit.readers.create import READERS

Run = Callable[..., Any]
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D -u; "),
    "fish": (["fish", "--no-config", "-i"], ""),
}
LOAD = {"fish": "tarkit completion fish | source"}


@contextmanager
def terminal(shell: str, folder: Path) -> Iterator[Callable[[str, str], str]]:
    """``say(line, expected)``: type a line, and return what is shown until ``expected`` is."""
    ours, theirs = pty.openpty()
    path = os.pathsep.join((os.path.dirname(os.path.abspath(sys.executable)), os.environ.get("PATH", os.defpath)))
    environment = {"PATH": path, "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8", "PS1": "> "}
    process = subprocess.Popen(
        START[shell][0], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)

    def say(line: str, expected: str) -> str:
        os.write(ours, line.encode())
        shown, end = b"", time.monotonic() + 60
        while expected.encode() not in shown:
            ready = select.select([ours], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, shown
            shown += os.read(ours, 65536)
        return shown.decode()

    try:
        yield say
    finally:
        os.close(ours)
        process.kill()
        process.wait()


@pytest.mark.parametrize("shell", START)
def test_a_real_shell_completes(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} IS NOT INSTALLED: its completion is not tested")
    (tmp_path / "notes-of-today.txt").write_text("content of the notes\n")
    with terminal(shell, tmp_path) as say:
        load = LOAD.get(shell, f'eval "$(tarkit completion {shell})"')
        say(f'{START[shell][1]}{load}; echo rea""dy\n', "ready")
        say("tarkit spl\t--help\n", "Usage: tarkit split ")
        say("tarproc --on-repeated-key al\t--version\n", "tarproc 0.")
        say("tarkit cat --raw notes-\t| cat\n", "content of the notes")


@pytest.mark.parametrize("shell", START)
def test_the_lines_that_set_it_up_work_in_an_empty_home(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} IS NOT INSTALLED: its completion is not tested")
    lines = [line for line in _EPILOG.splitlines() if re.search(rf"\b{shell}\b", line)]
    environment = {
        "HOME": str(tmp_path), "PATH": f"{Path(program_path('tarkit')).parent}:{os.environ['PATH']}", "TERM": "dumb",
    }  # fmt: skip
    options: dict[str, Any] = {"env": environment, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(["bash", "-ec", "\n".join(lines)], check=False, **options)
    assert (lines != [], done.returncode, done.stderr) == (True, 0, "")
    started = subprocess.run([shell, "-i", "-c", "echo up"], check=False, **options)
    assert started.stdout == "up\n" and "not found" not in started.stderr


def asked(run: Run, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What is offered at the end of a line."""
    words = line.split(" ")
    monkeypatch.setenv(f"_{words[0].upper()}_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    result = run(words[0])
    assert (result.code, result.stderr) == (0, "")
    return [each for each in result.lines if each]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tarkit sp", ["plain,split"]),
        ("tarkit completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("tarproc --field", ["plain,--fields", "plain,--fieldmode"]),
        ("tarproc -e ", ["plain,keep", "plain,skip", "plain,ignore", "plain,abort"]),
        ("tarproc -v -o ", ["file,"]),
        ("tarproc in.t", ["file,in.t"]),
        ("tarkit convert --to ", [f"plain,{name}" for name in ("tar", *FORMATS)]),
        ("tarkit convert --from r", ["plain,recordio"]),
        ("tarkit show --from t", ["plain,tar", "plain,tfrecord"]),
        ("tarkit count --from t", ["plain,tar", "plain,tfrecord"]),
        ("tarkit cat --key-rule ", ["plain,first-dot", "plain,last-dot"]),
        ("tarproc --key-rule la", ["plain,last-dot"]),
        ("tarkit serve --reader-type T", [f"plain,{name}" for name in READERS if name.startswith("T")]),
        ("tarkit cat --on-damage ", ["plain,error", "plain,skip"]),
        ("tarproc --errors k", ["plain,keep"]),
        ("kubetpl index", ["plain,indexed"]),
        ("kubetpl indexed --slic", ["plain,--slices"]),
        ("kubetpl shuffle --see", ["plain,--seed"]),
        # What is wrong so far is said once the line is finished.
        ("kubetpl nosuch x", ["file,x"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(run, monkeypatch, line) == offered


@pytest.mark.parametrize("value", ["tcsh_source", "bash", "bash_whatever"])
def test_a_variable_that_asks_for_something_else(value: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TARPROC_COMPLETE", value)
    result = run("tarproc", "--version")
    assert result.code == 2
    assert f"_TARPROC_COMPLETE is '{value}'; it must be SHELL_source" in result.stderr


def test_a_shell_that_is_not_known(run: Run) -> None:
    result = run("tarkit", "completion", "tcsh")
    assert result.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in result.stderr
