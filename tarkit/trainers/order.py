"""One order of the samples of an epoch, dealt by arithmetic to any number of consumers.

The global batches of an epoch are a function of the number of samples in each shard, the settings, and the epoch's
number; ranks and workers only decide who reads which of them. ``docs/order.md`` has the same with a worked example.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate
from numbers import Integral
from random import Random
from types import NoneType
from typing import NamedTuple

from tarkit.errors import UsageError

EQUALIZE = ("drop", "pad", "repeat")
_MOST_RUNS = 10**8
_MOST_LANES = 1 << 20
"""An order keeps some of each lane and run in memory: a count that a damaged index or state has must not fill it."""


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
            if not isinstance(value := getattr(self, name), Integral) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be at least 1, a whole number")
            object.__setattr__(self, name, int(value))  # one of NumPy's would not be JSON
        if not isinstance(self.seed, (Integral, NoneType)):
            raise UsageError(f"seed is {self.seed!r}; it must be a whole number")
        object.__setattr__(self, "seed", None if self.seed is None else int(self.seed))
        if self.batch % self.lanes:
            raise UsageError(f"lanes is {self.lanes}; it must divide the batch, {self.batch}")
        if self.lanes * self.turns > _MOST_LANES:
            raise UsageError(f"lanes is {self.lanes} and turns is {self.turns}; their product can be {_MOST_LANES}")
        if self.equalize not in EQUALIZE:
            raise UsageError(f"equalize is {self.equalize!r}; it must be one of {', '.join(EQUALIZE)}")

    def batches(self, samples: int) -> int:
        """Global batches of an epoch of so many samples. UsageError: none can be filled, or there are more than 10**8
        runs."""
        if samples > self.run * _MOST_RUNS:
            raise UsageError(f"{samples} samples are more than {_MOST_RUNS} runs of {self.run}: take a larger run")
        number = self.fill(samples)
        if not number:
            hint = "; equalize='pad' or 'repeat' fills it" if samples else ""
            raise UsageError(f"{samples} samples do not fill a batch of {self.batch}{hint}")
        return number

    def check_world(self, world: int) -> None:
        """Raises: UsageError: so many ranks would not have a sample each in a batch."""
        if world > self.batch:
            shown = f"batch is {self.batch}, samples of all ranks together"
            raise UsageError(f"{shown}, and there are {world} ranks: some would have no sample")

    def fill(self, samples: int) -> int:
        """As :meth:`batches`; 0 if none can be filled."""
        return (samples + (self.batch - 1 if samples and self.equalize != "drop" else 0)) // self.batch


class Segment(NamedTuple):
    """The first batches of an epoch that goes on with other ones. batch, lanes, turns: theirs, see
    :class:`OrderSettings`. batches: how many they are."""

    batch: int
    lanes: int
    turns: int
    batches: int


class Place(NamedTuple):
    """Where a sample is. shard: its number. sample: the number in it. filler: it is there to fill the batch."""

    shard: int
    sample: int
    filler: bool = False


class _Stage:
    """Batches of one size, of a sequence of samples.

    first: number of its first batch in the epoch. rest: what the sequence is of the stage before; None: that of the
    epoch, which is shuffled by blocks here.
    """

    def __init__(
        self, settings: OrderSettings, samples: int, batches: int, epoch: int, first: int, rest: _Rest | None
    ) -> None:
        self.settings, self.samples, self.batches, self.first, self.rest = settings, samples, batches, first, rest
        self._epoch = epoch
        self.share = settings.batch // settings.lanes
        turns = (len(range(turn, batches, settings.turns)) for turn in range(settings.turns))
        self.lengths = [turn * self.share for turn in turns] * settings.lanes
        self.starts = [0, *accumulate(self.lengths)]
        self._blocks = settings.seed is not None and rest is None
        self._shuffled = lru_cache(maxsize=4 * settings.lanes * settings.turns)(self._shuffle)

    def positions(self, number: int, first: int, end: int) -> Iterator[int]:
        """Where in the sequence the slots of one of its batches are filled from, those from ``first`` to before
        ``end``; behind the sequence's end: from its beginning."""
        turns, turn = divmod(number, self.settings.turns)
        while first < end:
            lane, at = divmod(first, self.share)
            count = min(self.share - at, end - first)
            yield from self._in_lane(lane * self.settings.turns + turn, at + turns * self.share, count)
            first += count

    def _in_lane(self, lane: int, at: int, count: int) -> Iterable[int]:
        """Where in the sequence the samples are that come at some places of a lane and turn."""
        block, inside = divmod(at, self.settings.block)
        if not self._blocks:
            return range(self.starts[lane] + at, self.starts[lane] + at + count)
        if inside + count > self.settings.block:
            return [self.in_lane(lane, each) for each in range(at, at + count)]
        begin = self.starts[lane] + at - inside
        return [begin + each for each in self._shuffled(lane, block)[inside : inside + count]]

    def in_lane(self, lane: int, at: int) -> int:
        """Where in the sequence the sample is that comes at a place of a lane and turn."""
        if self._blocks:
            size = self.settings.block
            block, inside = divmod(at, size)
            at = block * size + self._shuffled(lane, block)[inside]
        return self.starts[lane] + at

    def fillers(self, lane: int, begin: int) -> list[int]:
        """The places of a lane and turn from ``begin`` on that are behind the end of the sequence."""
        first = max(0, self.samples - self.starts[lane])
        if self._blocks:
            first -= first % self.settings.block
        places = range(max(begin, first), self.lengths[lane])
        return [at for at in places if self.in_lane(lane, at) >= self.samples]

    def _shuffle(self, lane: int, block: int) -> list[int]:
        """The order of a block of a lane: by a drawn number each, which Python promises to be the same for ever."""
        settings = self.settings
        size = min(settings.block, self.lengths[lane] - block * settings.block)
        draw = Random(_hash(settings.seed, self._epoch, "block", *divmod(lane, settings.turns), block)).random
        drawn = [draw() for _ in range(size)]
        return sorted(range(size), key=drawn.__getitem__)


class _Rest:
    """What the first batches of a stage leave of its sequence: lane by lane, in the order in which these would have
    come, without fillers; then what would have filled no batch."""

    def __init__(self, stage: _Stage, batches: int) -> None:
        self.stage = stage
        turns = stage.settings.turns
        lanes = range(len(stage.lengths))
        self._begins = [len(range(lane % turns, batches, turns)) * stage.share for lane in lanes]
        fillers = [stage.fillers(lane, self._begins[lane]) for lane in lanes]
        sizes = [stage.lengths[lane] - self._begins[lane] - len(fillers[lane]) for lane in lanes]
        self._ends = list(accumulate([*sizes, max(0, stage.samples - stage.starts[-1])]))
        # Of each filler, how many other places are before it.
        self._fillers = [[place - number for number, place in enumerate(places)] for places in fillers]

    def __len__(self) -> int:
        return self._ends[-1]

    def at(self, position: int) -> int:
        """Where in the sequence of the stage it is."""
        lane = bisect_right(self._ends, position)
        inside = position - (self._ends[lane - 1] if lane else 0)
        if lane == len(self._begins):
            return self.stage.starts[-1] + inside
        inside += self._begins[lane]
        return self.stage.in_lane(lane, inside + bisect_right(self._fillers[lane], inside))


class EpochOrder:
    """The global batches of an epoch.

    Args:
        counts: samples of each shard.
        epoch: from 0.
        segments: its first batches that were made with another ``batch``; what they left is dealt by ``settings``.

    Raises:
        UsageError: no batch can be filled, or there are fewer batches than a segment has.

    >>> order = EpochOrder([4] * 6, OrderSettings(6, seed=1, lanes=3, turns=2, run=4, block=4), epoch=0)
    >>> [f"{place.shard}.{place.sample}" for place in order.batch(0)]
    ['5.0', '5.1', '0.2', '0.1', '1.0', '1.1']
    """

    def __init__(
        self, counts: Sequence[int], settings: OrderSettings, epoch: int, segments: Iterable[Segment] = ()
    ) -> None:
        self.counts, self.settings, self.epoch = counts, settings, epoch
        self.samples = sum(counts)
        self._stages = list(_stages(settings, self.samples, epoch, segments))
        self._last = self._stages[-1]
        self.batches = self._last.first + self._last.batches
        runs = [
            (shard, first, min(settings.run, count - first))
            for shard, count in enumerate(counts)
            for first in range(0, count, settings.run)
        ]
        if settings.seed is not None:
            digests = _digests(f"{settings.seed} {epoch} run ", len(runs))
            runs = [runs[number] for number in sorted(range(len(runs)), key=digests.__getitem__)]
        self.runs = runs
        """The runs in their order: shard, first sample, number of samples."""
        self._ends = list(accumulate(length for _, _, length in runs))

    def batch(self, number: int, first: int = 0, end: int | None = None) -> list[Place]:
        """The samples of a batch, or its slots from ``first`` to before ``end``, which are a rank's part of it.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= number < self.batches:
            raise IndexError(number)
        stage = self._stage(number)
        end = stage.settings.batch if end is None else end
        return list(map(partial(self._place, stage), stage.positions(number - stage.first, first, end)))

    def rank_batch(self, number: int, rank: int, world: int) -> list[Place]:
        """A rank's part of a batch."""
        return self.batch(number, *rank_slots(self.size(number), rank, world))

    def size(self, number: int) -> int:
        """Samples of a batch, of all ranks together."""
        return self._stage(number).settings.batch

    def lane_runs(self, lane: int, turn: int, *, shuffled: bool = True) -> list[int]:
        """The samples of a lane that come in batches of a turn, in their order, each as the number of its run.

        shuffled: False leaves them unordered within a block, which takes a tenth of the time.

        Raises:
            UsageError: the epoch has segments.
        """
        stage, found = self._last, list[int]()
        if stage.rest is not None:
            raise UsageError(
                "the batch was changed in the middle of this epoch, so its lanes are not those of one order"
            )
        number = lane * self.settings.turns + turn
        while (left := stage.lengths[number] - len(found)) > 0:
            position = (stage.starts[number] + len(found)) % self.samples
            run = bisect_right(self._ends, position)
            found += [run] * min(left, self._ends[run] - position)
        if not shuffled or self.settings.seed is None:
            return found
        return [found[stage.in_lane(number, at) - stage.starts[number]] for at in range(len(found))]

    def _stage(self, number: int) -> _Stage:
        if number >= self._last.first:
            return self._last
        return next(stage for stage in reversed(self._stages) if number >= stage.first)

    def _place(self, stage: _Stage, position: int) -> Place:
        filler = False
        if position >= stage.samples:
            filler = self.settings.equalize == "pad"
            position %= stage.samples
        while stage.rest is not None:
            position = stage.rest.at(position)
            stage = stage.rest.stage
        run = bisect_right(self._ends, position)
        shard, first, length = self.runs[run]
        return Place(shard, first + position - (self._ends[run] - length), filler)


def rank_slots(size: int, rank: int, world: int) -> tuple[int, int]:
    """A rank's part of a batch of so many samples: its first slot, and the one behind its last."""
    return rank * size // world, (rank + 1) * size // world


def batches_of_epoch(settings: OrderSettings, samples: int, epoch: int, segments: Iterable[Segment]) -> int:
    """Global batches of an epoch of so many samples, with those of its segments. UsageError: none can be filled."""
    # In which batches of a segment its fillers are, and so what it leaves, follows from the epoch.
    *_, last = _stages(settings, samples, epoch, segments)
    return last.first + last.batches


def _stages(settings: OrderSettings, samples: int, epoch: int, segments: Iterable[Segment]) -> Iterator[_Stage]:
    first, rest = 0, None
    for batch, lanes, turns, batches in segments:
        before = replace(settings, batch=batch, lanes=lanes, turns=turns)
        stage = _Stage(before, samples, before.batches(samples), epoch, first, rest)
        if not 0 < batches <= stage.batches:
            raise UsageError(f"a segment has {batches} of {stage.batches} batches of {batch} samples")
        yield stage
        rest = _Rest(stage, batches)
        first, samples = first + batches, len(rest)
    # What is left of an epoch may fill no batch.
    number = settings.batches(samples) if rest is None else settings.fill(samples)
    yield _Stage(settings, samples, number, epoch, first, rest)


def _digests(words: str, count: int) -> list[bytes]:
    """The hash of these words and each number below ``count``, as bytes, which sort as the numbers that they are."""
    begun, found = blake2b(words.encode(), digest_size=8), []
    for number in range(count):
        each = begun.copy()
        each.update(b"%d" % number)
        found.append(each.digest())
    return found


def _hash(*words: object) -> int:
    text = " ".join(map(str, words))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
