"""A folder whose content another program made: its files are opened so that nothing outside of it is ever read.

What unpacks an archive may leave a link to any file of the machine. So no name is opened through a link, except by
going the link's way by hand, one folder after the other, and never above the folder that it all began with.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from typing import NamedTuple

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_LINK = (errno.ELOOP, errno.EMLINK)  # what O_NOFOLLOW gives on Linux and macOS, and on FreeBSD
_MAX_LINKS = 40


class OutsideError(ValueError):
    """A link leads out of the folder."""


class Names(NamedTuple):
    """What is in a folder, sorted by name. other: pipes, sockets, devices."""

    files: list[str]
    folders: list[str]
    links: list[str]
    other: list[str]


class OpenFolder:
    """A folder, held open. A context manager.

    Args:
        path: where it is; with ``outer``, the name of a folder in it.
        outer: the folder in which this one is; links may lead to all that is in it.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none. OSError: there is a link, or it cannot be opened.
    """

    def __init__(self, path: str, outer: OpenFolder | None = None) -> None:
        self._fd: int = os.open(path, _FLAGS | os.O_DIRECTORY, dir_fd=None if outer is None else outer._fd)
        self._root: OpenFolder = self if outer is None else outer._root
        self._below: tuple[str, ...] = () if outer is None else (*outer._below, path)
        self._path = path

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def names(self) -> Names:
        """What is in it."""
        names = Names([], [], [], [])
        with os.scandir(self._fd) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    names.files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    names.folders.append(entry.name)
                elif entry.is_symlink():
                    names.links.append(entry.name)
                else:
                    names.other.append(entry.name)
        for some in names:
            some.sort()
        return names

    def open(self, name: str) -> tuple[int, int]:
        """A descriptor of the regular file of this name, or to which the link of this name leads; and its size.

        Raises:
            OutsideError: the link leads out of the outermost folder.
            OSError: it is not a regular file, or it cannot be read.
        """
        try:
            file = os.open(name, _FLAGS, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _LINK:
                raise
            file = self._root._follow(deque((*self._below, name)))
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file, status.st_size

    def _follow(self, ways: deque[str]) -> int:
        """Go from this folder to a file, link by link."""
        name = "/".join(ways)
        folders = [self._fd]
        links = 0
        try:
            while ways:
                step = ways.popleft()
                if step in ("", "."):
                    continue
                if step == "..":
                    if len(folders) == 1:
                        raise _outside(name)
                    os.close(folders.pop())
                    continue
                try:
                    found = os.open(step, _FLAGS | (os.O_DIRECTORY if ways else 0), dir_fd=folders[-1])
                except OSError as error:
                    # A link that ought to be a folder is, with O_DIRECTORY, only said to be none.
                    if error.errno not in (*_LINK, errno.ENOTDIR) or not _is_link(step, folders[-1]):
                        raise
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
                    target = os.readlink(step, dir_fd=folders[-1])
                    if target.startswith("/"):
                        target = self._relative(target, name)
                        _close_all_but_first(folders)
                    ways.extendleft(reversed(target.split("/")))
                    continue
                if not ways:
                    return found
                folders.append(found)
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        finally:
            _close_all_but_first(folders)

    def _relative(self, target: str, name: str) -> str:
        """An absolute path from this folder on."""
        for here in (self._path, os.path.realpath(self._path)):
            if target.startswith(f"{here}/"):
                return target[len(here) + 1 :]
        raise _outside(name)


def _close_all_but_first(folders: list[int]) -> None:
    while len(folders) > 1:
        os.close(folders.pop())


def _is_link(name: str, folder: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _outside(name: str) -> OutsideError:
    return OutsideError(f"{name} is a link that leads out of the sample's folder")
