"""The seek table of a zstd stream: where each of its frames begins, packed and unpacked.

The stream of the *seekable format* is a list of frames that can be decoded alone, and then the
table in a skippable frame, which all decoders of zstd ignore. No input or output: bytes to numbers.

Source: zstd, ``contrib/seekable_format/zstd_seekable_compression_format.md`` 0.1.0, and RFC 8878.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from tarkit.store.codecmemory import header_size, stated_size

FOOTER = struct.Struct("<IBI")
_HEADER = struct.Struct("<II")
_MAGIC, _FOOTER_MAGIC = 0x184D2A5E, 0x8F92EAB1
_CHECKSUMS, _RESERVED = 0x80, 0x7C
FRAME = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame that has content."""
_MOST_HEADER = 18
_RAW, _RLE, _COMPRESSED = range(3)


class FrameTable(NamedTuple):
    """The frames of a compressed file, or other parts of it that are decoded alone.

    Attributes:
        packed: offset of each frame in the file, in bytes, and of the end of the last one.
        unpacked: offset of the content of each frame, and the size of the whole content.
        checksums: checksum of the content of each frame; None if there are none.
    """

    packed: Sequence[int]
    unpacked: Sequence[int]
    checksums: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.packed) - 1


def size_of_table(end: bytes) -> int | None:
    """Return the size in bytes of the table at the end of a file; None if it has no table.

    Args:
        end: the last bytes of the file, at least those of the footer.
    """
    if len(end) < FOOTER.size:
        return None
    count, descriptor, magic = FOOTER.unpack(end[-FOOTER.size :])
    if magic != _FOOTER_MAGIC:
        return None
    return int(_HEADER.size + count * (12 if descriptor & _CHECKSUMS else 8) + FOOTER.size)


def decode_table(data: bytes, size: int) -> FrameTable:
    """Parse a seek table.

    Args:
        data: its bytes, as many as :func:`size_of_table` says.
        size: number of bytes that the frames should have.

    Raises:
        ValueError: the table is damaged, or belongs to another file.
    """
    count, descriptor, _ = FOOTER.unpack(data[-FOOTER.size :])
    if len(data) != size_of_table(data) or _HEADER.unpack_from(data) != (_MAGIC, len(data) - _HEADER.size):
        raise ValueError(f"has a seek table that does not begin where its count of {count} frames says")
    if descriptor & _RESERVED:
        raise ValueError("has a seek table of a newer version, with bits that are not known")
    width = 3 if descriptor & _CHECKSUMS else 2
    words = struct.unpack(f"<{count * width}I", data[_HEADER.size : -FOOTER.size])
    packed = list(accumulate(words[::width], initial=0))
    if packed[-1] != size:
        raise ValueError(f"has a seek table of frames of {packed[-1]} bytes in all, and {size} bytes before it")
    return FrameTable(packed, list(accumulate(words[1::width], initial=0)), words[2::3] if width == 3 else None)


def encode_table(frames: Sequence[tuple[int, int]], checksums: Sequence[int] | None = None) -> bytes:
    """Return the bytes of a seek table.

    Args:
        frames: packed and unpacked size of each frame, in bytes.
        checksums: checksum of the content of each frame; None: the table has none.
    """
    rows = frames if checksums is None else [(*frame, each) for frame, each in zip(frames, checksums, strict=True)]
    words = [word for row in rows for word in row]
    flags = 0 if checksums is None else _CHECKSUMS
    body = struct.pack(f"<{len(words)}I", *words) + FOOTER.pack(len(frames), flags, _FOOTER_MAGIC)
    return _HEADER.pack(_MAGIC, len(body)) + body


def walk_frames(read: Callable[[int, int], bytes], size: int) -> Iterator[tuple[int, int]]:
    """Yield the packed and unpacked size of each frame, from the headers of frames and blocks.

    Args:
        read: function that returns bytes of the file: offset, number of bytes.
        size: size of the file in bytes.

    Raises:
        ValueError: a frame does not state the size of its content, or is cut or damaged.
    """
    at = 0
    while at < size:
        head = read(at, _MOST_HEADER)
        begin, content = at, 0
        if len(head) >= 8 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18":
            at += 8 + int.from_bytes(head[4:8], "little")
        elif head[:4] == FRAME and len(head) > 6:
            stated = stated_size(head)
            if stated is None:
                raise ValueError("has frames that do not state the size of their content")
            content, at = stated, _end_of_frame(read, begin, head)
        else:
            raise ValueError(f"has bytes at {at} that are not a frame")
        if at > size:
            raise ValueError(f"is cut short, in the frame at {begin}")
        yield at - begin, content


def _end_of_frame(read: Callable[[int, int], bytes], begin: int, head: bytes) -> int:
    at, is_last = begin + header_size(head), False
    while not is_last:
        block = read(at, 3)
        word = int.from_bytes(block, "little")
        is_last, kind = bool(word & 1), word >> 1 & 3
        if len(block) < 3 or kind > _COMPRESSED:
            raise ValueError(f"is cut short or damaged, in the frame at {begin}")
        at += 3 + (1 if kind == _RLE else word >> 3)
    return at + (4 if head[4] & 4 else 0)
