"""tarkit help: the help of a verb, and the verb of today for the programs of earlier years."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click
import pytest
from tarkit.cli.tarkit import tarkit
from tarkit.cli.tarproc import tarproc
from tarkit.cli.verbs.help import OLDER

Run = Callable[..., Any]


@pytest.mark.parametrize("words", ["", "cat", "pai submit", "help"])
def test_the_help_of_a_verb(words: str, run: Run) -> None:
    expected = run("tarkit", *words.split(), "--help")
    assert run("tarkit", "help", *words.split()) == expected
    assert expected.code == 0 and expected.stdout.startswith(b"Usage: tarkit")


def test_an_older_program(run: Run) -> None:
    result = run("tarkit", "help", "tarcats")
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == [
        "tarcats: use tarkit cat, for example",
        "  tarkit cat 'train-{0000..0147}.tar' -o train.tar",
    ]
    assert run("tarkit", "help", "tarp", "proc").lines[0] == "tarp proc: use tarproc, for example"


@pytest.mark.parametrize("line", sorted(set(OLDER.values())))
def test_the_command_lines_are_parsed(line: str) -> None:
    program, *words = shlex.split(line.rpartition("&& ")[2])
    place, command = click.Context(tarkit, obj=[False], **tarkit.context_settings), tarproc
    if program == "tarkit":
        command = tarkit.get_command(place, words.pop(0))
    with command.make_context(command.name, words, parent=place) as context:
        assert not context.args


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["tarcatz"], "no command or program 'tarcatz'; did you mean tarcat?"),
        (["spilt"], "no command or program 'spilt'; did you mean split?"),
        (["cat", "x"], "no command or program 'cat x'; did you mean cat?"),
    ],
)
def test_an_unknown_name(words: list[str], hint: str, run: Run) -> None:
    result = run("tarkit", "help", *words)
    assert result.code == 2 and hint in result.stderr and result.stderr.count("\n") == 1


def test_names_are_completed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TARKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "tarkit help co")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert {"plain,convert", "plain,completion"} <= set(run("tarkit").lines)
    monkeypatch.setenv("COMP_WORDS", "tarkit help tarp")
    assert {"plain,tarpcat", "plain,tarproc"} <= set(run("tarkit").lines)
