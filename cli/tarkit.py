"""``tarkit``: everything else one does with tar shards, a verb at a time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from tarkit.errors import printable

from .shared.program import nearest, run_program, version_option

NAME = "tarkit"
VERBS = (
    "audit", "cat", "completion", "convert", "create", "demo", "get", "index", "ls", "pai", "put",
    "recordio-gen", "rm", "serve", "show", "split", "status", "zoo",
)  # fmt: skip


class _Verbs(click.Group):
    """Loads a verb's file only when that verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".verbs.{cmd_name.replace('-', '_')}", __package__)
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no verb {printable(args[0])!r}; {nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def tarkit() -> None:
    """Look at tar shards of training data, make them, and reshape them.

    To run a command over every sample, see tarproc.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_program(tarkit, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
