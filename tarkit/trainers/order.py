"""One order of the samples of an epoch, dealt by arithmetic to any number of consumers.

The global batches of an epoch are a function of the number of samples in each shard, the settings, and the epoch's
number; ranks and workers only decide who reads which of them. ``docs/order.md`` has the same with a worked example.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from random import Random
from typing import NamedTuple

from tarkit.errors import UsageError

EQUALIZE = ("drop", "pad", "repeat")


@dataclass(frozen=True)
class OrderSettings:
    """What decides an order, beside the shards and the epoch.

    batch: samples of a global batch, that of all ranks together. seed: of all shuffles; None: none. lanes:
    parts of a batch that are read one beside the other, a divisor of ``batch``; best a multiple of the number of ranks.
    turns: batches that are so, too; best a multiple of the number of workers of a rank. run: samples of a shard that
    stay together when shards are shuffled. block: samples of a lane that are shuffled among each other.
    equalize: what becomes of samples that fill no batch: "drop" leaves them out, others in each epoch; "pad" and
    "repeat" fill the last batch with samples of the epoch's beginning, which "pad" marks.

    Raises:
        UsageError: a number that cannot be; the message names the field.
    """

    batch: int
    seed: int | None = 0
    lanes: int = 1
    turns: int = 1
    run: int = 100
    block: int = 10_000
    equalize: str = "drop"

    def __post_init__(self) -> None:
        for name in ("batch", "lanes", "turns", "run", "block"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.batch % self.lanes:
            raise UsageError(f"lanes is {self.lanes}; it must divide the batch, {self.batch}")
        if self.equalize not in EQUALIZE:
            raise UsageError(f"equalize is {self.equalize!r}; it must be one of {', '.join(EQUALIZE)}")

    def batches(self, samples: int) -> int:
        """Global batches of an epoch of so many samples. UsageError: none can be filled."""
        rest = self.batch - 1 if samples and self.equalize != "drop" else 0
        number = (samples + rest) // self.batch
        if not number:
            raise UsageError(f"{samples} samples do not fill a batch of {self.batch}")
        return number


class Place(NamedTuple):
    """Where a sample is. shard: its number. sample: the number in it. filler: it is there to fill the batch."""

    shard: int
    sample: int
    filler: bool = False


class EpochOrder:
    """The global batches of an epoch.

    Args:
        counts: samples of each shard.
        epoch: from 0.

    Raises:
        UsageError: no batch can be filled.

    >>> order = EpochOrder([4] * 6, OrderSettings(6, seed=1, lanes=3, turns=2, run=4, block=4), epoch=0)
    >>> [f"{place.shard}.{place.sample}" for place in order.batch(0)]
    ['5.0', '5.1', '0.2', '0.1', '1.0', '1.1']
    """

    def __init__(self, counts: Sequence[int], settings: OrderSettings, epoch: int) -> None:
        self.counts, self.settings, self.epoch = counts, settings, epoch
        self.samples = sum(counts)
        self.batches = settings.batches(self.samples)
        runs = [
            (shard, first, min(settings.run, count - first))
            for shard, count in enumerate(counts)
            for first in range(0, count, settings.run)
        ]
        if settings.seed is not None:
            keys = [_hash(settings.seed, epoch, "run", number) for number in range(len(runs))]
            runs = [runs[number] for number in sorted(range(len(runs)), key=lambda number: (keys[number], number))]
        self._runs = runs
        self._ends = list(accumulate(length for _, _, length in runs))
        self._share = settings.batch // settings.lanes
        turns = (len(range(turn, self.batches, settings.turns)) for turn in range(settings.turns))
        self._lengths = [turn * self._share for turn in turns]
        self._starts = [0, *accumulate(self._lengths * settings.lanes)]
        self._shuffled = lru_cache(maxsize=4 * settings.lanes * settings.turns)(self._shuffle)

    def batch(self, number: int, first: int = 0, end: int | None = None) -> list[Place]:
        """The samples of a batch, or its slots from ``first`` to before ``end``, which are a rank's part of it.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= number < self.batches:
            raise IndexError(number)
        return [self._place(number, slot) for slot in range(first, self.settings.batch if end is None else end)]

    def rank_batch(self, number: int, rank: int, world: int) -> list[Place]:
        """A rank's part of a batch."""
        size = self.settings.batch
        return self.batch(number, rank * size // world, (rank + 1) * size // world)

    def rank_batches(
        self, rank: int, world: int, worker: int = 0, workers: int = 1, begin: int = 0
    ) -> Iterator[tuple[int, list[Place]]]:
        """What a worker of a rank reads from batch ``begin`` on: (number of the batch, the rank's part of it).

        The batches of a rank's workers, taken in turn from worker 0 on, are those of the rank in their order.
        """
        for number in range(begin + worker, self.batches, workers):
            yield number, self.rank_batch(number, rank, world)

    def _place(self, number: int, slot: int) -> Place:
        settings = self.settings
        lane, at = divmod(slot, self._share)
        turn = number % settings.turns
        at += number // settings.turns * self._share
        lane = lane * settings.turns + turn
        if settings.seed is not None:
            block, inside = divmod(at, settings.block)
            at = block * settings.block + self._shuffled(lane, block)[inside]
        position = self._starts[lane] + at
        filler = position >= self.samples
        position %= self.samples
        run = bisect_right(self._ends, position)
        shard, first, length = self._runs[run]
        return Place(shard, first + position - (self._ends[run] - length), filler and settings.equalize == "pad")

    def _shuffle(self, lane: int, block: int) -> list[int]:
        """The order of a block of a lane: by a drawn number each, which Python promises to be the same for ever."""
        settings = self.settings
        size = min(settings.block, self._lengths[lane % settings.turns] - block * settings.block)
        draw = Random(_hash(settings.seed, self.epoch, "block", *divmod(lane, settings.turns), block)).random
        drawn = [draw() for _ in range(size)]
        return sorted(range(size), key=drawn.__getitem__)


def _hash(*words: object) -> int:
    text = " ".join(map(str, words))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
