"""What a forked process has of its parent and cannot use: open streams, and libraries with threads
of their own.
"""

from __future__ import annotations

import os

from tarkit.errors import StreamError

_used: set[str] = set()
_inherited: set[str] = set()
os.register_at_fork(after_in_child=lambda: _inherited.update(_used))


def is_inherited(library: str) -> bool:
    """Whether this process was forked from one that has used a library.

    And note that this one uses it now.
    """
    _used.add(library)
    return library in _inherited


class Owner:
    """The process that opened a stream.

    A fork leaves its threads and its turn on a connection or file to the parent: a child that read,
    wrote or closed it would take bytes from the parent, or wait for ever.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def is_here(self) -> bool:
        """Whether it is this process."""
        return os.getpid() == self._process

    def check(self, url: str | None = None) -> None:
        """Raises:
        StreamError: it is not this process.
        """
        if not self.is_here():
            raise StreamError(
                "the stream was opened before this process was forked; open it in the new process", url=url
            )
