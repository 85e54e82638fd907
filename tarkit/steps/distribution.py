"""Numbers and values of a data set in bounded memory: quantiles, bars of a plot, counts of values.

Two parts of a data set can be merged, in any order, with the same result.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from tarkit.errors import shortened

EXACT = 1_000_000
"""Most numbers that are kept, so that quantiles are exact: 8 MB."""
DISTINCT = 50_000
"""Most distinct values that are counted one by one."""
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
"""Name -> part of the numbers that are at most as large."""
_BINS = 8  # an octave
_LONGEST = 300  # characters
_WIDE = 20.0
_MOST_BARS = 40


class Distribution:
    """Numbers of at least 0, such as sizes.

    All are kept up to ``EXACT``; more are counted in bins of a ninth of their value.

    Attributes:
        count: number of the numbers.
        total: their sum.
        low: the smallest.
        high: the largest.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.low, self.high = math.inf, 0.0
        self._numbers = array("d")
        self._bins = Counter[int]()

    @property
    def exact(self) -> bool:
        """True if the quantiles are exact, not about."""
        return self.count <= EXACT

    def add(self, number: float) -> None:
        """Add one number."""
        self.count += 1
        self.total += number
        self.low = min(self.low, number)
        self.high = max(self.high, number)
        self._numbers.append(number)
        if self.count > EXACT:
            self._bin()

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another distribution."""
        self.count += other.count
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self._numbers += other._numbers
        self._bins += other._bins
        if self.count > EXACT:
            self._bin()

    def _bin(self) -> None:
        """Replace the numbers by bins."""
        # Those below 1/16, such as 0, have the lowest bin.
        self._bins.update(math.floor(_BINS * math.log2(max(number, 0.0625))) for number in self._numbers)
        del self._numbers[:]

    def _sorted(self) -> tuple[list[float], Sequence[int]]:
        """Return values in ascending order, and how many numbers are at most as large as each."""
        if self.exact:
            return sorted(self._numbers), range(1, self.count + 1)
        bins = sorted(self._bins)
        middle = [min(max(2 ** ((number + 0.5) / _BINS), self.low), self.high) for number in bins]
        if isinstance(self.total, int):  # so all numbers are whole
            middle = [float(round(number)) for number in middle]
        return middle, list(accumulate(self._bins[number] for number in bins))

    def summary(self) -> dict[str, Any]:
        """Return count, total, mean, the smallest and the largest number, and quantiles.

        The quantiles are interpolated as numpy does. If they are those of bins, ``about`` is True.
        """
        values, ends = self._sorted()
        found: dict[str, Any] = {"count": self.count, "total": self.total, "mean": self.total / self.count}
        found["min"] = self.low
        for name, part in QUANTILES.items():
            place = part * (self.count - 1)
            low, high = (values[bisect_right(ends, whole)] for whole in (math.floor(place), math.ceil(place)))
            found[name] = low + (high - low) * (place % 1)
        return {**found, "max": self.high, "about": not self.exact}

    def bars(self, edges: list[float]) -> list[int]:
        """Count the numbers between each two edges; all are between the first and the last one."""
        values, ends = self._sorted()
        reached = [0, *(ends[found - 1] if (found := bisect_right(values, edge)) else 0 for edge in edges[1:])]
        return [end - begin for begin, end in pairwise(reached)]


def edges_of(numbers: Sequence[Distribution]) -> list[float]:
    """Return edges for the bars of a plot of one or several distributions.

    If the largest number is far above most others, the scale is logarithmic.
    """
    low, high = min(each.low for each in numbers), max(each.high for each in numbers)
    usual = max(1, min(each.summary()["p5"] for each in numbers))
    if high > _WIDE * usual:
        first, last = math.log2(max(low, usual / 4)), math.log2(high)
        step = max(1 / _BINS, (last - first) / _MOST_BARS)
        inner = [2 ** (first + step * number) for number in range(1, math.ceil((last - first) / step))]
    else:
        # Whole numbers have no more bars than values.
        bars = min(_MOST_BARS, max(1, math.ceil(high - low))) if high > _WIDE else _MOST_BARS // 2
        inner = [low + (high - low) * number / bars for number in range(1, bars)]
    return [low, *inner, high] if high > low else [low, low + 1]


class ValueCounts:
    """Numbers of times that values came, such as classes.

    Attributes:
        values: value -> times, for the first ``DISTINCT`` values that came.
        rest: times that other values came.
    """

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.rest = 0

    @property
    def total(self) -> int:
        """Number of times that any value came."""
        return sum(self.values.values()) + self.rest

    def add(self, value: str, times: int = 1) -> None:
        """Count a value; a long one is shortened."""
        value = shortened(value, _LONGEST)
        if value in self.values or len(self.values) < DISTINCT:
            self.values[value] = self.values.get(value, 0) + times
        else:
            self.rest += times

    def merge(self, other: ValueCounts) -> None:
        """Add the counts of other samples."""
        for value, times in other.values.items():
            self.add(value, times)
        self.rest += other.rest

    def summary(self) -> dict[str, Any]:
        """Return the total, the values from the most frequent one on, and the times of others."""
        ordered = sorted(self.values.items(), key=lambda item: (-item[1], item[0]))
        return {"count": self.total, "values": dict(ordered), "rest": self.rest}
