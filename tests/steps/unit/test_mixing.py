"""Mixes: exact shares in every part, by the seed, no sample twice, until the first or the last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from tarkit.errors import RepeatedKeyError, UsageError
from tarkit.steps.mixing import FIRST, LAST, MixedSet, mix_samples


def samples(name: str, count: int | None) -> Iterator[dict[str, Any]]:
    for number in itertools.count() if count is None else range(count):
        yield {"__key__": f"{name}{number}", "__url__": f"{name}.tar", "x": b""}


def sets(**weights: tuple[float, int | None]) -> list[MixedSet]:
    return [MixedSet(samples(name, count), weight, name) for name, (weight, count) in weights.items()]


def keys(*args: Any, **options: Any) -> list[str]:
    return [sample["__key__"] for sample in mix_samples(*args, **options)]


@pytest.mark.parametrize("weights", [(2, 1), (0.7, 0.2, 0.1), (1, 1, 1, 1), (1e-3, 1)])
def test_each_part_has_the_shares(weights: tuple[float, ...]) -> None:
    mixed = sets(**{name: (weight, None) for name, weight in zip("abcd", weights, strict=False)})
    drawn = [key[0] for key in itertools.islice(keys_of(mixed), 3000)]
    total = sum(map(Fraction, weights))
    for begin, end in itertools.combinations(range(0, 3001, 150), 2):
        for name, weight in zip("abcd", weights, strict=False):
            share = Fraction(weight) / total * (end - begin)
            assert abs(drawn[begin:end].count(name) - share) < 4
    assert drawn != sorted(drawn)


def keys_of(mixed: list[MixedSet]) -> Iterator[str]:
    return (sample["__key__"] for sample in mix_samples(mixed))


def test_the_order_is_random_by_the_seed_and_each_set_in_its_own() -> None:
    first = keys(sets(a=(1, 100), b=(1, 100)), seed=1)
    assert first == keys(sets(a=(1, 100), b=(1, 100)), seed=1)
    assert first != keys(sets(a=(1, 100), b=(1, 100)), seed=2)
    assert [key for key in first if key[0] == "a"][:90] == [f"a{number}" for number in range(90)]
    pairs = {(one[0], two[0]) for one, two in itertools.pairwise(first)}
    assert len(pairs) == 4, "not one after the other by turns"


def test_it_ends_with_the_first_or_the_last() -> None:
    mixed = sets(a=(1, 10), b=(1, 1000))
    found = keys(mixed, until=FIRST)
    assert 18 <= len(found) <= 22
    assert next((each.taken, each.is_over) for each in mixed) == (10, True)
    assert not mixed[1].is_over
    mixed = sets(a=(1, 10), b=(3, 50), c=(2, 0))
    found = keys(mixed, until=LAST)
    assert len(found) == len({*found}) == 60
    assert all(each.is_over for each in mixed)


def test_keys_of_two_sets_are_an_error_or_get_prefixes() -> None:
    def twice(*prefixes: str) -> list[MixedSet]:
        return [MixedSet(samples("k", 5), 1, f"set{n}", prefix) for n, prefix in enumerate(prefixes)]

    with pytest.raises(RepeatedKeyError, match=r"key 'k\d': the key is in set\d too; put a text before the keys"):
        keys(twice("", ""))
    with pytest.raises(RepeatedKeyError):
        keys(twice("a-", "a-"))
    assert {*keys(twice("", "b-"), until=LAST)} == {f"{p}k{n}" for p in ("", "b-") for n in range(5)}
    assert {*keys(twice("a-", "b-"), until=LAST)} == {f"{p}-k{n}" for p in "ab" for n in range(5)}


def test_one_set_may_repeat_its_own_keys() -> None:
    again = [MixedSet(itertools.chain(samples("a", 2), samples("a", 2)), 1, "a"), MixedSet(samples("b", 4), 1, "b")]
    assert len(keys(again, until=LAST)) == 8


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_weights_that_can_not_be(weight: float) -> None:
    with pytest.raises(UsageError, match="the weight of b is"):
        mix_samples(sets(a=(1, 1), b=(weight, 1)))
    with pytest.raises(UsageError, match="two data sets or more"):
        mix_samples(sets(a=(1, 1)))
