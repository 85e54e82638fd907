"""Who reads what in an epoch, computed without reading a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import UsageError, counted
from tarkit.store.entries import stat
from tarkit.store.waits import Workers
from tarkit.trainers.order import EpochOrder, rank_slots
from tarkit.trainers.shardmap import ShardMap

_AT_A_TIME = 8


class PlannedRange(NamedTuple):
    """A run of a shard from which a consumer reads. shard: its number. first, end: its samples, ``end`` not included.
    samples: how many of them the consumer reads."""

    shard: int
    first: int
    end: int
    samples: int


@dataclass
class ConsumerPlan:
    """What a worker of a rank reads. batches, samples: how many, with fillers. runs: of each run of the order, how many
    samples."""

    rank: int
    worker: int
    batches: int
    samples: int
    runs: Counter[int] = field(default_factory=Counter)


class EpochPlan:
    """What each consumer reads of an epoch, from a batch on.

    It takes about a second for a million samples where consumers share lanes, and a tenth of it where each has its own.

    Args:
        order: of the epoch.
        world, workers: ranks, and workers of each.
        sizes: bytes of each shard; None: not known.
        begin: the first batch that is read, as after a resume.

    Raises:
        UsageError: the number of ranks, of workers, or the batch to begin with cannot be.

    >>> from tarkit.trainers.order import OrderSettings
    >>> order = EpochOrder([4] * 6, OrderSettings(6, seed=1, lanes=3, turns=2, run=4, block=4), epoch=0)
    >>> plan = EpochPlan(order, 3, 2, [4096] * 6)
    >>> [(each.rank, each.worker, each.batches, plan.ranges(each)) for each in plan.consumers][1]
    (0, 1, 2, [PlannedRange(shard=4, first=0, end=4, samples=4)])
    """

    def __init__(
        self, order: EpochOrder, world: int, workers: int, sizes: Sequence[int | None], begin: int = 0
    ) -> None:
        if min(world, workers) < 1:
            raise UsageError(f"world is {world} and workers is {workers}; both must be at least 1")
        order.settings.check_world(world)
        if not 0 <= begin < order.batches:
            raise UsageError(f"the epoch has {counted(order.batches, 'batch', 'batches')}; none has number {begin}")
        self.order, self.begin, self._workers = order, begin, workers
        self._means = [
            size / count if size and count else size for size, count in zip(sizes, order.counts, strict=True)
        ]
        size = order.settings.batch
        self._parts = [rank_slots(size, rank, world) for rank in range(world)]
        self.consumers = [
            ConsumerPlan(rank, worker, batches, batches * (end - first))
            for rank, (first, end) in enumerate(self._parts)
            for worker in range(workers)
            for batches in [len(range(begin + worker, order.batches, workers))]
        ]
        for lane in range(order.settings.lanes):
            self._deal(lane)

    def _deal(self, lane: int) -> None:
        """Give each sample of a lane to its consumer."""
        order, workers = self.order, self._workers
        share, turns = order.settings.batch // order.settings.lanes, order.settings.turns
        begin = lane * share
        parts = [
            (rank * workers, max(first - begin, 0), min(end - begin, share))
            for rank, (first, end) in enumerate(self._parts)
            if first < begin + share and begin < end
        ]
        for turn in range(turns):
            batches = range(turn, order.batches, turns)
            if len(parts) == 1 and turns % workers == 0 and not self.begin:
                # All is of one consumer, in whichever order.
                self.consumers[parts[0][0] + turn % workers].runs.update(order.lane_runs(lane, turn, shuffled=False))
                continue
            runs = order.lane_runs(lane, turn)
            for at, number in zip(range(0, len(runs), share), batches, strict=True):
                if number >= self.begin:
                    for consumer, first, end in parts:
                        found = self.consumers[consumer + (number - self.begin) % workers]
                        found.runs.update(runs[at + first : at + end])

    def ranges(self, consumer: ConsumerPlan) -> list[PlannedRange]:
        """From which runs of which shards a consumer reads."""
        found = ((self.order.runs[number], samples) for number, samples in consumer.runs.items())
        return sorted(PlannedRange(shard, first, first + length, samples) for (shard, first, length), samples in found)

    def size(self, consumer: ConsumerPlan) -> int | None:
        """About how many bytes a consumer reads, by the mean size of a sample of each shard; None: not known."""
        means = [(self._means[self.order.runs[number][0]], samples) for number, samples in consumer.runs.items()]
        return None if None in self._means else round(sum(mean * samples for mean, samples in means if mean))

    def shards(self, consumer: ConsumerPlan) -> set[int]:
        """The numbers of the shards from which a consumer reads."""
        return {self.order.runs[number][0] for number in consumer.runs}

    @property
    def advice(self) -> str:
        """Which other settings let each consumer have samples of its own; "": these do."""
        settings, world = self.order.settings, len(self._parts)
        better = []
        if settings.lanes % world and settings.batch % world == 0:
            better.append(f"lanes a multiple of {world}")
        if settings.turns % self._workers:
            better.append(f"turns a multiple of {self._workers}")
        return " and ".join(better)

    def summary(self) -> dict[str, Any]:
        """How even it is: the least and the most of each number of a consumer and of a shard, and ``reading``, how many
        consumers read from a range on average, of which 1.0 is best."""
        shards = [self.shards(each) for each in self.consumers]
        readers = Counter(shard for each in shards for shard in each)
        ranges = Counter(run for each in self.consumers for run in each.runs)
        sizes = [self.size(each) for each in self.consumers]
        return {
            "epoch": self.order.epoch,
            "batches": self.order.batches - self.begin,
            "samples": sum(each.samples for each in self.consumers),
            "samples_of_consumer": _least_and_most(each.samples for each in self.consumers),
            "bytes_of_consumer": None if None in sizes else _least_and_most(size for size in sizes if size is not None),
            "shards_of_consumer": _least_and_most(map(len, shards)),
            "ranges_of_consumer": _least_and_most(len(each.runs) for each in self.consumers),
            "consumers_of_shard": _least_and_most(
                readers[each] for each, count in enumerate(self.order.counts) if count
            ),
            "reading": round(sum(ranges.values()) / len(ranges), 3),
        }


def shard_sizes(samples: ShardMap) -> list[int | None]:
    """Bytes of each shard, from the manifest or, without one, from where the shards are; None: not known there."""
    with Workers(_AT_A_TIME, "tarkit-sizes") as pool:
        return list(
            pool.map(lambda listed: listed[1] or stat(listed[0]).size, zip(samples.urls, samples.sizes, strict=True))
        )


def _least_and_most(numbers: Iterable[int]) -> tuple[int, int]:
    found = list(numbers)
    return min(found), max(found)
