"""How much memory Python allocates while something runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tarkit.store.allocator import keep_freed_memory


@contextmanager
def traced_peak() -> Iterator[Callable[[], int]]:
    """Within it, a function that gives the most bytes that were allocated at a time so far."""
    # Takes 16 MiB for a moment, once in a process: which test is the first to read with it is
    # chance.
    keep_freed_memory()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
