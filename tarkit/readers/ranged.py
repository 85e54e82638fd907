"""Bytes of a file from an offset on, wherever it is, without what is before it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import LocatedError
from tarkit.store.compression import SNIFF_BYTES, sniff
from tarkit.store.entries import stat
from tarkit.store.read import open_read, read_range

BLOCK = 4 << 20
"""Bytes of one request."""


class RangedFile(io.RawIOBase):
    """A seekable file over requests for ranges. size: of it, in bytes.

    Raises:
        MissingInputError: there is nothing of this name. StreamError, TemporaryStreamError: it cannot be read.
        DataError: its size has changed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.size = stat(url).size or 0
        self._at = 0
        self._block, self._block_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; b"" at the end."""
        end = self.size if size is None or size < 0 else min(self.size, self._at + size)
        wanted = max(0, end - self._at)
        start = self._at - self._block_at
        if not 0 <= start <= len(self._block) - wanted:
            last = min(self.size, max(end, self._at + BLOCK))
            self._block, self._block_at, start = read_range(self._url, self._at, last, size=self.size), self._at, 0
        self._at += wanted
        return self._block[start : start + wanted]

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def is_compressed(url: str) -> bool:
    """Whether its first bytes are those of a compression, so that its records have no offsets of their own."""
    with open_read(url, compression=None) as stream:
        return sniff(stream.read(SNIFF_BYTES)) is not None


@contextmanager
def offsets_from(base: int, url: str) -> Iterator[None]:
    """Errors within it tell offsets in the whole file, of which what is read begins at ``base``."""
    try:
        yield
    except LocatedError as error:
        error.url = url
        if error.offset is not None:
            error.offset += base
        raise


def blocks_from(url: str, offset: int) -> Iterator[bytes]:
    """What a file has from an offset on, decompressed, in pieces. offset: of a file that is not compressed, or 0."""
    if offset:
        file = RangedFile(url)
        file.seek(offset)
        yield from iter(lambda: file.read(BLOCK), b"")
    else:
        with open_read(url) as stream:
            yield from iter(lambda: stream.read(1 << 20), b"")
