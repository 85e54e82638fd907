"""``tarkit get``: whole files and folders, compared by length at the end."""

from __future__ import annotations

import click

from tarkit.errors import UsageError
from tarkit.store.url import display_name

from ..shared.program import verbose_option, version_option
from ..shared.transfer import is_local, run_transfer, transfer_options

_EPILOG = """\b
Examples:
  tarkit get 's3://bucket/imagenet/train-{000000..000009}.tar' .
  tarkit get webhdfs://namenode:9870/imagenet ./imagenet
"""


@click.command("get", epilog=_EPILOG)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("target", metavar="TARGET")
@transfer_options
@verbose_option
@version_option
def command(sources: tuple[str, ...], target: str, parallel: int, overwrite: bool, quiet: bool, verbose: bool) -> int:
    """Copy files and folders from a store to the local disk.

    Each file appears under its name whole, or not at all. A file that fails does not stop the others; the
    failed ones are listed, and the exit code tells. A TARGET that ends with / takes every SOURCE in under its
    own name; else a file goes into TARGET if that is a folder, and what is in a source folder goes right
    into TARGET, so that a copy that is run again goes where it went before.

    Lengths are compared, with those that the stores give. Folders are copied with all that is below them;
    empty folders are not made. SOURCE may have braces, and * ? [ patterns; @LIST is a list of them.
    """
    if not is_local(target):
        raise UsageError(f"{display_name(target)} is not local; tarkit put copies to stores")
    return run_transfer("tarkit get", list(sources), target, parallel, overwrite, quiet)
