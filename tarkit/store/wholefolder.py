"""Write a folder of this machine that appears whole under its name, or not at all."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tarkit.errors import StreamError, UsageError, printable
from tarkit.names.url import display_name, is_stream, local_path
from tarkit.store.temporary import temporary_name, try_lock
from tarkit.store.trees import remove_tree


def replaceable_folder(url: str, *, force: bool = False) -> str:
    """Return the whole path of a folder that may be written.

    Raises:
        UsageError: it is not a path of this machine, or has files and ``force`` is not set.
    """
    target = None if is_stream(url) else local_path(url)
    if target is None:
        raise UsageError(f"{display_name(url)}: a folder is written on this machine only; tarkit put copies it then")
    target = os.path.realpath(target)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise UsageError(f"{printable(target)} is a file, and would be a folder")
    if not force and os.path.isdir(target) and os.listdir(target):
        raise UsageError(f"{printable(target)} has files; --force replaces the folder")
    return target


@contextmanager
def whole_folder(url: str, *, force: bool = False) -> Iterator[str]:
    """Make a folder under a temporary name; when the context ends without an error, rename it.

    After an error it is removed. Folders of killed runs for the same name are removed first. The
    files are not flushed to the disk.

    Args:
        url: path of the folder, whose parent must exist.
        force: True to replace a folder that has files.

    Raises:
        UsageError: it is not a path of this machine, or has files and ``force`` is not set.
        StreamError: the folder cannot be written.
    """
    target = replaceable_folder(url, force=force)
    parent, name = os.path.split(target)
    path = os.path.join(parent, temporary_name(name))
    with _reported(target):
        _remove_dead(parent, name)
        os.mkdir(path)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
        with _reported(target):
            _put_in_place(path, target)
    finally:
        os.close(lock)
        with suppress(OSError):
            remove_tree(path)


@contextmanager
def _reported(target: str) -> Iterator[None]:
    """Convert errors of the system within the context."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        raise StreamError(reason, url=error.filename or target) from None


def _put_in_place(path: str, target: str) -> None:
    if not os.path.isdir(target) or not os.listdir(target):
        os.rename(path, target)
        return
    before = os.path.join(os.path.dirname(target), temporary_name(os.path.basename(target)))
    os.rename(target, before)
    os.rename(path, target)
    remove_tree(before)


def _remove_dead(parent: str, name: str) -> None:
    """Remove the temporary folders of writers that were killed."""
    pattern = re.compile(re.escape(temporary_name(name)[:-8]) + "[0-9a-f]{8}")
    for found in filter(pattern.fullmatch, os.listdir(parent)):
        with suppress(OSError):
            lock = os.open(os.path.join(parent, found), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if try_lock(lock):
                    remove_tree(os.path.join(parent, found))
            finally:
                os.close(lock)
