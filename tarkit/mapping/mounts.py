"""Detect a file system that a command mounted in its folder, and left there.

Linux reports each change of the mount table to a process that polls it, so a sample costs one poll
of a microsecond, and the table is read only after a change. The table also has bind mounts of the
same device, which a comparison of device numbers misses.
"""

from __future__ import annotations

import os
import re
import select

_TABLE = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class MountWatch:
    """The mount points at and below a folder, which has none at first.

    A context manager.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._points: list[str] = []
        self._poll = select.poll()
        try:
            self._table: int | None = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._table, select.POLLPRI)
        except FileNotFoundError:
            self._table = None

    def __enter__(self) -> MountWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._table is not None:
            os.close(self._table)
            self._table = None

    def find(self, name: str) -> str | None:
        """Return a mount point that is the folder of this name, below it or above it, or None."""
        folder = os.path.join(self._folder, name)
        if self._table is None:
            return _mounted_device(folder)
        if self._poll.poll(0):
            points = map(os.fsdecode, _mount_points(self._table))
            self._points = [each for each in points if f"{each}/".startswith(f"{self._folder}/")]
        return next((each for each in self._points if _are_nested(each, folder)), None)


def _are_nested(one: str, other: str) -> bool:
    """Return True if two paths are equal, or one is below the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _mount_points(table: int) -> list[bytes]:
    """List all mount points of this process's mount namespace.

    Args:
        table: the open mount table.
    """
    os.lseek(table, 0, os.SEEK_SET)
    text = b"".join(iter(lambda: os.read(table, 1 << 20), b""))
    # The fifth word of a line; blanks and backslashes in it are written in octal.
    return [_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split()[4]) for line in text.splitlines()]


def _mounted_device(folder: str) -> str | None:
    """Return a mount point at or below a folder where the system has no mount table (macOS)."""
    try:
        with os.scandir(folder) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return None
    return next((each for each in (folder, *folders) if os.path.ismount(each)), None)
