"""Into how many slices a run is cut."""

from __future__ import annotations

import math

from tarkit.errors import UsageError
from tarkit.k8s.limits import INDEXES

USUAL_MOST = 10_000
"""Slices, unless the user says how many."""


def slice_count(
    n: int, parallelism: int, work_seconds: float | None, slice_target: float = 600.0, *, slices: int | None = None
) -> int:
    """Into how many slices ``n`` shards are cut: ``slices`` if it is given, never more than there are shards.

    By itself: so many that one takes ``slice_target`` seconds of the ``work_seconds`` in all, and at least four for
    each of ``parallelism`` pods; a slice for each shard if the work is not known; at most 10,000.

    Raises:
        UsageError: no shards; a number below 1; more than 100,000 slices.
    """
    if n < 1:
        raise UsageError("there are no shards to cut into slices")
    if parallelism < 1:
        raise UsageError(f"--parallelism {parallelism}: at least one pod must run")
    if slices is not None:
        # With more completions a Job cannot have maxFailedIndexes as we set it.
        if not 1 <= slices <= INDEXES:
            raise UsageError(f"--slices {slices}: a Job can have 1 to {INDEXES:,} of them")
        return min(n, slices)
    if work_seconds is None:
        return min(n, USUAL_MOST)
    if not work_seconds >= 0 or not slice_target > 0:
        raise UsageError(f"{work_seconds:g} s of work in slices of {slice_target:g} s: --slice-target must be positive")
    return min(n, USUAL_MOST, max(4 * parallelism, math.ceil(work_seconds / slice_target)))
