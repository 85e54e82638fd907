"""``tarkit put``: whole files and folders, compared by length at the end."""

from __future__ import annotations

import click

from tarkit.errors import UsageError
from tarkit.store.url import display_name

from ..shared.program import verbose_option, version_option
from ..shared.transfer import is_local, run_transfer, transfer_options

_EPILOG = """\b
Examples:
  tarkit put train-000000.tar s3://bucket/imagenet/
  tarkit put -p 8 shards/ hdfs://namenode:9000/imagenet
"""


@click.command("put", epilog=_EPILOG)
@click.argument("sources", metavar="PATH...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@transfer_options
@verbose_option
@version_option
def command(sources: tuple[str, ...], target: str, parallel: int, overwrite: bool, quiet: bool, verbose: bool) -> int:
    """Copy local files and folders to a store, or to another place on the disk.

    Each file appears under its name whole, or not at all. A file that fails does not stop the others; the
    failed ones are listed, and the exit code tells. A TARGET that ends with / takes every PATH in under its
    own name; else a file goes into TARGET if that is a folder, and what is in a source folder goes right
    into TARGET, so that a copy that is run again goes where it went before.

    Lengths are compared, with those that the stores give. Folders are copied with all that is below them;
    empty folders are not made. PATH may have braces, and * ? [ patterns; @LIST is a list of them.
    """
    for source in sources:
        if not is_local(source.removeprefix("@")):
            raise UsageError(f"{display_name(source)} is not local; tarkit get copies from stores")
    return run_transfer("tarkit put", list(sources), target, parallel, overwrite, quiet)
