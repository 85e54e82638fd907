"""Read a plain local file: without the content that is only copied, or with one copy of it."""

from __future__ import annotations

import os

from tarkit.store.fieldfile import FieldFile
from tarkit.store.local import FileReader

_SMALL, _BIG = 4 << 10, 256 << 10


class InPlaceReader:
    """A reader of a plain local file that can skip bytes, and refer to them.

    Reads are small at first, after a skip and after large content, since the next header is enough
    then, and grow.

    Args:
        source: the open file, which must be seekable.
    """

    def __init__(self, source: FileReader) -> None:
        self._source = source
        self._most = _SMALL
        fd = source.file.fileno()
        self._file = FieldFile.opened(os.dup(fd), source.name, start=source.file.tell(), watched=source.watched)

    @property
    def position(self) -> int:
        """Number of bytes that were read or skipped."""
        return self._source.position

    def read(self, count: int) -> bytes:
        """Read 1 to ``count`` bytes, b"" at the end, after the file was checked for changes."""
        data = self._source.read(min(count, self._most))
        self._most = min(self._most * 4, _BIG)
        return data

    def skip(self, count: int) -> bool:
        """Skip bytes; if the file has fewer, skip none and return False."""
        fits = self.position + count <= len(self._file)
        if fits:
            self._source.position += count
            self._most = _SMALL
        return fits

    def take(self, held: int, count: int) -> bytes | None:
        """Read exactly ``count`` bytes into an object of their own; None if the file has fewer.

        The next read returns what follows them, or, after None, what it would have returned.

        Args:
            held: number of these bytes that were read before, but not used.
            count: number of bytes.
        """
        self._most = _SMALL
        return self._source.read_exactly(held, count)

    def part(self, start: int, end: int, member: str | None = None) -> FieldFile:
        """Return the bytes from ``start`` up to, not including, ``end`` without reading them."""
        return self._file.part(start, end - start, member)
