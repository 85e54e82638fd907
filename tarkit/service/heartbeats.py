"""Heartbeats: which workers were heard from, have an open call, or know of the end.

A watcher has a name. It runs beside a worker, or beside a process that takes no records and must be
informed of the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LEAST = 3.0
"""Seconds for which workers are informed of the end, even if none is known."""
_TICK = 0.1


class Heartbeats:
    """The workers and watchers of a service, and when each was last heard from.

    Args:
        lost: called with a worker that is lost.
        grace: seconds between the loss of a connection and that of its worker, in which it may come
            back.
        most: largest number of workers that are remembered.
        clock: function that returns seconds and never goes back.
    """

    def __init__(self, lost: Callable[[str], None], grace: float, most: int, clock: Callable[[], float]) -> None:
        self.seen: dict[str, float] = {}
        """Worker -> when it was last heard from, the earliest first."""
        self.attached: Counter[str] = Counter()
        """Worker -> number of its open calls that last as long as its connection."""
        self.calls: dict[str, dict[str, int]] = {}
        """Worker -> data set -> number of its last call for shards."""
        self.closing = False
        """Calls that end do not mean that their worker is lost."""
        self._lost, self._grace, self._most, self._clock = lost, grace, most, clock
        self._told: set[str] = set()
        self.last: float | None = None
        """When a worker, or a watcher beside one, was last heard from; None: never."""
        self.expected: frozenset[str] = frozenset()
        """Watchers that take no records. The service waits at its end until each is informed of it.
        """
        self.trainers: frozenset[str] = frozenset()
        """Watchers beside workers. At the end of all data, the service waits for them, too."""
        self._watchers: dict[str, float] = {}

    def heard(self, worker: str, now: float) -> None:
        """Note that a worker called."""
        self.seen.pop(worker, None)
        self.seen[worker] = self.last = now
        if len(self.seen) > self._most:
            self._forget(next((each for each in self.seen if each not in self.attached), worker))

    def told(self, worker: str) -> None:
        """Note that a worker was informed of the end."""
        if worker in self.seen:
            self._told.add(worker)

    def forget_told(self) -> None:
        """Forget which workers know of the end, since more shards follow."""
        self._told.clear()

    def watched(self, name: str, *, over: bool) -> None:
        """Note that a named watcher asked for the progress of the data sets.

        Args:
            over: the answer was that all data sets are over.
        """
        now = self._clock()
        self._watchers.pop(name, None)
        self._watchers[name] = now
        if len(self._watchers) > self._most:
            self._told.discard(next(iter(self._watchers)))
            del self._watchers[next(iter(self._watchers))]
        if name not in self.expected:
            self.last = now
        if over:
            self._told.add(name)

    def is_deserted(self, seconds: float) -> bool:
        """Return True if there were workers, and none was heard from for this number of seconds."""
        return self.last is not None and not self.attached and self._clock() - self.last > seconds

    @contextmanager
    def during(self, worker: str, *, bound: bool) -> Iterator[None]:
        """Keep a worker attached for as long as the context lasts.

        Its leases do not end before the longest time. A cancellation means that its connection
        broke.

        Args:
            bound: the worker is its connection, so that it cannot come back.
        """
        self.attached[worker] += 1
        try:
            yield
        except asyncio.CancelledError:
            if not self.closing:
                delay = 0.0 if bound else self._grace
                asyncio.get_running_loop().call_later(delay, self._lose, worker, self._clock())
            raise
        finally:
            self.attached[worker] -= 1
            if not self.attached[worker]:
                del self.attached[worker]
                self.last = self._clock()

    async def drained(self, seconds: float, least: float = _LEAST) -> None:
        """Return when all workers and watchers know of the end, or after a number of seconds.

        These are the workers and named watchers that were heard from in the last seconds, and the
        expected ones. It does not return in the first ``least`` seconds: starting workers are not
        known yet, and watchers must see the end.
        """
        begin = self._clock()
        while (passed := self._clock() - begin) < seconds and (passed < least or self._awaited(seconds) - self._told):
            await asyncio.sleep(_TICK)

    def _awaited(self, seconds: float) -> set[str]:
        since = self._clock() - seconds
        known = (name for each in (self.seen, self._watchers) for name, heard in each.items() if heard >= since)
        return {*known, *self.expected, *self.trainers}

    def _lose(self, worker: str, since: float) -> None:
        if not self.closing and worker not in self.attached and self.seen.get(worker, since) <= since:
            self._forget(worker)
            self._lost(worker)

    def _forget(self, worker: str) -> None:
        self.seen.pop(worker, None)
        self._told.discard(worker)
        self.calls.pop(worker, None)
