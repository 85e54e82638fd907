"""``kubetpl templates``: which there are, and where."""

from __future__ import annotations

import click

from ...shared.program import standard_options
from ...shared.results import Results
from ..settingoptions import template_folders


@click.command("templates")
@click.option("--path", metavar="A:B", help="Folders in which templates are looked for by name.")
@standard_options
def command(path: str | None, verbose: bool) -> None:
    """List the templates: kubetpl NAME fills the first that is called so."""
    from tarkit.k8s.templates import available

    seen: set[str] = set()
    with Results() as results:
        for name, where in available(template_folders(path)):
            results.line(f"{name:<12} {where}" + ("  (never used: another one comes first)" if name in seen else ""))
            seen.add(name)
