"""Remove folders and all files in them, but nothing that is mounted there.

The system refuses to remove a mount point (EBUSY), also that of a bind mount of the same device,
which no device number shows. So each folder is removed first; only a folder that is not empty is
then opened and emptied.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_CLOEXEC", 0)


def open_folder(path: str, within: int | None = None) -> int:
    """Open a folder, and return its descriptor; a link to a folder is an error.

    Args:
        path: path of the folder.
        within: descriptor of an open folder to which ``path`` is relative.
    """
    return os.open(path, _OPEN_FOLDER, dir_fd=within)


def remove_if_empty(folder: str, within: int | None = None) -> bool:
    """Remove a folder if it is empty; return True if it is not empty.

    Args:
        within: descriptor of an open folder to which ``folder`` is relative.

    Raises:
        NotADirectoryError: the name is that of a file or a link.
        OSError: the folder is a mount point (EBUSY).
    """
    try:
        os.rmdir(folder, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return True
        raise
    return False


def remove_tree(folder: str, within: int | None = None, *, as_far_as_possible: bool = False) -> None:
    """Remove a folder and all files in it.

    Args:
        folder: path of the folder, not of a link.
        within: descriptor of an open folder to which ``folder`` is relative.
        as_far_as_possible: True to change permissions that prevent it, and to leave files that
            cannot be removed.

    Raises:
        OSError: something is left; without ``as_far_as_possible``, its ``filename`` is the path of
            the file.
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
