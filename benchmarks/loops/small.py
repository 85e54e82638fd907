"""Small samples: one byte of class, 300 bytes of JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def small_samples(count: int) -> Iterator[dict[str, Any]]:
    """``count`` samples, the same ones every time."""
    chance = random.Random(20191209)
    for number in range(count):
        text = b'{"id": %d, "text": "' % number
        text += chance.randbytes(200).hex()[: 300 - len(text) - 2].encode() + b'"}'
        yield {"__key__": f"{number:08d}", "cls": b"%d" % (number % 10), "json": text}
