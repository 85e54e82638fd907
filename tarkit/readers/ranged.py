"""Readers of files whose records have offsets: a task begins at the last known one before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.readers.files import FileDataReader
from tarkit.store.compression import SNIFF_BYTES, begins_zlib, sniff
from tarkit.store.rangedfile import open_range
from tarkit.store.read import first_bytes, open_read


def is_compressed(url: str) -> bool:
    """Return True if the first bytes may be compressed data, so that records have no offsets."""
    head = first_bytes(url, SNIFF_BYTES, compression=None)
    return sniff(head) is not None or begins_zlib(head)


def blocks_from(url: str, offset: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file from an offset on.

    Args:
        offset: offset in a file that is not compressed, or 0.
    """
    if offset:
        with open_range(url, offset) as read:
            yield from iter(lambda: read(1 << 20), b"")
    else:
        with open_read(url) as stream:
            yield from iter(lambda: stream.read(1 << 20), b"")


class RangedDataReader(FileDataReader):
    """A reader that remembers the offset of every n-th record, where later tasks begin."""

    every = 1024
    _indexes: dict[str, list[int]]
    """Offsets of each file; none of a compressed one."""

    def _counts_by_reading(self, url: str) -> bool:
        return True

    def count(self, url: str) -> int:
        offsets, number = [], 0
        for number, offset in enumerate(self.offsets(url), 1):
            if number % self.every == 1:
                offsets.append(offset)
        # What an earlier file of this name had is no longer true.
        self._indexes[url] = [] if is_compressed(url) else offsets
        return number

    def read(self, url: str, start: int, end: int) -> Iterator[Any]:
        offsets = self._indexes.get(url, [])
        known = max(0, min(start // self.every, len(offsets) - 1))
        return islice(self.read_from(url, offsets[known] if known else 0), start - known * self.every, None)

    @abstractmethod
    def offsets(self, url: str) -> Iterator[int]:
        """Yield the offset of each record of a file."""

    @abstractmethod
    def read_from(self, url: str, offset: int) -> Iterator[Any]:
        """Yield the records from one of these offsets on; 0: from the first record on."""
