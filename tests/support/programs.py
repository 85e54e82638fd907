"""The programs, and all of their verbs."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tarkit.cli.kubetpl import kubetpl
from tarkit.cli.tarkit import tarkit
from tarkit.cli.tarproc import tarproc

PROGRAMS: dict[str, click.Command] = {"kubetpl": kubetpl, "tarkit": tarkit, "tarproc": tarproc}


def commands() -> Iterator[tuple[str, click.Context]]:
    """(name as typed, context) of all programs and of all their verbs."""
    for name, program in PROGRAMS.items():
        yield from _with_verbs(name, click.Context(program, info_name=name, **program.context_settings))


def _with_verbs(name: str, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield name, context
    command = context.command
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None:
                yield from _with_verbs(f"{name} {verb}", click.Context(found, info_name=verb, parent=context))
