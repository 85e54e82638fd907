"""Points in a gzip file where decompression can begin, and the content between them.

A point is the beginning of a block of DEFLATE (RFC 1951), which may be inside a byte, and the
content of 32 KiB before it, to which the block may refer. The library indexed_gzip finds them;
Python's own module zlib begins there. The file of the points is that of indexed_gzip, version 1,
which ratarmount and rapidgzip read, too; after its end follow the CRC-32 of the content of each
point, up to the next one, because gzip has only one for the whole content.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tarkit.extras import library
from tarkit.store.frametable import FrameTable

WINDOW = 1 << 15
"""Size in bytes of the content that a block may refer to."""
_SPACING = 1 << 20
_MAGIC, _CRC_MAGIC = b"GZIDX\x01\x00", b"CRC32\x00"
_HEADER = struct.Struct("<7sQQIII")
_POINT = struct.Struct("<QQBB")
_TRAILER = 8
_EMPTY, _EMPTY_BITS = 0b10, 10
_ODD, _ODD_BITS = 0x5AFFF90000000000901C004, 93
"""Blocks of DEFLATE without content, of fixed and of dynamic codes; neither is the last one."""
_LOST = "its points are damaged, or belong to another file"


class GzipPoints(NamedTuple):
    """The points of a gzip file.

    Attributes:
        table: the content between points as frames, with CRC-32; a frame begins with the byte that
            has the first bit of its block.
        bits: number of bits of that byte that belong to the block; 0 for all of them.
        windows: offset of the content before each point in the file of points; None for a point
            that needs none.
    """

    table: FrameTable
    bits: list[int]
    windows: list[int | None]
    end: int
    """Size of the gzip file in bytes."""


def build_points(file: Any, size: int) -> tuple[bytes, GzipPoints]:
    """Read a gzip file whole, and find its points.

    Args:
        file: file object of the gzip file, which can seek.
        size: its size in bytes.

    Returns:
        The file of points without checksums, and the points.

    Raises:
        MissingExtraError: indexed_gzip is not installed.
        ValueError: the gzip file is damaged.
    """
    found = io.BytesIO()
    indexed = library("indexed_gzip", "the index of a .tar.gz", "gzip")
    try:
        gzip = indexed.IndexedGzipFile(fileobj=file, spacing=_SPACING, window_size=WINDOW)
        gzip.build_full_index()
        gzip.export_index(fileobj=found)
    except (OSError, EOFError, ValueError, indexed.ZranError, indexed.NotCoveredError) as error:
        raise ValueError(f"is damaged ({error})") from error
    data = found.getvalue()
    return data, decode_points(lambda at, count: data[at : at + count], len(data), size, has_checksums=False)


def with_checksums(points: bytes, checksums: list[int]) -> bytes:
    """Return the file of points with the CRC-32 of the content of each."""
    return points + _CRC_MAGIC + struct.pack(f"<{len(checksums)}I", *checksums)


def decode_points(
    read: Callable[[int, int], bytes], length: int, size: int, *, has_checksums: bool = True
) -> GzipPoints:
    """Parse a file of points.

    Args:
        read: function that returns bytes of that file: offset, number of bytes.
        length: its size in bytes.
        size: size of the gzip file in bytes.
        has_checksums: the CRC-32 of the content of each point follow.

    Raises:
        ValueError: it is damaged, or belongs to another file.
    """
    try:
        magic, packed_size, unpacked_size, _, window, count = _HEADER.unpack(read(0, _HEADER.size))
        at = _HEADER.size + count * _POINT.size
        each = list(_POINT.iter_unpack(read(_HEADER.size, at - _HEADER.size)))
        windows: list[int | None] = []
        for *_, has_window in each:
            windows.append(at if has_window else None)
            at += window if has_window else 0
        checksums = None
        if has_checksums:  # without them, a flipped bit would be content
            end = read(at, len(_CRC_MAGIC) + 4 * count)
            checksums = struct.unpack(f"<6s{count}I", end)
            if checksums[0] != _CRC_MAGIC or length != at + len(end):
                raise ValueError(_LOST)
    except struct.error:
        raise ValueError(_LOST) from None
    packed = [offset - bool(bits) for offset, _, bits, _ in each]
    unpacked = [offset for _, offset, _, _ in each]
    table = FrameTable([*packed, size], [*unpacked, unpacked_size], checksums and checksums[1:])
    good = magic == _MAGIC and window == WINDOW and packed_size == size and len(each) == count
    orders = all(sorted(offsets) == offsets for offsets in (table.packed, table.unpacked))
    if not (good and orders and table.unpacked[0] == 0 <= packed[0] and all(bits < 8 for *_, bits, _ in each)):
        raise ValueError(_LOST)
    return GzipPoints(table, [bits or 8 for *_, bits, _ in each], windows, size)


def packed_range(points: GzipPoints, first: int, last: int) -> tuple[int, int]:
    """Return the bytes of the gzip file that have the content of points ``first`` to ``last``."""
    # The last block may end inside the byte where the next one begins.
    end = points.table.packed[last + 1]
    return points.table.packed[first], min(points.end, end + 1)


def inflate(data: bytes, bits: int, window: bytes, size: int) -> bytes:
    """Return content of a gzip file from a point on.

    Args:
        data: bytes of the file, from that with the first bit on.
        bits: number of bits of the first byte that belong to the block, 1 to 8.
        window: content before it, which the block may refer to.
        size: wanted number of bytes.

    Raises:
        ValueError: the bytes are damaged.
    """
    try:
        content = b"".join(_inflated(data, bits, window, size))
    except zlib.error as error:
        raise ValueError(f"is damaged ({error})") from None
    if len(content) != size:
        raise ValueError("is damaged or cut short")
    return content


def _inflated(data: bytes, bits: int, window: bytes, size: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS, zdict=window) if window else zlib.decompressobj(-zlib.MAX_WBITS)
    data, skipped = _aligned(data, bits), _TRAILER
    while size and data:
        content = decoder.decompress(data, size)
        yield content
        size -= len(content)
        # Behind the end of a member, and zeros, may be the next one, whose trailer zlib compares.
        data = decoder.unused_data[skipped:].lstrip(b"\0") if decoder.eof else b""
        decoder, skipped = zlib.decompressobj(16 + zlib.MAX_WBITS), 0


def _aligned(data: bytes, bits: int) -> bytes:
    """Put blocks without content before a block that begins inside a byte, so that it need not."""
    missing = 8 - bits
    prefix, length = (_ODD, _ODD_BITS) if missing % 2 else (0, 0)
    while length % 8 != missing:
        prefix |= _EMPTY << length
        length += _EMPTY_BITS
    first = (data[0] >> missing << length) | prefix
    return first.to_bytes((length + bits) // 8, "little") + data[1:]
