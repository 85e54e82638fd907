"""Records of one size, half of them random, and what is common to the loops over them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable


def records(count: int, size: int) -> list[bytes]:
    """``count`` records of ``size`` bytes, the same ones every time."""
    chance = random.Random(20190612)
    return [
        chance.randbytes(size // 2) + bytes(range(65, 91)) * (size // 52) + bytes(size // 2 % 26) for _ in range(count)
    ]


def evidence(found: Iterable[bytes]) -> dict[str, int | str]:
    """Number, bytes and checksum of records."""
    number = total = checksum = 0
    for record in found:
        number += 1
        total += len(record)
        checksum = zlib.crc32(record, checksum)
    return {"records": number, "record_bytes": total, "checksum": f"{checksum:08x}"}
