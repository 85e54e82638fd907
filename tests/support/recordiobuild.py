"""Files of RecordIO, by hand and by programs of both dialects."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from functools import partial
from pathlib import Path

import google_crc32c
from cramjam import snappy

from tarkit.formats.recordio import RecordWriter, read_index
from tarkit.formats.recordio.chunk import GO, Dialect

DATA = Path(__file__).resolve().parents[1] / "formats" / "data" / "recordio"
LINES = (DATA / "vectors.txt").read_text(encoding="ascii").splitlines()
VECTORS = {name: bytes.fromhex(digits) for name, _, digits in (line.partition(" ") for line in LINES)}
RECORDS = [b"record %d " % i * (i * 7 % 50) for i in range(1500)]
HELLO = [b"Hello", b"World,", b"RecordIO!"]


def written(records: list[bytes], compression: str = "snappy", size: int = 32 << 20, dialect: Dialect = GO) -> bytes:
    """A file of these records; that of pyrecordio's dialect is made by hand."""
    out = io.BytesIO()
    compressed = compression if dialect is GO else "none"
    with RecordWriter(out, compression=compressed, max_chunk_size=size) as writer:
        writer.write_batch(records)
    assert writer.records == len(records)
    content = out.getvalue()
    if dialect is GO:
        return content
    pack = {"none": bytes, "snappy": snappy.compress_raw, "gzip": partial(gzip.compress, mtime=0)}[compression]
    return b"".join(
        py_chunk(bytes(pack(content[at.offset + 20 : at.offset + at.size])), at.records, dialect.codes[compression])
        for at in read_index(io.BytesIO(content)).chunks
    )


def go_chunk(content: bytes, records: int, compressor: int = 0, payload: bytes | None = None) -> bytes:
    """A chunk of Go's dialect, made by hand."""
    payload = content if payload is None else payload
    return struct.pack("<5I", 0x01020304, zlib.crc32(payload), compressor, len(payload), records) + payload


def py_chunk(payload: bytes, records: int, compressor: int) -> bytes:
    """A chunk of pyrecordio's dialect, made by hand."""
    return struct.pack("<5I", 0x01020304, records, google_crc32c.value(payload), compressor, len(payload)) + payload
