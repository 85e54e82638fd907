"""File descriptors that no forked child may keep.

A lock on a file lasts as long as any process has the descriptor open. What is locked as a
sign of life must therefore not live on in a child that outlives its parent.
"""

from __future__ import annotations

import os
from contextlib import suppress

_own: set[int] = set()


def keep_from_children(fd: int) -> None:
    """Have ``fd`` closed in every process that is forked from now on."""
    _own.add(fd)


def close(fd: int) -> None:
    """Close it here, and forget about it."""
    _own.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    for fd in _own:
        with suppress(OSError):
            os.close(fd)
    _own.clear()


os.register_at_fork(after_in_child=_close_in_child)
