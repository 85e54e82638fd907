"""Sets of completion indexes in Kubernetes' notation, ``0-2,4,6,7``, and their limit.

Source of the notation: the fields ``completedIndexes`` and ``failedIndexes`` of batch/v1 JobStatus;
of the numbers: pkg/apis/batch/validation of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tarkit.errors import UsageError, printable

INDEXES = 100_000
"""Limit of an Indexed Job: pods at once, and indexes that may fail."""

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")

_MOST = 10_000_000
"""Largest number of completions that a server's validation is known to accept. A longer range would
only fill the memory.
"""


def parse_indexes(text: str) -> Iterator[int]:
    """Yield the indexes of a text such as ``0-2,4``, in written order; none for an empty text."""
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{printable(part)!r} is not an index or a range of indexes; write for example 3,7-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= _MOST:
            raise UsageError(f"{printable(part)}: no Job has that many indexes")
        yield from range(first, last + 1)


def format_indexes(indexes: Iterable[int]) -> str:
    """Format indexes: ``0-2,4`` from 4, 0, 1, 2. They are sorted, and each is written once.

    Two consecutive indexes are written ``6,7`` as Kubernetes does.
    """
    parts: list[str] = []
    start = end = None
    for index in [*sorted(set(indexes)), None]:
        if start is not None and end is not None and (index is None or index != end + 1):
            parts.append(str(start) if start == end else f"{start}{'-' if end > start + 1 else ','}{end}")
            start = None
        if start is None:
            start = index
        end = index
    return ",".join(parts)
