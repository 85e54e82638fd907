"""Fetch the parts of remote shards into the cache before the batches that need them are read.

The order says which samples the next batches of this process need. Threads open the shards of
these samples and fetch their parts, in the order of their first use, as long as the parts that
wait for their first use have at most a number of bytes. The parts of the batch that is read now
are fetched whatever their size. A part is pinned in the cache until the last use that is planned.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from tarkit.errors import TarkitError
from tarkit.samples.cachedshard import CachedShard
from tarkit.samples.indexedshard import IndexedShard
from tarkit.store import waits
from tarkit.store.cache import Part, PartCache
from tarkit.store.forks import Owner
from tarkit.trainers.order import BatchOrder, Place
from tarkit.trainers.shardmap import ShardMap
from tarkit.world import Consumer

_THREADS = 8
_MOST_AT_ONCE = 16 << 20
"""Largest size in bytes of a request for several parts."""
_SHARE_OF_CACHE = 4
"""Parts that wait for their first use take at most a fourth of the cache."""
_LEAST_PLANNED = 100_000
"""Number of samples up to which batches are planned, even if a block of all lanes has fewer."""
_BATCHES_AT_ONCE = 4
_MOST_JOBS = 256
_FAILED = -1
_BUSY_SECONDS = 0.02
"""Time until a part is tried again that another process fetches."""
_FULL_SECONDS = 0.25
"""Time until a part is tried again for which there is no room in the cache."""


@dataclass(eq=False)
class _Batch:
    """A batch that is planned.

    Attributes:
        turn: its number among the batches of this process, from 0.
        places: its samples.
        parts: the parts that it needs.
        missing: number of things to do before it can be read: parts to fetch, shards to open.
    """

    turn: int
    places: list[Place]
    parts: list[_Wanted] = field(default_factory=list)
    missing: int = 0


@dataclass(eq=False)
class _Wanted:
    """A part that a batch needs.

    Attributes:
        place: number of its shard, and its first sample.
        shard: its shard.
        part: its range.
        turn: turn of the first batch that needs it.
        waiting: batches that cannot be read without it; [] if the part is there or failed.
        uses: number of planned batches that need it.
        state: "planned", "begun", "kept" or "failed".
        is_counted: True while its bytes count as fetched ahead.
    """

    place: tuple[int, int]
    shard: CachedShard
    part: Part
    turn: int
    waiting: list[_Batch] = field(default_factory=list)
    uses: int = 0
    state: str = "planned"
    is_counted: bool = False


class Ahead:
    """Threads that fetch for the batches of this process, in their order.

    They begin with the object, so it is made in the process that reads. They end by :meth:`stop`,
    and when all is fetched.

    Args:
        samples: data set that reads the samples.
        order: order of the epoch.
        numbers: numbers of the batches that this process reads.
        consumer: rank and world.
        limit: largest number of bytes that are fetched before their first use.
        cache: cache of the data set.
        ended: function that returns another number when the loop has ended.
    """

    def __init__(
        self,
        samples: ShardMap,
        order: BatchOrder,
        numbers: range,
        consumer: Consumer,
        limit: int,
        cache: PartCache,
        ended: Callable[[], int] = lambda: 0,
    ) -> None:
        self.order = order
        self._samples, self._consumer, self._cache = samples, consumer, cache
        self._limit = min(limit, max(1, cache.limit() // _SHARE_OF_CACHE))
        settings = order.settings
        share = settings.lanes * settings.block // (consumer.world * numbers.step)
        self._most_planned = max(_LEAST_PLANNED, share)
        self._left: Iterator[tuple[int, int]] = enumerate(numbers)
        self._ended, self._iteration = ended, ended()
        self._owner = Owner()
        self._changed = threading.Condition()
        self._stop = waits.Stop()
        self._batches: dict[int, _Batch] = {}
        """Batches that are planned, by number."""
        self._read: _Batch | None = None
        """The batch that is read now."""
        self._planned = 0
        """Number of samples in planned batches."""
        self._turn = -1
        """Turn of the batch that is read now, or waited for."""
        self._ahead = 0
        """Bytes of parts that were begun and wait for their first use."""
        self._parts: dict[tuple[int, int], _Wanted] = {}
        self._jobs: list[tuple[int, int, int | _Wanted]] = []
        """Heap of shards to open and of parts to fetch: turn, serial number, job."""
        self._serial = count()
        self._later: list[tuple[float, int, _Wanted]] = []
        """Heap of parts that another process fetches: time to look again, serial number, part."""
        self._full_until = 0.0
        self._opening: dict[int, dict[_Batch, set[int]]] = {}
        """Shards to open, with the samples of the batches that need them."""
        self._shards: OrderedDict[int, IndexedShard] = OrderedDict()
        """Shards that were opened here, the last used one at the end."""
        self._lost: set[int] = set()
        """Shards that could not be opened."""
        for number in range(_THREADS):
            threading.Thread(target=self._work, name=f"tarkit-ahead-{number}", daemon=True).start()

    def take(self, number: int) -> list[Place]:
        """Return the samples of the next batch, when its parts were fetched or failed.

        Raises:
            Stopped: the work of this thread was stopped.
        """
        with self._changed:
            self._release()
            while number not in self._batches and self._plan():
                pass
            batch = self._batches.pop(number, None)
            if batch is None:
                return self.order.rank_batch(number, *self._consumer)
            self._read, self._turn = batch, batch.turn
            for wanted in batch.parts:
                self._uncount(wanted)
            self._changed.notify_all()
            while batch.missing and not (self._stop.is_set() or self._cache.closed):
                waits.wait_for(self._changed)
            self._planned -= len(batch.places)
            for wanted in batch.parts:
                self._samples.hold(wanted.place[0], wanted.shard)
                if wanted.state == "kept":
                    self._samples.note_fetched(*wanted.place)
            for shard in {place.shard for place in batch.places} & self._shards.keys():
                self._samples.hold(shard, self._shards[shard])
            return batch.places

    def stop(self) -> None:
        """Stop the threads; after a fork, in the child, do nothing."""
        if not self._owner.is_here():
            return
        self._stop.set()
        with self._changed:
            self._read = None
            for wanted in self._parts.values():
                if wanted.state != "planned":
                    self._cache.unpin(wanted.part)
            self._parts.clear()
            self._batches.clear()
            self._jobs.clear()
            self._changed.notify_all()

    def _release(self) -> None:
        """Note that the batch that was taken last has been read."""
        if self._read is None:
            return
        for wanted in self._read.parts:
            wanted.uses -= 1
            if not wanted.uses and wanted.state in ("kept", "failed"):
                self._forget(wanted)
        self._read = None

    def _forget(self, wanted: _Wanted) -> None:
        """Unpin a part that no planned batch needs any more."""
        self._parts.pop(wanted.place)
        self._cache.unpin(wanted.part)

    def _plan(self) -> bool:
        """Plan the next batch; return False if there is none."""
        turn, number = next(self._left, (0, -1))
        if number < 0:
            return False
        batch = _Batch(turn, self.order.rank_batch(number, *self._consumer))
        self._batches[number] = batch
        self._planned += len(batch.places)
        needed: dict[int, set[int]] = {}
        for shard, sample, _ in batch.places:
            needed.setdefault(shard, set()).add(sample)
        for shard, numbers in needed.items():
            if shard not in self._samples.remote or shard in self._lost:
                continue
            if (found := self._samples.held(shard) or self._shards.get(shard)) is not None:
                self._want(batch, shard, found, numbers)
                continue
            if shard not in self._opening:
                heappush(self._jobs, (turn, next(self._serial), shard))
            self._opening.setdefault(shard, {})[batch] = numbers
            batch.missing += 1
        return True

    def _want(self, batch: _Batch, number: int, shard: IndexedShard, samples: Iterable[int]) -> None:
        """Plan the parts of a shard that a batch needs."""
        if not isinstance(shard, CachedShard):
            return
        for first in {shard.first_of_part(sample) for sample in samples}:
            place = number, first
            if (wanted := self._parts.get(place)) is None:
                self._parts[place] = wanted = _Wanted(place, shard, shard.part(first), batch.turn)
                heappush(self._jobs, (batch.turn, next(self._serial), wanted))
            wanted.uses += 1
            batch.parts.append(wanted)
            if wanted.state in ("planned", "begun"):
                wanted.waiting.append(batch)
                batch.missing += 1

    def _work(self) -> None:
        waits.may_be_left_behind()
        waits.stop_by(self._stop)
        with suppress(waits.Stopped):
            while not (self._stop.is_set() or self._cache.closed):
                if self._ended() != self._iteration:
                    self.stop()
                with self._changed:
                    job = self._next_job()
                    if job is None:
                        if self._is_finished():
                            return
                        self._changed.wait(_BUSY_SECONDS if self._later else _FULL_SECONDS)
                        continue
                if isinstance(job, int):
                    self._open(job)
                else:
                    self._fetch(job)
        with self._changed:
            self._changed.notify_all()

    def _is_finished(self) -> bool:
        return not (self._batches or self._jobs or self._later or self._opening) and self._read is None

    def _next_job(self) -> int | list[_Wanted] | None:
        """Return the next shard to open, or neighbouring parts to fetch at once."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            wanted = heappop(self._later)[2]
            heappush(self._jobs, (wanted.turn, next(self._serial), wanted))
        for _ in range(_BATCHES_AT_ONCE):
            is_enough = len(self._jobs) >= _MOST_JOBS or self._planned >= self._most_planned
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

    def _has_room(self, wanted: _Wanted) -> bool:
        """Return True if a part may be fetched ahead: within the limit, or alone."""
        return not self._ahead or self._ahead + wanted.part.size <= self._limit

    def _begin(self, wanted: _Wanted) -> list[_Wanted]:
        """Begin to fetch a part, together with planned ones behind it in the shard."""
        group: list[_Wanted] = []
        size = 0
        following: _Wanted | None = wanted
        while following is not None and following.state == "planned":
            is_ahead = following.turn > self._turn
            if group and (size + following.part.size > _MOST_AT_ONCE or (is_ahead and not self._has_room(following))):
                break
            following.state, following.is_counted = "begun", is_ahead
            self._ahead += following.part.size if is_ahead else 0
            self._cache.pin(following.part)
            group.append(following)
            size += following.part.size
            number, first = following.place
            following = self._parts.get((number, following.shard.end_of_part(first)))
        return group

    def _open(self, number: int) -> None:
        shard = None
        try:
            with suppress(TarkitError, OSError):
                shard = self._samples.open(number)
        finally:
            with self._changed:
                if shard is None:
                    self._lost.add(number)
                else:
                    self._shards[number] = shard
                    if len(self._shards) > self._samples.most_held:
                        self._shards.popitem(last=False)
                for batch, samples in self._opening.pop(number, {}).items():
                    if shard is not None:
                        self._want(batch, number, shard, samples)
                    batch.missing -= 1
                self._changed.notify_all()

    def _fetch(self, group: list[_Wanted]) -> None:
        """Fetch neighbouring parts; errors are left to the reading of their samples."""
        kept: int | None = _FAILED
        try:
            with suppress(TarkitError, OSError):
                kept = group[0].shard.fetch_now([each.part for each in group])
        finally:
            with self._changed:
                for at, wanted in enumerate(group):
                    if self._parts.get(wanted.place) is not wanted:
                        continue  # stopped meanwhile
                    if kept is not None and at < kept:
                        self._end(wanted, "kept")
                    elif at == 0 and (kept == _FAILED or (kept is None and wanted.turn <= self._turn)):
                        self._end(wanted, "failed")
                    else:
                        self._put_back(wanted, at == 0 and kept == 0)
                if kept is None:
                    self._full_until = time.monotonic() + _FULL_SECONDS
                self._changed.notify_all()

    def _end(self, wanted: _Wanted, state: str) -> None:
        wanted.state = state
        for batch in wanted.waiting:
            batch.missing -= 1
        wanted.waiting = []
        if not wanted.uses:
            self._forget(wanted)

    def _put_back(self, wanted: _Wanted, is_busy: bool) -> None:
        """Plan a part again that was begun."""
        wanted.state = "planned"
        self._uncount(wanted)
        self._cache.unpin(wanted.part)
        if is_busy:
            heappush(self._later, (time.monotonic() + _BUSY_SECONDS, next(self._serial), wanted))
        else:
            heappush(self._jobs, (wanted.turn, next(self._serial), wanted))

    def _uncount(self, wanted: _Wanted) -> None:
        if wanted.is_counted:
            wanted.is_counted = False
            self._ahead -= wanted.part.size
