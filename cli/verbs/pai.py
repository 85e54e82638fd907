"""``tarkit pai``: jobs of OpenPAI. Its verbs are in ``cli/pai``."""

from __future__ import annotations

import click

from ..pai import cluster, files
from ..shared.program import version_option


@click.group(
    "pai",
    commands=[
        files.check_command, files.convert_command,
        cluster.submit_command, cluster.status_command, cluster.stop_command, cluster.logs_command,
    ],
    epilog="""\b
Examples:
  tarkit pai check job.yaml
  tarkit pai convert job.json > job.yaml
""",
)  # fmt: skip
@version_option
def command() -> None:
    """Check, convert and submit jobs of OpenPAI: job JSON (version 1) and job YAML (protocol 2)."""
