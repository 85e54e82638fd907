"""Convert pairs to names with content, for a conversion from and to tar shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.errors import DecodeError
from tarkit.formats.sequencefile.read import read_pairs
from tarkit.formats.sequencefile.write import PairWriter
from tarkit.formats.tally import Tally

SUFFIXES = (".seq", ".sequencefile")


def looks_like(head: bytes) -> bool:
    """Return True if a file begins as a SequenceFile does."""
    return head[:3] == b"SEQ" and head[3:4] <= b"\x06"


def read_named(source: str, *, on_damage: str, tally: Tally, mem: int) -> Iterator[tuple[str | None, bytes]]:
    """Yield (key as text, value as bytes) of each pair; None for a NullWritable.

    Raises:
        DecodeError: the values are neither bytes nor text.
    """
    for number, (key, value) in enumerate(read_pairs(source, on_damage=on_damage, tally=tally, mem=mem)):
        content = value.encode() if isinstance(value, str) else value
        if not isinstance(content, bytes):
            raise DecodeError(
                f"the value of pair {number} is of type {type(value).__name__}; a record is bytes or text", url=source
            )
        yield _text(key), content


def read_sizes(source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str | None, int]]:
    """Yield (key as text, size of the value in bytes) of each pair.

    For a value that is neither text nor bytes, the size is that of its stored bytes.

    Raises:
        DecodeError: the codec or the class of the keys is not known.
        DataError: the file is damaged.
    """
    for key, value in read_pairs(source, raw="content", on_damage=on_damage, tally=tally):
        yield _text(key), len(value.encode() if isinstance(value, str) else value)


def _text(key: Any) -> str | None:
    if isinstance(key, bytes):
        return key.decode("utf-8", "backslashreplace")
    return None if key is None else str(key)


class NamedWriter(PairWriter):
    """A writer of pairs of Text and BytesWritable, in blocks."""
