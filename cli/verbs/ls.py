"""``tarkit ls``: what is in a folder."""

from __future__ import annotations

import json
from itertools import chain, islice

import click

from ..shared.program import standard_options
from ..shared.results import Results
from .stat import as_json, when

_EPILOG = """\b
Examples:
  tarkit ls -l s3://bucket/imagenet/
  tarkit ls -R --json hdfs://namenode:9000/imagenet | jq .size
"""


@click.command("ls", epilog=_EPILOG)
@click.argument("specs", metavar="[URL]...", nargs=-1)
@click.option("-l", "--long", is_flag=True, help="Size in bytes and time of change before each name.")
@click.option("-R", "--recursive", is_flag=True, help="The files below, at any depth.")
@click.option("--json", "as_lines", is_flag=True, help="A line of JSON for each.")
@standard_options
def command(specs: tuple[str, ...], long: bool, recursive: bool, as_lines: bool, verbose: bool) -> None:
    """List folders, locally or in a store, by name; a folder's name ends with a slash.

    URL is a path or a URL (the current folder without one), with braces and * ? [ patterns. With several,
    the names begin with their folder's.
    """
    from tarkit.specs.shardspec import expand
    from tarkit.store.entries import entries
    from tarkit.store.url import display_name

    urls = expand(list(specs) or ["."], allow_pipe=False, manifests=False)
    first = list(islice(urls, 2))
    with Results() as results:
        for url in chain(first, urls):
            for entry in entries(url, recursive):
                if as_lines:
                    results.line(json.dumps(as_json(entry)))
                    continue
                name = display_name(entry.url) if len(first) > 1 else entry.name
                name += "/" if entry.is_folder else ""
                if long:
                    size = "-" if entry.size is None else str(entry.size)
                    name = f"{size:>14} {when(entry.mtime) or '-':20} {name}"
                results.line(name)
