"""Data for codecs, and both ways through them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

from tarkit.store.compression import DecompressingReader, new_compressor

RNG = random.Random(20240229)
SMALL = b"".join(b"%d little words, " % RNG.randrange(50) for _ in range(12)) + RNG.randbytes(40)
LARGE = b"".join(RNG.choice((RNG.randbytes(300), b"abc" * 99, SMALL)) for _ in range(3000)) + b"\0" * 300_000


def read_all(
    data: bytes, codec: str, read: Callable[[int], bytes] | None = None, step: int = 10_000, memory: int = 0
) -> bytes:
    reader = DecompressingReader(read or io.BytesIO(data).read, codec, "shard", memory)
    parts = []
    while part := reader.read(step):
        assert len(part) <= step
        parts.append(part)
    assert reader.read(step) == b""
    return b"".join(parts)


def packed(data: bytes, codec: str) -> bytes:
    compressor = new_compressor(codec)
    half = len(data) // 2
    return compressor.compress(data[:half]) + compressor.compress(data[half:]) + compressor.flush()
