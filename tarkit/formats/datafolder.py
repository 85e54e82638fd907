"""A folder whose files are one data set, as Hadoop and Spark write them: which files are data."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import BinaryIO

from tarkit.errors import MissingInputError
from tarkit.formats.tally import Tally
from tarkit.names.outputnames import DONE_SUFFIX, FAILED_SUFFIX, INDEX_SUFFIX, SHARD_SUFFIX
from tarkit.names.url import display_name, is_stream, join, local_path, reads_once, scheme_of
from tarkit.store.entries import entries, stat

MAP_FILE = ("data", "index")
"""The files of a folder that is a MapFile: the second one repeats keys of the first."""


def is_folder(source: str | os.PathLike[str] | BinaryIO) -> bool:
    """Whether this is a folder, and not a file.

    What is missing is not.

    Raises:
        StreamError, TemporaryStreamError: it cannot be asked.
        UsageError, MissingExtraError: no such protocol.
    """
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


def data_files(
    folder: str | os.PathLike[str] | BinaryIO, tally: Tally, archives: tuple[str, ...] = ()
) -> Iterator[str]:
    """The paths or URLs of a folder's data, at any depth, by name.

    Skipped, and counted in ``tally.skipped``: ``checksum``: ``.NAME.crc`` and ``NAME.crc``;
    ``hidden``: a name, or a folder's name, that begins with ``.``; ``metadata``: one that begins
    with ``_``, such as ``_SUCCESS`` and what is in ``_temporary``; ``map-file-index``: the index of
    a MapFile; ``index``: ``x.idx`` beside ``x.tar``; ``linked-folder``: a symbolic link to a
    folder; ``not-a-file``: a named pipe or device; ``done-record``, ``failed-samples``: what
    ``tarproc -O`` writes beside a shard.

    Args:
        archives: ends of names of folders that are one file each.

    Raises:
        MissingInputError: no data in it.
        StreamError, TemporaryStreamError: it cannot be listed.
    """
    url = folder if isinstance(folder, str) else os.fspath(folder) if isinstance(folder, os.PathLike) else ""
    found: dict[str, str] = {}
    for entry in entries(url, recursive=True):
        name = _archive_of(entry.name, archives)
        if entry.is_folder and name is None:
            # Folders are listed as what is in them, but for links.
            tally.skip("linked-folder")
        elif not entry.is_folder and reads_once(entry.url):
            tally.skip("not-a-file")
        else:
            at_place = name is None and local_path(url) is None
            found[name or entry.name] = entry.url if at_place else join(url, name or entry.name)
    files = [name for name in found if not _skipped(name, found, tally)]
    if not files:
        raise MissingInputError("there are no data files in this folder", url=display_name(url))
    for name in sorted(files):
        yield found[name]


def _archive_of(name: str, archives: tuple[str, ...]) -> str | None:
    """The outermost folder of this path that is an archive, if there is one."""
    parts = name.split("/")
    ends = (end for end in range(1, len(parts) + 1) if parts[end - 1].endswith(archives))
    return next(("/".join(parts[:end]) for end in ends), None)


def _skipped(name: str, names: Container[str], tally: Tally) -> bool:
    parts = name.split("/")
    reason = None
    if parts[-1].endswith(".crc"):
        reason = "checksum"
    elif any(part.startswith(".") for part in parts):
        reason = "hidden"
    elif any(part.startswith("_") for part in parts):
        reason = "metadata"
    elif name.endswith(INDEX_SUFFIX) and f"{name.removesuffix(INDEX_SUFFIX)}{SHARD_SUFFIX}" in names:
        reason = "index"
    elif name.endswith(DONE_SUFFIX) and name.removesuffix(DONE_SUFFIX) in names:
        reason = "done-record"
    elif name.endswith(FAILED_SUFFIX) and name.removesuffix(FAILED_SUFFIX) in names:
        reason = "failed-samples"
    elif parts[-1] == MAP_FILE[1] and "/".join([*parts[:-1], MAP_FILE[0]]) in names:
        reason = "map-file-index"
    if reason is not None:
        tally.skip(reason)
    return reason is not None
