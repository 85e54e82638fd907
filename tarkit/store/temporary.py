"""Temporary names of files that are being written, locked as long as their writer lives, and
removed once it is dead.

A lock (flock) lasts as long as any process has the descriptor open. It is a sign of life, so it
must not live on in a child that outlives its parent: what is locked here is closed in every process
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
"""Path -> descriptor of the files that this process has created and locked; None while it does so.
"""


def temporary_name(base: str) -> str:
    """``.BASE.tarkit-RANDOM``: the name of a file ``base`` while it is written, cut to what fits
    into 255 bytes.
    """
    room = _LONGEST_NAME - len(b"..tarkit-") - _RANDOM_DIGITS
    return f".{os.fsencode(base)[:room].decode('utf-8', 'ignore')}.tarkit-{os.urandom(_RANDOM_DIGITS // 2).hex()}"


def is_temporary_name(name: str) -> bool:
    """Whether a file of this name is being written, or its writer was killed."""
    return _NAME.fullmatch(name) is not None


def try_lock(fd: int) -> bool:
    """Lock an open file for this process; False: another one has locked it.

    Raises:
        OSError: the filesystem has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def may_run(pid: str | bytes) -> bool:
    """Whether there may be a process of this number; True as well if that is not known."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def create_locked(path: str) -> int:
    """Create a file that must not exist yet, and lock it.

    Its descriptor, which :func:`close_locked` closes. It is removed when this process ends before
    that. Raises: FileExistsError.

    Raises:
        OSError: it cannot be created.
    """
    # Noted before it is there: a signal may come before the caller has it.
    _held[path] = None
    try:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # Filesystems without locks have no stale files removed either, so nothing is at risk
            # there.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                _held[path] = fd
                return fd
            # Between open and flock another process took it for one whose writer is dead.
            os.close(fd)
    except OSError:
        del _held[path]
        raise


def close_locked(fd: int, path: str) -> None:
    """Close a file that :func:`create_locked` made under ``path``, when it has its final name or is
    removed.

    An error of the disk comes too late here: call :func:`raise_delayed` before the file gets its
    name.
    """
    with suppress(OSError):
        os.close(fd)
    _held.pop(path, None)


def raise_delayed(fd: int) -> None:
    """Raise what a network file system reports only when a file is closed, without closing it: the
    disk is full.

    Raises: OSError.
    """
    os.close(os.dup(fd))


def remove_held() -> None:
    """At the end of the process: remove the files that were created and not closed."""
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
    """Remove a file that no living process writes; whether that was done.

    Raises:
        OSError: it may not be removed, or the filesystem has no locks that would show whether it is
            written.
    """
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not try_lock(fd):
            return False
        os.unlink(path)
    finally:
        os.close(fd)
    return True


def _stays(path: str) -> bool:
    try:
        return not remove_if_dead(path)
    except OSError:
        # Of another user, or gone meanwhile: to publish does not depend on it.
        return True


class LeftBehind:
    """Temporary files that other writers left in folders, or are writing, as the last listing of
    each gave them.

    A folder is listed again only once a hundred times as long has passed as its last listing took,
    so that publishing costs the same with a million files in it as with none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[float, dict[str, list[str]]]] = {}

    def remove(self, folder: str, name: str) -> None:
        """Remove the other temporary files of the file of which ``name`` is one, whose writers are
        gone.
        """
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
            # A writer that is alive now may be killed before the next listing: it is looked at
            # again.
            if alive := list(filter(_stays, found.pop(prefix, []))):
                found[prefix] = alive


def _temporary_files(folder: str) -> dict[str, list[str]]:
    """Paths of the files under temporary names in a folder, by what comes before the random digits."""
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
    """Create and lock a file in a local folder under a :func:`temporary_name`: descriptor and path.

    Raises:
        OSError: it cannot be created.
    """
    name = temporary_name(base)
    LEFT_BEHIND.remove(folder, name)
    while True:
        path = f"{folder}/{name}"
        try:
            return create_locked(path), path
        except FileExistsError:
            name = temporary_name(base)
