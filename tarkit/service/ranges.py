"""Ranges of a shard's records, [first, end) in their order: sorted, none adjacent to another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from tarkit.errors import UsageError


def covered_records(ranges: Sequence[tuple[int, int]]) -> int:
    """Number of records in the ranges."""
    return sum(end - first for first, end in ranges)


def merged_ranges(
    ranges: Sequence[tuple[int, int]], more: Iterable[tuple[int, int]], records: int
) -> list[tuple[int, int]]:
    """The union of ranges and of more, which may overlap.

    Raises:
        UsageError: one of these is not in a shard of so many records.
    """
    union = list(ranges)
    for first, end in checked_ranges(more, records):
        add_range(union, first, end)
    return union


def checked_ranges(ranges: Iterable[tuple[int, int]], records: int) -> list[tuple[int, int]]:
    """The ranges.

    Raises:
        UsageError: one of them is not in a shard of so many records.
    """
    found = list(ranges)
    for first, end in found:
        if not 0 <= first < end <= records:
            raise UsageError(f"records {first} to {end} are not in a shard of {records} records")
    return found


def add_range(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    """Add a range to ranges that are sorted and do not touch, which they are then, too."""
    at = len(ranges)
    if ranges and first < ranges[-1][1]:
        at = bisect_left(ranges, (first,))
    at -= at > 0 and first <= ranges[at - 1][1]
    behind = at
    while behind < len(ranges) and ranges[behind][0] <= end:
        behind += 1
    if behind > at:
        first, end = min(first, ranges[at][0]), max(end, ranges[behind - 1][1])
    ranges[at:behind] = [(first, end)]


def missing_ranges(ranges: Sequence[tuple[int, int]], records: int) -> list[tuple[int, int]]:
    """What the ranges leave of a shard of so many records."""
    edges = [0, *(edge for pair in ranges for edge in pair), records]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]
