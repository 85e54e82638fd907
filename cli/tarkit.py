"""``tarkit``: list, create, convert and copy tar shards; one verb for each task."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from .shared.program import run_program, version_option
from .shared.sections import VerbGroup

NAME = "tarkit"
VERBS = {
    "Shards": ("show", "create", "split", "cat", "index"),
    "Other formats": ("convert", "recordio-gen"),
    "Runs and training": ("status", "serve", "audit"),
    "Files, locally and in stores": ("ls", "get", "put", "rm"),
    "Images and OpenPAI": ("zoo", "pai"),
    "First steps": ("demo", "completion"),
}
"""Heading -> its verbs."""


class _Verbs(VerbGroup):
    verbs = VERBS

    def load(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(f".verbs.{name.replace('-', '_')}", __package__).command
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option
def tarkit() -> None:
    """Look at tar shards of training data, make them, and reshape them.

    To run a command over every sample, see tarproc.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(tarkit, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
