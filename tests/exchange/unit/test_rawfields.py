"""Fields of sorted samples that are joined or left out, as raw members."""

from __future__ import annotations

import io
import tarfile
from itertools import combinations

from tarkit.exchange.newmembers import NewMembers
from tarkit.exchange.rawfields import fields_of, joined_fields, without_fields
from tarkit.exchange.runfile import Row
from tarkit.samples.sample import first_dot
from tarkit.store.fieldfile import FieldFile

CONTENT = {"a": b"", "b.json": b"x" * 512, "c": b"y" * 513, "long" * 40: b"z"}


def row(fields: dict[str, bytes]) -> Row:
    """A sample with a part for each header, content and padding."""
    made = NewMembers(first_dot, "no option", "no hint")
    found = made.sample("k", ((field, f"k.{field}".encode(), text) for field, text in fields.items()), url="x.tar")
    return Row(b"position", found.parts, found.size, found.words)


def in_one_part(sample: Row) -> Row:
    return sample._replace(parts=(b"".join(bytes(part) for part in sample.parts if isinstance(part, bytes)),))


def in_a_file(sample: Row) -> Row:
    return sample._replace(parts=(FieldFile.keep(in_one_part(sample).parts, url="x.tar"),))


def read_by_tarfile(sample: Row) -> dict[str, bytes]:
    data = b"".join(part if isinstance(part, bytes) else part.read() for part in sample.parts)
    assert len(data) == sample.size
    with tarfile.open(fileobj=io.BytesIO(data + bytes(1024))) as archive:
        return {each.name[2:]: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def check(sample: Row, fields: dict[str, bytes]) -> None:
    assert [*read_by_tarfile(sample).items()] == [*fields.items()]
    assert {**sample.sample(first_dot)} == {"__key__": "k", **fields}
    assert fields_of(sample) == [field.encode() for field in fields]


def test_any_fields_are_left_out_of_any_parts() -> None:
    for kind in (lambda each: each, in_one_part, in_a_file):
        for count in range(len(CONTENT)):
            for out in combinations(CONTENT, count):
                found = without_fields(kind(row(CONTENT)), [field.encode() for field in out])
                plain = found._replace(parts=[each if isinstance(each, bytes) else each.read() for each in found.parts])
                check(plain, {field: text for field, text in CONTENT.items() if field not in out})
    nothing = without_fields(row(CONTENT), [field.encode() for field in CONTENT])
    assert (nothing.parts, nothing.size, nothing.words) == ([], 0, b"")


def test_joined_fields_are_those_of_the_first_and_then_the_second() -> None:
    second = {"z": b"1", "y": b"2" * 1025}
    check(joined_fields(row(CONTENT), in_one_part(row(second))), {**CONTENT, **second})
    nothing = without_fields(row(CONTENT), [field.encode() for field in CONTENT])
    check(joined_fields(nothing, row(second)), second)
    check(joined_fields(row(second), nothing), second)
