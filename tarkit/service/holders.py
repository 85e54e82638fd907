"""Which worker holds which shards, and until when it must be heard of."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from tarkit.service.outstanding import Outstanding


@dataclass(slots=True)
class _Holder:
    """A worker. deadline: when it is lost. watched: when ``silent`` will look at it, never after the deadline."""

    deadline: float
    watched: float
    held: dict[int, Outstanding] = field(default_factory=dict)


class Holders:
    """The workers of a data set. A worker without a lease is forgotten at its deadline."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}
        self._watches: list[tuple[float, str]] = []
        self.leases = 0
        """Of all workers."""

    def take(self, worker: str, entry: Outstanding, deadline: float) -> None:
        """A worker has a shard, whose ``token`` is set."""
        if worker not in self._holders:
            self._holders[worker] = _Holder(deadline, deadline)
            heapq.heappush(self._watches, (deadline, worker))
        self.renew(worker, deadline)
        self._holders[worker].held[entry.token] = entry
        self.leases += 1

    def drop(self, worker: str, token: int) -> None:
        """A worker has a shard no more."""
        del self._holders[worker].held[token]
        self.leases -= 1

    def renew(self, worker: str, deadline: float) -> int:
        """A worker has time until ``deadline``, also if that is earlier than before. Returns how many shards it has."""
        known = self._holders.get(worker)
        if known is None:
            return 0
        known.deadline = deadline
        if deadline < known.watched:
            known.watched = deadline
            heapq.heappush(self._watches, (deadline, worker))
        return len(known.held)

    def held(self, worker: str) -> dict[int, Outstanding]:
        """Token -> shard."""
        known = self._holders.get(worker)
        return dict(known.held) if known else {}

    def all_held(self) -> dict[str, list[Outstanding]]:
        """Worker -> its shards; without workers that have none."""
        return {name: list(worker.held.values()) for name, worker in self._holders.items() if worker.held}

    def silent(self, now: float) -> Iterator[str]:
        """The workers whose deadline is over and who hold something; they are to be dropped before the next."""
        while self._watches and self._watches[0][0] <= now:
            watch, name = heapq.heappop(self._watches)
            worker = self._holders.get(name)
            if worker is None or worker.watched != watch:
                continue
            if worker.deadline > now:
                worker.watched = worker.deadline
                heapq.heappush(self._watches, (worker.deadline, name))
                continue
            if worker.held:
                yield name
            del self._holders[name]

    def next_deadline(self) -> float | None:
        """When ``silent`` may have something to do; None: not before a worker has a shard."""
        return self._watches[0][0] if self._watches else None
