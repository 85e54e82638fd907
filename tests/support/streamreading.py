"""A stream that is read to its end, in steps."""

from __future__ import annotations

from tarkit.store.read import ReadStream


def read_all(stream: ReadStream, step: int = 10_007) -> bytes:
    with stream:
        parts = []
        while part := stream.read(step):
            assert len(part) <= step
            parts.append(part)
        assert stream.read(step) == b""
    return b"".join(parts)
