"""Numbers and values in bounded memory: what numpy says, exact or about, merged in any way."""

from __future__ import annotations

import random

import numpy
import pytest

from tarkit.steps import distribution
from tarkit.steps.distribution import QUANTILES, Distribution, ValueCounts, edges_of


def of(numbers: list[float]) -> Distribution:
    found = Distribution()
    for number in numbers:
        found.add(number)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 10, 997])
def test_quantiles_are_those_of_numpy(count: int) -> None:
    numbers = [float(random.Random(count).randrange(1000)) for _ in range(count)]
    found = of(numbers).summary()
    for name, part in QUANTILES.items():
        assert found[name] == pytest.approx(float(numpy.quantile(numbers, part)))
    assert (found["count"], found["total"]) == (count, sum(numbers))
    assert (found["min"], found["max"]) == (min(numbers), max(numbers))
    assert found["mean"] == pytest.approx(float(numpy.mean(numbers))) and not found["about"]


def test_more_numbers_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [random.Random(number).lognormvariate(8, 2) for number in range(5000)]
    numbers[0] = 0.0
    monkeypatch.setattr(distribution, "EXACT", 1000)
    found = of(numbers)
    summary = found.summary()
    for name, part in QUANTILES.items():
        assert summary[name] == pytest.approx(float(numpy.quantile(numbers, part)), rel=0.05)
    assert (summary["min"], summary["max"], summary["about"]) == (0, max(numbers), True)
    edges = edges_of([found])
    assert sum(found.bars(edges)) == 5000 and len(edges) <= 42


def test_whole_numbers_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "EXACT", 10)
    found = Distribution()
    for number in [3] * 90 + [1] * 10:
        found.add(number)
    assert {found.summary()[name] for name in ("p25", "median", "p95")} == {3} and found.summary()["p5"] == 1


def test_parts_merge_to_the_whole_exact_or_about(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [float(random.Random(number).randrange(1, 9999)) for number in range(300)]
    for exact in (1000, 200, 50):
        monkeypatch.setattr(distribution, "EXACT", exact)
        whole = of(numbers)
        for cut in (0, 10, 150, 299):
            merged = of(numbers[:cut])
            merged.merge(of(numbers[cut:]))
            assert merged.summary() == whole.summary()
            assert merged.bars([1, 500, 9999]) == whole.bars([1, 500, 9999])


def test_bars_hold_all_numbers_once() -> None:
    for numbers in ([5.0], [0.0, 0.0], [1.0, 2, 2, 3], [0.0, 1, 1000, 10**9], [float(n) for n in range(300, 900, 7)]):
        found = of(numbers)
        edges = edges_of([found])
        assert edges == sorted(set(edges)) and edges[0] == found.low and edges[-1] >= found.high
        assert sum(found.bars(edges)) == len(numbers)


@pytest.mark.parametrize("spread", [2.0, 10000.0])
def test_bars_are_those_of_numpy(spread: float) -> None:
    numbers = [1 + random.Random(number).random() * spread for number in range(1000)]
    found = of(numbers)
    edges = edges_of([found])
    expected, _ = numpy.histogram(numbers, edges)
    assert found.bars(edges) == expected.tolist()


def test_values_are_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "DISTINCT", 2)
    counts, other = ValueCounts(), ValueCounts()
    for value in "bacca":
        counts.add(value)
    assert counts.summary() == {"count": 5, "values": {"a": 2, "b": 1}, "rest": 2}
    for value in "daz":
        other.add(value)
    counts.merge(other)
    assert counts.summary() == {"count": 8, "values": {"a": 3, "b": 1}, "rest": 4}
    long = ValueCounts()
    long.add("x" * 10**6)
    assert len(next(iter(long.values))) < 400
