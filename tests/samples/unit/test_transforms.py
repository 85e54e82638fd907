"""The lazy steps over samples."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.errors import DataError, UsageError
from tarkit.formats.tally import Tally
from tarkit.samples import transforms
from tarkit.samples.sample import Sample


def sample(key: str = "a/1", **fields: Any) -> dict[str, Any]:
    return {"__key__": key, "__url__": "s.tar", **fields}


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


def test_values_of_alternatives() -> None:
    wanted = transforms.alternatives("__key__ png;jpg cls")
    assert wanted == transforms.alternatives("__key__ png|jpg cls")
    samples = [sample("k1", png=1, cls=0), sample("k2", jpg=2, cls=5)]
    assert [transforms.field_values(each, wanted) for each in samples] == [("k1", 1, 0), ("k2", 2, 5)]
    with pytest.raises(DataError, match="key 'a/1': fields: the sample has no field 'cls'; it has no fields"):
        transforms.field_values(sample(), [["cls"]])
    for text in ("png; cls", ";"):
        with pytest.raises(UsageError, match="must be a field, or fields with"):
            transforms.alternatives(text)


def test_keep_fields_with_alternatives() -> None:
    tally = Tally()
    given = [sample(png=1, jpg=2), sample(jpg=3), sample(txt=4)]
    kept = transforms.keep_fields(given, "png|jpg txt", missing="ignore", tally=tally)
    assert list(kept) == [sample(png=1), sample(jpg=3), sample(txt=4)]
    assert tally.missing_fields == {"png|jpg": 1, "txt": 2}
    with pytest.raises(DataError, match="no field 'gif' or 'bmp'"):
        list(transforms.keep_fields(given, "gif|bmp"))
