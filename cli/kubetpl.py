"""``kubetpl``: work over shards as Kubernetes Jobs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from tarkit.errors import UsageError, printable
from tarkit.k8s.settings import GENERATORS

from .shared.program import nearest, run_program, version_option

NAME = "kubetpl"
VERBS = ("cancel", "local", "logs", "pai", "retry", "scale", "status", "train", "wait")


class _Commands(click.Group):
    """Generators and verbs, each loaded only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*GENERATORS, *VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            command: click.Command = importlib.import_module(f".kube.verbs.{cmd_name}", __package__).command
            return command
        if cmd_name in GENERATORS:
            from .kube.generator import generator_command

            return generator_command(cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"no command {printable(args[0])!r}; {nearest(args[0], known)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def kubetpl() -> None:
    """Run commands over tar shards as Kubernetes Jobs: print manifests, and report what became of the shards.

    job, pod, jobs, indexed, service and configmap print YAML for kubectl; local runs the same
    manifest on this machine.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_program(kubetpl, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
