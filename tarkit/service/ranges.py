"""Ranges of a shard's records, [first, end) in their order: sorted, none adjacent to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tarkit.errors import UsageError


def covered_records(ranges: Sequence[tuple[int, int]]) -> int:
    """Number of records in the ranges."""
    return sum(end - first for first, end in ranges)


def merged_ranges(
    ranges: Sequence[tuple[int, int]], more: Iterable[tuple[int, int]], records: int
) -> list[tuple[int, int]]:
    """The union of ranges and of more, which may overlap.
    Raises: UsageError: one of these is not in a shard of so many records."""
    joined = list(ranges)
    for first, end in more:
        if not 0 <= first < end <= records:
            raise UsageError(f"records {first} to {end} are not in a shard of {records} records")
        joined.append((first, end))
    union: list[tuple[int, int]] = []
    for first, end in sorted(joined):
        if union and first <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((first, end))
    return union


def missing_ranges(ranges: Sequence[tuple[int, int]], records: int) -> list[tuple[int, int]]:
    """What the ranges leave of a shard of so many records."""
    edges = [0, *(edge for pair in ranges for edge in pair), records]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]
