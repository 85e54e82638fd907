"""``tarkit rm``: remove files and folders."""

from __future__ import annotations

import json

import click

from tarkit.errors import MissingInputError, TarkitError, exit_code_of_all
from tarkit.names.url import display_name

from ..shared.program import json_option, say, standard_options
from ..shared.results import Results

_EPILOG = """\b
Examples:
  tarkit rm s3://bucket/old.tar
  tarkit rm -r webhdfs://namenode:9870/tmp/run-17
"""


@click.command("rm", epilog=_EPILOG)
@click.argument("specs", metavar="URL...", nargs=-1, required=True)
@click.option("-r", "--recursive", is_flag=True, help="Also remove folders, with all that is in them.")
@click.option("-f", "--force", is_flag=True, help="Ignore files that do not exist.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@json_option
@standard_options
def command(specs: tuple[str, ...], recursive: bool, force: bool, dry_run: bool, as_json: bool, verbose: bool) -> int:
    """Remove files, locally or in a store.

    URL may have braces, and * ? [ patterns. A file that cannot be removed does not stop the others.
    """
    from tarkit.specs.shardspec import expand
    from tarkit.store.entries import remove

    codes: set[int] = set()

    def failed(error: TarkitError) -> None:
        if not (force and isinstance(error, MissingInputError)):
            codes.add(error.exit_code)
            say("tarkit rm", str(error))

    with Results(only_messages=True) as results:
        for spec in specs:
            try:
                urls = list(expand(spec, allow_pipe=False, manifests=False))
            except MissingInputError as error:
                failed(error)
                continue
            for url in urls:
                name = display_name(url)
                try:
                    name += "/" if remove(url, recursive, dry_run=dry_run) else ""
                except TarkitError as error:
                    failed(error)
                    continue
                if as_json or dry_run:
                    results.line(json.dumps({"url": name, "removed": not dry_run}) if as_json else name)
    return exit_code_of_all(codes)
