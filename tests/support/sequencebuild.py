"""SequenceFiles byte by byte, of every version: what the reader is tested with.

Shares no code with tarkit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

IO = "org.apache.hadoop.io."
SYNC = bytes(range(16))
MARK = b"\xff\xff\xff\xff" + SYNC


def text(value: str) -> bytes:
    """A Text of fewer than 128 bytes."""
    data = value.encode()
    assert len(data) < 128
    return bytes([len(data)]) + data


def old_text(value: str) -> bytes:
    """How class names are written before version 4."""
    return struct.pack(">H", len(value)) + value.encode()


def header(version: int = 6, kind: str = "none", key: str = "Text", value: str = "Text", codec: str = "") -> bytes:
    """Args:
    kind: none, record or block, as far as the version has it.
    """
    name = text if version >= 4 else old_text
    out = b"SEQ" + bytes([version]) + name(IO + key) + name(IO + value)
    if version >= 3:
        out += bytes([kind != "none"])
    if version >= 4:
        out += bytes([kind == "block"])
    if version >= 5 and kind != "none":
        out += name(codec or f"{IO}compress.DefaultCodec")
    if version >= 6:
        out += struct.pack(">i", 0)
    return out + (SYNC if version >= 2 else b"")


def record(key: str, value: str, compressed: bool = False) -> bytes:
    """One of Text and Text."""
    value_bytes = zlib.compress(text(value)) if compressed else text(value)
    return struct.pack(">ii", len(text(key)) + len(value_bytes), len(text(key))) + text(key) + value_bytes


def block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """One of few and short records, with its mark."""
    keys, values = zip(*((text(key), text(value)) for key, value in pairs), strict=True)
    out = MARK + bytes([len(keys)])
    for items in (keys, values):
        for plain in (bytes(map(len, items)), b"".join(items)):
            packed = zlib.compress(plain)
            assert len(packed) < 128
            out += bytes([len(packed)]) + packed
    return out
