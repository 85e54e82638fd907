"""A folder whose files are one data set, as Hadoop and Spark write them: which files are data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from tarkit.errors import MissingInputError
from tarkit.formats.tally import Tally
from tarkit.store.entries import entries, stat
from tarkit.store.url import display_name, is_stream, join, local_path, scheme_of

MAP_FILE = ("data", "index")
"""The files of a folder that is a MapFile: the second one repeats keys of the first."""


def is_folder(source: str | os.PathLike[str] | BinaryIO) -> bool:
    """Whether this is a folder, and not a file. What is missing is not.
    Raises: StreamError, TemporaryStreamError: it cannot be asked. UsageError, MissingExtraError: no such protocol."""
    if not isinstance(source, str):
        return isinstance(source, os.PathLike) and os.path.isdir(source)
    # An http server has no folders, and may not answer what is asked here.
    if is_stream(source) or scheme_of(source) in ("http", "https"):
        return False
    if (path := local_path(source)) is not None:
        return os.path.isdir(path)
    try:
        return stat(source).is_folder
    except MissingInputError:
        return False


def data_files(folder: str | os.PathLike[str] | BinaryIO, tally: Tally) -> Iterator[str]:
    """The paths or URLs of a folder's data, at any depth, by name.

    Skipped, and counted in ``tally.skipped``: ``checksum``: ``.NAME.crc`` and ``NAME.crc``; ``hidden``: a name, or a
    folder's name, that begins with ``.``; ``metadata``: one that begins with ``_``, such as ``_SUCCESS`` and what is in
    ``_temporary``; ``map-file-index``: the index of a MapFile.

    Raises:
        MissingInputError: no data in it. StreamError, TemporaryStreamError: it cannot be listed.
    """
    url = folder if isinstance(folder, str) else os.fspath(folder) if isinstance(folder, os.PathLike) else ""
    found = [entry for entry in entries(url, recursive=True) if not entry.is_folder]
    names = {entry.name for entry in found}
    files = [entry for entry in found if not _skipped(entry.name, names, tally)]
    if not files:
        raise MissingInputError("there are no data files in this folder", url=display_name(url))
    for entry in sorted(files, key=lambda entry: entry.name):
        yield entry.url if local_path(url) is None else join(url, entry.name)


def _skipped(name: str, names: set[str], tally: Tally) -> bool:
    parts = name.split("/")
    reason = None
    if parts[-1].endswith(".crc"):
        reason = "checksum"
    elif any(part.startswith(".") for part in parts):
        reason = "hidden"
    elif any(part.startswith("_") for part in parts):
        reason = "metadata"
    elif parts[-1] == MAP_FILE[1] and "/".join([*parts[:-1], MAP_FILE[0]]) in names:
        reason = "map-file-index"
    if reason is not None:
        tally.skip(reason)
    return reason is not None
