"""One order of an epoch's samples, computed by arithmetic for any number of consumers.

The global batches of an epoch are a function of the number of samples in each shard, the settings,
and the epoch's number; ranks and workers only decide which process reads which of them.
``docs/order.md`` describes the order with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, repeat, starmap
from math import sqrt
from numbers import Integral
from operator import itemgetter
from random import Random
from types import NoneType
from typing import NamedTuple

from tarkit.errors import UsageError
from tarkit.formats.tally import check_policy

ORDER_VERSION = 3
"""Version of the order. In version 1, each epoch began with the first run; up to version 2, the
first block of each stretch was a whole one.
"""
EQUALIZE = ("drop", "pad", "repeat")
_DEVIATIONS = 4
"""Numbers sorted on both sides of the first part of a block, in square roots of its size."""
_MOST_RUNS, _MOST_STRETCHES = 10**8, 1 << 20
"""An order keeps data of each run and stretch; a damaged index or state must not fill the memory.
"""


@dataclass(frozen=True)
class OrderSettings:
    """Settings of an order, in addition to the shards and the epoch.

    Attributes:
        batch: number of samples of a global batch, over all ranks.
        seed: seed of all shuffles; None: no shuffle.
        lanes: number of parts of a batch that are read side by side, a divisor of ``batch``; best a
            multiple of the number of ranks.
        turns: number of consecutive batches that are read side by side, too; best a multiple of the
            number of workers of a rank.
        run: number of samples of a shard that stay together when shards are shuffled.
        block: number of samples of a lane that are shuffled among each other; fewer in its first
            block, so that the lanes do not all need a new block in the same batch.
        equalize: treatment of the samples that fill no batch: "drop" leaves them out; "pad" and
            "repeat" fill the last batch with samples of the epoch's beginning, which "pad" marks.
            With a seed these are other samples in each epoch.

    Raises:
        UsageError: a value is not valid; the message names the field.
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
            if not isinstance(value := getattr(self, name), Integral) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be at least 1, a whole number")
            object.__setattr__(self, name, int(value))  # one of NumPy's would not be JSON
        if not isinstance(self.seed, (Integral, NoneType)):
            raise UsageError(f"seed is {self.seed!r}; it must be a whole number")
        object.__setattr__(self, "seed", None if self.seed is None else int(self.seed))
        if self.batch % self.lanes:
            raise UsageError(f"lanes is {self.lanes}; it must divide the batch, {self.batch}")
        if self.lanes * self.turns > _MOST_STRETCHES:
            shown = f"lanes is {self.lanes} and turns is {self.turns}"
            raise UsageError(f"{shown}; their product can be {_MOST_STRETCHES} at most")
        check_policy("equalize", self.equalize, EQUALIZE)

    def batches(self, samples: int) -> int:
        """Return the number of global batches of an epoch with ``samples`` samples.

        Raises:
            UsageError: no batch can be filled, or there are more than 10**8 runs.
        """
        self.check_runs(samples)
        number = (samples + (self.batch - 1 if samples and self.equalize != "drop" else 0)) // self.batch
        if not number:
            hint = ": take a smaller one, or in a training equalize='pad' or 'repeat'" if samples else ""
            raise UsageError(f"{samples} samples do not fill a batch of {self.batch}{hint}")
        return number

    def check_runs(self, samples: int) -> None:
        """Check that the runs of so many samples fit in memory.

        Raises:
            UsageError: there are more than 10**8 runs.
        """
        if samples > self.run * _MOST_RUNS:
            raise UsageError(f"{samples} samples are more than {_MOST_RUNS} runs of {self.run}: take a larger run")

    def block_of(self, stretch: int, at: int) -> tuple[int, int, int]:
        """Return the block of a place in a stretch: its number, first place and end (exclusive).

        Args:
            stretch: number of the stretch, ``lane * turns + turn``.
            at: place in the stretch.
        """
        # It grows from stretch to stretch: if all were equal, all stretches would begin each block
        # in the same batch, which then would need many remote samples at once.
        first = max(1, self.block * (stretch + 1) // (self.lanes * self.turns))
        block = (at - first) // self.block + 1
        end = first + block * self.block
        return block, max(0, end - self.block), end

    def check_world(self, world: int) -> None:
        """Check that a batch has a sample for each rank.

        Raises:
            UsageError: there are more ranks than samples in a batch.
        """
        if world > self.batch:
            shown = f"batch is {self.batch}, samples of all ranks together"
            raise UsageError(f"{shown}, and there are {world} ranks: some would have no sample")


class Place(NamedTuple):
    """Position of a sample: the number of its shard, and its number in the shard.

    Attributes:
        shard: number of the shard.
        sample: number of the sample in the shard.
        filler: True if it only fills the batch.
    """

    shard: int
    sample: int
    filler: bool = False


class BatchOrder(ABC):
    """The global batches of an epoch.

    Attributes:
        settings: settings of the order.
        epoch: number of the epoch.
        samples: number of samples of which the epoch's batches are made.
        batches: number of batches.
    """

    settings: OrderSettings
    epoch: int
    samples: int
    batches: int

    def batch(self, number: int, first: int = 0, end: int | None = None) -> list[Place]:
        """Return the samples of a batch, or its slots from ``first`` up to ``end`` for a rank.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= number < self.batches:
            raise IndexError(number)
        return self._slots(number, first, self.settings.batch if end is None else end)

    @abstractmethod
    def _slots(self, number: int, first: int, end: int) -> list[Place]:
        """Return the samples of slots of a batch that the epoch has."""

    def rank_batch(self, number: int, rank: int, world: int) -> list[Place]:
        """Return a rank's part of a batch."""
        return self.batch(number, *rank_slots(self.settings.batch, rank, world))

    def replacements(self, number: int, slot: int) -> Iterator[Place]:
        """Yield the samples that may take the place of one that is left out, the first one first.

        They depend on the slot of the global batch only, and not on the rank.
        """
        batch = self.batch(number)
        yield from (*batch[slot + 1 :], *batch[:slot])


class RunOrder(BatchOrder):
    """The global batches of an epoch of runs that follow each other.

    Args:
        runs: the runs in their order: shard, first sample, number of samples.
        epoch: number of the epoch, from 0.

    Raises:
        UsageError: no batch can be filled.
    """

    def __init__(self, runs: list[tuple[int, int, int]], settings: OrderSettings, epoch: int) -> None:
        self.settings, self.epoch = settings, epoch
        self.runs = runs
        """The runs in their order: shard, first sample, number of samples."""
        self._ends = list(accumulate(map(itemgetter(2), runs)))
        self.samples = self._ends[-1] if runs else 0
        self.batches = settings.batches(self.samples)
        self._share = settings.batch // settings.lanes
        turns = (len(range(turn, self.batches, settings.turns)) for turn in range(settings.turns))
        self._lengths = [turn * self._share for turn in turns] * settings.lanes
        self._starts = [0, *accumulate(self._lengths)]
        self._shuffled = lru_cache(maxsize=4 * settings.lanes * settings.turns)(ShuffledBlock)
        unequal = 0 if settings.seed is None else abs(self.samples - self.batches * settings.batch)
        self._begin = epoch * unequal
        """Position in the sequence of runs where the epoch begins. If it always began with the
        first run, the same samples of a data set of few runs would be left out or repeated in each
        epoch.
        """

    def _slots(self, number: int, first: int, end: int) -> list[Place]:
        return list(map(self._place, self._positions(number, first, end)))

    def _positions(self, number: int, first: int, end: int) -> Iterator[int]:
        """Yield the positions in the epoch of the samples that fill slots of a batch.

        After the last sample come the first ones again.
        """
        turns, turn = divmod(number, self.settings.turns)
        while first < end:
            lane, at = divmod(first, self._share)
            count = min(self._share - at, end - first)
            yield from self._in_stretch(lane * self.settings.turns + turn, at + turns * self._share, count)
            first += count

    def _in_stretch(self, stretch: int, at: int, count: int) -> Iterable[int]:
        """Yield the positions of the samples at some places of a stretch."""
        settings, start = self.settings, self._starts[stretch]
        if settings.seed is None:
            yield from range(start + at, start + at + count)
            return
        while count:
            number, begin, end = settings.block_of(stretch, at)
            size = min(end, self._lengths[stretch]) - begin
            block = self._shuffled(size, settings.seed, self.epoch, "block", *divmod(stretch, settings.turns), number)
            inside, some, begin = at - begin, min(count, end - at), start + begin
            yield from [begin + each for each in block.part(inside, inside + some)]
            at, count = at + some, count - some

    def _place(self, position: int) -> Place:
        filler = position >= self.samples and self.settings.equalize == "pad"
        position = (self._begin + position) % self.samples
        run = bisect_right(self._ends, position)
        shard, first, length = self.runs[run]
        return Place(shard, first + position - (self._ends[run] - length), filler)


class EpochOrder(RunOrder):
    """The global batches of an epoch of shards.

    >>> settings = OrderSettings(6, seed=1, lanes=3, turns=2, run=4, block=4)
    >>> order = EpochOrder([4] * 6, settings, epoch=0)
    >>> [f"{place.shard}.{place.sample}" for place in order.batch(0)]
    ['5.0', '5.1', '0.1', '0.0', '1.0', '1.1']

    Args:
        counts: number of samples of each shard.
        epoch: number of the epoch, from 0.

    Raises:
        UsageError: no batch can be filled.
    """

    def __init__(self, counts: Sequence[int], settings: OrderSettings, epoch: int) -> None:
        settings.batches(sum(counts))
        runs = cut_runs(counts, settings.run)
        runs = runs if settings.seed is None else shuffled_runs(runs, settings.seed, epoch)
        super().__init__(runs, settings, epoch)


def rank_slots(size: int, rank: int, world: int) -> tuple[int, int]:
    """Return a rank's slots of a batch of ``size`` samples: the first, and the end (exclusive)."""
    return rank * size // world, (rank + 1) * size // world


def cut_runs(counts: Sequence[int], run: int) -> list[tuple[int, int, int]]:
    """Return the runs of shards in their order: shard, first sample, number of samples.

    Args:
        counts: number of samples of each shard.
        run: number of samples of a run.
    """
    runs: list[tuple[int, int, int]] = []
    for shard, count in enumerate(counts):
        rest = count % run
        runs += zip(repeat(shard), range(0, count - rest, run), repeat(run))
        if rest:
            runs.append((shard, count - rest, rest))
    return runs


def shuffled_runs(runs: Sequence[tuple[int, int, int]], *words: object) -> list[tuple[int, int, int]]:
    """Return runs sorted by the hash of these words, ``run`` and their numbers."""
    digests = _digests(f"{' '.join(map(str, words))} run ", len(runs))
    return [runs[number] for number in sorted(range(len(runs)), key=digests.__getitem__)]


class ShuffledBlock:
    """The numbers below ``size``, sorted by random numbers that follow from words.

    They are equal in all Python releases. The first part that is asked for is sorted with some
    numbers around it, because a process that begins needs only a few samples of each lane's block;
    the next one sorts them all.

    Attributes:
        sorted: the numbers that are sorted.
    """

    def __init__(self, size: int, *words: object) -> None:
        self._size, self._seed = size, hash_of(*words)
        self.sorted: list[int] = []
        self._first = 0
        """Place of the first number that is sorted."""

    def part(self, first: int, end: int) -> list[int]:
        """Return the numbers at the places from ``first`` up to ``end``."""
        if not self._has(first, end):
            self._sort(first, end)
        return self.sorted[first - self._first : end - self._first]

    def _has(self, first: int, end: int) -> bool:
        return self._first <= first and end <= self._first + len(self.sorted)

    def _sort(self, first: int, end: int) -> None:
        # Drawn again for the whole: memory for the numbers of all lanes would take longer.
        drawn = list(starmap(Random(self._seed).random, repeat((), self._size)))
        if not self.sorted:
            # The place of a number is about what was drawn for it: the standard deviation is at
            # most half of the root.
            around = _DEVIATIONS * sqrt(self._size)
            low, high = (first - around) / self._size, (end + around) / self._size
            near = [number for number, each in enumerate(drawn) if low <= each < high]
            self.sorted = sorted(near, key=drawn.__getitem__)
            self._first = len([each for each in drawn if each < low]) if low > 0 else 0
        if not self._has(first, end):
            self.sorted, self._first = sorted(range(self._size), key=drawn.__getitem__), 0


def _digests(words: str, count: int) -> list[bytes]:
    """Return hashes of a text with each number below ``count``; they compare as numbers."""
    begun, found = blake2b(words.encode("utf-8", "surrogateescape"), digest_size=8), []
    for number in range(count):
        each = begun.copy()
        each.update(b"%d" % number)
        found.append(each.digest())
    return found


def hash_of(*words: object) -> int:
    """Return 8 bytes of the hash of words with a blank between them, as a number."""
    text = " ".join(map(str, words)).encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
