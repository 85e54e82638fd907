"""``tarkit pai``: jobs of OpenPAI. Each of its verbs is a file of ``cli/pai``."""

from __future__ import annotations

import importlib

import click

from ..shared.program import version_option

VERBS = {"check": "files", "convert": "files", "render": "files", "submit": "cluster", "status": "cluster",
         "stop": "cluster", "logs": "cluster"}  # fmt: skip
"""Verb -> module of ``cli/pai``."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"..pai.{VERBS[cmd_name]}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.group(
    "pai",
    cls=_Verbs,
    epilog="""\b
Examples:
  tarkit pai check job.yaml
  tarkit pai convert job.json > job.yaml
  tarkit pai render job.yaml | kubectl apply -f -
""",
)
@version_option
def command() -> None:
    """Check, convert and submit jobs of OpenPAI: job JSON (version 1) and job YAML (protocol 2)."""
