"""``kubetpl``: work over shards as Kubernetes Jobs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from tarkit.errors import UsageError, printable
from tarkit.k8s.settings import GENERATORS

from .kube.settingoptions import setting_options, switch_options
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options before the command's name, as the original had them, are taken for that command's."""
        if not args or args[0] in ("-h", "--help", "--version"):
            return super().parse_args(ctx, args)
        command = _spoken()
        parser = command.make_parser(click.Context(command, info_name=NAME))
        parser.allow_interspersed_args = False
        rest = parser.parse_args(list(args))[1]
        if not rest and ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if not rest:
            raise UsageError(f"name what is to be made of these options: one of {', '.join(GENERATORS)}")
        leading = args[: len(args) - len(rest)]
        return super().parse_args(ctx, [*rest[:1], *leading, *rest[1:]])


def _spoken() -> click.Command:
    """A command with all options of all generators: its parser finds where options end and the command's name is."""

    @click.command(NAME)
    @setting_options(None)
    @switch_options
    @click.option("-v", "--verbose", is_flag=True)
    def command(**options: object) -> None:
        pass

    return command


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
