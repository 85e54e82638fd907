"""Read a file at any place of the store from any byte on, by range requests."""

from __future__ import annotations

import io
import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tarkit.errors import DataError, LocatedError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.names.url import display_name, local_path, reads_once
from tarkit.store.cache import PartCache, range_part
from tarkit.store.entries import Identity, check_same, identify
from tarkit.store.local import identity_of_status, open_path
from tarkit.store.ranges import Ranges
from tarkit.store.read import reading
from tarkit.store.registry import offered
from tarkit.store.seekablefile import SeekableFile

Read = Callable[[int], bytes]
BLOCK = 4 << 20
"""Smallest size of one request in bytes."""
_REQUEST = 16 << 20


@contextmanager
def offsets_from(base: int, url: str) -> Iterator[None]:
    """Add ``base`` to the offsets of errors in the block, whose bytes begin there in the file."""
    try:
        yield
    except LocatedError as error:
        error.url = url
        if error.offset is not None:
            error.offset += base
        raise


def identity_for_parts(url: str) -> Identity | None:
    """Return the identity of a file that its place can read in parts; None for all others.

    None also if the place does not report a size: reading the file may say more.

    Raises:
        TemporaryStreamError: the place does not answer now.
    """
    serves_parts = offered(url, "serves_parts")
    try:
        if reads_once(url) or (serves_parts is not None and not serves_parts(url)):
            return None
        identity = identify(url)
    except TemporaryStreamError:
        raise
    except (MissingInputError, StreamError):
        return None
    return None if identity.size is None else identity


@contextmanager
def open_range(url: str, start: int, stop: int | None = None, *, known: Identity | None = None) -> Iterator[Read]:
    """Open a range of a file; return a function ``read(n)``: 1 to n bytes, b"" at the end.

    A local file is read piece by piece, any other by requests of 16 MiB; after each of them the
    identity of the file is checked.

    Args:
        url: path or URL of the file.
        start: first byte.
        stop: byte after the last one; None: up to the end.
        known: identity that the file must have.

    Raises:
        DataError: the file has a different identity or size.
        MissingInputError: the file does not exist.
        UsageError: the place cannot read ranges.
        StreamError: the file cannot be read, or was replaced while it was read.
        TemporaryStreamError: the file cannot be read now.
    """
    file = RangedFile(url, stop)
    if known not in (None, file.identity):
        raise DataError("was replaced since its identity was read", url=display_name(url))
    file.seek(start)
    if (path := local_path(url)) is None:
        yield reading(iter(lambda: file.read(_REQUEST), b""))
        return
    reader = open_path(path, display_name(url))
    try:
        reader.position = start

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


class RangedFile(SeekableFile):
    """A seekable file over range requests.

    Args:
        file: path or URL of the file, or the file if it is open already.
        stop: offset where the wanted part ends; no byte after it is requested. None: all of it.
        least: smallest size of one request in bytes; None: ``BLOCK``.
        cache: cache that keeps each range that is read, if the identity of the file is known.

    Attributes:
        url: path or URL of the file.
        size: size of the file in bytes.
        identity: identity of the file when it was opened.

    Raises:
        MissingInputError: the file does not exist.
        UsageError: the place cannot read ranges.
        StreamError: the file cannot be read, its size is not known, or (from read) it was replaced.
        TemporaryStreamError: the file cannot be read now.
        DataError: the size of the file has changed.
    """

    def __init__(
        self,
        file: str | Ranges,
        stop: int | None = None,
        least: int | None = None,
        cache: PartCache | None = None,
    ) -> None:
        self._ranges = Ranges(file) if isinstance(file, str) else file
        self.url, self.identity = self._ranges.url, self._ranges.identity
        if self.identity.size is None:
            raise StreamError("its length is not known, so it cannot be read in parts", url=display_name(self.url))
        self.size = self.identity.size
        super().__init__(self.size if stop is None else min(stop, self.size))
        self._least = BLOCK if least is None else least
        self._cache = None if None in self.identity else cache
        self._block, self._block_at = b"", 0

    @property
    def left(self) -> int:
        """Number of bytes up to ``stop``."""
        return max(0, self._stop - self._at)

    def bytes_between(self, begin: int, end: int) -> bytes:
        start = begin - self._block_at
        if not 0 <= start <= len(self._block) - (end - begin):
            last = min(self._stop, max(end, begin + self._least))
            self._block, self._block_at, start = self._requested(begin, last), begin, 0
        return self._block[start : start + end - begin]

    def _requested(self, begin: int, end: int) -> bytes:
        if self._cache is None:
            return self._ranges.read(begin, end)
        return self._cache.get(range_part(self.url, self.identity, begin, end), lambda: self._ranges.read(begin, end))


class OpenFile(SeekableFile):
    """A local file that stays open until it is closed, or not used any more.

    Args:
        url: path or URL of the file.
        descriptor: descriptor of the file, which belongs to this object.

    Attributes:
        url: path or URL of the file.
        status: status of the file when it was opened.
        size: size of the file in bytes.
        identity: identity of the file when it was opened.
    """

    def __init__(self, url: str, descriptor: int) -> None:
        self.url, self._descriptor = url, descriptor
        self.status = os.fstat(descriptor)
        self.size, self.identity = self.status.st_size, identity_of_status(self.status)
        super().__init__(self.size)

    def bytes_between(self, begin: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - begin, begin)

    def is_changed(self) -> bool:
        """Return True if the file was written to since it was opened."""
        now = os.fstat(self._descriptor)
        return (now.st_size, now.st_mtime_ns) != (self.size, self.status.st_mtime_ns)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def open_local(url: str) -> OpenFile | None:
    """Open a file of this machine.

    None if it is not a regular one, or cannot be opened: :class:`RangedFile` reports why.
    """
    path = local_path(url)
    with suppress(OSError):
        if path is not None:
            # Without O_NONBLOCK, a named pipe would wait for its writer.
            file = OpenFile(url, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            if modes.S_ISREG(file.status.st_mode):
                return file
            file.close()
    return None
