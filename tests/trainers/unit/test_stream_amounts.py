"""Streams and their amounts: which go together, and the length of an epoch."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.trainers.streams import Stream, epoch_amounts, stream_names, streams_of


def amounts(size: int | str | None, counts: list[int], *given: dict[str, Any]) -> list[Fraction]:
    streams = [Stream(f"{number}.tar", **each) for number, each in enumerate(given)]
    return epoch_amounts(streams, stream_names(streams), counts, size)


def p(value: float) -> dict[str, Any]:
    return {"proportion": value}


@pytest.mark.parametrize(
    ("size", "counts", "given", "expected"),
    [
        (None, [10, 7, 5], [{"repeat": 2}, {"choose": 3}, {}], [20, 3, 5]),
        (None, [7], [{"repeat": 0.1}], [Fraction(7, 10)]),
        (None, [7, 0], [{}, {"choose": 0}], [7, 0]),
        (10, [7], [{"choose": 10}], [10]),
        (None, [100, 50], [p(1), p(3)], [Fraction(75, 2), Fraction(225, 2)]),
        (None, [100, 0], [p(1), p(0)], [100, 0]),
        (None, [100, 50], [p(1), p(0)], [100, 0]),
        (30, [100, 50], [p(0.1), p(0.2)], [10, 20]),
        ("shortest", [100, 50], [p(0.5), p(0.5)], [50, 50]),
        ("longest", [100, 50], [p(0.5), p(0.5)], [100, 100]),
        ("longest", [100, 50, 0], [p(0.5), p(0.5), p(0)], [100, 100, 0]),
        (100, [9, 9, 9], [p(0.5), {"repeat": 2}, {"choose": 10}], [72, 18, 10]),
        (100, [9, 9, 9, 9], [p(2), p(1), {"repeat": 2}, {"choose": 22}], [40, 20, 18, 22]),
        (100, [9, 0], [p(0.5), {"repeat": 0}], [100, 0]),
        (None, [9, 0], [p(0.5), {"repeat": 0}], [9, 0]),
    ],
)
def test_amounts(size: Any, counts: list[int], given: list[dict[str, Any]], expected: list[Any]) -> None:
    assert amounts(size, counts, *given) == expected


@pytest.mark.parametrize(
    ("size", "counts", "given", "message"),
    [
        (
            None,
            [9, 9],
            [p(1), {"repeat": 2}],
            "streams with proportion are beside streams with repeat or choose: epoch_size= must",
        ),
        (
            "longest",
            [9, 9],
            [p(1), {"repeat": 2}],
            "streams with proportion are beside streams with repeat or choose: epoch_size=",
        ),
        (18, [9, 9], [p(1), {"repeat": 2}], "epoch_size is 18, and repeat and choose take 18: proportion has no rest"),
        (100, [9, 9], [p(1), {}], "stream '1.tar' has no amount, and others have proportion: name one of"),
        (100, [9], [{"repeat": 2}], "epoch_size is 100, and the epoch has 18 samples by repeat and choose"),
        ("shortest", [9], [{"repeat": 2.25}], "epoch_size is shortest, and the epoch has 20.25 samples by repeat"),
        (100, [0, 9], [p(1), p(1)], "stream '0.tar' has no samples, and proportion=1"),
        (None, [0, 9], [{}, {}], "stream '0.tar' has no samples, and repeat=1"),
        (0, [9], [p(1)], "epoch_size is 0; it must be a whole number from 1"),
        (1.5, [9], [p(1)], "epoch_size is 1.5; it must be a whole number from 1"),
        ("short", [9], [p(1)], "epoch_size is 'short'; it must be a number of samples, or one of shortest, longest"),
    ],
)
def test_amounts_that_do_not_go_together(
    size: Any, counts: list[int], given: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        amounts(size, counts, *given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proportion": 1, "repeat": 2}, "stream 'a.tar' has proportion and repeat; it can have one of them"),
        ({"proportion": -1}, "proportion of stream 'a.tar' is -1; it must be a number from 0 on, such as 0.5"),
        ({"proportion": float("nan")}, "proportion of stream 'a.tar' is nan; it must be a number from 0 on"),
        ({"repeat": float("inf")}, "repeat of stream 'a.tar' is inf; it must be a number from 0 on"),
        ({"repeat": "2"}, "repeat of stream 'a.tar' is '2'; it must be a number from 0 on"),
        ({"repeat": True}, "repeat of stream 'a.tar' is True; it must be a number from 0 on"),
        ({"choose": 1.5, "name": "a"}, "choose of stream 'a' is 1.5; it must be a whole number from 0 on"),
        ({"choose": 10**400}, f"choose of stream 'a.tar' is 1{'0' * 99}"),
        ({"repeat": Fraction(10**400, 3)}, "repeat of stream 'a.tar' is Fraction(1000"),
        ({"repeat": Decimal("sNaN")}, "repeat of stream 'a.tar' is Decimal('sNaN'); it must be a number from 0 on"),
        ({"proportion": Decimal("1e-999999999")}, "proportion of stream 'a.tar' is Decimal('1E-999999999'); it must"),
        (
            {"proportion": Decimal("1e999999999")},
            "proportion of stream 'a.tar' is Decimal('1E+999999999'); it must be a number from 0 on, such as 0.5 (of "
            "1e-100 to 1e+100)",
        ),
        ({"name": ""}, "name of a stream is ''; it must be a text"),
        ({"name": 3}, "name of a stream is 3; it must be a text"),
    ],
)
def test_streams_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        Stream("a.tar", **options)
    with pytest.raises(UsageError, match=r"^a stream names no shards$"):
        Stream([])


def test_a_float_is_the_decimal_number_that_it_is_printed_as() -> None:
    assert Stream("a.tar", proportion=0.1).amount == Fraction(1, 10)
    texts = [Stream("a.tar", proportion=value).text for value in (0.1, 2, 2.0, Fraction(1, 3), Fraction(1, 2))]
    assert texts == ["proportion=0.1", "proportion=2", "proportion=2", "proportion=1/3", "proportion=0.5"]
    numpy = pytest.importorskip("numpy")
    assert Stream("a.tar", choose=numpy.int64(3)).amount == 3
    assert Stream("a.tar", repeat=numpy.float32(0.1)).amount == Fraction(1, 10)


def test_names() -> None:
    """They do not depend on the folder, since a copy of the data set has the same order."""
    given = [
        Stream("s3://b/web/train.tar"),
        Stream("code/train.tar"),
        Stream("a.tar", name="train.tar#2"),
        Stream("x.tar"),
    ]
    assert stream_names(given) == ["train.tar", "train.tar#3", "train.tar#2", "x.tar"]
    with pytest.raises(UsageError, match=r"^two streams have the name 'a'; the order of a stream depends on it$"):
        stream_names([Stream("a.tar", name="a"), Stream("b.tar", name="a")])


def test_what_is_given_in_place_of_shards() -> None:
    one = Stream("a.tar")
    assert streams_of("a.tar") is streams_of(["a.tar"]) is streams_of(iter(["a.tar"])) is None
    assert streams_of(one) == streams_of([one]) == streams_of((one,)) == [one]
    with pytest.raises(UsageError, match=r"^'b.tar' is beside streams; each must be a Stream$"):
        streams_of([one, "b.tar"])
    with pytest.raises(UsageError, match=r"^each stream has 0 samples in an epoch; one must have more$"):
        streams_of([Stream("a.tar", repeat=0)])


def test_a_difference_of_floats_is_the_number_that_is_meant() -> None:
    assert Stream("a.tar", proportion=1 - 0.7).amount == Stream("a.tar", proportion=0.3).amount == Fraction(3, 10)
