"""What an output may be: in a folder that is there, and not one of the inputs, by whatever path."""

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
    """Refuse what ``-o`` names, before anything is read, if it has no folder or is not the name of
    a tar.

    Args:
        output: a path, a URL, or a pattern of a series. Raises: UsageError.
    """
    check_folder(output)
    check_tar_name(output)


def check_folder(output: str) -> None:
    """Refuse a local output whose folder is missing.

    Folders with the number of a series in their names are made with its shards. Raises: UsageError.
    """
    path = None if is_stream(output) else local_path(output)
    if path is None:
        return
    # A Hadoop archive is a folder itself, and may be named as one.
    path = path.rstrip("/")
    if is_pattern(path):
        path = split_pattern(path)[0]
    # A link is followed: its target is what will be written.
    folder = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)
    if folder and not os.path.isdir(folder):
        shown = printable(folder)
        reason = "is not a folder" if os.path.lexists(folder) else "is missing; make it, or correct the name"
        raise UsageError(f"-o {printable(redact(output))}: the folder {shown} {reason}")


def check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse inputs with outputs of their own, as :func:`tarkit.names.outputnames.plan_outputs`
    pairs them by name, of which one is a link to an output, or has not the name of a tar.

    Raises: UsageError.
    """
    for _, output in pairs:
        check_tar_name(output)
    check_other_than([output for _, output in pairs], [url for url, _ in pairs])


def check_other_than(outputs: Iterable[str], names: Iterable[str | PurePath]) -> None:
    """Refuse inputs of which one is one of the outputs, as :func:`other_than` does, all at once.

    Raises: UsageError.
    """
    for _ in other_than(outputs, names):
        pass


def other_than(outputs: Iterable[str], names: Iterable[_Name]) -> Iterator[_Name]:
    """The inputs, each looked at when it is drawn: none may be one of the outputs, by a link or by
    another spelling.

    What is not a regular file, such as /dev/null or a pipe, may be both.

    Raises:
        UsageError: an input is an output.
    """
    taken = {found: output for output in outputs if (found := _file_of(output, 1)) is not None}
    return _checked(taken, names) if taken else iter(names)


def _checked(taken: dict[object, str], names: Iterable[_Name]) -> Iterator[_Name]:
    for name in names:
        if (output := taken.get(_file_of(name, 0))) is not None:
            shown, replaced = printable(redact(str(name))), printable(redact(output))
            which = "an output too" if shown == replaced else f"the same file as the output {replaced}"
            raise UsageError(f"{shown} is an input, and {which}; name another output")
        yield name


def _file_of(name: str | PurePath, standard: int) -> object:
    """What is equal for two names of one file or folder.

    None of what is not there, and of pipes and devices.

    Args:
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
    """Names of the shards of a pattern such as ``out-%06d.tar`` that are there, numbered ``start``
    or more, in order.

    Raises:
        UsageError: it has not exactly one place for a number.
        StreamError, TemporaryStreamError: its folder cannot be listed.
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
