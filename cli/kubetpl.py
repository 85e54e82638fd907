"""``kubetpl``: process shards with Kubernetes Jobs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from tarkit.k8s.settings import GENERATORS

from .shared.program import run_program, version_option
from .shared.sections import VerbGroup

NAME = "kubetpl"
VERBS = {
    "Print manifests": (*GENERATORS, "train", "pai"),
    "Run a manifest on this machine": ("local",),
    "Jobs in a cluster": ("status", "wait", "logs", "retry", "scale", "cancel"),
}
"""Heading -> its verbs."""


class _Commands(VerbGroup):
    verbs = VERBS

    def load(self, name: str) -> click.Command:
        if name in GENERATORS:
            from .kube.generator import generator_command

            return generator_command(name)
        command: click.Command = importlib.import_module(f".kube.verbs.{name}", __package__).command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def kubetpl() -> None:
    """Run commands over tar shards as Kubernetes Jobs: print manifests, report on shards."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(kubetpl, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
