"""Plan which shards to open and which parts to fetch for the next batches of a process.

Parts come in the order of their first use. Those that wait for their first use have at most a
number of bytes; the parts of the batch that is read now are fetched whatever their size. A part is
pinned in the cache from the beginning of its fetch until the last use that is planned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from tarkit.samples.indexedshard import IndexedShard
from tarkit.store.cache import Part, PartCache
from tarkit.store.cachedparts import CachedParts
from tarkit.trainers.order import BatchOrder, Place
from tarkit.trainers.shardmap import ShardMap
from tarkit.world import Consumer

_MOST_AT_ONCE = 16 << 20
"""Largest size in bytes of a request for several parts."""
_SHARE_OF_CACHE = 4
"""Parts that wait for their first use take at most a fourth of the cache."""
_LEAST_PLANNED = 100_000
"""Number of samples up to which batches are planned, even if a block of all lanes has fewer."""
_BATCHES_AT_ONCE = 4
_MOST_JOBS = 256
BUSY_SECONDS = 0.02
"""Time until a part is tried again that another process fetches."""
FULL_SECONDS = 0.25
"""Time until a part is tried again for which there is no room in the cache."""


@dataclass(eq=False)
class PlannedBatch:
    """A batch that is planned.

    Attributes:
        turn: its number among the batches of this process, from 0.
        places: its samples.
        parts: the parts that it needs.
        missing: number of things to do before it can be read: parts to fetch, shards to open.
    """

    turn: int
    places: list[Place]
    parts: list[PlannedPart] = field(default_factory=list)
    missing: int = 0


@dataclass(eq=False)
class PlannedPart:
    """A part that planned batches need.

    Attributes:
        place: number of its shard, and its offset in the shard's content.
        source: the parts of its shard.
        part: its range.
        turn: turn of the first batch that needs it.
        waiting: batches that cannot be read before it was fetched or failed.
        uses: number of planned batches that need it and were not read.
        state: "planned", "begun", "kept" or "failed".
        is_alone: True if it is fetched without its neighbours, because one of them has failed.
        is_ahead: True while its bytes count as fetched before their first use.
    """

    place: tuple[int, int]
    source: CachedParts
    part: Part
    turn: int
    waiting: list[PlannedBatch] = field(default_factory=list)
    uses: int = 0
    state: str = "planned"
    is_alone: bool = False
    is_ahead: bool = False


class FetchPlan:
    """The shards to open and the parts to fetch, for the batches of a process in their order.

    It does nothing by itself, and one thread at a time may use it.

    Args:
        samples: data set that reads the samples.
        order: order of the epoch.
        numbers: numbers of the batches that this process reads.
        consumer: rank and world.
        limit: largest number of bytes that are fetched before their first use.
        cache: cache of the data set.
    """

    def __init__(
        self,
        samples: ShardMap,
        order: BatchOrder,
        numbers: range,
        consumer: Consumer,
        limit: int,
        cache: PartCache,
    ) -> None:
        self.samples, self.order, self.consumer, self.cache = samples, order, consumer, cache
        self._limit = min(limit, max(1, cache.limit() // _SHARE_OF_CACHE))
        share = order.settings.lanes * order.settings.block // (consumer.world * numbers.step)
        self._most_samples = max(_LEAST_PLANNED, share)
        self._left: Iterator[tuple[int, int]] = enumerate(numbers)
        self._batches: dict[int, PlannedBatch] = {}
        """Batches that were planned and not taken, by number."""
        self._samples_planned = 0
        self._reading: PlannedBatch | None = None
        self._turn = -1
        """Turn of the batch that is read now, or waited for."""
        self._ahead = 0
        """Bytes of parts that were begun and wait for their first use."""
        self._parts: dict[tuple[int, int], PlannedPart] = {}
        self._jobs: list[tuple[int, int, int | PlannedPart]] = []
        """Heap of shards to open and of parts to fetch: turn, serial number, job."""
        self._serial = count()
        self._busy: list[tuple[float, int, PlannedPart]] = []
        """Heap of parts that another process fetches: time to look again, serial number, part."""
        self._full_until = 0.0
        self._opening: dict[int, dict[PlannedBatch, set[int]]] = {}
        """Shards to open, with the samples of the batches that need them."""
        self._shards: OrderedDict[int, IndexedShard] = OrderedDict()
        """Shards that were opened for this plan, the last one at the end."""
        self._lost: set[int] = set()
        """Shards that could not be opened."""

    def take(self, number: int) -> PlannedBatch | None:
        """Return the next batch, which is read when nothing of it is missing; None if it was read.

        The batch that was taken before has been read.
        """
        self._release()
        while number not in self._batches and self._plan():
            pass
        batch = self._batches.pop(number, None)
        if batch is not None:
            self._reading, self._turn = batch, batch.turn
            self._samples_planned -= len(batch.places)
            for part in batch.parts:
                self._use(part)
        return batch

    def hand_over(self, batch: PlannedBatch) -> None:
        """Give the shards and parts of a batch to the data set, in the thread that reads it."""
        for part in batch.parts:
            if part.state == "kept":
                part.source.note(part.part)
        for shard in {place.shard for place in batch.places}:
            if self.samples.shards.held(shard) is None and (found := self._shards.get(shard)) is not None:
                self.samples.shards.hold(shard, found)

    def next_job(self, now: float) -> int | list[PlannedPart] | None:
        """Return a shard to open, or neighbouring parts to fetch at once; None if it has to wait.

        Args:
            now: time of the monotonic clock in seconds.
        """
        while self._busy and self._busy[0][0] <= now:
            self._push(heappop(self._busy)[2])
        for _ in range(_BATCHES_AT_ONCE):
            is_enough = len(self._jobs) >= _MOST_JOBS or self._samples_planned >= self._most_samples
            if is_enough or self._ahead >= self._limit or not self._plan():
                break
        while self._jobs:
            turn, _, job = self._jobs[0]
            if isinstance(job, int):
                heappop(self._jobs)
                return job
            if job.state == "planned" and self._parts.get(job.place) is job:
                if turn > self._turn and (now < self._full_until or not self._has_room(job)):
                    return None
                heappop(self._jobs)
                return self._begin(job)
            heappop(self._jobs)
        return None

    @property
    def is_done(self) -> bool:
        """True if nothing is left to do for any batch."""
        return not (self._batches or self._jobs or self._busy or self._opening or self._reading)

    @property
    def is_waiting_for_others(self) -> bool:
        """True if another process fetches parts that are needed."""
        return bool(self._busy)

    def opened(self, number: int, shard: IndexedShard | None) -> None:
        """Note that a shard of :meth:`next_job` was opened; None: it cannot be opened."""
        if shard is None:
            self._lost.add(number)
        else:
            self._shards[number] = shard
            if len(self._shards) > self.samples.shards.most_held:
                self._shards.popitem(last=False)
        for batch, samples in self._opening.pop(number, {}).items():
            if shard is not None:
                self._need(batch, number, shard, samples)
            batch.missing -= 1

    def failed(self, parts: list[PlannedPart]) -> None:
        """Note that parts of :meth:`next_job` cannot be fetched: reading their samples says why.

        One of several may be the reason, so each of them is tried again alone.
        """
        if len(parts) == 1:
            self._end(parts, "failed")
            return
        for part in parts:
            part.is_alone = True
        self._put_back(parts)

    def fetched(self, parts: list[PlannedPart], kept: int | None, now: float) -> None:
        """Note what came of parts of :meth:`next_job`.

        Args:
            parts: the parts.
            kept: result of :meth:`tarkit.store.cache.PartCache.keep_now`.
            now: time of the monotonic clock in seconds.
        """
        if kept is None:
            self._full_until = now + FULL_SECONDS
            if parts[0].turn <= self._turn:  # its samples are read one by one
                self._end(parts[:1], "failed")
                self._put_back(parts[1:])
                return
        done = kept or 0
        self._end(parts[:done], "kept")
        if kept == 0:
            self._put_back(parts[:1], now + BUSY_SECONDS)
            done = 1
        self._put_back(parts[done:])

    def clear(self) -> None:
        """Unpin everything, and plan nothing more."""
        for part in self._parts.values():
            if part.state != "planned":
                self.cache.unpin(part.part)
        self._left = iter(())
        self._parts, self._batches, self._opening, self._jobs, self._busy = {}, {}, {}, [], []
        self._reading = None

    def _release(self) -> None:
        if self._reading is not None:
            for part in self._reading.parts:
                part.uses -= 1
                if not part.uses and part.state in ("kept", "failed"):
                    self._forget(part)
            self._reading = None

    def _plan(self) -> bool:
        """Plan the next batch; return False if there is none."""
        turn, number = next(self._left, (0, -1))
        if number < 0:
            return False
        batch = PlannedBatch(turn, self.order.rank_batch(number, *self.consumer))
        self._batches[number] = batch
        self._samples_planned += len(batch.places)
        needed: dict[int, set[int]] = {}
        for shard, sample in self.samples.in_remote_shards(place[:2] for place in batch.places):
            needed.setdefault(shard, set()).add(sample)
        for shard, samples in needed.items():
            if shard in self._lost:
                continue
            if (found := self.samples.shards.held(shard) or self._shards.get(shard)) is not None:
                self._need(batch, shard, found, samples)
                continue
            if shard not in self._opening:
                heappush(self._jobs, (turn, next(self._serial), shard))
            self._opening.setdefault(shard, {})[batch] = samples
            batch.missing += 1
        return True

    def _need(self, batch: PlannedBatch, number: int, shard: IndexedShard, samples: Iterable[int]) -> None:
        """Plan the parts of a shard that a batch needs, if it is read through the cache."""
        source = shard.parts
        if source is None:
            return
        spans = (shard.index.span(sample, sample + 1) for sample in samples)
        for needed in dict.fromkeys(part for span in spans for part in source.parts(*span)):
            place = number, needed.start
            if (part := self._parts.get(place)) is None:
                self._parts[place] = part = PlannedPart(place, source, needed, batch.turn)
                self._push(part)
            part.uses += 1
            batch.parts.append(part)
            if part.state in ("planned", "begun"):
                part.waiting.append(batch)
                batch.missing += 1

    def _push(self, part: PlannedPart) -> None:
        heappush(self._jobs, (part.turn, next(self._serial), part))

    def _has_room(self, part: PlannedPart) -> bool:
        """Return True if a part may be fetched ahead: within the limit, or alone."""
        return not self._ahead or self._ahead + part.part.size <= self._limit

    def _begin(self, first: PlannedPart) -> list[PlannedPart]:
        """Begin to fetch a part, together with planned ones behind it in the shard."""
        group: list[PlannedPart] = []
        size = 0
        part: PlannedPart | None = first
        while part is not None and part.state == "planned":
            is_ahead = part.turn > self._turn
            is_large = size + part.part.size > _MOST_AT_ONCE
            if group and (is_large or first.is_alone or part.is_alone or (is_ahead and not self._has_room(part))):
                break
            part.state, part.is_ahead = "begun", is_ahead
            self._ahead += part.part.size if is_ahead else 0
            self.cache.pin(part.part)
            group.append(part)
            size += part.part.size
            part = self._parts.get((part.place[0], part.part.start + part.part.size))
        return group

    def _end(self, parts: list[PlannedPart], state: str) -> None:
        for part in parts:
            part.state = state
            for batch in part.waiting:
                batch.missing -= 1
            part.waiting = []
            if not part.uses:
                self._forget(part)

    def _put_back(self, parts: list[PlannedPart], until: float | None = None) -> None:
        """Plan parts again that were begun, at a time or as soon as possible."""
        for part in parts:
            self._use(part)
            self.cache.unpin(part.part)
            part.state = "planned"
            if until is None:
                self._push(part)
            else:
                heappush(self._busy, (until, next(self._serial), part))

    def _use(self, part: PlannedPart) -> None:
        """Count a part not as fetched ahead any more."""
        if part.is_ahead:
            part.is_ahead = False
            self._ahead -= part.part.size

    def _forget(self, part: PlannedPart) -> None:
        """Unpin a part that no planned batch needs any more."""
        self._parts.pop(part.place)
        self.cache.unpin(part.part)
