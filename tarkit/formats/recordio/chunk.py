"""A chunk of a RecordIO file: its header in both dialects, its checksum, its compression.

Numbers are little-endian.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tarkit.errors import CompressionError
from tarkit.store.checksums import crc32
from tarkit.store.compression import Compressor, DecompressingReader, new_compressor

MAGIC = b"\x04\x03\x02\x01"
HEADER_SIZE = 20
LENGTH = struct.Struct("<I")
MOST = 0xFFFF_FFFF
"""The largest number that fits into a field."""

_NUMBERS = struct.Struct("<4I")
_PIECE = 1 << 20
_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_BLOCK = 1 << 16
_SNAPPY_FRAMES = 1 << 17
"""Bytes of frames that are decompressed at a time.

The frames and their content fit into the processor's cache.
"""
_SNAPPY_RATIO = 22
"""A snappy copy of 3 bytes gives at most 64 bytes."""
_RATIOS = {"none": 1, "snappy": _SNAPPY_RATIO, "gzip": 1032}
"""Largest number of bytes that a byte of a payload can give.

For gzip, see zlib's documentation ("Maximum Compression Factor").
"""


class BadContentError(ValueError):
    """A payload with a correct checksum cannot be decompressed."""


class ChunkHeader(NamedTuple):
    """The fields of a chunk's header.

    Attributes:
        dialect: dialect of the file.
        checksum: checksum of the payload.
        compressor: number of the compression.
        compression: none, snappy or gzip; None if the number is not known.
        size: size of the payload in bytes.
        records: number of records in the chunk.
    """

    dialect: Dialect
    checksum: int
    compressor: int
    compression: str | None
    size: int
    records: int

    @property
    def is_possible(self) -> bool:
        """True if the payload can hold so many records, each with a length of 4 bytes."""
        ratio = _RATIOS.get(self.compression or "")
        return ratio is None or self.records * LENGTH.size <= self.size * ratio


class Dialect:
    """One of the two dialects of RecordIO.

    Args:
        name: name for messages.
        fields: places of checksum, compressor, size and number of records among the four numbers
            after the magic.
        codes: compression -> its number.
        checksum: function from bytes and the checksum of the bytes before them to a checksum.
    """

    def __init__(
        self,
        name: str,
        fields: tuple[int, int, int, int],
        codes: Mapping[str, int],
        checksum: Callable[[bytes | memoryview, int], int],
    ) -> None:
        self.name = name
        self.codes = codes
        self.checksum = checksum
        self._fields = fields
        self._names = {number: name for name, number in codes.items()}

    def parse(self, header: bytes) -> ChunkHeader:
        """Parse a header of 20 bytes in this dialect."""
        numbers = _NUMBERS.unpack_from(header, len(MAGIC))
        checksum, compressor, size, records = [numbers[field] for field in self._fields]
        return ChunkHeader(self, checksum, compressor, self._names.get(compressor), size, records)


def _crc32c(data: bytes | memoryview, value: int) -> int:
    import google_crc32c

    result: int = google_crc32c.extend(value, bytes(data))
    return result


GO = Dialect("Go", (0, 1, 2, 3), {"none": 0, "snappy": 1, "gzip": 2}, crc32)
"""The dialect of wangkuiyi/recordio and ElasticDL: CRC-32; snappy is the framing format."""

PYRECORDIO = Dialect("pyrecordio", (1, 2, 3, 0), {"none": 1, "snappy": 2, "gzip": 3}, _crc32c)
"""The dialect of pyrecordio up to 0.0.4: CRC-32C; snappy is one raw block."""


def go_header(compression: str, payload: bytes, records: int) -> bytes:
    """Return the header of a payload in Go's dialect, which is the one that is written."""
    return MAGIC + _NUMBERS.pack(GO.checksum(payload, 0), GO.codes[compression], len(payload), records)


def parse_header(header: bytes) -> ChunkHeader:
    """Parse a header of 20 bytes, and recognize its dialect.

    At byte 12, Go has the payload's size, which is at least 4; pyrecordio has the compressor, which
    is at most 3.
    """
    return (PYRECORDIO if LENGTH.unpack_from(header, 12)[0] < 4 else GO).parse(header)


# ---- content to payload


class _Plain:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _FramedSnappy:
    """Snappy in frames of 64 KiB of content, as Go writes it."""

    def __init__(self) -> None:
        self._begun = False
        self._rest = b""

    def compress(self, data: bytes, /) -> bytes:
        data = self._rest + data
        end = len(data) // _SNAPPY_BLOCK * _SNAPPY_BLOCK
        self._rest = data[end:]
        return self._frames(data[:end])

    def flush(self) -> bytes:
        return self._frames(self._rest)

    def _frames(self, content: bytes) -> bytes:
        import cramjam

        if not content:
            return b""
        # Each call of the library begins with a stream mark, but a stream has only one.
        skip, self._begun = len(_SNAPPY_HEAD) if self._begun else 0, True
        return bytes(memoryview(cramjam.snappy.compress(content))[skip:])


def payload_compressor(compression: str) -> Compressor:
    """Return the compressor for the payload of one chunk in Go's dialect."""
    if compression == "gzip":
        return new_compressor("gz")
    if compression == "none":
        return _Plain()
    return _FramedSnappy()


# ---- payload to content


def content_pieces(header: ChunkHeader, payload: memoryview) -> Iterator[bytes]:
    """Yield the content of a payload in pieces: for each record its length, 4 bytes, and its bytes.

    Raises:
        BadContentError: the payload cannot be decompressed.
    """
    if header.compression == "none":
        yield bytes(payload)
    elif header.compression == "gzip":
        yield from _gunzip(payload)
    else:
        import cramjam

        try:
            yield from _frames(payload) if header.dialect is GO else _raw_block(payload)
        except cramjam.DecompressionError as error:
            raise BadContentError(str(error)) from None


def _frames(payload: memoryview) -> Iterator[bytes]:
    import cramjam

    if payload[: len(_SNAPPY_HEAD)] != _SNAPPY_HEAD:
        raise BadContentError("it does not begin with the mark of framed snappy")
    start = end = 0
    while end < len(payload):
        end += 4 + int.from_bytes(payload[end + 1 : end + 4], "little")
        if end - start >= _SNAPPY_FRAMES or end >= len(payload):
            yield bytes(cramjam.snappy.decompress(b"".join((_SNAPPY_HEAD, payload[start:end]))))
            start = end


def _raw_block(payload: memoryview) -> Iterator[bytes]:
    import cramjam

    size = cramjam.snappy.decompress_raw_len(payload)
    if size > _SNAPPY_RATIO * len(payload):
        raise BadContentError(f"{len(payload)} bytes of snappy cannot have a content of {size} bytes")
    yield bytes(cramjam.snappy.decompress_raw(payload))


def _gunzip(payload: memoryview) -> Iterator[bytes]:
    reader = DecompressingReader(io.BytesIO(payload).read, "gz", "")
    try:
        while piece := reader.read(_PIECE):
            yield piece
    except CompressionError as error:
        raise BadContentError(error.reason) from None


def count_records(content: bytes) -> int:
    """Return the number of records in a content; -1 if their lengths do not add up to its size."""
    length_at, position, end, count = LENGTH.unpack_from, 0, len(content), 0
    try:
        while position < end:
            position += length_at(content, position)[0] + 4
            count += 1
    except struct.error:
        return -1
    return count if position == end else -1


def take_records(content: bytes, position: int, count: int) -> tuple[list[bytes], int]:
    """Return the next records of a content, and the position after them.

    Fewer than ``count`` if the content ends before.
    """
    length_at, end = LENGTH.unpack_from, len(content)
    records: list[bytes] = []
    append = records.append
    try:
        for _ in range(count):
            start = position + 4
            behind = start + length_at(content, position)[0]
            if behind > end:
                break
            append(content[start:behind])
            position = behind
    except struct.error:
        pass
    return records, position
