"""List the data files of a folder that is one data set, as Hadoop and Spark write it."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import BinaryIO

from tarkit.errors import MissingInputError
from tarkit.formats.tally import Tally
from tarkit.names.outputnames import DONE_SUFFIX, FAILED_SUFFIX, INDEX_SUFFIX, SEEK_SUFFIX, SHARD_SUFFIX, is_packed_name
from tarkit.names.url import display_name, is_stream, join, local_path, reads_once, scheme_of
from tarkit.store.entries import entries, stat

MAP_FILE = ("data", "index")
"""The two files in a folder that is a MapFile; the index repeats keys of the data."""


def is_folder(source: str | os.PathLike[str] | BinaryIO) -> bool:
    """Return True if this is a folder; False if it is a file or does not exist.

    Raises:
        StreamError: the store does not answer.
        TemporaryStreamError: the store does not answer now.
        UsageError: the protocol of the URL is not known.
        MissingExtraError: the library for the protocol is not installed.
    """
    if not isinstance(source, str):
        return isinstance(source, os.PathLike) and os.path.isdir(source)
    # An http server has no folders, and may not answer the request.
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
    """Yield the paths or URLs of a folder's data files, at any depth, sorted by name.

    Skipped, and counted in ``tally.skipped``: ``checksum``: ``.NAME.crc`` and ``NAME.crc``;
    ``hidden``: a name, or a folder's name, that begins with ``.``; ``metadata``: one that begins
    with ``_``, such as ``_SUCCESS`` and the files in ``_temporary``; ``map-file-index``: the index
    of a MapFile; ``index``: ``x.idx`` beside ``x.tar``, ``x.tar.gz.idx`` and ``x.tar.gz.seek``
    beside ``x.tar.gz``; ``linked-folder``: a symbolic link to a folder; ``not-a-file``: a named
    pipe or device; ``done-record``, ``failed-samples``: files that ``tarproc -O`` writes beside a
    shard.

    Args:
        folder: path or URL of the folder.
        tally: filled with counts of skipped files.
        archives: endings of names of folders that are one file each.

    Raises:
        MissingInputError: the folder has no data.
        StreamError: the folder cannot be listed.
        TemporaryStreamError: the folder cannot be listed now.
    """
    url = folder if isinstance(folder, str) else os.fspath(folder) if isinstance(folder, os.PathLike) else ""
    found: dict[str, str] = {}
    for entry in entries(url, recursive=True):
        name = _archive_of(entry.name, archives)
        if entry.is_folder and name is None:
            # Folders are listed by their files, except for links.
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
    """Return the outermost folder of this path that is an archive, or None."""
    parts = name.split("/")
    ends = (end for end in range(1, len(parts) + 1) if parts[end - 1].endswith(archives))
    return next(("/".join(parts[:end]) for end in ends), None)


def _is_index(name: str, names: Container[str]) -> bool:
    if name.endswith(INDEX_SUFFIX) and f"{name.removesuffix(INDEX_SUFFIX)}{SHARD_SUFFIX}" in names:
        return True
    shard = name.removesuffix(INDEX_SUFFIX).removesuffix(SEEK_SUFFIX)
    return shard != name and shard in names and is_packed_name(shard)


def _skipped(name: str, names: Container[str], tally: Tally) -> bool:
    parts = name.split("/")
    reason = None
    if parts[-1].endswith(".crc"):
        reason = "checksum"
    elif any(part.startswith(".") for part in parts):
        reason = "hidden"
    elif any(part.startswith("_") for part in parts):
        reason = "metadata"
    elif _is_index(name, names):
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
