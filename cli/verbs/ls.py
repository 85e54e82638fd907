"""``tarkit ls``: list the contents of a folder."""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from tarkit.names.url import display_name

from ..shared.program import json_option, standard_options
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.store.entries import Entry

_EPILOG = """\b
Examples:
  tarkit ls -l s3://bucket/imagenet/
  tarkit ls -R --json hdfs://namenode:9000/imagenet | jq .size
"""


def _when(mtime: float | None) -> str | None:
    """Return a time as text, in UTC, to the second; None stays None."""
    from datetime import datetime, timezone

    if mtime is None:
        return None
    return datetime.fromtimestamp(mtime, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_json(entry: Entry) -> dict[str, Any]:
    """Return the properties of an entry, without the secrets of its URL."""
    return {
        "url": display_name(entry.url),
        "name": entry.name,
        "type": "folder" if entry.is_folder else "file",
        "size": entry.size,
        "mtime": _when(entry.mtime),
        "checksum": entry.checksum,
    }


@click.command("ls", epilog=_EPILOG)
@click.argument("specs", metavar="[URL]...", nargs=-1)
@click.option("-l", "--long", is_flag=True, help="Size in bytes and time of change before each name.")
@click.option("-R", "--recursive", is_flag=True, help="The files below, at any depth.")
@json_option
@standard_options
def command(specs: tuple[str, ...], long: bool, recursive: bool, as_json: bool, verbose: bool) -> None:
    """List folders, locally or in a store, by name; names of folders end with a slash.

    URL is a path or a URL of a folder or file, by default the current folder; it may have braces,
    and * ? [ patterns. With several, each name begins with that of its folder. --json also prints
    the checksum that the store has.
    """
    from tarkit.specs.shardspec import expand
    from tarkit.store.entries import entries

    urls = expand(list(specs) or ["."], allow_pipe=False, manifests=False)
    first = list(islice(urls, 2))
    with Results() as results:
        for url in chain(first, urls):
            for entry in entries(url, recursive):
                if as_json:
                    results.line(json.dumps(_as_json(entry)))
                    continue
                name = display_name(entry.url) if len(first) > 1 else entry.name
                name += "/" if entry.is_folder else ""
                if long:
                    size = "-" if entry.size is None else str(entry.size)
                    name = f"{size:>14} {_when(entry.mtime) or '-':20} {name}"
                results.line(name)
