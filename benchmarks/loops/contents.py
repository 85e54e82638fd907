"""What a stream of samples held, so that two readers can be shown to agree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any


def contents(samples: Iterable[Mapping[str, Any]]) -> dict[str, int | str]:
    """Bytes in all fields, and a checksum over keys, field names and bytes in their order."""
    total = 0
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(sample["__key__"].encode() + b"\n")
        for field in sorted(sample):
            if not field.startswith("__"):
                total += len(sample[field])
                digest.update(b"%s %d " % (field.encode(), len(sample[field])) + sample[field])
    return {"field_bytes": total, "checksum": digest.hexdigest()}
