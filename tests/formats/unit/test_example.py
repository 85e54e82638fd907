"""tf.train.Example and SequenceExample: what TensorFlow wrote, both forms of lists, and bytes that
are neither.
"""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from examplevalues import features, named, same
from hypothesis import given
from hypothesis import strategies as st
from tfexamples import EXAMPLES, SEQUENCES

from tarkit.errors import DecodeError, EncodeError
from tarkit.formats.example import (
    BytesList,
    _Message,
    decode_example,
    decode_sequence_example,
    encode_example,
    encode_sequence_example,
)
from tarkit.formats.tfrecord import read_records

FILES = Path(__file__).resolve().parents[1] / "data" / "tfrecord"


# ---- other programs


def test_examples_of_tensorflow() -> None:
    records = list(read_records(FILES / "examples.tfrecord"))
    for record, (name, expected) in zip(records, EXAMPLES.items(), strict=True):
        assert same(decode_example(record), expected), name
        # Where one name begins with another, protobuf's library sorts the longer one first.
        assert (encode_example(expected) == record) == (name != "names"), name
        assert encode_example(decode_example(record)) == encode_example(expected)


def test_sequences_of_tensorflow() -> None:
    records = list(read_records(FILES / "sequences.tfrecord"))
    for record, (name, expected) in zip(records, SEQUENCES.items(), strict=True):
        assert same(decode_sequence_example(record), expected), name
        assert encode_sequence_example(*expected) == record, name


def test_examples_of_the_package_tfrecord() -> None:
    for number, record in enumerate(read_records(FILES / "pypi.tfrecord")):
        found = decode_example(record)
        assert found["label"] == array("q", [number])
        assert found["vector"] == array("f", [0.5, number + 0.25])
        assert [len(each) for each in found["image"] or ()] == [50 + number]


# ---- there and back


@given(named(features()))
def test_example_there_and_back(values: dict[str, Any]) -> None:
    data = encode_example(values)
    assert same(decode_example(data), values)
    assert encode_example(dict(reversed(values.items()))) == data
    assert decode_example(memoryview(data)).keys() == values.keys()  # type: ignore[arg-type]


@given(named(features()), named(st.lists(features(), max_size=4)))
def test_sequence_there_and_back(context: dict[str, Any], lists: dict[str, list[Any]]) -> None:
    data = encode_sequence_example(context, lists)
    assert same(decode_sequence_example(data), (context, lists))


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        (b"x", BytesList([b"x"])),
        (bytearray(b"x"), BytesList([b"x"])),
        ([b"x", memoryview(b"y")], BytesList([b"x", b"y"])),
        ((b"",), BytesList([b""])),
        (3, array("q", [3])),
        (True, array("q", [1])),
        (range(3), array("q", [0, 1, 2])),
        ([2**63 - 1, -(2**63)], array("q", [2**63 - 1, -(2**63)])),
        (0.5, array("f", [0.5])),
        ([0.1, Fraction(1, 2)], array("f", [0.1, 0.5])),
        (array("d", [0.1, 2]), array("f", [0.1, 2])),
        (array("B", [0, 255]), array("q", [0, 255])),
    ],
)
def test_values_that_are_accepted(value: Any, decoded: Any) -> None:
    assert same(decode_example(encode_example({"a": value})), {"a": decoded})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "an empty list has no kind"),
        ("text", "type str; text has to be encoded as bytes"),
        (["text"], "a value is of type str; it must be bytes, int or float"),
        ([b"x", 1], "several kinds: bytes, int"),
        ([1, 2.5], "several kinds: float, int"),
        ([None], "a value is of type NoneType"),
        ({"a": 1}, "type dict"),
        (object(), "not iterable"),
        (2**63, "9223372036854775808 does not fit"),
        (-(2**63) - 1, "does not fit"),
        (array("Q", [2**64 - 1]), "does not fit"),
        (1e39, "float"),
        (array("d", [1e39]), "float"),
        (1j, "not iterable"),
    ],
)
def test_values_that_are_refused(value: Any, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_example({"good": 1, "bad": value})
    assert str(caught.value).startswith("feature 'bad' cannot be written: ")
    assert message in str(caught.value)
    with pytest.raises(EncodeError, match="feature 'steps' cannot be written"):
        encode_sequence_example({}, {"steps": [1, value]})


def test_arrays_and_numbers_of_numpy() -> None:
    np = pytest.importorskip("numpy", reason="NO NUMPY, ITS ARRAYS ARE NOT ENCODED")
    for value, decoded in (
        (np.array([1.5, 2], "<f4"), array("f", [1.5, 2])),
        (np.array([1.5, 2], ">f8"), array("f", [1.5, 2])),
        (np.array([], np.int32), array("q")),
        (np.array([], np.float16), array("f")),
        (np.array([True, False]), array("q", [1, 0])),
        (np.array(3), array("q", [3])),
        (np.uint8(255), array("q", [255])),
        ([np.int64(-1), np.int8(2)], array("q", [-1, 2])),
        ([np.float32(0.5)], array("f", [0.5])),
    ):
        assert same(decode_example(encode_example({"a": value})), {"a": decoded}), value
    for value, message in (
        (np.zeros((2, 2)), "2 dimensions; flatten it"),
        (np.array([b"x"]), r"array of \|S1"),
        (np.array([1e39]), "float"),
    ):
        with pytest.raises(EncodeError, match=message):
            encode_example({"a": value})


def test_names_that_are_refused() -> None:
    with pytest.raises(EncodeError, match="name of type int"):
        encode_example({"a": 1, 2: 1})  # type: ignore[dict-item]
    with pytest.raises(EncodeError, match="cannot be written as UTF-8"):
        encode_example({"\udcff": 1})


def test_names_are_sorted_by_their_bytes() -> None:
    names = ["b", "", "\U0001f431", "a/b", "\ufffd", "a", "ab"]
    data = encode_example(OrderedDict.fromkeys(names, 1))
    assert list(decode_example(data)) == sorted(names, key=str.encode)


# ---- what Protocol Buffers allows


def field(number: int, content: bytes, wire: int = 2) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | wire, *([len(content)] if wire == 2 else [])]) + content


def example_of(feature: bytes, name: bytes = b"a") -> bytes:
    return field(1, field(1, field(1, name) + field(2, feature)))


FLOATS = struct.pack("<3f", 0.5, -1.0, 2.0)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (field(3, field(1, b"\x01\xac\x02\x7f")), array("q", [1, 300, 127])),
        (field(3, b"\x08\x01\x08\xac\x02\x08\x7f"), array("q", [1, 300, 127])),
        (field(3, b"\x08\x01" + field(1, b"\xac\x02") + b"\x08\x7f"), array("q", [1, 300, 127])),
        (field(3, b"\x08" + b"\xff" * 9 + b"\x01"), array("q", [-1])),
        # More bits than 64 are dropped, as Protocol Buffers does.
        (field(3, b"\x08" + b"\xff" * 9 + b"\x7f"), array("q", [-1])),
        (field(3, b"\x08\x81\x00"), array("q", [1])),
        (field(2, field(1, FLOATS)), array("f", [0.5, -1, 2])),
        (field(2, b"".join(b"\x0d" + FLOATS[at : at + 4] for at in (0, 4, 8))), array("f", [0.5, -1, 2])),
        (field(2, field(1, FLOATS[:4]) + b"\x0d" + FLOATS[4:8] + field(1, FLOATS[8:])), array("f", [0.5, -1, 2])),
        (field(2, field(1, b"\x01\x00\x80\x7f")), array("f", b"\x01\x00\x80\x7f")),
        (field(1, field(1, b"x")) + field(1, field(1, b"y")), BytesList([b"x", b"y"])),
        (field(3, b""), array("q")),
        (field(3, field(1, b"")), array("q")),
        (b"", None),
    ],
)
def test_lists_packed_or_not(feature: bytes, expected: Any) -> None:
    assert same(decode_example(example_of(feature)), {"a": expected})
    step = field(2, field(1, field(1, b"a") + field(2, field(1, feature))))
    assert same(decode_sequence_example(step), ({}, {"a": [expected]}))


def test_parts_that_are_missing_or_come_in_another_order() -> None:
    assert decode_example(b"") == decode_example(field(1, b"")) == {}
    assert decode_sequence_example(b"") == ({}, {})
    assert decode_example(field(1, field(1, b""))) == {"": None}
    assert decode_example(field(1, field(1, field(2, b"") + field(1, b"z")))) == {"z": None}
    assert list(decode_example(example_of(b"", b"x") + example_of(b"", b"y"))) == ["x", "y"]
    assert decode_sequence_example(field(2, field(1, field(1, b"n")))) == ({}, {"n": []})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (example_of(b"") + example_of(b""), "feature 'a' is repeated"),
        (example_of(field(1, b"") + field(3, b"")), "two kinds, bytes and int"),
        (field(2, b""), "field 2 of wire type 2 is unknown"),
        (example_of(field(4, b"")), "field 4"),
        (example_of(b"\x08\x01"), "field 1 of wire type 0 is unknown"),
        (example_of(field(3, b"\x0d1234")), "field 1 of wire type 5 is unknown"),
        (example_of(b"", b"\xff"), "name of a feature is not UTF-8"),
        (example_of(field(2, field(1, b"12345"))), "not a multiple of 4"),
        (example_of(field(3, field(1, b"\xff"))) + example_of(b"", b"b"), "an integer is cut"),
        (example_of(field(3, b"\x08" + b"\xff" * 10 + b"\x01")), "more than 10 bytes"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "bytes more than there are"),
        (b"\x0a", "an integer is cut"),
        (b"a plain text", "field 12 of wire type 1 is unknown"),
    ],
)
def test_what_is_not_an_example(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_example(data)
    assert str(caught.value).startswith("not a tf.train.Example: ")
    assert message in str(caught.value)
    assert caught.value.exit_code == 65


def test_a_sequence_example_is_not_taken_for_an_example() -> None:
    data = encode_sequence_example({"a": 1}, {"b": [2]})
    with pytest.raises(
        DecodeError, match=r"not a tf.train.Example: field 2 of wire type 2 is unknown at byte 14 of 30"
    ):
        decode_example(data)
    with pytest.raises(DecodeError, match="feature list 'b' is repeated"):
        decode_sequence_example(data + data[14:])


def test_every_cut_is_an_error_or_lacks_whole_features() -> None:
    data = encode_example({"a": [1, 300], "b": 0.5, "c": [b"x", b""], "d": None})
    for cut in range(1, len(data)):
        with pytest.raises(DecodeError):
            decode_example(data[:cut])
    for cut in range(1, len(data)):
        with pytest.raises(DecodeError):
            decode_sequence_example(data[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_an_error(data: bytes) -> None:
    for decode in (decode_example, decode_sequence_example):
        try:
            decode(data)
        except DecodeError as error:
            assert "\n" not in str(error)


def decoded(data: bytes) -> Any:
    """What is decoded, or the words of the error."""
    try:
        return decode_example(data)
    except DecodeError as error:
        return str(error)


@given(named(features()), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3))
def test_flipped_bytes_are_the_same_for_the_quick_way_and_the_strict_one(
    values: dict[str, Any], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(encode_example({**values, "z": [1, 300, -1]}))
    for place, byte in changes:
        data[place % len(data)] = byte
    quick = decoded(bytes(data))
    with mock.patch.object(_Message, "quick_entry", return_value=None):
        strict = decoded(bytes(data))
    assert same(quick, strict) if isinstance(strict, dict) else quick == strict
    if isinstance(strict, dict):
        assert same(decode_example(encode_example(strict)), strict)
