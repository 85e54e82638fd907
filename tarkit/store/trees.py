"""Removes folders with all that is in them, but nothing that is mounted there.

The system refuses to remove a mount point (EBUSY), also that of a bind mount of the same device,
which no device number shows. So each folder is removed first; only one of which the system says
that it is not empty is opened and emptied.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_CLOEXEC", 0)


def open_folder(path: str, within: int | None = None) -> int:
    """A descriptor of a folder, not of one that a link leads to.

    Args:
        within: open folder that ``path`` is in.
    """
    return os.open(path, _OPEN_FOLDER, dir_fd=within)


def remove_if_empty(folder: str, within: int | None = None) -> bool:
    """Remove a folder; False if that is done, True if it is not empty.

    Args:
        within: open folder that ``folder`` is in.

    Raises:
        NotADirectoryError: it is a file or a link. OSError (EBUSY): it is a mount point.
    """
    try:
        os.rmdir(folder, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return True
        raise
    return False


def remove_tree(folder: str, within: int | None = None, *, as_far_as_possible: bool = False) -> None:
    """Remove a folder with all that is in it.

    Args:
        folder: its path, which is no link.
        within: open folder that ``folder`` is in.
        as_far_as_possible: take back permissions that are in the way, and leave what cannot be
            removed.

    Raises:
        OSError: something is left; without ``as_far_as_possible``, its ``filename`` is the path of
            that.
    """
    if not remove_if_empty(folder, within):
        return
    here = _opened(folder, within, as_far_as_possible)
    try:
        for name in os.listdir(here):
            try:
                try:
                    remove_tree(name, here, as_far_as_possible=as_far_as_possible)
                except NotADirectoryError:
                    os.unlink(name, dir_fd=here)
            except OSError as error:
                if not as_far_as_possible:
                    error.filename = f"{folder}/{error.filename}"
                    raise
    finally:
        os.close(here)
    os.rmdir(folder, dir_fd=within)


def _opened(folder: str, within: int | None, permit: bool) -> int:
    try:
        here = open_folder(folder, within)
    except PermissionError:
        if not permit:
            raise
        os.chmod(folder, 0o700, dir_fd=within)
        here = open_folder(folder, within)
    if permit:
        with suppress(OSError):
            os.fchmod(here, 0o700)
    return here
