"""Check outputs: the folder exists, and no output is an input under any path."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TypeVar

from tarkit.errors import MissingInputError, UsageError, printable
from tarkit.names.outputnames import is_pattern, number_of_shard, shard_name, split_pattern
from tarkit.names.redaction import redact
from tarkit.names.url import is_stream, local_path, one_name, split_query
from tarkit.store.compression import check_tar_name
from tarkit.store.entries import entries, exists

_Name = TypeVar("_Name", bound=str | PurePath)


def check_tar_output(output: str) -> None:
    """Reject an output whose folder is missing or that is not named as a tar.

    Args:
        output: a path, a URL, or a pattern of a series.

    Raises:
        UsageError: the output is rejected.
    """
    check_folder(output)
    check_tar_name(output)


def check_folder(output: str) -> None:
    """Reject a local output whose folder is missing.

    Folders with the number of a series in their names are made with its shards.

    Raises:
        UsageError: the folder is missing, or is not a folder.
    """
    path = None if is_stream(output) else local_path(output)
    if path is None:
        return
    # The output may be a Hadoop archive, which is a folder, so the name may end in a slash.
    path = path.rstrip("/")
    if is_pattern(path):
        path = split_pattern(path)[0]
    # A link is followed: its target will be written.
    folder = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)
    if folder and not os.path.isdir(folder):
        shown = printable(folder)
        reason = "is not a folder" if os.path.lexists(folder) else "is missing; make it, or correct the name"
        raise UsageError(f"{printable(redact(output))}: the folder {shown} {reason}")


def check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Reject pairs of input and output if an output is an input or is not named as a tar.

    Args:
        pairs: inputs with outputs, from :func:`tarkit.names.outputnames.plan_outputs`.

    Raises:
        UsageError: an output is rejected.
    """
    for _, output in pairs:
        check_tar_name(output)
    check_other_than([output for _, output in pairs], [url for url, _ in pairs])


def check_other_than(outputs: Iterable[str], names: Iterable[str | PurePath]) -> None:
    """Reject inputs if one of them is also an output; all are checked at once.

    Raises:
        UsageError: an input is an output.
    """
    for _ in other_than(outputs, names):
        pass


def other_than(outputs: Iterable[str], names: Iterable[_Name]) -> Iterator[_Name]:
    """Yield the inputs, and check each one first: it must not be an output too.

    Links and different spellings of a path are resolved. A file that is not a regular file, such as
    /dev/null or a pipe, may be both.

    Raises:
        UsageError: an input is an output.
    """
    taken = {found: output for output in outputs if (found := _file_of(output, 1)) is not None}
    return _checked(taken, names) if taken else iter(names)


def outside(folders: Iterable[str], names: Iterable[_Name]) -> Iterator[_Name]:
    """Yield the inputs, and check each one first: it must not be in a folder that will be replaced.

    Raises:
        UsageError: an input is in one of the folders, or is one.
    """
    places = {os.path.realpath(path): name for name in folders if (path := local_path(name)) is not None}
    for name in names:
        path = None if str(name) == "-" else local_path(str(name))
        real = None if path is None else os.path.realpath(path)
        while real is not None and real not in places:
            real = None if os.path.dirname(real) == real else os.path.dirname(real)
        if real is not None:
            shown, folder = printable(redact(str(name))), printable(redact(places[real]))
            raise UsageError(f"{shown} is in {folder}, a folder that will be replaced; name another folder")
        yield name


def _checked(taken: dict[object, str], names: Iterable[_Name]) -> Iterator[_Name]:
    for name in names:
        if (output := taken.get(_file_of(name, 0))) is not None:
            shown, replaced = printable(redact(str(name))), printable(redact(output))
            which = "an output too" if shown == replaced else f"the same file as the output {replaced}"
            raise UsageError(f"{shown} is an input, and {which}; name another output")
        yield name


def _file_of(name: str | PurePath, standard: int) -> object:
    """Return an object that is equal for all names of one file or folder.

    None for files that do not exist, and for pipes and devices.

    Args:
        name: path or URL.
        standard: descriptor that ``-`` stands for.
    """
    if isinstance(name, str) and name.startswith("pipe:"):
        return None
    path: str | int | None = standard if name == "-" else local_path(name) if isinstance(name, str) else str(name)
    if path is None:
        return one_name(str(name))
    try:
        status = os.stat(path)
    except OSError:
        return None
    kept = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return (status.st_dev, status.st_ino) if kept else None


def existing_shards(pattern: str, start: int = 0) -> list[str]:
    """List the existing shards of a pattern such as ``out-%06d.tar``, in order.

    Args:
        pattern: the pattern of a series.
        start: number of the first shard that is listed.

    Raises:
        UsageError: the pattern has not exactly one place for a number.
        StreamError: the folder cannot be listed.
        TemporaryStreamError: the folder cannot be listed now.
    """
    path, query = split_query(pattern)
    before, after = split_pattern(path)
    folder, slash, _ = before.rpartition("/")
    _, slash_below, below = after.partition("/")
    try:
        listed = [entry.name for entry in entries(f"{folder}{slash}{query}" or ".")]
    except MissingInputError:
        return []
    named = (f"{folder}{slash}{name}{slash_below}{below}" for name in listed)
    found = sorted(number for name in named if (number := number_of_shard(pattern, name)) is not None)
    names = (shard_name(pattern, number) for number in found if number >= start)
    return [name for name in names if not below or exists(name)]
