"""Join the fields of sorted samples, or leave some out, without a copy of their content."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tarkit.exchange.runfile import Row
from tarkit.formats.tar.headers import BLOCK
from tarkit.samples.rawsamples import places_of
from tarkit.store.fieldfile import FieldFile


def fields_of(row: Row) -> list[bytes]:
    """Return the names of the fields of a sample, in their order."""
    return row.words.split(b"\0")[:-1:4]


def joined_fields(first: Row, second: Row) -> Row:
    """Return a sample with the members of two, at the position of the first.

    They have different fields.
    """
    shift = first.size
    words = b"".join(b"%b\0%d\0%d\0%b\0" % (each[0], each[1] + shift, *each[2:]) for each in places_of(second.words))
    return Row(first.position, [*first.parts, *second.parts], shift + second.size, first.words + words)


def without_fields(row: Row, fields: Collection[bytes]) -> Row:
    """Return a sample without the members of some fields; it may have none then."""
    parts, words = list[bytes | FieldFile](), b""
    start = at = 0
    for field, offset, size, name in places_of(row.words):
        end = offset + size + -size % BLOCK
        if field not in fields:
            parts += _between(row.parts, start, end)
            words += b"%b\0%d\0%d\0%b\0" % (field, at + offset - start, size, name)
            at += end - start
        start = end
    return Row(row.position, parts, at, words)


def _between(parts: Sequence[bytes | FieldFile], start: int, end: int) -> Iterator[bytes | FieldFile]:
    """Yield the pieces of parts from one byte to another."""
    for part in parts:
        first, last = max(0, start), min(len(part), end)
        if first < last:
            yield part[first:last] if isinstance(part, bytes) else part.part(first, last - first)
        start -= len(part)
        end -= len(part)
