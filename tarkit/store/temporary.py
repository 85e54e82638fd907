"""Temporary names of files that are being written, locked as long as their writer lives, and removed once it is dead.

A lock (flock) lasts as long as any process has the descriptor open. It is a sign of life, so it must not live on in a
child that outlives its parent: what is locked here is closed in every process that is forked from this one.
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
_LONGEST_NAME = 255
_LISTING_SHARE = 100
_MOST_FOLDERS = 1000

_locked: set[int] = set()
_unfinished: set[str] = set()


def temporary_prefix(base: str) -> str:
    """``.BASE.tarkit-``, with which all temporary names of a file begin; cut to fit where a name has 255 bytes."""
    room = _LONGEST_NAME - len(b"..tarkit-12345678")
    return f".{os.fsencode(base)[:room].decode('utf-8', 'ignore')}.tarkit-"


def create_temporary(folder: str, prefix: str) -> tuple[int, str]:
    """Create a file in a local folder under a name with a :func:`temporary_prefix`, and lock it: descriptor and path.

    Raises:
        OSError: it cannot be created.
    """
    while True:
        path = f"{folder}/{prefix}{os.urandom(4).hex()}"
        # Noted before it is there: a signal may come before the caller has it.
        _unfinished.add(path)
        try:
            return create_locked(path), path
        except FileExistsError:
            _unfinished.discard(path)


def close_temporary(fd: int, path: str) -> None:
    """Close a file that :func:`create_temporary` made, when it has its final name or is removed."""
    close_locked(fd)
    _unfinished.discard(path)


def remove_unfinished() -> None:
    """At the end of the process: remove the temporary files that are still there."""
    while _unfinished:
        with suppress(OSError):
            os.unlink(_unfinished.pop())


def temporary_name(base: str) -> str:
    """``.BASE.tarkit-RANDOM``: the name under which a file ``base`` is written."""
    return temporary_prefix(base) + os.urandom(4).hex()


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
    """Create a file that must not exist yet, and lock it; its descriptor, which :func:`close_locked` closes.

    Raises:
        FileExistsError. OSError: it cannot be created.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            # Filesystems without locks have no stale files removed either, so nothing is at risk there.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                _locked.add(fd)
                return fd
        except BaseException:
            # A signal's, since the calls themselves hardly fail.
            os.unlink(path)
            raise
        # Between open and flock another process took it for one whose writer is dead.
        os.close(fd)


def close_locked(fd: int) -> None:
    """Close a file that :func:`create_locked` made; its lock ends."""
    _locked.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    for fd in _locked:
        with suppress(OSError):
            os.close(fd)
    _locked.clear()
    _unfinished.clear()


os.register_at_fork(after_in_child=_close_in_child)
atexit.register(remove_unfinished)


def is_locked(path: str) -> bool:
    """Whether a living process writes this file; True as well if that is not known."""
    fd = _open(path)
    if fd is None:
        return True
    try:
        return not try_lock(fd)
    except OSError:
        return True
    finally:
        os.close(fd)


def remove_if_dead(path: str) -> bool:
    """Remove a file whose writer is dead; False: the writer lives."""
    fd = _open(path)
    if fd is None:
        return True
    try:
        if not try_lock(fd):
            return False
        os.unlink(path)
    except OSError:
        # No locks here, or no right to remove it: it stays, and is not asked about again.
        return True
    finally:
        os.close(fd)
    return True


def _open(path: str) -> int | None:
    """None: it is gone, since another process removed it; or it is not ours, since ours can be opened."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None


class LeftBehind:
    """Temporary files that other writers left in folders, or are writing, as the last listing of each gave them.

    A folder is listed again only once a hundred times as long has passed as its last listing took, so that
    publishing costs the same with a million files in it as with none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}
        self._found: dict[tuple[str, str], list[str]] = {}

    def remove(self, folder: str, prefix: str) -> None:
        """Remove the temporary files in ``folder`` that begin with ``prefix`` and whose writers are gone."""
        with self._lock:
            start = time.monotonic()
            if start >= self._due.get(folder, 0.0):
                self._list(folder)
                end = time.monotonic()
                self._due[folder] = end + _LISTING_SHARE * (end - start)
            # A writer that is alive now may be killed before the next listing: it is looked at again.
            alive = [path for path in self._found.pop((folder, prefix), []) if not remove_if_dead(path)]
            if alive:
                self._found[folder, prefix] = alive

    def _list(self, folder: str) -> None:
        if len(self._due) >= _MOST_FOLDERS:
            self._due.clear()
            self._found.clear()
        with os.scandir(folder) as entries:
            paths = [(match[1], entry.path) for entry in entries if (match := _NAME.fullmatch(entry.name))]
        for prefix, path in paths:
            known = self._found.setdefault((folder, prefix), [])
            if path not in known:
                known.append(path)


LEFT_BEHIND = LeftBehind()
