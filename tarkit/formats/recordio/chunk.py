"""A chunk of a RecordIO file: its header in both dialects, its checksum, its compression. Numbers are little-endian."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tarkit.errors import CompressionError
from tarkit.store.compression import Compressor, DecompressingReader, new_compressor

MAGIC = b"\x04\x03\x02\x01"
HEADER_SIZE = 20
LENGTH = struct.Struct("<I")
MOST = 0xFFFF_FFFF
"""The largest number that fits into a field."""

_HEADER = struct.Struct("<4s4I")
_PIECE = 1 << 20
_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_BLOCK = 1 << 16
_SNAPPY_FRAMES = 1 << 17
"""Bytes of frames that are decompressed at a time: they and their content stay in the processor's cache."""
_SNAPPY_RATIO = 22
"""A snappy copy of 3 bytes gives at most 64."""


class BadContentError(ValueError):
    """A payload whose checksum is right does not decompress."""


class Header(NamedTuple):
    """What the header of a chunk says. compressor, size: of the payload; size in bytes. records: how many are in it."""

    dialect: Dialect
    checksum: int
    compressor: int
    size: int
    records: int

    @property
    def compression(self) -> str | None:
        """none, snappy or gzip; None if the number stands for none of these."""
        return next((name for name, number in self.dialect.codes.items() if number == self.compressor), None)


@dataclass(frozen=True)
class Dialect:
    """One of the two kinds of RecordIO.

    fields: which of the four numbers behind the magic are checksum, compressor, size and number of records.
    codes: compression -> its number. checksum: of bytes, continuing from another one.
    """

    name: str
    fields: tuple[int, int, int, int]
    codes: Mapping[str, int]
    checksum: Callable[[bytes | memoryview, int], int]

    def parse(self, header: bytes) -> Header:
        """The fields of 20 bytes, as this dialect orders them."""
        numbers = _HEADER.unpack(header)[1:]
        checksum, compressor, size, records = (numbers[field] for field in self.fields)
        return Header(self, checksum, compressor, size, records)

    def pack(self, compression: str, payload: bytes, records: int) -> bytes:
        """The header of a payload."""
        numbers = [0, 0, 0, 0]
        values = (self.checksum(payload, 0), self.codes[compression], len(payload), records)
        for field, value in zip(self.fields, values, strict=True):
            numbers[field] = value
        return _HEADER.pack(MAGIC, *numbers)


def _crc32c(data: bytes | memoryview, value: int) -> int:
    import google_crc32c

    result: int = google_crc32c.extend(value, bytes(data))
    return result


GO = Dialect("Go", (0, 1, 2, 3), {"none": 0, "snappy": 1, "gzip": 2}, zlib.crc32)
"""wangkuiyi/recordio, which ElasticDL uses: CRC-32; snappy is the framing format."""

PYRECORDIO = Dialect("pyrecordio", (1, 2, 3, 0), {"none": 1, "snappy": 2, "gzip": 3}, _crc32c)
"""pyrecordio up to 0.0.4: CRC-32C; snappy is one raw block."""


def parse_header(header: bytes) -> Header:
    """The fields of 20 bytes, in the dialect that they are of.

    At byte 12, Go has the payload's size, which is 4 at least; pyrecordio has the compressor, which is 3 at most.
    """
    return (PYRECORDIO if LENGTH.unpack_from(header, 12)[0] < 4 else GO).parse(header)


# ---- content to payload


class _Plain:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Snappy:
    """Snappy in frames of 64 KiB of content, as Go writes them; or all of it in one raw block."""

    def __init__(self, framed: bool) -> None:
        self._framed = framed
        self._begun = False
        self._rest = b""

    def compress(self, data: bytes, /) -> bytes:
        data = self._rest + data
        end = len(data) // _SNAPPY_BLOCK * _SNAPPY_BLOCK if self._framed else 0
        self._rest = data[end:]
        return self._frames(data[:end])

    def flush(self) -> bytes:
        from cramjam import snappy

        return self._frames(self._rest) if self._framed else bytes(snappy.compress_raw(self._rest))

    def _frames(self, content: bytes) -> bytes:
        from cramjam import snappy

        if not content:
            return b""
        frames = bytes(snappy.compress(content))
        # Each call of the library begins with the mark of a stream, and a stream has it once.
        frames, self._begun = frames[len(_SNAPPY_HEAD) if self._begun else 0 :], True
        return frames


def payload_compressor(dialect: Dialect, compression: str) -> Compressor:
    """What makes the payload of one chunk from its content."""
    if compression == "gzip":
        return new_compressor("gz")
    return _Snappy(dialect is GO) if compression == "snappy" else _Plain()


# ---- payload to content


def content_pieces(header: Header, payload: memoryview) -> Iterator[bytes]:
    """The content of a payload, in pieces: for each record its length, 4 bytes, and its bytes.

    Raises:
        BadContentError: it does not decompress.
    """
    if header.compression == "none":
        yield bytes(payload)
    elif header.compression == "gzip":
        yield from _gunzip(payload)
    else:
        from cramjam import DecompressionError

        try:
            yield from _frames(payload) if header.dialect is GO else _raw_block(payload)
        except DecompressionError as error:
            raise BadContentError(str(error)) from None


def _frames(payload: memoryview) -> Iterator[bytes]:
    from cramjam import snappy

    if payload[: len(_SNAPPY_HEAD)] != _SNAPPY_HEAD:
        raise BadContentError("it does not begin as framed snappy does")
    start = end = 0
    while end < len(payload):
        end += 4 + int.from_bytes(payload[end + 1 : end + 4], "little")
        if end - start >= _SNAPPY_FRAMES or end >= len(payload):
            yield bytes(snappy.decompress(b"".join((_SNAPPY_HEAD, payload[start:end]))))
            start = end


def _raw_block(payload: memoryview) -> Iterator[bytes]:
    from cramjam import snappy

    size = snappy.decompress_raw_len(payload)
    if size > _SNAPPY_RATIO * len(payload):
        raise BadContentError(f"{len(payload)} bytes of snappy cannot stand for {size}")
    yield bytes(snappy.decompress_raw(payload))


def _gunzip(payload: memoryview) -> Iterator[bytes]:
    reader = DecompressingReader(io.BytesIO(payload).read, "gz", "")
    try:
        while piece := reader.read(_PIECE):
            yield piece
    except CompressionError as error:
        raise BadContentError(error.reason) from None


def count_records(content: bytes) -> int:
    """How many records a content holds; -1 if their lengths do not lead to its end."""
    length_at, position, end, count = LENGTH.unpack_from, 0, len(content), 0
    try:
        while position < end:
            position += length_at(content, position)[0] + 4
            count += 1
    except struct.error:
        return -1
    return count if position == end else -1


def take_records(content: bytes, position: int, count: int) -> tuple[list[bytes], int]:
    """The next records of a content, and the position behind them; fewer than ``count`` if it ends before."""
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
