"""The index of a RecordIO file: where its chunks are, and which records are in them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, NamedTuple

from tarkit.errors import CorruptRecordError, UsageError
from tarkit.formats.recordio.chunk import HEADER_SIZE
from tarkit.formats.recordio.walk import chunk_header, cut
from tarkit.formats.tally import DAMAGED_HINT
from tarkit.names.url import display_name, name_of_file
from tarkit.store.entries import check_same, identify
from tarkit.store.read import read_range

_WINDOW = 64 * 1024
"""Bytes asked for at a time: one answer has the headers of many small chunks."""


class IndexedChunk(NamedTuple):
    """Attributes:
    offset: of the header.
    size: bytes with the header.
    records: how many.
    first: the number of the first one.
    """

    offset: int
    size: int
    records: int
    first: int


@dataclass(frozen=True)
class RecordIndex:
    """Attributes:
    size: of the file, in bytes.
    chunks: in the order of the file.
    """

    size: int
    chunks: tuple[IndexedChunk, ...]

    @property
    def records(self) -> int:
        """How many records the file has."""
        return self.chunks[-1].first + self.chunks[-1].records if self.chunks else 0

    def covering(self, start: int, stop: int) -> tuple[IndexedChunk, ...]:
        """The chunks that hold the records from ``start`` up to, not including, ``stop``."""
        begin = bisect_right(self.chunks, start, key=lambda chunk: chunk.first + chunk.records)
        end = bisect_right(self.chunks, stop - 1, key=lambda chunk: chunk.first)
        return self.chunks[begin:end]


class RangeSource(NamedTuple):
    """A file of which ranges can be read.

    Attributes:
        name: as it may be shown.
        size: in bytes.
        read: bytes from, up to.
        check_same: raises StreamError if the file was replaced since this object was made.
    """

    name: str
    size: int
    read: Callable[[int, int], bytes]
    check_same: Callable[[], None]


def read_index(source: str | os.PathLike[str] | BinaryIO) -> RecordIndex:
    """The index of a RecordIO file of either dialect.

    Only headers are read, by ranges: content is not verified.

    Args:
        source: a path, a URL of a place that reads ranges, or a binary file object that can seek.
            It is not decompressed.

    Raises:
        CorruptRecordError: no chunk begins where the one before ends, or one is too small for its
            number of records.
        TruncatedError: the file ends inside a chunk.
        UsageError: ranges of the source cannot be read.
        StreamError: it was replaced meanwhile. What reading it raises.
    """
    file = range_source(source)
    chunks = tuple(_chunks(file))
    file.check_same()
    return RecordIndex(file.size, chunks)


def range_source(source: str | os.PathLike[str] | BinaryIO) -> RangeSource:
    """The file behind a path, URL or file object.

    Raises:
        UsageError: ranges of it cannot be read.
        MissingInputError: no such file.
    """
    if isinstance(source, (str, os.PathLike)):
        # A path object is a local path, whatever it looks like.
        url = source if isinstance(source, str) else os.path.abspath(source)
        identity = identify(url)
        if identity.size is None:
            raise UsageError(f"{display_name(url)}: its length is not known, so ranges of it cannot be read")
        read = partial(read_range, url, size=identity.size)
        return RangeSource(display_name(url), identity.size, read, partial(check_same, url, identity))
    if not source.seekable():
        raise UsageError("the file object cannot seek, so ranges of it cannot be read")
    size = source.seek(0, os.SEEK_END)
    return RangeSource(name_of_file(source), size, partial(_seek_and_read, source), lambda: None)


def _seek_and_read(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    pieces = []
    while start < stop and (piece := file.read(stop - start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _chunks(file: RangeSource) -> Iterator[IndexedChunk]:
    offset = first = begin = 0
    window = b""
    while offset < file.size:
        if offset + HEADER_SIZE > begin + len(window):
            begin, window = offset, file.read(offset, min(offset + _WINDOW, file.size))
        header = chunk_header(window[offset - begin : offset - begin + HEADER_SIZE], file.name, offset)
        size = HEADER_SIZE + header.size
        if offset + size > file.size:
            raise cut(f"a chunk: {file.size - offset} of {size} bytes are there", file.name, offset)
        if not header.is_possible:
            # Content is not looked at, so what is counted here would be believed.
            reason = f"a chunk of {header.size} bytes cannot hold {header.records} records"
            raise CorruptRecordError(reason, url=file.name, offset=offset, hint=DAMAGED_HINT)
        yield IndexedChunk(offset, size, header.records, first)
        offset += size
        first += header.records
