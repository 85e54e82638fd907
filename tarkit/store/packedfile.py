"""Read content of a compressed file from any byte on, by decoding only the frames that have it.

That needs a table of frames: of zst at the end of the file, or in the file of seek points beside
it; of gzip always in the latter. Each frame is decoded whole, so that its checksum is compared.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import sub

from tarkit.errors import (
    CompressionError,
    DataError,
    MissingInputError,
    StaleIndexError,
    StreamError,
    TemporaryStreamError,
    TooLargeError,
)
from tarkit.names.outputnames import seek_url
from tarkit.names.url import display_name, split_query
from tarkit.store.cache import PartCache
from tarkit.store.compression import compression_for_name
from tarkit.store.frames import DecodedFrames, GzipFrames, PackedFrames, ZstdFrames
from tarkit.store.frametable import FrameTable, decode_table, size_of_table
from tarkit.store.gzippoints import decode_points
from tarkit.store.rangedfile import RangedFile
from tarkit.store.ranges import Ranges
from tarkit.store.seekablefile import SeekableFile

_END = 1 << 16
"""Size in bytes of the first read of the end of a file, which has the table of 8,000 frames."""
_LARGEST = 64 << 20
"""Size in bytes of the largest frame, because it is decoded whole for each sample in it."""
_AT_ONCE = 16 << 20


class PackedFile(SeekableFile):
    """The content of a compressed file, which can seek.

    Args:
        ranges: the file, read by ranges.
        frames: its frames.
        decoded: content of frames that were decoded before; None: of the last frame of this file.

    Attributes:
        url: path or URL of the file.
        identity: size and tag of the file when it was opened.
        size: size of the content in bytes.
        ranges, frames: see above.
    """

    def __init__(self, ranges: Ranges, frames: PackedFrames, decoded: DecodedFrames | None = None) -> None:
        self.url, self.identity, self.frames = ranges.url, ranges.identity, frames
        self.ranges = ranges
        self.size = frames.table.unpacked[-1]
        super().__init__(self.size)
        self._decoded = DecodedFrames(0) if decoded is None else decoded

    def bytes_between(self, begin: int, end: int) -> bytes:
        return b"".join(self.pieces(begin, end))

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the content from ``begin`` up to ``end``, by one request for each 16 MiB of it.

        Raises:
            CompressionError: a frame is damaged.
            TemporaryStreamError: the file was replaced, or cannot be read now.
            StreamError: the file cannot be read.
        """
        end, unpacked = min(end, self.size), self.frames.table.unpacked
        number = bisect_right(unpacked, begin) - 1
        while begin < end:
            content = self._decoded.get((self.url, self.identity, number))
            found = self._decode(number, min(end, unpacked[number] + _AT_ONCE)) if content is None else [content]
            for content in found:
                piece = content[begin - unpacked[number] : end - unpacked[number]]
                begin += len(piece)
                number += 1
                yield piece

    def _decode(self, first: int, end: int) -> list[bytes]:
        """Read and decode the frames from ``first`` on whose content begins before ``end``."""
        table = self.frames.table
        last = bisect_left(table.unpacked, end, first + 1) - 1
        begin, stop = self.frames.packed_range(first, last)
        data = self.ranges.read(begin, stop)
        try:
            found = self.frames.decode(data, first, last)
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            reason = f"its compressed content at {begin} to {stop} {error}"
            raise CompressionError(reason, url=display_name(self.url), hint="fetch the shard again") from None
        for number, content in enumerate(found, first):
            self._decoded.put((self.url, self.identity, number), content)
        return found


def open_packed(url: str, decoded: DecodedFrames | None = None, cache: PartCache | None = None) -> PackedFile:
    """Open a compressed file for reading from any byte on.

    Args:
        url: path or URL of the file; its name says how it is compressed: zst or gz.
        decoded: content of frames that were decoded before; shared by several files.
        cache: cache that keeps the table of frames; None: none.

    Raises:
        StaleIndexError: the file has no table of frames.
        UsageError: its place cannot read ranges.
        CompressionError: the table is damaged, or belongs to another file.
        TooLargeError: a frame is too large to be decoded for each sample.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    ranges = Ranges(url)
    file = RangedFile(ranges, least=_END, cache=cache)
    is_zst = compression_for_name(split_query(url)[0]) == "zst"
    table = read_table(file, url) if is_zst else None
    frames = ZstdFrames(table) if table is not None else _frames_beside(url, file.size, is_zst, cache)
    return PackedFile(ranges, checked(frames, url), decoded)


def read_table(file: RangedFile, url: str) -> FrameTable | None:
    """Read the seek table at the end of a zstd stream; None if it has no table.

    Args:
        file: the stream.
        url: its path or URL, for errors.

    Raises:
        CompressionError: the table is damaged.
    """
    end = file.read_at(file.size - _END, _END)
    length = size_of_table(end)
    if length is None:
        return None
    if len(end) < length <= file.size:
        end = file.read_at(file.size - length, length)
    try:
        return decode_table(end[-length:], file.size - length)
    except ValueError as error:
        raise bad_table(url, str(error)) from None


def _frames_beside(url: str, size: int, is_zst: bool, cache: PartCache | None) -> PackedFrames:
    """Read the file of seek points beside a compressed file."""
    name = seek_url(url)
    try:
        ranges = Ranges(name)
        beside = RangedFile(ranges, least=_END, cache=cache)
    except MissingInputError:
        raise _without_table(url, is_zst) from None
    except StreamError as error:
        if isinstance(error, TemporaryStreamError):
            raise
        # Some stores answer "forbidden" for a missing object.
        raise _without_table(url, is_zst, f", or it may not be read ({error.reason})") from None

    try:
        if is_zst:
            return ZstdFrames(decode_table(beside.read_at(0, beside.size), size))
        points = decode_points(beside.read_at, beside.size, size)
        return GzipFrames(points, lambda at, count: ranges.read(at, at + count))
    except (ValueError, struct.error) as error:
        hint = f"make it anew: tarkit index --force {display_name(url)}"
        reason = f"{display_name(name)} is damaged, or belongs to another file ({error})"
        raise CompressionError(reason, url=display_name(url), hint=hint) from None


def checked(frames: PackedFrames, url: str) -> PackedFrames:
    """Return the frames, none of which is too large.

    Raises:
        TooLargeError: a frame is too large to be decoded for each sample.
    """
    largest = max(map(sub, frames.table.unpacked[1:], frames.table.unpacked), default=0)
    if largest > _LARGEST:
        reason = (
            f"has a frame of {largest} bytes, which would be decoded for each sample, and at most {_LARGEST} may be"
        )
        raise TooLargeError(reason, url=display_name(url), hint=rewriting(url))
    return frames


def rewriting(url: str) -> str:
    """Return the commands that make a shard with random access of one without it, as a hint."""
    name = display_name(url)
    return f"rewrite it: tarkit split {name} -o 'OUT-%06d.tar.zst' --index; or unpack it: tarkit cat {name} -o OUT.tar"


def bad_table(url: str, reason: str) -> CompressionError:
    """Return the error for a file whose table of frames is damaged."""
    return CompressionError(reason, url=display_name(url), hint="fetch the shard again, or r" + rewriting(url)[1:])


def _without_table(url: str, is_zst: bool, refused: str = "") -> StaleIndexError:
    beside = f"no {display_name(seek_url(url))} beside it{refused}"
    reason = f"has {'no seek table at its end, and ' if is_zst else ''}{beside}"
    return StaleIndexError(reason, url=display_name(url), hint=f"make it: tarkit index {display_name(url)}")
