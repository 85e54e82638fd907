"""Pairs of Hadoop SequenceFiles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.formats.sequencefile import PairIndex, read_index, read_pairs
from tarkit.readers.files import FileDataReader
from tarkit.readers.ranged import is_compressed


class SequenceFileDataReader(FileDataReader):
    """A reader of SequenceFiles; each record is a pair (key, value).

    A task reads a file from the last sync mark before its first pair.
    """

    _indexes: dict[str, PairIndex]
    """Index of each file; without offsets if it is compressed as a whole."""

    def count(self, url: str) -> int:
        index = read_index(url)
        # A file that is compressed as a whole cannot be read from an offset of its content.
        self._indexes[url] = index._replace(offsets=[], firsts=[]) if is_compressed(url) else index
        return index.records

    def read(self, url: str, start: int, end: int) -> Iterator[tuple[Any, Any]]:
        index = self._indexes.get(url)
        known = bisect_right(index.firsts, start) - 1 if index is not None else 0
        if index is None or known < 1:
            return islice(read_pairs(url), start, None)
        return islice(read_pairs(url, start=index.offsets[known]), start - index.firsts[known], None)
