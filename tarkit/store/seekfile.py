"""Make the file of seek points beside a compressed file, if the file has no table of its own."""

from __future__ import annotations

from itertools import accumulate
from zlib import crc32

from tarkit.errors import CompressionError
from tarkit.names.url import display_name, split_query
from tarkit.store.compression import SNIFF_BYTES, compression_for_name, sniff
from tarkit.store.entries import check_same
from tarkit.store.frames import GzipFrames, ZstdFrames, content_checksum
from tarkit.store.frametable import FrameTable, encode_table, walk_frames
from tarkit.store.gzippoints import build_points, with_checksums
from tarkit.store.packedfile import bad_table, checked, read_table, rewriting
from tarkit.store.rangedfile import RangedFile

_AT_ONCE = 16
"""Number of points of a gzip file whose content is decoded at once."""


def build_seek(url: str) -> bytes | None:
    """Read a compressed file, and return the file of seek points that it needs beside it.

    The content behind the last point is not verified, nor is the end of the file: the reader that
    makes the index does that.

    Args:
        url: path or URL of the file; its name says how it is compressed: zst or gz.

    Returns:
        None if it needs none: a zstd stream with a seek table.

    Raises:
        CompressionError: the file is damaged, or its frames do not state their sizes.
        TooLargeError: a frame is too large to be decoded for each sample.
        MissingExtraError: the library for gzip is not installed.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now, or was replaced.
    """
    file = RangedFile(url)
    codec = compression_for_name(split_query(url)[0])
    found = sniff(file.read(SNIFF_BYTES))
    if codec != found:
        kind = "not compressed" if found is None else f"compressed by {found}"
        raise CompressionError(f"its name says {codec}, and it is {kind}", url=display_name(url), hint="rename it")
    return _zstd_seek(file, url) if codec == "zst" else _gzip_seek(file, url)


def _zstd_seek(file: RangedFile, url: str) -> bytes | None:
    table = read_table(file, url)
    if table is not None:
        checked(ZstdFrames(table), url)
        return None

    try:
        sizes = list(walk_frames(file.read_at, file.size))
    except ValueError as error:
        raise CompressionError(str(error), url=display_name(url), hint=rewriting(url)) from None
    packed, unpacked = (list(accumulate(each, initial=0)) for each in zip(*sizes, strict=True))
    frames = ZstdFrames(FrameTable(packed, unpacked))
    checked(frames, url)
    checksums: list[int] = []
    for number in range(len(sizes)):
        begin, stop = frames.packed_range(number, number)
        try:
            (content,) = frames.decode(file.read_at(begin, stop - begin), number, number)
        except ValueError as error:
            raise bad_table(url, f"its compressed content at {begin} to {stop} {error}") from None
        checksums.append(content_checksum(content) if content else 0)
    return encode_table(sizes, checksums)


def _gzip_seek(file: RangedFile, url: str) -> bytes:
    try:
        file.seek(0)
        data, points = build_points(file, file.size)
    except ValueError as error:
        raise bad_table(url, str(error)) from None
    check_same(url, file.identity)
    frames = GzipFrames(points, lambda at, count: data[at : at + count])
    checksums: list[int] = []
    for first in range(0, len(points.table), _AT_ONCE):
        last = min(first + _AT_ONCE, len(points.table)) - 1
        begin, stop = frames.packed_range(first, last)
        try:
            checksums += map(crc32, frames.decode(file.read_at(begin, stop - begin), first, last))
        except ValueError as error:
            raise bad_table(url, f"its compressed content at {begin} to {stop} {error}") from None
    checked(frames, url)
    return with_checksums(data, checksums)
