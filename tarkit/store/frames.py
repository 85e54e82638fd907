"""Decode the frames of a compressed file, each whole, so that its checksum is compared."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tarkit.store.compression import zstd_library
from tarkit.store.frametable import FRAME, FrameTable
from tarkit.store.gzippoints import WINDOW, GzipPoints, inflate, packed_range
from tarkit.store.place import Identity

_WINDOW_LOG = 27
_MOST_HELD = 256


class PackedFrames(Protocol):
    """The frames of a compressed file."""

    table: FrameTable

    def packed_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the begin and end of the bytes that :meth:`decode` needs."""

    def decode(self, data: bytes, first: int, last: int) -> list[bytes]:
        """Return the content of each frame from ``first`` to ``last``.

        Raises:
            ValueError: a frame is damaged.
        """


class ZstdFrames:
    """The frames of a zstd stream.

    Args:
        table: its seek table.
    """

    def __init__(self, table: FrameTable) -> None:
        self.table = table

    def packed_range(self, first: int, last: int) -> tuple[int, int]:
        return self.table.packed[first], self.table.packed[last + 1]

    def decode(self, data: bytes, first: int, last: int) -> list[bytes]:
        base, packed = self.table.packed[first], self.table.packed
        return [
            self._decoded(data[packed[each] - base : packed[each + 1] - base], each) for each in range(first, last + 1)
        ]

    def _decoded(self, frame: bytes, number: int) -> bytes:
        size = self.table.unpacked[number + 1] - self.table.unpacked[number]
        if not size and not frame.startswith(FRAME):
            return b""  # a skippable frame
        if self.table.checksums is not None and len(frame) > 4 and not frame[4] & 4:
            # The table has the checksum that a frame may have; there the decoder compares it.
            flag, checksum = bytes((frame[4] | 4,)), self.table.checksums[number].to_bytes(4, "little")
            frame = frame[:4] + flag + frame[5:] + checksum
        zstd = zstd_library()
        decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
        try:
            content: bytes = decoder.decompress(frame, size + 1)
        except zstd.ZstdError as error:
            raise ValueError(f"is damaged ({error})") from None
        if len(content) != size or not decoder.eof or decoder.unused_data:
            raise ValueError(f"is damaged, or has not the {size} bytes of content that its table says")
        return content


def content_checksum(content: bytes) -> int:
    """Return the checksum that a seek table has of the content of a frame: the low half of XXH64.

    The library for zstd computes it where it ends a frame with a checksum, and offers no other way.
    """
    zstd = zstd_library()
    quickest = {zstd.CompressionParameter.compression_level: -7, zstd.CompressionParameter.checksum_flag: 1}
    return int.from_bytes(zstd.compress(content, options=quickest)[-4:], "little")


class GzipFrames:
    """The content of a gzip file between its points, as frames.

    Args:
        points: the points.
        read: function that returns bytes of the file of points: offset, number of bytes.
    """

    def __init__(self, points: GzipPoints, read: Callable[[int, int], bytes]) -> None:
        self.table, self._points, self._read = points.table, points, read

    def packed_range(self, first: int, last: int) -> tuple[int, int]:
        return packed_range(self._points, first, last)

    def decode(self, data: bytes, first: int, last: int) -> list[bytes]:
        unpacked, at = self.table.unpacked, self._points.windows[first]
        window = b"" if at is None else self._read(at, WINDOW)
        content = inflate(data, self._points.bits[first], window, unpacked[last + 1] - unpacked[first])
        base = unpacked[first]
        found = [content[unpacked[each] - base : unpacked[each + 1] - base] for each in range(first, last + 1)]
        if self.table.checksums is not None and [*map(zlib.crc32, found)] != [*self.table.checksums[first : last + 1]]:
            raise ValueError("is damaged: its content has a different CRC-32 than when its points were found")
        return found


class DecodedFrames:
    """The content of the frames that were decoded last, of any number of files.

    Args:
        limit: largest size of all of them in bytes; one frame is always kept.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[str, Identity, int], bytes] = OrderedDict()

    def get(self, key: tuple[str, Identity, int]) -> bytes | None:
        """Return the content of a frame; None if it is not held."""
        found = self._held.pop(key, None)
        if found is not None:
            self._held[key] = found
        return found

    def put(self, key: tuple[str, Identity, int], content: bytes) -> None:
        """Hold the content of a frame, and drop those that were used least recently."""
        self._held[key] = content
        # Other threads may do the same meanwhile.
        while len(self._held) > _MOST_HELD or (
            len(self._held) > 1 and sum(map(len, list(self._held.values()))) > self._limit
        ):
            with suppress(KeyError):
                self._held.popitem(last=False)
