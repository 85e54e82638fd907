"""The ledger: which shard is with which worker; without threads, transport or clock.

Time is an argument, in seconds of any clock.

Each shard of an epoch that has begun is in one state: todo, leased, done or dead. Only those that
are leased, came back or are dead are held one by one. All others are known from a number: how many
of the epoch's order were handed out.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from tarkit.errors import LINE, counted, quoted
from tarkit.service.dataset import DataSet
from tarkit.service.leases import (
    Lease,
    LeaseRules,
    NoShard,
    Outstanding,
    TooManyDeadError,
    Verdict,
    covered_records,
    merged_ranges,
    missing_ranges,
)
from tarkit.service.progress import DataSetProgress, DeadShard

ENDLESS = 2**62
"""Number of shards that are available where epochs have no end."""


@dataclass(slots=True)
class _Holder:
    """A worker that holds shards, or did.

    Attributes:
        deadline: when it is lost, unless it is heard of.
        latest: when it is lost although it is heard of, unless it is given a shard or reports.
        held: token -> shard.
    """

    deadline: float = math.inf
    latest: float = math.inf
    held: dict[int, Outstanding] = field(default_factory=dict)


class Ledger:
    """The shards of one data set: lease, complete, fail, release, renew, lose, expire."""

    def __init__(self, dataset: DataSet, rules: LeaseRules | None = None) -> None:
        self.dataset = dataset
        self.rules = rules or LeaseRules()
        self.epoch = 0
        """The last epoch that has begun; 0: none has."""
        self.handed_out = 0
        """Number of shards of the epoch that were leased at least once, the first of its order."""
        self.run = ""
        """Identity of its run, where the service has one."""
        self.last_token = 0
        self.records = 0
        """Number of records that are done, of all epochs."""
        self.entries: dict[tuple[int, int], Outstanding] = {}
        """Epoch and position -> shard."""
        self.longest = 0.0
        """Seconds that the longest of the last completed shards took; 0: not known."""
        self.leased = 0
        """Number of shards that workers hold."""
        self.lost_leases = 0
        """Number of leases that ended because their worker was lost, since this process began."""
        self.next_deadline = math.inf
        """Time before which ``expire`` has nothing to do."""
        self._changed: set[tuple[int, int]] = set()
        self._taken: set[tuple[int, int]] = set()
        self._first: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._last: OrderedDict[tuple[int, int], None] = OrderedDict()
        """Shards that came back: before the rest of the epoch, and the failed ones after it."""
        self._dead: dict[tuple[int, int], Outstanding] = {}
        self._by_token: dict[int, Outstanding] = {}
        self._holders: dict[str, _Holder] = {}
        self._durations: deque[float] = deque(maxlen=100)

    # Calls of workers.

    def lease(self, worker: str, now: float) -> Lease | NoShard:
        """Lease a shard to a worker, or answer that it is to wait, or the end.

        Raises:
            TooManyDeadError: so many shards are dead that no more are handed out.
        """
        self.expire(now)
        self.renew(worker, now)
        if self.aborted:
            raise TooManyDeadError(
                f"data set {quoted(self.dataset.name)} has {counted(len(self._dead), 'dead shard')}, and the limit is "
                f"{self.rules.dead}: no more are handed out; see the reasons, then reset it, or allow more (--max-dead)"
            )
        entry = self._next()
        if entry is None:
            return NoShard.WAIT if self.leased else NoShard.END
        self.last_token += 1
        entry.token, entry.worker, entry.granted = self.last_token, worker, now
        self._hold(entry, now)
        self._changed.add(entry.key)
        shard = self.dataset.shard(*entry.key)
        todo = tuple(missing_ranges(entry.ranges, shard.end - shard.start))
        return Lease(entry.token, entry.epoch, shard, self.seconds, todo)

    def complete(self, token: int, now: float, ranges: Iterable[tuple[int, int]] | None = None) -> Verdict:
        """Take the report that a shard is done.

        With ``ranges``, only these of its records, as [first, end) in their order. Once all records
        are, the shard is done.

        Raises:
            UsageError: a range that the shard does not have; nothing has changed.
        """
        entry = self._by_token.get(token)
        if entry is None:
            return self._unknown(token)
        shard = self.dataset.bounds(*entry.key)
        every = [(0, shard.end - shard.start)]
        done = every if ranges is None else merged_ranges(entry.ranges, ranges, every[0][1])
        held, worker = token == entry.token, entry.worker
        granted = entry.granted if held else entry.lost[token]
        if done != entry.ranges:
            self.records += covered_records(done) - covered_records(entry.ranges)
            entry.ranges = done
            if not entry.ended:
                entry.losses = 0
            self._changed.add(entry.key)
        if done == every:
            self._finish(entry)
            if granted is not None:
                self.learn(now - granted)
        if held:
            self.renew(worker, now, works=True)
        return Verdict.ACCEPTED if held else Verdict.LATE

    def fail(self, token: int, now: float, reason: str) -> Verdict:
        """Take the report that a shard failed.

        It comes back after the rest of the epoch, or is dead.

        A shard that the worker does not hold any more has failed by that already.
        """
        entry = self._by_token.get(token)
        if entry is None or token != entry.token:
            return self._unknown(token)
        self.renew(entry.worker, now, works=True)
        self._unlease(entry)
        del self._by_token[token]
        entry.errors += 1
        self._back(entry, entry.errors >= self.rules.errors, reason)
        return Verdict.ACCEPTED

    def renew(self, worker: str, now: float, *, works: bool = False) -> int:
        """Renew the leases of a worker that was heard of.

        They last no longer than ``ceiling`` after it last was at work.

        Returns how many it has.

        Args:
            works: it is now, as it was given a shard or reports.
        """
        holder = self._holders.get(worker)
        if holder is None:
            return 0
        if works:
            holder.latest = now + self.rules.ceiling
        holder.deadline = min(now + self.seconds, holder.latest)
        self.next_deadline = min(self.next_deadline, holder.deadline)
        return len(holder.held)

    def renew_seen(self, seen: Mapping[str, float]) -> None:
        """Renew the leases of workers that were last heard of at these times.

        Before ``expire``, where a call that renews the leases of all data sets would cost more than
        all the rest of it.
        """
        for worker, holder in self._holders.items():
            if (at := seen.get(worker)) is not None and at + self.seconds > holder.deadline:
                self.renew(worker, at)

    def release(self, worker: str, tokens: Iterable[int] | None = None) -> int:
        """Take back shards that a worker did not use, or all, which is not a failure.

        Returns their number.
        """
        held = self.held(worker)
        given = [held[token] for token in dict.fromkeys(held if tokens is None else tokens) if token in held]
        for entry in given:
            del self._by_token[entry.token]
            self._unlease(entry)
            self._back(entry)
        return len(given)

    def lose(
        self, worker: str, reason: str = "the worker's connection broke", tokens: Iterable[int] | None = None
    ) -> int:
        """Take back the leases of a worker that is lost, or those for which it does nothing.

        Their shards come back before the rest of the epoch.

        Returns their number.
        """
        held = self.held(worker)
        lost = [token for token in dict.fromkeys(held if tokens is None else tokens) if token in held]
        for token in lost:
            entry = held[token]
            entry.lost[token] = entry.granted
            self._unlease(entry)
            entry.losses += 1
            self._back(entry, entry.losses >= self.rules.losses, reason)
        if tokens is None:
            self._holders.pop(worker, None)
        self.lost_leases += len(lost)
        return len(lost)

    def expire(self, now: float) -> int:
        """Lose the workers that were silent, or did nothing, for too long.

        Returns the number of their leases.
        """
        if now < self.next_deadline:
            return 0
        lost = 0
        for worker, holder in [*self._holders.items()]:
            if holder.deadline <= now:
                idle = holder.latest <= now
                lost += self.lose(worker, self.idle_reason if idle else "the worker was silent until its lease ended")
        self.next_deadline = min((holder.deadline for holder in self._holders.values()), default=math.inf)
        return lost

    # Queries of the service.

    @property
    def idle_reason(self) -> str:
        """Reason for the loss of a worker that is heard of."""
        return f"the worker was given no shard and reported none for {self.rules.ceiling:g} s"

    @property
    def seconds(self) -> float:
        """Seconds of a lease that begins now."""
        rules = self.rules
        return min(max(rules.factor * self.longest or rules.first, rules.floor), rules.ceiling)

    @property
    def ended(self) -> bool:
        """True if no shard is left to hand out, and none is with a worker.

        Dead ones may be left.
        """
        return not self.available and not self.leased

    @property
    def available(self) -> int:
        """Number of shards that could be leased now."""
        back, shards, epochs = len(self._first) + len(self._last), self.dataset.shards, self.dataset.epochs
        rest = shards - self.handed_out if self.epoch else 0
        if self._may_begin(rest + back):
            rest += (1 if self.dataset.strict_epochs else epochs - self.epoch if epochs else ENDLESS) * shards
        return back + min(rest, self._room)

    @property
    def aborted(self) -> bool:
        """True if shards are left that are not handed out, because too many are dead."""
        return len(self._dead) >= self.rules.dead and self.available > 0

    @property
    def _room(self) -> int:
        """Number of further shards that may be handed out and not done."""
        return max(0, self.rules.outstanding - len(self.entries) + len(self._dead))

    def in_order(self) -> list[Outstanding]:
        """Return all entries; those that came back are in the order of their next leases."""
        back = [self.entries[key] for key in (*self._first, *self._last)]
        return back + [entry for entry in self.entries.values() if entry.state != "todo"]

    def progress(self, listed: int = 0) -> DataSetProgress:
        """Return the counts of the epochs that have begun.

        Args:
            listed: how many dead shards are named, at most.
        """
        return DataSetProgress(
            name=self.dataset.name,
            shards=self.dataset.shards,
            epochs=self.dataset.epochs,
            epoch=self.epoch,
            todo=self.todo,
            leased=self.leased,
            done=self.done,
            dead=len(self._dead),
            records=self.records,
            ended=self.ended,
            workers=len(self.workers()),
            dead_shards=self.dead(listed),
            aborted=self.aborted,
            epochs_done=self.epochs_done,
        )

    @property
    def todo(self) -> int:
        """Number of shards of the begun epochs that were never handed out, or came back."""
        return len(self._first) + len(self._last) + (self.dataset.shards - self.handed_out if self.epoch else 0)

    @property
    def done(self) -> int:
        """Number of shards that are done, of the epochs that have begun."""
        return self.epoch * self.dataset.shards - self.todo - self.leased - len(self._dead)

    @property
    def last_epoch(self) -> bool:
        """True if no other epoch begins after this one."""
        return bool(self.dataset.epochs) and self.epoch >= self.dataset.epochs

    @property
    def epochs_done(self) -> int:
        """Number of epochs of which each shard is done or dead."""
        # Shards are handed out epoch by epoch, so the first one that is outstanding is of the first
        # such epoch.
        first = next((entry.epoch for entry in self.entries.values() if not entry.ended), None)
        if first is not None:
            return first - 1
        return self.epoch - (self.epoch > 0 and self.handed_out < self.dataset.shards)

    @property
    def known_workers(self) -> Collection[str]:
        """Workers that hold a shard, or held one and were heard of less than a lease ago."""
        return self._holders.keys()

    def held(self, worker: str) -> dict[int, Outstanding]:
        """Return the leases of a worker: token -> shard."""
        holder = self._holders.get(worker)
        return dict(holder.held) if holder else {}

    def workers(self) -> dict[str, list[Outstanding]]:
        """Return the workers that hold shards: worker -> these shards."""
        return {worker: list(holder.held.values()) for worker, holder in self._holders.items() if holder.held}

    def dead(self, most: int | None = None) -> list[DeadShard]:
        """List the dead shards, in the order in which they died.

        Only the first ``most`` of them.
        """
        found = ((each, self.dataset.bounds(*each.key)) for each in islice(self._dead.values(), most))
        return [
            DeadShard(each.epoch, shard.name, shard.start, shard.end, each.errors, each.losses, each.ended)
            for each, shard in found
        ]

    def learn(self, seconds: float) -> None:
        """Note the seconds that a shard took, from which the length of leases follows."""
        self._durations.append(seconds)
        self.longest = max(self._durations)

    def resume(self, epoch: int, handed_out: int, records: int, entries: Iterable[Outstanding], now: float) -> None:
        """Replace the state; 0, 0, 0 and no entries is the beginning.

        Tokens that were given before and are not in it are stale. Entries with a token are leased
        from now on. The state must be possible for the data set.
        """
        self.epoch, self.handed_out, self.records = epoch, handed_out, records
        given = list(entries)
        self.entries = {entry.key: entry for entry in sorted(given, key=lambda entry: entry.key)}
        for emptied in (self._first, self._last, self._dead, self._by_token, self._holders):
            emptied.clear()
        self.leased, self.next_deadline = 0, math.inf
        for entry in given:
            self._by_token.update(dict.fromkeys(entry.lost, entry))
            if entry.ended:
                self._dead[entry.key] = entry
            elif entry.token:
                self._hold(entry, now)
            else:
                (self._last if entry.errors else self._first)[entry.key] = None
        self._changed = self._taken | self.entries.keys()

    def take_changes(self) -> tuple[list[Outstanding], list[tuple[int, int]]]:
        """Take the changes of ``entries`` since the last call.

        Returns the entries that are new or changed, and the keys that are gone.
        """
        changed = [self.entries[key] for key in self._changed if key in self.entries]
        gone = [key for key in self._changed if key not in self.entries]
        self._taken.update(entry.key for entry in changed)
        self._taken.difference_update(gone)
        self._changed.clear()
        return changed, gone

    def begin_next_epoch(self) -> bool:
        """Begin the next of strict epochs although shards are leased, and return whether it did.

        A batch may need records of both. It does not if there is no other epoch, or this one has
        shards to hand out.
        """
        left = not self.epoch or self.handed_out < self.dataset.shards or self._first or self._last
        if not self.dataset.strict_epochs or self.last_epoch or left:
            return False
        self.epoch, self.handed_out = self.epoch + 1, 0
        return True

    # Its own steps.

    def _may_begin(self, todo: int) -> bool:
        """Return whether another epoch may begin once ``todo`` shards are handed out."""
        if self.epoch and self.dataset.strict_epochs and (todo or self.leased):
            return False
        return not self.dataset.epochs or self.epoch < self.dataset.epochs

    def _next(self) -> Outstanding | None:
        if self._first:
            return self.entries[self._first.popitem(last=False)[0]]
        rest = self.dataset.shards - self.handed_out if self.epoch else 0
        if self._last and not (rest and self._room):
            return self.entries[self._last.popitem(last=False)[0]]
        if not self._room:
            return None
        if not rest:
            if not self._may_begin(0):
                return None
            self.epoch, self.handed_out = self.epoch + 1, 0
        entry = Outstanding(self.epoch, self.handed_out)
        self.entries[entry.key] = entry
        self.handed_out += 1
        return entry

    def _unknown(self, token: int) -> Verdict:
        return Verdict.STALE if 0 < token <= self.last_token else Verdict.UNKNOWN

    def _hold(self, entry: Outstanding, now: float) -> None:
        """Give a shard to a worker."""
        self._by_token[entry.token] = entry
        self._holders.setdefault(entry.worker, _Holder()).held[entry.token] = entry
        self.leased += 1
        self.renew(entry.worker, now, works=True)

    def _unlease(self, entry: Outstanding) -> None:
        if entry.token:
            del self._holders[entry.worker].held[entry.token]
            self.leased -= 1
        entry.token, entry.worker, entry.granted = 0, "", None

    def _back(self, entry: Outstanding, dead: bool = False, reason: str = "") -> None:
        """Make a leased shard todo, or dead."""
        self._changed.add(entry.key)
        if dead:
            entry.ended = reason[:LINE] or "no reason was given"
            self._dead[entry.key] = entry
        elif entry.errors:
            self._last[entry.key] = None
        else:
            self._first[entry.key] = None

    def _finish(self, entry: Outstanding) -> None:
        """Remove a shard that is done."""
        for token in (entry.token, *entry.lost):
            self._by_token.pop(token, None)
        self._unlease(entry)
        for waiting in (self._first, self._last, self._dead):
            waiting.pop(entry.key, None)
        del self.entries[entry.key]
        if entry.key not in self._taken:
            self._changed.discard(entry.key)
