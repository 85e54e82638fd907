"""The files of a data set: of a folder that a job of Spark or Hadoop wrote, or of a shard spec."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from tarkit.errors import MissingInputError
from tarkit.specs.shardspec import expand
from tarkit.store.entries import entries, stat
from tarkit.store.url import is_stream, local_path

_PATTERN = re.compile(r"[*?{\[]")


def data_files(spec: str, skip: Callable[[str], object] = lambda reason: None) -> Iterator[str]:
    """The files, in the order of their names if ``spec`` is a folder.

    Of a folder, what is not data is skipped: other folders, names that begin with ``.`` or ``_`` (``_SUCCESS``), and
    Hadoop's checksums, ``.crc``.

    Args:
        skip: called with the reason for each that is skipped: folder, hidden-file, checksum-file.

    Raises:
        MissingInputError: nothing is there. StreamError, TemporaryStreamError: it cannot be listed.
    """
    if not is_folder(spec):
        yield from expand([spec])
        return
    for entry in entries(spec):
        if entry.is_folder:
            skip("folder")
        elif entry.name.endswith(".crc"):
            skip("checksum-file")
        elif entry.name.startswith((".", "_")):
            skip("hidden-file")
        else:
            yield entry.url


def is_folder(spec: str) -> bool:
    """Whether a spec is the name of a folder that is there."""
    if spec.startswith("@") or is_stream(spec):
        return False
    path = local_path(spec)
    if path is not None:
        return os.path.isdir(path)
    try:
        return not _PATTERN.search(spec) and stat(spec).is_folder
    except MissingInputError:
        return False
