"""Completion of command lines, by click's protocol (``_TARPROC_COMPLETE=bash_complete``)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import TarkitError

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, name: str) -> str:
    """Return the shell script that completes command lines of the program ``name``."""
    from click.shell_completion import ShellComplete

    # Not the source() of the shell's own class: that of bash runs one, to ask for its version.
    return ShellComplete.source(_completer(click.Command(name), name, shell))


def values_in(module: str, name: str, *more: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a ``shell_complete`` of click for an option whose values are in a table.

    The table is loaded only when a shell requests it.

    Args:
        module, name: module of the table and its name there.
        more: further values.
    """

    def offered(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        known = (*more, *getattr(importlib.import_module(module), name))
        return [each for each in known if each.startswith(incomplete)]

    return offered


format_values = values_in("tarkit.formats.registry", "FORMATS", "tar")
"""The ``shell_complete`` of options that take a format."""


def answer(command: click.Command, name: str) -> str | None:
    """Return the completions that a shell requests, or None if no shell requests any."""
    variable = f"_{name.upper()}_COMPLETE"
    asked = os.environ.get(variable)
    if not asked:
        return None
    shell, _, what = asked.partition("_")
    if shell not in SHELLS or what not in ("source", "complete"):
        raise click.UsageError(f"{variable} is {asked!r}; it must be SHELL_source, SHELL being {', '.join(SHELLS)}")
    if what == "source":
        return script(shell, name)
    try:
        return _completer(command, name, shell).complete()
    except (TarkitError, click.ClickException):
        # A line that is not finished may be wrong; the error is shown when it runs.
        return ""


def _completer(command: click.Command, name: str, shell: str) -> ShellComplete:
    from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

    known: Any = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}[shell]

    class Completer(known):  # type: ignore[misc]
        """Complete paths where click has no completions."""

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            found: list[CompletionItem] = super().get_completions(args, incomplete)
            return found or [CompletionItem(incomplete, type="file")]

    return Completer(command, {"obj": [False]}, name, f"_{name.upper()}_COMPLETE")
