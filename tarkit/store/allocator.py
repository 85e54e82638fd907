"""Keeps memory that was freed for the next sample, instead of giving it back to the system."""

from __future__ import annotations

from functools import cache

_BLOCK = 16 * 1024 * 1024


@cache
def keep_freed_memory() -> None:
    """Let the C library keep freed blocks of up to 16 MiB, at most 32 MiB in all.

    Samples are allocated and freed in an unending row. By default glibc gives memory at the end of its heap back as
    soon as 128 KiB are free there, and blocks above that size at once; the system then has to clear new pages for the
    next sample, which takes longer than reading it. glibc raises both limits by itself when a large block is freed
    (mallopt(3), M_MMAP_THRESHOLD), so one is allocated, never touched, and freed;
    once, since later ones would come from that very heap and be cleared. Elsewhere this does nothing."""
    bytes(_BLOCK)
