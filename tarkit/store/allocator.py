"""Keep freed memory for the next sample, instead of returning it to the system."""

from __future__ import annotations

from functools import cache

_BLOCK = 16 * 1024 * 1024
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD = 32 * 1024 * 1024


@cache
def keep_freed_memory() -> None:
    """Keep freed blocks of up to 16 MiB in the C library, at most 32 MiB in total.

    Samples are allocated and freed all the time. By default glibc returns memory at the end of its
    heap as soon as 128 KiB are free there, and blocks above that size at once; the system then has
    to clear new pages for the next sample, which takes longer than reading it. glibc raises both
    limits by itself when a large block is freed (mallopt(3), M_MMAP_THRESHOLD), so one is
    allocated, never touched, and freed; once, because later ones would come from the heap and be
    cleared. Without glibc this does nothing.
    """
    bytes(_BLOCK)


def keep_all_freed_memory() -> None:
    """Keep all freed blocks of up to 32 MiB in the C library.

    It is for a process that only makes batches: a batch of decoded photos is larger than the blocks
    that :func:`keep_freed_memory` keeps. Without glibc this does nothing.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
