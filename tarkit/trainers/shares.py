"""How many samples of each stream an epoch of a mixture has, and each of its batches and lanes.

All numbers are computed with whole numbers, without a table; ``docs/mixing.md`` has the formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from math import gcd

_BITS = 32
_GOLDEN = 2654435769
"""Golden ratio, as a fraction of 2**32."""
_NEAR = 50


def floor_sum(count: int, modulus: int, step: int, first: int) -> int:
    """Return the sum of ``(first + step * i) // modulus`` over ``i`` from 0 to below ``count``.

    >>> floor_sum(4, 3, 2, 1)
    4
    """
    found = 0
    while True:
        found += count * (count - 1) // 2 * (step // modulus) + count * (first // modulus)
        step, first = step % modulus, first % modulus
        last = step * count + first
        if last < modulus:
            return found
        count, first, step, modulus = last // modulus, last % modulus, modulus, step


def golden_part(epoch: int) -> int:
    """Return the number, of 2**32, by which an epoch's shares are moved before they are rounded."""
    return _GOLDEN * epoch % (1 << _BITS)


class Quotas:
    """Numbers of samples of each stream in each epoch.

    An epoch has the stream's share of its samples, rounded down or up; over epochs the mean is the
    share.

    >>> quotas = Quotas([Fraction(1), Fraction(2)], 4)
    >>> [quotas.of(epoch) for epoch in range(3)]
    [[1, 3], [1, 3], [1, 3]]

    Args:
        amounts: of each stream; only their ratios count.
        samples: of an epoch.
        epoch: an epoch before which ``used`` samples of each stream were used.
    """

    def __init__(
        self, amounts: Sequence[Fraction], samples: int, *, epoch: int = 0, used: Sequence[int] | None = None
    ) -> None:
        total = sum(amounts, Fraction())
        self._bounds = [int((samples << _BITS) * below / total) for below in accumulate(amounts, initial=Fraction())]
        self._epoch, self._used = epoch, [0] * len(amounts) if used is None else list(used)

    def bounds(self, epoch: int) -> list[int]:
        """Return how many samples of an epoch are of the streams before each, and of all."""
        part = golden_part(epoch)
        return [(bound + part) >> _BITS for bound in self._bounds]

    def of(self, epoch: int) -> list[int]:
        """Return the number of samples of each stream in an epoch."""
        return [end - begin for begin, end in pairwise(self.bounds(epoch))]

    def used(self, epoch: int) -> list[int]:
        """Return how many samples of each stream are used before an epoch."""

        def below(bound: int) -> int:
            first, last = (floor_sum(end, 1 << _BITS, _GOLDEN, bound) for end in (self._epoch, epoch))
            return last - first

        ends = map(below, self._bounds)
        return [used + end - begin for used, (begin, end) in zip(self._used, pairwise(ends), strict=True)]


class EpochShares:
    """Numbers of samples of each stream in the batches and lanes of an epoch.

    Each batch, and each lane of a batch, has the share of each stream in the epoch, rounded down or
    up, and each lane has the same number of samples.

    >>> shares = EpochShares([0, 14, 20], batches=5, lanes=2, turns=1, begin=0)
    >>> [(shares.cells(batch, 0), shares.cells(batch, 1)) for batch in range(3)]
    [([1, 1], [1, 1]), ([1, 1], [2, 0]), ([2, 0], [1, 1])]

    Args:
        bounds: of the epoch, see :meth:`Quotas.bounds`.
        batches: number of batches.
        lanes, turns: see :class:`tarkit.trainers.order.OrderSettings`.
        begin: number by which the pattern of the batches is moved.
    """

    def __init__(self, bounds: Sequence[int], *, batches: int, lanes: int, turns: int, begin: int) -> None:
        self._bounds, self._batches, self._lanes, self._turns = bounds, batches, lanes, turns
        self._places = batches * lanes
        self._begin, self._step = begin % self._places, even_step(batches)
        self._reached = lru_cache(maxsize=8 * len(bounds))(self._reach)

    def cells(self, batch: int, lane: int) -> list[int]:
        """Return the number of samples of each stream in a lane of a batch."""
        place = (self._step * batch + self._batches * lane + self._begin) % self._places
        ends = [(bound + place) // self._places for bound in self._bounds]
        return [end - begin for begin, end in pairwise(ends)]

    def before(self, batch: int) -> list[int]:
        """Return the number of samples of each stream in the batches before one."""
        ends = (floor_sum(batch, self._batches, self._step, bound + self._begin) for bound in self._bounds)
        return [end - begin for begin, end in pairwise(ends)]

    def in_stretch(self, lane: int, turn: int, count: int) -> list[int]:
        """Return the number of samples of each stream in a lane of the first batches of a turn."""
        return [self._of_stretch(stream, lane, turn, count) for stream in range(len(self._bounds) - 1)]

    def reached(self, stream: int, count: int) -> list[int]:
        """Return how many of the first samples of a stream are in each lane and turn.

        Args:
            stream: number of the stream.
            count: number of the stream's samples, from the beginning of the epoch.
        """
        return self._reached(stream, count)

    def _reach(self, stream: int, count: int) -> list[int]:
        low, high = 0, self._batches  # as many batches are complete, at least and at most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._before(stream, middle) <= count else (low, middle - 1)
        found = [
            self._of_stretch(stream, lane, turn, len(range(turn, low, self._turns)))
            for lane in range(self._lanes)
            for turn in range(self._turns)
        ]
        rest = count - self._before(stream, low)
        for lane in range(self._lanes if rest else 0):
            some = min(rest, self.cells(low, lane)[stream])
            found[lane * self._turns + low % self._turns] += some
            rest -= some
        return found

    def _before(self, stream: int, batch: int) -> int:
        begin, end = (
            floor_sum(batch, self._batches, self._step, bound + self._begin)
            for bound in self._bounds[stream : stream + 2]
        )
        return end - begin

    def _of_stretch(self, stream: int, lane: int, turn: int, count: int) -> int:
        first, step = self._step * turn + self._batches * lane + self._begin, self._step * self._turns
        begin, end = (
            floor_sum(count, self._places, step, bound + first) for bound in self._bounds[stream : stream + 2]
        )
        return end - begin


@lru_cache(maxsize=64)
def even_step(modulus: int) -> int:
    """Return a step whose multiples are spread evenly in the numbers below ``modulus``.

    It is coprime to ``modulus``, near the golden ratio of it. Of those within 50, it is the one
    whose continued fraction has the smallest largest term, then the nearest one, then the smaller
    one.

    >>> even_step(10_007)
    6185
    """
    wanted = modulus * _GOLDEN >> _BITS
    near = range(max(1, wanted - _NEAR), wanted + _NEAR + 1)
    steps = [step for step in near if gcd(step, modulus) == 1 and step < max(2, modulus)]
    return min(steps, key=lambda step: (_largest_term(step, modulus), abs(step - wanted), step))


def _largest_term(numerator: int, denominator: int) -> int:
    found = 0
    while numerator:
        term, rest = divmod(denominator, numerator)
        found, denominator, numerator = max(found, term), numerator, rest
    return found
