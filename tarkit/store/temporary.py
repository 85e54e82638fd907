"""Temporary files of outputs: named, locked while their writer lives, removed when it is dead.

A lock (flock) lasts as long as any process has the descriptor open. It shows that the writer lives,
so a child that outlives its parent must not keep it: files locked here are closed in every process
that is forked from this one.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import threading
import time
from contextlib import suppress

_NAME = re.compile(r"(\..*\.tarkit-)[0-9a-f]{8}", re.DOTALL)
_RANDOM_DIGITS = 8
_LONGEST_NAME = 255
_LISTING_SHARE = 100
_MOST_FOLDERS = 1000

_held: dict[str, int | None] = {}
"""Path -> descriptor of each file that this process has created and locked.

None while the file is being created.
"""


def temporary_name(base: str) -> str:
    """Return the temporary name of a file ``base``, ``.BASE.tarkit-RANDOM``.

    It is cut to 255 bytes.
    """
    room = _LONGEST_NAME - len(b"..tarkit-") - _RANDOM_DIGITS
    return f".{os.fsencode(base)[:room].decode('utf-8', 'ignore')}.tarkit-{os.urandom(_RANDOM_DIGITS // 2).hex()}"


def is_temporary_name(name: str) -> bool:
    """Return True if the name is that of a temporary file.

    The file is being written, or its writer was killed.
    """
    return _NAME.fullmatch(name) is not None


def try_lock(fd: int) -> bool:
    """Lock an open file for this process; False if another process has locked it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def may_run(pid: str | bytes) -> bool:
    """Return True if a process with this number may exist; also if that is not known."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def create_locked(path: str) -> int:
    """Create and lock a file that must not exist yet; return its descriptor.

    :func:`close_locked` closes it. The file is removed if this process ends before that.

    Raises:
        FileExistsError: the file exists.
        OSError: the file cannot be created.
    """
    # Recorded before the file exists: a signal may come before the caller has the descriptor.
    _held[path] = None
    try:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # On file systems without locks no stale files are removed either, so there is no risk.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                _held[path] = fd
                return fd
            # Between open and flock another process took it for a file of a dead writer.
            os.close(fd)
    except OSError:
        del _held[path]
        raise


def close_locked(fd: int, path: str) -> None:
    """Close a file of :func:`create_locked` that has its final name or was removed.

    An error of the disk is too late here: call :func:`raise_delayed` before the file gets its name.
    """
    # Before it is closed: another thread may get its number at once, and fork, and the child would
    # close that.
    _held.pop(path, None)
    with suppress(OSError):
        os.close(fd)


def raise_delayed(fd: int) -> None:
    """Raise an error that a network file system reports only at close, without closing the file.

    Such an error is a full disk.

    Raises:
        OSError: the error of the file system.
    """
    os.close(os.dup(fd))


def remove_held() -> None:
    """Remove the files that were created and not closed, at the end of the process."""
    while _held:
        with suppress(OSError):
            os.unlink(_held.popitem()[0])


def _close_in_child() -> None:
    while _held:
        fd = _held.popitem()[1]
        if fd is not None:
            with suppress(OSError):
                os.close(fd)


os.register_at_fork(after_in_child=_close_in_child)
atexit.register(remove_held)


def remove_if_dead(path: str) -> bool:
    """Remove a file that no living process writes; return True if it was removed.

    Raises:
        OSError: the file may not be removed, or the file system has no locks that would show its
            writer.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not try_lock(fd):
            return False
        os.unlink(path)
    finally:
        os.close(fd)
    return True


def _is_written(path: str) -> bool:
    try:
        return not remove_if_dead(path)
    except OSError:
        # The file belongs to another user, or was removed meanwhile: publishing does not depend on
        # it.
        return True


class LeftBehind:
    """Temporary files that other writers are writing or left, by the last listing of each folder.

    A folder is listed again only after a hundred times the duration of its last listing, so that
    publishing takes the same time with a million files in the folder as with none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[float, dict[str, list[str]]]] = {}

    def remove(self, folder: str, name: str) -> None:
        """Remove temporary files of dead writers for the same output as ``name``."""
        prefix = name[:-_RANDOM_DIGITS]
        with self._lock:
            start = time.monotonic()
            due, found = self._listed.get(folder, (0.0, {}))
            if start >= due:
                if len(self._listed) >= _MOST_FOLDERS:
                    self._listed.clear()
                found = _temporary_files(folder)
                end = time.monotonic()
                self._listed[folder] = end + _LISTING_SHARE * (end - start), found
            # A writer that is alive now may be killed before the next listing: it is checked again.
            if alive := list(filter(_is_written, found.pop(prefix, []))):
                found[prefix] = alive


def _temporary_files(folder: str) -> dict[str, list[str]]:
    """Return the paths of temporary files in a folder, by the name before the random digits."""
    found: dict[str, list[str]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := _NAME.fullmatch(entry.name):
                found.setdefault(match[1], []).append(entry.path)
    return found


LEFT_BEHIND = LeftBehind()
# Another thread of the parent may have held its lock, and the child would wait for that thread for
# ever.
os.register_at_fork(after_in_child=LEFT_BEHIND.__init__)  # type: ignore[misc]


def create_temporary(folder: str, base: str) -> tuple[int, str]:
    """Create and lock a temporary file in a local folder; return its descriptor and path.

    Raises:
        OSError: the file cannot be created.
    """
    name = temporary_name(base)
    LEFT_BEHIND.remove(folder, name)
    while True:
        path = f"{folder}/{name}"
        try:
            return create_locked(path), path
        except FileExistsError:
            name = temporary_name(base)
