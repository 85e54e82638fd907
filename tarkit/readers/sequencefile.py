"""Pairs of Hadoop SequenceFiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.formats.sequencefile import read_pairs
from tarkit.readers.files import FileDataReader


class SequenceFileDataReader(FileDataReader):
    """Pairs of SequenceFiles, each a tuple (key, value).

    A file has no index of its pairs, so that each task reads it from its beginning: files of a task each are best.
    """

    def count(self, url: str) -> int:
        return sum(1 for _ in read_pairs(url, raw=True))

    def read(self, url: str, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        return islice(read_pairs(url), start, None)
