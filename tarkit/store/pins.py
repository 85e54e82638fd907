"""Names in a local folder that processes still need, so that no process removes these files.

A name is one byte of a file that a process locks (POSIX record locks): any number of processes can
lock it, one file is open for any number of names, and a process that is killed needs nothing.
"""

from __future__ import annotations

import fcntl
import functools
import os
import threading
from collections import Counter
from contextlib import suppress
from hashlib import blake2b

_NAME = ".lock-pins"


class Pins:
    """The names that processes need in a folder; see :func:`pins_of`.

    Args:
        folder: the folder, which exists.

    Raises:
        OSError: the file of locks cannot be opened.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Never closed: that would release all locks of the process.
        self._file = os.open(f"{folder}/{_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.begin_process()

    def begin_process(self) -> None:
        """Need nothing: locks stay with the parent of a process that was forked."""
        self._lock = threading.Lock()
        self._counts = Counter[str]()

    def add(self, name: str) -> None:
        """Need a name, once more."""
        with self._lock:
            if not self._counts[name]:
                fcntl.lockf(self._file, fcntl.LOCK_SH, 1, _place(name))
            self._counts[name] += 1

    def drop(self, name: str) -> None:
        """Need a name once less."""
        with self._lock:
            self._counts[name] -= 1
            if self._counts[name] <= 0:
                del self._counts[name]
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(name))

    def removed(self, name: str) -> bool:
        """Remove the file of this name, unless a process needs it; return True if it is gone."""
        with self._lock:
            if name in self._counts:
                return False
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
            except OSError:
                return False
            try:
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{name}")
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(name))
            return True


def _place(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")


_all: list[Pins] = []


@functools.cache
def _opened(folder: str) -> Pins:
    _all.append(Pins(folder))
    return _all[-1]


def pins_of(folder: str) -> Pins:
    """Return the pins of a folder, the same object for all of a process.

    Raises:
        OSError: the file of locks cannot be opened.
    """
    return _opened(os.path.realpath(folder))


def _begin_child() -> None:
    for pins in _all:
        pins.begin_process()


os.register_at_fork(after_in_child=_begin_child)
