"""Defects that tests plant into shards, and the pictures, sounds and arrays that they damage."""

from __future__ import annotations

import io
import json
import struct
import wave
import zlib
from typing import Any

import numpy
import tarbuild
from PIL import Image, PngImagePlugin

from tarkit.formats.tar.headers import BLOCK, END_OF_ARCHIVE


def picture(kind: str, mode: str = "RGB", frames: int = 1, **options: Any) -> bytes:
    """A picture of noise that every decoder must look at."""
    size = (96, 64)
    made = [
        Image.frombytes("L", size, numpy.random.default_rng(seed).bytes(size[0] * size[1])).convert(mode)
        for seed in range(frames)
    ]
    out = io.BytesIO()
    more = {"save_all": True, "append_images": made[1:]} if frames > 1 else {}
    made[0].save(out, kind, **more, **options)
    return out.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header says this size, with almost no data."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    data = zlib.compress(bytes(100))
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def text_bomb() -> bytes:
    """A PNG with a compressed text of 80 MB."""
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "x" * 80_000_000, zip=True)
    return picture("PNG", "L", pnginfo=info)


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG whose header says this size."""
    data = picture("JPEG", "L")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def sound(frames: int = 1000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, frames, "NONE", ""))
        file.writeframes(bytes(2 * frames))
    return out.getvalue()


def array(value: Any, version: tuple[int, int] | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    numpy.lib.format.write_array(out, numpy.asarray(value), version=version, **options)
    return out.getvalue()


def box(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", 8 + len(content)) + kind + content


def video() -> bytes:
    return box(b"ftyp", b"isom") + box(b"moov", bytes(40)) + box(b"mdat", bytes(200))


def flipped(data: bytes, at: int) -> bytes:
    """The data with one bit changed."""
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def member(name: str, content: bytes) -> bytes:
    return tarbuild.member(name.encode(), content)


def shard(samples: dict[str, dict[str, bytes]], end: bytes = END_OF_ARCHIVE) -> bytes:
    """A tar of samples, key -> field -> content."""
    return (
        b"".join(member(f"{key}.{field}", data) for key, fields in samples.items() for field, data in fields.items())
        + end
    )


def plain_samples(prefix: str, count: int = 4) -> dict[str, dict[str, bytes]]:
    """Samples of two members of one block each: 2,048 bytes of the shard."""
    return {
        f"{prefix}-{n}": {"cls": b"%d" % n, "json": json.dumps({"n": n, "of": prefix}).encode()} for n in range(count)
    }


SPAN = 4 * BLOCK
"""Bytes of one of these samples."""
