"""``tarkit stat``: size, time and checksum of what is at a URL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tarkit.store.url import display_name

from ..shared.program import standard_options
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.store.entries import Entry


def when(mtime: float | None) -> str | None:
    """A time as text, in UTC, to the second; None stays None."""
    from datetime import datetime, timezone

    if mtime is None:
        return None
    return datetime.fromtimestamp(mtime, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_json(entry: Entry) -> dict[str, Any]:
    """What a program wants to know of an entry; without the secrets of its URL."""
    return {
        "url": display_name(entry.url),
        "name": entry.name,
        "type": "folder" if entry.is_folder else "file",
        "size": entry.size,
        "mtime": when(entry.mtime),
        "checksum": entry.checksum,
    }


@click.command("stat")
@click.argument("specs", metavar="URL...", nargs=-1, required=True)
@click.option("--json", "as_lines", is_flag=True, help="A line of JSON for each.")
@standard_options
def command(specs: tuple[str, ...], as_lines: bool, verbose: bool) -> None:
    """Print size in bytes, time of change, and the checksum or ETag where the store gives one.

    URL is a path or a URL, with braces and * ? [ patterns. What the store does not report is a dash.
    """
    from tarkit.specs.shardspec import expand
    from tarkit.store.entries import stat

    with Results() as results:
        for url in expand(specs, allow_pipe=False, manifests=False):
            entry = stat(url)
            if as_lines:
                results.line(json.dumps(as_json(entry)))
                continue
            size = "-" if entry.size is None else str(entry.size)
            sum_ = (entry.checksum or "-").replace(" ", "_")
            kind = "folder" if entry.is_folder else "file"
            # The name comes last, since it alone may have blanks.
            results.line(" ".join((kind, size, when(entry.mtime) or "-", sum_, display_name(url))))
