"""A folder that another program filled: no file outside of it is ever read.

A program that unpacks an archive may leave a link to any file of the machine. So no name is opened
through a link; the target of a link is opened from the outermost folder, one folder at a time,
without following any link.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_LINK = (errno.ELOOP, errno.EMLINK)  # what O_NOFOLLOW gives on Linux and macOS, and on FreeBSD


class OutsideError(ValueError):
    """A link leads out of the folder."""


class OpenFolder:
    """An open folder, a context manager.

    Args:
        path: path of the folder; with ``outer``, its name in that folder.
        outer: the folder that contains this one; links may lead to anything in it.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder does not exist.
        OSError: the path has a link, or the folder cannot be opened.
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

    def names(self) -> dict[str, str]:
        """Return the names in the folder, sorted, each with its kind.

        A kind is file, folder, link, FIFO, socket or device.
        """
        with os.scandir(self._fd) as entries:
            return {name: kind for name, kind in sorted((entry.name, _kind(entry)) for entry in entries)}

    def open(self, name: str) -> tuple[int, int]:
        """Open a regular file, or the one that a link leads to; return its descriptor and size.

        Raises:
            OutsideError: the link leads out of the outermost folder.
            OSError: the name is not that of a regular file, or it cannot be read.
        """
        try:
            file = os.open(name, _FLAGS, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _LINK:
                raise
            file = self._root._open_target("/".join((*self._below, name)))
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file, status.st_size

    def _open_target(self, name: str) -> int:
        """Open the target of a link below this folder."""
        root, target = (os.path.realpath(each) for each in (self._path, os.path.join(self._path, name)))
        if os.path.commonpath((root, target)) != root:
            raise OutsideError(f"{name} is a link that leads out of the sample's folder")
        *folders, last = os.path.relpath(target, root).split("/")
        opened = [self._fd]
        try:
            # Something that a command left running may put another link into the way by now.
            for folder in folders:
                opened.append(os.open(folder, _FLAGS | os.O_DIRECTORY, dir_fd=opened[-1]))
            return os.open(last, _FLAGS, dir_fd=opened[-1])
        finally:
            for fd in opened[1:]:
                os.close(fd)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    mode = entry.stat(follow_symlinks=False).st_mode
    return "FIFO" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
