"""The lazy steps over samples."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.errors import DataError, DuplicateFieldError, UsageError
from tarkit.formats.tally import Tally
from tarkit.samples import transforms
from tarkit.samples.sample import Sample


def sample(key: str = "a/1", **fields: Any) -> dict[str, Any]:
    return {"__key__": key, "__url__": "s.tar", **fields}


def endless(drawn: list[int]) -> Iterator[int]:
    number = 0
    while True:
        drawn.append(number)
        yield number
        number += 1


def test_select_keeps_what_the_predicate_accepts() -> None:
    assert list(transforms.select([1, 2, 3, 4], lambda n: n % 2 == 0)) == [2, 4]


def test_take_draws_no_sample_beyond_the_last() -> None:
    drawn: list[int] = []
    assert list(transforms.take(endless(drawn), 3)) == [0, 1, 2]
    assert drawn == [0, 1, 2]
    assert list(transforms.take([1], 5)) == [1]
    with pytest.raises(UsageError, match="count is -1"):
        transforms.take([], -1)


def test_steps_draw_nothing_before_they_are_asked() -> None:
    drawn: list[int] = []
    steps = [
        transforms.select(endless(drawn), bool),
        transforms.take(endless(drawn), 2),
        transforms.shuffle(endless(drawn), 2, 1),
    ]
    assert drawn == []
    assert next(steps[0]) == 1


def test_shuffle_is_the_same_for_the_same_seed_and_loses_nothing() -> None:
    numbers = list(range(200))
    first = list(transforms.shuffle(numbers, 20, seed=7))
    assert first == list(transforms.shuffle(iter(numbers), 20, seed=7))
    assert first != list(transforms.shuffle(numbers, 20, seed=8))
    assert first != numbers
    assert sorted(first) == numbers
    assert all(number - place <= 20 for place, number in enumerate(first))


def test_shuffle_order_is_fixed_across_versions() -> None:
    # The order of a published data set must not depend on the version of Python.
    assert list(transforms.shuffle(range(8), 3, seed=0)) == SHUFFLED_8


SHUFFLED_8 = [1, 3, 0, 4, 2, 5, 7, 6]


def test_shuffle_with_a_buffer_larger_than_the_input() -> None:
    assert sorted(transforms.shuffle([1, 2, 3], 100, 1)) == [1, 2, 3]
    assert list(transforms.shuffle([1, 2, 3], 1, 1)) == [1, 2, 3]
    assert list(transforms.shuffle([], 5, 1)) == []


@pytest.mark.parametrize("buffer", [0, -1, True, 2.5])
def test_shuffle_refuses_a_buffer_that_is_none(buffer: Any) -> None:
    with pytest.raises(UsageError, match="buffer"):
        transforms.shuffle([], buffer, 1)


@pytest.mark.parametrize("seed", [None, "x", False])
def test_shuffle_needs_a_seed(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed"):
        transforms.shuffle([], 10, seed)


def test_rename_takes_the_first_alternative_and_keeps_the_others() -> None:
    samples = [sample(jpg=b"j", png=b"p", cls=b"1"), sample(png=b"p")]
    assert list(transforms.rename_fields(samples, {"image": "jpg|png"})) == [
        sample(image=b"j", png=b"p", cls=b"1"),
        sample(image=b"p"),
    ]


def test_rename_swaps_and_copies() -> None:
    assert list(transforms.rename_fields([sample(a=1, b=2)], {"a": "b", "b": "a"})) == [sample(a=2, b=1)]
    assert list(transforms.rename_fields([sample(a=1)], {"x": "a", "y": "a"})) == [sample(x=1, y=1)]


def test_rename_of_a_missing_field_names_key_and_fields() -> None:
    with pytest.raises(DataError) as caught:
        list(transforms.rename_fields([sample(cls=1, txt=2)], {"image": "jpg;png"}))
    assert str(caught.value) == ("s.tar, key 'a/1': rename: the sample has no field 'jpg' or 'png'; it has cls, txt")
    assert caught.value.key == "a/1"


def test_rename_onto_a_field_that_stays() -> None:
    with pytest.raises(DuplicateFieldError, match="'jpg' cannot become 'png'"):
        list(transforms.rename_fields([sample(jpg=1, png=2)], {"png": "jpg"}))


@pytest.mark.parametrize("names", [{"__key__": "txt"}, {"x": "__key__"}, {"": "x"}, {"x": ""}, {"x": "a||b"}])
def test_rename_refuses_bad_names(names: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        transforms.rename_fields([], names)


def test_keep_fields() -> None:
    samples = [sample(jpg=1, cls=2, json=3)]
    assert list(transforms.keep_fields(samples, "cls jpg")) == [sample(jpg=1, cls=2)]
    more, tally = [*samples, sample(txt=4), sample()], Tally()
    assert list(transforms.keep_fields(more, ["cls", "txt"], missing="ignore", tally=tally)) == [
        sample(cls=2), sample(txt=4), sample()
    ]  # fmt: skip
    assert tally.missing_fields == {"cls": 2, "txt": 2}
    assert list(transforms.keep_fields([], "cls", missing="ignore")) == []
    with pytest.raises(DataError, match="no sample has the field 'txt' that was asked for; the samples have cls, jpg"):
        list(transforms.keep_fields(samples, ["cls", "txt"], missing="ignore"))
    assert list(transforms.keep_fields(samples, ["cls", "txt"], missing="allow")) == [sample(cls=2)]
    with pytest.raises(DataError, match="no field 'txt'; it has cls, jpg, json"):
        list(transforms.keep_fields(samples, ["cls", "txt"]))
    with pytest.raises(UsageError, match="missing is 'skip'"):
        transforms.keep_fields(samples, ["cls"], missing="skip")
    with pytest.raises(UsageError, match="no fields are named"):
        transforms.keep_fields(samples, " ")


def test_fields_of_several_shards_are_told_without_naming_one() -> None:
    samples = [{**sample(cls=1), "__url__": url} for url in ("a.tar", "b.tar")]
    for some, place in ((samples, ""), (samples[:1], "a.tar: ")):
        with pytest.raises(DataError) as caught:
            list(transforms.require_fields(some, ["txt", "jgp"]))
        assert str(caught.value).startswith(f"{place}no sample has the field 'jgp', 'txt' that was asked for")


def test_the_names_of_ten_million_shards_are_not_kept() -> None:
    """While a field is not seen: it may be a rare one."""

    class Url(str):
        """A text whose life can be watched."""

    alive: weakref.WeakSet[Url] = weakref.WeakSet()

    def samples() -> Iterator[Sample]:
        for number in range(100):
            url = Url(f"{number}.tar")
            alive.add(url)
            yield {**sample(cls=1), "__url__": url}

    reading = transforms.require_fields(samples(), ["rare"])
    for _ in range(100):
        next(reading)
    gc.collect()
    assert len(alive) <= 4


def test_map_fields_leaves_the_given_sample_alone() -> None:
    given = sample(txt="hi", cls=1)
    assert list(transforms.map_fields([given], {"txt": str.upper})) == [sample(txt="HI", cls=1)]
    assert given["txt"] == "hi"
    with pytest.raises(DataError, match="map_fields: the sample has no field 'json'"):
        list(transforms.map_fields([given], {"json": len}))


def test_to_tuple_with_alternatives() -> None:
    samples = [sample("k1", png=1, cls=0), sample("k2", jpg=2, cls=5)]
    assert list(transforms.to_tuple(samples, "__key__", "png;jpg", "cls")) == [("k1", 1, 0), ("k2", 2, 5)]
    assert list(transforms.to_tuple(samples, "png|jpg cls")) == [(1, 0), (2, 5)]


def test_to_tuple_errors() -> None:
    with pytest.raises(DataError, match="key 'a/1': to_tuple: the sample has no field 'cls'; it has no fields"):
        list(transforms.to_tuple([sample()], "cls"))
    with pytest.raises(DataError, match="field 'cls' is None"):
        list(transforms.to_tuple([sample(cls=None)], "cls"))
    with pytest.raises(UsageError, match="no fields are named"):
        transforms.to_tuple([], "")
    with pytest.raises(UsageError, match="named by text"):
        transforms.to_tuple([], ["png", "jpg"])  # type: ignore[arg-type]
