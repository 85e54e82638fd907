"""Values by which samples sort: their order, and which of them have none."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.exchange.sort import Sort
from tarkit.exchange.values import MOST_TEXT, By, is_function, number_value, plain_value, value_of_samples
from tarkit.samples.rawsamples import RawSample
from tarkit.store.fieldfile import FieldFile


def raw(key: str = "k", **fields: bytes) -> RawSample:
    """A sample whose members have no headers, and no padding."""
    words, at = "", 0
    for name, content in fields.items():
        words += f"{name.replace('__', '.')}\0{at}\0{len(content)}\0{key}.{name}\0"
        at += len(content)
    return RawSample(key, (b"".join(fields.values()),), at, words.encode())


def value(by: By, **fields: bytes) -> bytes:
    return value_of_samples(by)(raw(**fields))


# Each is before the next; those in one row are the same.
TABLE: list[list[str]] = [
    ["false"],
    ["true"],
    ["-1.7976931348623157e308"],
    ["-1e300"],
    ["-9007199254740993"],
    ["-9007199254740992", "-9007199254740992.0"],
    ["-9007199254740991"],
    ["-1.5"],
    ["-1", "-1.0"],
    ["-5e-324"],
    ["0", "-0", "-0.0", "0e400", "1e-400"],
    ["5e-324"],
    ["0.1"],
    ["9", "9.0", "0.9e1"],
    ["10"],
    ["9007199254740992", "9007199254740992.0"],
    ["9007199254740993"],
    ["9007199254740994", "9007199254740994.0"],
    ["9007199254740995"],
    ["18446744073709551615"],
    ["18446744073709551616", "1.8446744073709551616e19"],
    ["18446744073709551617"],
    ["1e300"],
    ['""'],
    ['"10"'],
    ['"9"'],
    ['"A"'],
    ['"a"'],
    ['"a\\u0000"'],
    ['"a\\u0000b"'],
    ['"a\\u0001"'],
    ['"ab"'],
    ['"é"', '"\\u00e9"'],
    ['"😀"', '"\\ud83d\\ude00"'],
]


def test_values_of_json_have_one_order() -> None:
    rows = [{value("json.x", json=b'{"x": %s}' % text.encode()) for text in row} for row in TABLE]
    assert [len(row) for row in rows] == [1] * len(TABLE)
    order = [row.pop() for row in rows]
    assert order == sorted(order)
    assert len({*order}) == len(order)


def test_texts_and_numbers_of_a_field() -> None:
    texts = [b"10", b"9", b"9\n", b"\xff", b""]
    assert sorted(texts, key=lambda text: value("cls", cls=text)) == [b"", b"10", b"9", b"9\n", b"\xff"]
    numbers = [b"10", b" 9\n", b"-1e3", b"+.5", b"18446744073709551617", b"18446744073709551616"]
    assert sorted(numbers, key=lambda text: value("cls:number", cls=text)) == [numbers[n] for n in (2, 3, 1, 0, 5, 4)]
    assert value("json.n:number", json=b'{"n": "10"}') == value("json.n:number", json=b'{"n": 10.0}')


@pytest.mark.parametrize(
    ("by", "field", "reason"),
    [
        ("json.x", b'{"x": NaN}', "json.x is NaN, which has no place in an order"),
        ("json.x", b'{"x": 1e400}', "json.x is beyond the largest double, 1.8e308"),
        ("json.x", b'{"x": -1e400}', "json.x is beyond the largest double, 1.8e308"),
        ("json.x", b'{"x": -Infinity}', "json.x is beyond the largest double, 1.8e308"),
        ("json.x", b'{"x": 1%s}' % (b"0" * 400), "json.x is beyond the largest double, 1.8e308"),
        ("json.x", b'{"x": null}', "json.x is missing or null"),
        ("json.x", b'{"y": 1}', "json.x is missing or null"),
        ("json.x.y", b'{"x": 1}', "json.x.y is missing or null"),
        ("json.x", b"[1]", "json.x is missing or null"),
        ("json.x", b'{"x": [1]}', "json.x is a list, and not a number, a text, true or false"),
        ("json.x", b'{"x": {}}', "json.x is an object, and not a number, a text, true or false"),
        ("json.x", b"{", "the field json is not JSON: Expecting property name"),
        ("json.x", b"\xff", "the field json is not JSON: "),
        ("json.x", b'{"x": %s}' % (b"[" * 100_000), "the field json is not JSON: "),
        ("json.x + 1", b'{"x": "a"}', "json.x is a text, and not a number"),
        ("json.x:number", b'{"x": true}', "json.x is true or false, and not a number"),
        ("json.x:number", b'{"x": "1_0"}', "json.x is not a number: '1_0'"),
        ("json:number", b"nan", "the field json is not a number: 'nan'"),
        ("json:number", b"1e999", "the field json is beyond the largest double"),
        ("json:number", b"", "the field json is not a number: ''"),
        ("json:number", b"\xff\n1", "the field json is not a number: "),
        ("cls", b"1", "it has no field cls"),
        ("cls:number", b"1", "it has no field cls"),
        ("cls.x", b"{}", "it has no field cls; a field of the name cls.x is field('cls.x')"),
        ("width(jpg)", b"{}", "it has no field jpg"),
        ("json", b"x" * (MOST_TEXT + 1), f"the field json has {MOST_TEXT + 1} bytes; a text to sort by may have"),
    ],
)
def test_sample_without_a_value_has_a_reason(by: str, field: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}") as caught:
        value(by, json=field)
    assert "\n" not in str(caught.value)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**1023), 2**1023),
    st.integers(-(2**70), 2**70),
    st.integers(0, 1100).flatmap(lambda n: st.integers(-3, 3).map(lambda d: min(2**n, 2**1023) + d)),
    st.integers(53, 1023).flatmap(lambda n: st.sampled_from([2.0**n, -(2.0**n), math.nextafter(2.0**n, 0)])),
)


@given(st.lists(NUMBERS, min_size=2, max_size=6))
def test_numbers_sort_exactly(numbers: list[float]) -> None:
    exact = [*map(Fraction, numbers)]
    encoded = [*map(number_value, numbers)]
    for one, first in zip(exact, encoded, strict=True):
        for two, second in zip(exact, encoded, strict=True):
            assert (one < two, one == two) == (first < second, first == second)
            assert first == second or not second.startswith(first)


def test_largest_numbers() -> None:
    most = int(sys.float_info.max)
    row: list[float] = [-most, -most + 1, most - 1, most]
    assert [*map(number_value, row)] == sorted(map(number_value, row))
    assert number_value(most) == number_value(sys.float_info.max)
    for beyond in (most + 1, -most - 1, math.inf, -math.inf):
        with pytest.raises(ValueError, match="beyond the largest double"):
            number_value(beyond)


@given(st.lists(st.one_of(st.binary(max_size=4), st.booleans(), st.integers(-2, 2**60), st.just(b"\0\0")), min_size=2))
def test_no_value_begins_with_another(values: list[Any]) -> None:
    encoded = sorted({plain_value(each) for each in values})
    assert not any(second.startswith(first) for first, second in pairwise(encoded))
    inverted = sorted(bytes(255 - byte for byte in each) for each in encoded)
    assert inverted == [bytes(255 - byte for byte in each) for each in reversed(encoded)]


def test_names_of_values() -> None:
    meta = {"meta__json": b'{"a": {"b": 7}, "json": 1}', "seg__png": b"s", "a": b'{"b": 3}'}
    assert value("meta.json.a.b", **meta) == value("field('meta.json').a.b", **meta) == plain_value(7)
    assert value("meta.json.json", **meta) == plain_value(1)
    assert value("meta.json", **meta) == plain_value(meta["meta__json"])
    assert value("field('seg.png')", **meta) == plain_value("s")
    assert value("a.b", **meta) == plain_value(3)
    assert value("a.b * 2 + size(a)", **meta) == plain_value(14)
    assert value("a.b == 3", **meta) == plain_value(True)
    assert value("size", **meta) == value("size:number", **meta) == plain_value(sum(map(len, meta.values())))
    assert value("key") == plain_value("k")
    assert value("len(key)") == plain_value(1)
    assert value("field('size')", size=b"x") == plain_value("x")


def test_large_field_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"..12")
    file = FieldFile.at(str(tmp_path / "f"))
    sample = RawSample("k", (b"head", file), 8, b"cls\0006\0002\0k.cls\0")
    assert value_of_samples("cls:number")(sample) == plain_value(12)
    assert value_of_samples(lambda fields: fields["cls"])(sample) == plain_value("12")


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("json.", "invalid syntax"),
        ("3 + 4", "it is the same for all samples"),
        ("true", "it is the same for all samples"),
        ("", "invalid syntax"),
        ("json.__class__", "is not a value"),
        ("nosuchmodule:f", "the module 'nosuchmodule' does not exist"),
        ("nosuchfile.py:f", "the file 'nosuchfile.py' does not exist"),
        ("json:nosuch", "has no function 'nosuch'"),
        ("x" * 1001, "it may have 1000"),
    ],
)
def test_wrong_value_is_a_usage_error(by: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sort(by)
    assert reason in str(caught.value)


def test_functions(tmp_path: Path) -> None:
    file = tmp_path / "values_of_a_test.py"
    file.write_text("def length(sample):\n    return len(sample['txt'])\n\n\ndef number(sample):\n    return 1\n")
    assert value(f"{file}:length", txt=b"abc") == plain_value(3)
    assert value(f"{file}:number") == plain_value(1)
    assert value("json:dumps") == plain_value(json.dumps({"__key__": "k"}))
    assert is_function("a.b:c")
    assert not is_function("cls:number")
    for answer in (None, [1], b"x" * (MOST_TEXT + 1), math.nan, object()):
        with pytest.raises(ValueError, match="the result of the function "):
            value(lambda sample, answer=answer: answer)  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"the function raised KeyError: 'txt' \(test_sort"):
        value(lambda sample: sample["txt"])


def test_values_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    assert value(lambda sample: numpy.float32(0.5)) == plain_value(0.5)
    assert value(lambda sample: numpy.int64(2**60 + 1)) == plain_value(2**60 + 1)


def test_function_counts_in_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("def f(sample):\n    return 1\n")
    before = Sort(f"{file}:f").options()
    file.write_text("def f(sample):\n    return 2\n")
    assert Sort(f"{file}:f").options() != before
    with pytest.raises(UsageError, match="work_id"):
        Sort(lambda sample: 1)
    assert Sort(lambda sample: 1, work_id="v1").options() != Sort(lambda sample: 1, work_id="v2").options()
    (tmp_path / "damaged.py").write_text("1 /")
    with pytest.raises(UsageError, match="cannot be loaded: SyntaxError"):
        Sort(f"{tmp_path}/damaged.py:f")


def test_reverse_keeps_equal_ones_in_order() -> None:
    draw = random.Random(1)
    samples = [(shard, number, draw.randrange(5)) for shard in range(3) for number in range(9)]
    for reverse in (False, True):
        places = [Sort("cls:number", reverse).place_of(shard) for shard in range(3)]
        found = sorted(samples, key=lambda each: places[each[0]](raw(cls=str(each[2]).encode()), each[1]))
        assert found == sorted(samples, key=lambda each: -each[2] if reverse else each[2])
