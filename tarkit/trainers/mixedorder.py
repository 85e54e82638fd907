"""The global batches of an epoch of several streams, each with its share of every batch.

``docs/mixing.md`` describes the order with a worked example.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tarkit.trainers.order import (
    BatchOrder,
    OrderSettings,
    Place,
    RunOrder,
    ShuffledBlock,
    cut_runs,
    hash_of,
    shuffled_runs,
)
from tarkit.trainers.shares import EpochShares, golden_part

_LEAST_RUN = 16
_FILLING = 16
"""Number of batches in which a replacement of the same stream is looked for."""


class StreamPart(NamedTuple):
    """The part of a stream in an epoch.

    Attributes:
        name: name of the stream, on which the order of its samples depends.
        shard: number of its first shard.
        counts: number of samples of each of its shards.
        used: number of its samples that earlier epochs have used.
        quota: number of its samples in this epoch.
    """

    name: str
    shard: int
    counts: Sequence[int]
    used: int
    quota: int

    @property
    def samples(self) -> int:
        """Number of samples of the stream."""
        return sum(self.counts)

    def runs_of(self, number: int, settings: OrderSettings) -> list[tuple[int, int, int]]:
        """Return the runs of a pass over the stream in their order."""
        runs = [(self.shard + shard, first, length) for shard, first, length in cut_runs(self.counts, settings.run)]
        return runs if settings.seed is None else shuffled_runs(runs, settings.seed, self.name, number)


class MixtureOrder(BatchOrder):
    """The global batches of an epoch of streams.

    A stream continues in each epoch where it stopped in the one before: each of its samples comes
    once before any comes again. One time through all of them is a *pass*.

    Args:
        parts: parts of the streams.
    """

    def __init__(self, parts: Sequence[StreamPart], settings: OrderSettings, epoch: int) -> None:
        self.parts, self.settings, self.epoch = parts, settings, epoch
        self.samples = sum(part.quota for part in parts)
        self.batches = self.samples // settings.batch
        self._firsts = [part.shard for part in parts]
        self._sizes = [part.samples for part in parts]

    def stream_of(self, place: Place) -> int:
        """Return the number of the stream of a sample."""
        return bisect_right(self._firsts, place.shard) - 1

    def passes(self, number: int, first: int = 0, end: int | None = None) -> list[int]:
        """Return the number of the pass of each sample of a batch, or of its slots."""
        return self._passes(number)[first:end]

    @abstractmethod
    def _passes(self, number: int) -> list[int]:
        """Return the number of the pass of each sample of a batch."""

    def replacements(self, number: int, slot: int) -> Iterator[Place]:
        """Yield samples of the same stream, of this batch and then of the next ones."""
        batch = self.batch(number)
        stream = self.stream_of(batch[slot])
        yield from (place for place in (*batch[slot + 1 :], *batch[:slot]) if self.stream_of(place) == stream)
        for later in range(number + 1, number + min(_FILLING, self.batches)):
            yield from (place for place in self.batch(later % self.batches) if self.stream_of(place) == stream)


class StratifiedOrder(MixtureOrder):
    """The global batches of an epoch in which each batch, and each lane, has its share of streams.

    Args:
        parts, settings, epoch: see :class:`MixtureOrder`.
        bounds: see :meth:`tarkit.trainers.shares.Quotas.bounds`.
    """

    def __init__(self, parts: Sequence[StreamPart], settings: OrderSettings, epoch: int, bounds: Sequence[int]) -> None:
        super().__init__(parts, settings, epoch)
        begin = 0 if settings.seed is None else hash_of(settings.seed, epoch, "mix")
        self._shares = EpochShares(
            bounds, batches=self.batches, lanes=settings.lanes, turns=settings.turns, begin=begin
        )
        self._streams = [
            _StreamOrder(part, number, settings, self._shares, self.samples) for number, part in enumerate(parts)
        ]
        self._reached: dict[tuple[int, int], tuple[int, list[int]]] = {}
        """For each lane and turn: number of its batches, and of samples of each stream in them."""

    def _slots(self, number: int, first: int, end: int) -> list[Place]:
        found: list[Place] = []
        share = self.settings.batch // self.settings.lanes
        times = self._shares.before(number)
        for lane in range((end + share - 1) // share):
            cells = self._shares.cells(number, lane)
            if (lane + 1) * share > first:
                places = self._lane(number, lane, cells, times)
                found += places[max(0, first - lane * share) : end - lane * share]
            times = [time + cell for time, cell in zip(times, cells, strict=True)]
        return found

    def _lane(self, number: int, lane: int, cells: list[int], times: list[int]) -> list[Place]:
        turn = number % self.settings.turns
        ats = self._in_stretch(lane, turn, number // self.settings.turns)
        stretch = lane * self.settings.turns + turn
        found = [
            stream.take(time, cell, stretch, at) if cell else iter(())
            for stream, time, cell, at in zip(self._streams, times, cells, ats, strict=True)
        ]
        return [next(found[stream]) for stream in self._pattern(number, cells)]

    def _pattern(self, number: int, cells: list[int]) -> tuple[int, ...]:
        """Return the stream of each slot of a lane.

        It is turned from batch to batch: otherwise a rank of few slots would always have the same
        streams.
        """
        found = interleaved(tuple(cells))
        at = golden_part(number) * len(found) >> 32
        return found[at:] + found[:at]

    def _in_stretch(self, lane: int, turn: int, count: int) -> list[int]:
        """Return the number of samples of each stream in the first batches of a lane and turn.

        From the last batches that were asked for, a few more are counted one by one.
        """
        begun, found = self._reached.get((lane, turn), (0, []))
        if not found or not 0 <= count - begun <= 4:
            begun, found = count, self._shares.in_stretch(lane, turn, count)
        for batch in range(begun, count):
            cells = self._shares.cells(turn + batch * self.settings.turns, lane)
            found = [at + cell for at, cell in zip(found, cells, strict=True)]
        self._reached[lane, turn] = count, found
        return found

    def _passes(self, number: int) -> list[int]:
        found: list[int] = []
        times = self._shares.before(number)
        for lane in range(self.settings.lanes):
            cells = self._shares.cells(number, lane)
            ends = [time + cell for time, cell in zip(times, cells, strict=True)]
            for stream in self._pattern(number, cells):
                found.append((self.parts[stream].used + times[stream]) // self._sizes[stream])
                times[stream] += 1
            times = ends
        return found


class _StreamOrder:
    """The samples of a stream in an epoch, in its order.

    Args:
        part: part of the stream.
        number: number of the stream in ``shares``.
        samples: number of samples of the epoch, of all streams.
    """

    def __init__(
        self, part: StreamPart, number: int, settings: OrderSettings, shares: EpochShares, samples: int
    ) -> None:
        self._part, self._number, self._shares = part, number, shares
        self.settings = replace(settings, block=max(1, settings.block * part.quota // samples))
        self._samples = part.samples
        stretches = settings.lanes * settings.turns
        self.is_tiny = self._samples < stretches * max(settings.run, _LEAST_RUN)
        """True if the stream has too few samples for lanes: a pass is then one stretch."""
        self._pass = lru_cache(maxsize=4)(self._begin_pass)
        self.shuffled = lru_cache(maxsize=4 * stretches)(ShuffledBlock)

    def take(self, time: int, count: int, stretch: int, at: int) -> Iterator[Place]:
        """Yield consecutive samples of a lane of a batch.

        Args:
            time: number of the stream's samples in the epoch before.
            count: number of samples.
            stretch: number of the lane and turn.
            at: number of the stream's samples in this lane and turn before.
        """
        while count:
            number, inside = divmod(self._part.used + time, self._samples)
            some = min(count, self._samples - inside)
            yield from self._pass(number).take(inside, some, stretch, at)
            time, at, count = time + some, at + some, count - some

    def _begin_pass(self, number: int) -> _Pass:
        first = max(0, number * self._samples - self._part.used)
        end = min(self._part.quota, (number + 1) * self._samples - self._part.used)
        begin = self._part.used + first - number * self._samples
        words = self.settings.seed, self._part.name, number
        if self.is_tiny:
            # Its last stretch, whose first block is a whole one.
            last = self.settings.lanes * self.settings.turns - 1
            return _Pass(self, words, self._part.runs_of(number, self.settings), begin, {last: 0}, {last: end - first})
        had, until = (self._shares.reached(self._number, count) for count in (first, end))
        lengths = [end - begin for begin, end in zip(had, until, strict=True)]
        return _Pass(
            self,
            words,
            self._part.runs_of(number, self.settings),
            begin,
            dict(enumerate(had)),
            dict(enumerate(lengths)),
        )


class _Pass:
    """The part of a pass over a stream that an epoch uses.

    Args:
        words: seed, stream and number of the pass.
        runs: the runs of the pass in their order.
        begin: position in the pass where the epoch's part begins.
        had: number of the stream's samples of the epoch that each stretch had before this pass.
        lengths: number of samples of each stretch.
    """

    def __init__(
        self, stream: _StreamOrder, words: tuple[object, ...], runs: list[tuple[int, int, int]], begin: int,
        had: dict[int, int], lengths: dict[int, int],
    ) -> None:  # fmt: skip
        self._stream, self._words, self._runs, self._begin = stream, words, runs, begin
        self._had, self._lengths = had, lengths
        self._starts = dict(zip(lengths, accumulate(lengths.values(), initial=begin), strict=False))
        self._ends = list(accumulate(length for _, _, length in runs))

    def take(self, inside: int, count: int, stretch: int, at: int) -> Iterator[Place]:
        """Yield samples, see :meth:`_StreamOrder.take`; the pass has ``inside`` before them."""
        if self._stream.is_tiny:
            (stretch,) = self._had
            at = inside - self._begin
        else:
            at -= self._had[stretch]
        for position in self._positions(stretch, at, count):
            run = bisect_right(self._ends, position)
            shard, first, length = self._runs[run]
            yield Place(shard, first + position - (self._ends[run] - length))

    def _positions(self, stretch: int, at: int, count: int) -> Iterator[int]:
        """Yield the positions in the pass of the samples at some places of a stretch."""
        settings, start = self._stream.settings, self._starts[stretch]
        if settings.seed is None:
            yield from range(start + at, start + at + count)
            return
        while count:
            _, begin, end = settings.block_of(stretch, at)
            size = min(end, self._lengths[stretch]) - begin
            block = self._stream.shuffled(size, *self._words, "block", start + begin)
            inside, some = at - begin, min(count, end - at)
            yield from [start + begin + each for each in block.part(inside, inside + some)]
            at, count = at + some, count - some


class ShuffledOrder(RunOrder, MixtureOrder):
    """The global batches of an epoch whose samples of all streams are shuffled together.

    Only the whole epoch has each stream's share exactly.

    Args:
        parts, settings, epoch: see :class:`MixtureOrder`.
    """

    def __init__(self, parts: Sequence[StreamPart], settings: OrderSettings, epoch: int) -> None:
        MixtureOrder.__init__(self, parts, settings, epoch)
        cut = [(run, number) for part in parts for number, run in _runs_in_epoch(part, settings)]
        if settings.seed is not None:
            order = shuffled_runs([(number, 0, 0) for number in range(len(cut))], settings.seed, epoch)
            cut = [cut[number] for number, _, _ in order]
        self._numbers = [number for _, number in cut]
        """The number of the pass of each run."""
        RunOrder.__init__(self, [run for run, _ in cut], settings, epoch)

    def _passes(self, number: int) -> list[int]:
        positions = self._positions(number, 0, self.settings.batch)
        return [self._numbers[bisect_right(self._ends, position)] for position in positions]


def _runs_in_epoch(part: StreamPart, settings: OrderSettings) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield the runs of a stream that an epoch uses, each after the number of its pass."""
    end = part.used + part.quota
    for number in range(part.used // part.samples, -(-end // part.samples)):
        low, high = part.used - number * part.samples, end - number * part.samples
        at = 0
        for shard, first, length in part.runs_of(number, settings):
            begin, until = max(at, low), min(at + length, high)
            if begin < until:
                yield number, (shard, first + begin - at, until - begin)
            at += length


@lru_cache(maxsize=1024)
def interleaved(cells: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of streams so that each comes as often as given, evenly spread.

    >>> interleaved((4, 2))
    (0, 1, 0, 0, 1, 0)
    """
    spread = [((2 * number + 1) / cell, stream) for stream, cell in enumerate(cells) for number in range(cell)]
    return tuple(stream for _, stream in sorted(spread))
