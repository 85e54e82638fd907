"""Detect open streams and libraries that a forked process inherits but cannot use."""

from __future__ import annotations

import os

from tarkit.errors import StreamError

_used: set[str] = set()
_inherited: set[str] = set()
os.register_at_fork(after_in_child=lambda: _inherited.update(_used))


def is_inherited(library: str) -> bool:
    """Return True if a parent process used a library before this process was forked.

    Also record that this process uses it now.
    """
    _used.add(library)
    return library in _inherited


class Owner:
    """The process that opened a stream.

    After a fork, the threads and the use of a connection or file stay with the parent: a child that
    reads, writes or closes the stream would take bytes from the parent, or wait forever.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def is_here(self) -> bool:
        """Return True if this process opened the stream."""
        return os.getpid() == self._process

    def check(self, url: str | None = None) -> None:
        """Check that this process opened the stream.

        Raises:
            StreamError: a parent process did.
        """
        if not self.is_here():
            raise StreamError(
                "the stream was opened before this process was forked; open it in the new process", url=url
            )
