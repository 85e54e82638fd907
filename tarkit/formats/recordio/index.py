"""The index of a RecordIO file: the places of its chunks and the numbers of their records."""

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
from tarkit.store.ranges import Ranges

_WINDOW = 64 * 1024
"""Size in bytes of one read, which has the headers of many small chunks."""


class IndexedChunk(NamedTuple):
    """The place of a chunk and its records.

    Attributes:
        offset: offset of the header in bytes.
        size: size in bytes, with the header.
        records: number of records.
        first: number of the first record.
    """

    offset: int
    size: int
    records: int
    first: int


@dataclass(frozen=True)
class RecordIndex:
    """The chunks of a file.

    Attributes:
        size: size of the file in bytes.
        chunks: in the order of the file.
    """

    size: int
    chunks: tuple[IndexedChunk, ...]

    @property
    def records(self) -> int:
        """Number of records in the file."""
        return self.chunks[-1].first + self.chunks[-1].records if self.chunks else 0

    def covering(self, start: int, stop: int) -> tuple[IndexedChunk, ...]:
        """Return the chunks with the records from ``start`` up to, not including, ``stop``.

        Args:
            start: number of the first record, from 0.
            stop: number after the last record.
        """
        begin = bisect_right(self.chunks, start, key=lambda chunk: chunk.first + chunk.records)
        end = bisect_right(self.chunks, stop - 1, key=lambda chunk: chunk.first)
        return self.chunks[begin:end]


class RangeSource(NamedTuple):
    """A file that can be read in ranges.

    Attributes:
        name: name for messages.
        size: size in bytes.
        read: function from two offsets to the bytes between them; it raises StreamError if the file
            was replaced since this object was made.
    """

    name: str
    size: int
    read: Callable[[int, int], bytes]


def read_index(source: str | os.PathLike[str] | BinaryIO) -> RecordIndex:
    """Read the index of a RecordIO file of either dialect.

    Only headers are read, by ranges: content is not verified.

    Args:
        source: a path, a URL of a place that reads ranges, or a binary file object that can seek.
            It is not decompressed.

    Raises:
        CorruptRecordError: no chunk begins where the one before ends, or a chunk is too small for
            its number of records.
        TruncatedError: the file ends inside a chunk.
        UsageError: the source cannot be read in ranges.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read, or was replaced while it was read.
        TemporaryStreamError: the file cannot be read now.
    """
    file = range_source(source)
    return RecordIndex(file.size, tuple(_chunks(file)))


def range_source(source: str | os.PathLike[str] | BinaryIO) -> RangeSource:
    """Return the file behind a path, URL or file object.

    Raises:
        UsageError: the source cannot be read in ranges.
        MissingInputError: the file does not exist.
    """
    if isinstance(source, (str, os.PathLike)):
        # A path object is always a local path, even if it looks like a URL.
        url = source if isinstance(source, str) else os.path.abspath(source)
        ranges = Ranges(url)
        if ranges.identity.size is None:
            raise UsageError(f"{display_name(url)}: its length is not known, so ranges of it cannot be read")
        return RangeSource(display_name(url), ranges.identity.size, ranges.read)
    if not source.seekable():
        raise UsageError("the file object cannot seek, so ranges of it cannot be read")
    size = source.seek(0, os.SEEK_END)
    return RangeSource(name_of_file(source), size, partial(_seek_and_read, source))


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
            # Content is not read here, so a wrong count would not be noticed.
            reason = f"a chunk of {header.size} bytes cannot hold {header.records} records"
            raise CorruptRecordError(reason, url=file.name, offset=offset, hint=DAMAGED_HINT)
        yield IndexedChunk(offset, size, header.records, first)
        offset += size
        first += header.records
