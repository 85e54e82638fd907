"""Which shard is with whom: pure, without threads, transport or clock. Time is an argument, in seconds of any clock.

Each shard of an epoch that has begun is in one state: todo, leased, done or dead. Only shards that are leased, come
back, or are dead are held one by one; all others are known from ``place``, the number of those handed out so far.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tarkit.readers.reader import TaskShard
from tarkit.service.dataset import DataSet
from tarkit.service.ranges import covered_records, merged_ranges, missing_ranges


@dataclass(frozen=True)
class LeaseRules:
    """How long leases are, and how often a shard is tried. Times in seconds.

    floor, ceiling: of a lease. first: of leases before a shard was completed. factor: a lease is so many times
    the longest time that one of the last 100 completed shards took. errors: a shard that trainers report as failed so
    often is dead. losses: a shard whose workers were lost so often is dead, because it may be what ends them.
    """

    floor: float = 10.0
    ceiling: float = 3600.0
    first: float = 300.0
    factor: float = 3.0
    errors: int = 3
    losses: int = 10


class NoShard(enum.Enum):
    """What ``lease`` answers when it has no shard."""

    WAIT = "wait"
    END = "end"
    DRAIN = "drain"
    """Not of a ledger: all that is left is with workers who wait themselves, so each is to finish what it holds."""


class Verdict(enum.Enum):
    """What became of a report."""

    ACCEPTED = "accepted"
    LATE = "late"
    """Accepted after the lease had ended: the first success counts."""
    STALE = "stale"
    """The shard was completed, taken over or reset before."""
    UNKNOWN = "unknown"
    """A token that was never given."""


@dataclass
class Outstanding:
    """A shard that was handed out and is not done.

    tokens: of all its leases, the last one last. worker: who holds it; None: nobody. ended: of a dead shard, why.
    ranges: what is done of it, as [first, end) in the order of its records, sorted, not adjacent.
    """

    epoch: int
    place: int
    tokens: list[int] = field(default_factory=list)
    worker: str | None = None
    granted: float = 0.0
    deadline: float = 0.0
    errors: int = 0
    losses: int = 0
    ended: str = ""
    ranges: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Lease:
    """A shard handed to a worker. token: never given twice. seconds: how long, unless the worker is heard of.

    ranges: what is to be done of it, as [first, end) in the order of its records.
    """

    token: int
    epoch: int
    shard: TaskShard
    seconds: float
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Dead:
    """A shard that is not tried any more. reason: of its last failure."""

    epoch: int
    shard: TaskShard
    errors: int
    losses: int
    reason: str


@dataclass(frozen=True)
class LedgerCounts:
    """Where a data set stands; shards of the epochs that have begun.

    epoch: epochs begun. left: shards of the epoch that were never handed out. todo: those that came back, too.
    records: number of those done.
    """

    epoch: int
    todo: int
    leased: int
    done: int
    dead: int
    records: int
    ended: bool


class Ledger:
    """The shards of one data set: lease, complete, fail, lose, renew, release."""

    def __init__(self, dataset: DataSet, rules: LeaseRules | None = None) -> None:
        self.dataset = dataset
        self.rules = rules or LeaseRules()
        self.epoch = 0
        self.place = 0
        """Of the epoch's shards, how many were handed out at least once."""
        self.last_token = 0
        self.records = 0
        self.entries: dict[tuple[int, int], Outstanding] = {}
        self.changed: set[tuple[int, int]] = set()
        """Keys of ``entries`` that were made, changed or removed since the journal last took them."""
        self._todo: deque[tuple[int, int]] = deque()
        self._by_token: dict[int, Outstanding] = {}
        self._by_worker: dict[str, dict[int, Outstanding]] = {}
        self._dead: dict[tuple[int, int], Outstanding] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._durations: deque[float] = deque(maxlen=100)
        self._longest: float | None = None

    # What workers ask and report.

    def lease(self, worker: str, now: float) -> Lease | NoShard:
        """A shard for a worker, or whether it is to wait, or the end."""
        self.expire(now)
        self.renew(worker, now)
        entry = self._next()
        if entry is None:
            return NoShard.WAIT if self._by_worker else NoShard.END
        self.last_token += 1
        token = self.last_token
        entry.tokens.append(token)
        entry.worker, entry.granted, entry.deadline = worker, now, now + self.seconds
        self._by_token[token] = entry
        self._by_worker.setdefault(worker, {})[token] = entry
        self._watch(entry)
        self._touch(entry)
        shard = self.dataset.shard(entry.epoch, entry.place)
        return Lease(
            token, entry.epoch, shard, self.seconds, tuple(missing_ranges(entry.ranges, shard.end - shard.start))
        )

    def complete(self, token: int, now: float, ranges: Iterable[tuple[int, int]] | None = None) -> Verdict:
        """A shard is done; with ``ranges``, these of its records, as [first, end) in their order, and when all are, it.

        Raises:
            UsageError: a range that the shard does not have.
        """
        entry = self._by_token.get(token)
        if entry is None:
            return self._unheld(token)
        worker = entry.worker if entry.tokens[-1] == token else None
        shard = self.dataset.shard(entry.epoch, entry.place)
        records = shard.end - shard.start
        before = covered_records(entry.ranges)
        entry.ranges = [(0, records)] if ranges is None else merged_ranges(entry.ranges, ranges, records)
        self.records += covered_records(entry.ranges) - before
        self._touch(entry)
        if entry.ranges == [(0, records)]:
            if worker is not None:
                self._durations.append(now - entry.granted)
                self._longest = max(self._durations)
            self._remove(entry)
        if worker is None:
            return Verdict.LATE
        self.renew(worker, now)
        return Verdict.ACCEPTED

    def fail(self, token: int, now: float, reason: str) -> Verdict:
        """A trainer could not use a shard: it comes back at the end of the line, or is dead."""
        entry = self._by_token.get(token)
        if entry is None or entry.worker is None or entry.tokens[-1] != token:
            return self._unheld(token) if entry is None else Verdict.STALE
        worker = entry.worker
        self._unlease(entry)
        entry.errors += 1
        if entry.errors >= self.rules.errors:
            self._bury(entry, reason or "the trainer gave no reason")
        else:
            self._todo.append((entry.epoch, entry.place))
        self.renew(worker, now)
        return Verdict.ACCEPTED

    def renew(self, worker: str, now: float) -> int:
        """The worker was heard of: its leases begin anew. Returns how many it has."""
        held = self._by_worker.get(worker, {})
        deadline = now + self.seconds
        for entry in held.values():
            entry.deadline = deadline
        return len(held)

    def release(self, worker: str, tokens: Iterable[int] | None = None) -> int:
        """A worker gives shards back that it did not use, or all; nobody is to blame. Returns their number."""
        held = self._by_worker.get(worker, {})
        given = [held[token] for token in (list(held) if tokens is None else tokens) if token in held]
        for entry in reversed(given):
            self._unlease(entry)
            self._todo.appendleft((entry.epoch, entry.place))
        return len(given)

    def lose(self, worker: str, reason: str = "the worker's connection broke") -> int:
        """A worker is gone: what it held comes back first. Returns the number of its leases."""
        lost = list(self._by_worker.get(worker, {}).values())
        for entry in reversed(lost):
            self._lost(entry, reason)
        return len(lost)

    def expire(self, now: float) -> int:
        """Leases that are over come back. Returns their number."""
        number = 0
        while self._deadlines and self._deadlines[0][0] <= now:
            _, token = heapq.heappop(self._deadlines)
            entry = self._by_token.get(token)
            if entry is None or entry.worker is None or entry.tokens[-1] != token:
                continue
            if entry.deadline > now:
                heapq.heappush(self._deadlines, (entry.deadline, token))
                continue
            self._lost(entry, f"the worker was silent for {now - entry.granted:.0f} s")
            number += 1
        return number

    # What the service asks.

    def resume(self, epoch: int, place: int, entries: Iterable[Outstanding], now: float) -> None:
        """Take a state for this one. Entries with a worker are leased anew from now on, under their tokens; others that
        are not dead are to be done, in the order given. Tokens that were given before and are not in it are stale."""
        # (0, 0) is of no shard: the counts are new, even where no entry is.
        self.changed |= self.entries.keys() | {(0, 0)}
        self.epoch, self.place = epoch, place
        self.entries, self._by_token, self._by_worker, self._dead = {}, {}, {}, {}
        self._todo.clear()
        self._deadlines.clear()
        for entry in entries:
            key = (entry.epoch, entry.place)
            self.entries[key] = entry
            self._by_token.update(dict.fromkeys(entry.tokens, entry))
            self._touch(entry)
            if entry.ended:
                self._dead[key] = entry
            elif entry.worker is None:
                self._todo.append(key)
            else:
                entry.granted, entry.deadline = now, now + self.seconds
                self._by_worker.setdefault(entry.worker, {})[entry.tokens[-1]] = entry
                self._watch(entry)

    @property
    def seconds(self) -> float:
        """How long a lease is that is given now."""
        rules = self.rules
        wanted = rules.first if self._longest is None else rules.factor * self._longest
        return min(max(wanted, rules.floor), rules.ceiling)

    def next_deadline(self) -> float | None:
        """When ``expire`` may have something to do; None: not before something is leased."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def ended(self) -> bool:
        """Whether no shard is left to hand out, and none is with a worker. Dead ones may be left."""
        return not self._todo and not self._by_worker and not self._fresh()

    @property
    def available(self) -> int:
        """How many shards ``lease`` would give now."""
        if not self._fresh():
            return len(self._todo)
        return len(self._todo) + self.dataset.shards - self.place % self.dataset.shards

    @property
    def dirty(self) -> bool:
        """Whether something changed since the journal last took it."""
        return bool(self.changed)

    def in_order(self) -> list[Outstanding]:
        """All entries; those that are to be done in the order in which they come."""
        waiting = [self.entries[key] for key in self._todo]
        return waiting + [each for each in self.entries.values() if each.worker is not None or each.ended]

    def progress(self) -> LedgerCounts:
        """Counts of the epochs that have begun."""
        shards = self.dataset.shards
        handed = max(0, self.epoch - 1) * shards + self.place
        leased = sum(map(len, self._by_worker.values()))
        never = shards - self.place if self.epoch else 0
        return LedgerCounts(
            self.epoch,
            never + len(self._todo),
            leased,
            handed - len(self.entries),
            len(self._dead),
            self.records,
            self.ended,
        )

    @property
    def last_epoch(self) -> bool:
        """Whether no other epoch begins after this one."""
        return bool(self.dataset.epochs) and self.epoch >= self.dataset.epochs

    def tokens(self, worker: str) -> list[int]:
        """Of the leases that a worker has."""
        return list(self._by_worker.get(worker, ()))

    def workers(self) -> dict[str, list[Outstanding]]:
        """Who holds what."""
        return {worker: list(held.values()) for worker, held in self._by_worker.items()}

    def dead(self) -> list[Dead]:
        """The shards that are not tried any more, in the order in which they died."""
        return [
            Dead(each.epoch, self.dataset.shard(each.epoch, each.place), each.errors, each.losses, each.ended)
            for each in self._dead.values()
        ]

    # Its own steps.

    def _fresh(self) -> bool:
        """Whether a shard is left that was never handed out, of this epoch, or of one that may begin now."""
        if self.epoch and self.place < self.dataset.shards:
            return True
        if self.epoch and self.dataset.strict_epochs and (self._by_worker or self._todo):
            return False
        return not self.dataset.epochs or self.epoch < self.dataset.epochs

    def _next(self) -> Outstanding | None:
        if self._todo:
            return self.entries[self._todo.popleft()]
        if not self._fresh():
            return None
        if not self.epoch or self.place == self.dataset.shards:
            self.epoch, self.place = self.epoch + 1, 0
        entry = self.entries[self.epoch, self.place] = Outstanding(self.epoch, self.place)
        self.place += 1
        return entry

    def _watch(self, entry: Outstanding) -> None:
        """``expire`` will see it. What is done leaves its deadline behind; the list stays short nevertheless."""
        heapq.heappush(self._deadlines, (entry.deadline, entry.tokens[-1]))
        if len(self._deadlines) > 1000 + 4 * len(self.entries):
            self._deadlines = [
                (each.deadline, each.tokens[-1]) for each in self.entries.values() if each.worker is not None
            ]
            heapq.heapify(self._deadlines)

    def _unheld(self, token: int) -> Verdict:
        return Verdict.STALE if 0 < token <= self.last_token else Verdict.UNKNOWN

    def _touch(self, entry: Outstanding) -> None:
        self.changed.add((entry.epoch, entry.place))

    def _unlease(self, entry: Outstanding) -> None:
        if entry.worker is not None:
            held = self._by_worker[entry.worker]
            del held[entry.tokens[-1]]
            if not held:
                del self._by_worker[entry.worker]
            entry.worker = None
        self._touch(entry)

    def _lost(self, entry: Outstanding, reason: str) -> None:
        self._unlease(entry)
        entry.losses += 1
        if entry.losses >= self.rules.losses:
            self._bury(entry, reason)
        else:
            self._todo.appendleft((entry.epoch, entry.place))

    def _bury(self, entry: Outstanding, reason: str) -> None:
        entry.ended = reason
        self._dead[entry.epoch, entry.place] = entry

    def _remove(self, entry: Outstanding) -> None:
        """It is done, wherever it was."""
        key = (entry.epoch, entry.place)
        if entry.worker is None and not entry.ended:
            self._todo.remove(key)
        self._unlease(entry)
        self._dead.pop(key, None)
        for token in entry.tokens:
            del self._by_token[token]
        del self.entries[key]
