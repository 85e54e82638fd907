"""A file at any place of the store that is read from any byte on, by ranges."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tarkit.errors import DataError, LocatedError, StreamError
from tarkit.names.url import display_name, local_path
from tarkit.store.entries import Identity, check_same, identify
from tarkit.store.local import open_path
from tarkit.store.read import read_range, reading

Read = Callable[[int], bytes]
BLOCK = 4 << 20
"""Bytes of one request, at least."""
_REQUEST = 16 << 20


@contextmanager
def offsets_from(base: int, url: str) -> Iterator[None]:
    """Errors within it have offsets in the whole file, of which what is read begins at ``base``."""
    try:
        yield
    except LocatedError as error:
        error.url = url
        if error.offset is not None:
            error.offset += base
        raise


@contextmanager
def open_range(url: str, start: int, stop: int | None = None, *, known: Identity | None = None) -> Iterator[Read]:
    """``read(n)`` for what a file has from ``start`` up to ``stop``: 1 to n bytes, b"" at the end.

    A local file is read piece by piece, any other by requests of 16 MiB; after each of them the
    file is still the same one.

    Args:
        known: which one it must be.

    Raises:
        DataError: it is another one. As :class:`RangedFile`.
    """
    file = RangedFile(url, stop)
    if known not in (None, file.identity):
        raise DataError("was replaced since it was looked at", url=display_name(url))
    file.seek(start)
    if (path := local_path(url)) is None:
        yield reading(iter(lambda: file.read(_REQUEST), b""))
        return
    reader = open_path(path, display_name(url))
    try:
        reader.file.seek(start)

        def read(count: int) -> bytes:
            wanted = min(count, file.left)
            data = reader.read(wanted)
            check_same(url, file.identity)
            if wanted and not data:
                raise StreamError("it was cut while it was read", url=display_name(url))
            file.seek(len(data), io.SEEK_CUR)
            return data

        yield read
    finally:
        reader.close()


class RangedFile(io.RawIOBase):
    """A seekable file over requests for ranges.

    Args:
        stop: where what is wanted of it ends; nothing behind it is asked for.

    Attributes:
        size: of it, in bytes.
        identity: of it, when it was opened.

    Raises:
        MissingInputError: there is nothing of this name.
        UsageError: the place cannot be read in parts.
        StreamError, TemporaryStreamError: it cannot be read, or its length is not known, or (from
            read) it was replaced meanwhile.
        DataError: its size has changed.
    """

    def __init__(self, url: str, stop: int | None = None) -> None:
        self._url = url
        self.identity = identify(url)
        if self.identity.size is None:
            raise StreamError("its length is not known, so it cannot be read in parts", url=display_name(url))
        self.size = self.identity.size
        self._stop = self.size if stop is None else min(stop, self.size)
        self._at = 0
        self._block, self._block_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    @property
    def left(self) -> int:
        """How many bytes there are up to ``stop``."""
        return max(0, self._stop - self._at)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._stop)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; b"" at the end."""
        end = self._stop if size is None or size < 0 else min(self._stop, self._at + size)
        wanted = max(0, end - self._at)
        start = self._at - self._block_at
        if not 0 <= start <= len(self._block) - wanted:
            last = min(self._stop, max(end, self._at + BLOCK))
            self._block, self._block_at, start = read_range(self._url, self._at, last, size=self.size), self._at, 0
            check_same(self._url, self.identity)
        self._at += wanted
        return self._block[start : start + wanted]

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
