"""TFRecord files, made by hand, and what is read of them."""

from __future__ import annotations

import io
import struct

import google_crc32c

from tarkit.formats.tfrecord import read_records


def masked(data: bytes) -> bytes:
    """The checksum of TensorFlow's documentation, written anew."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32)


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def file_of(records: list[bytes]) -> bytes:
    return b"".join(map(framed, records))


def records_of(data: bytes, **options: object) -> list[bytes]:
    return list(read_records(io.BytesIO(data), **options))  # type: ignore[arg-type]
