"""The ledger: which worker holds which task; without threads, transport or clock.

Time is an argument, in seconds of any clock.

Each task of an epoch that has begun is in one state: todo, leased, done or dead. Only tasks that
are leased, came back or are dead are stored individually. All others follow from one number: how
many of the epoch's order were handed out.
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
    OpenTask,
    TooManyDeadError,
    Verdict,
    covered_records,
    merged_ranges,
    missing_ranges,
)
from tarkit.service.progress import DataSetProgress, DeadShard

ENDLESS = 2**62
"""Number of available tasks if epochs have no end."""


@dataclass(slots=True)
class _Worker:
    """A worker that holds tasks, or did.

    Attributes:
        deadline: when it is lost without a heartbeat.
        latest: when it is lost despite heartbeats, unless it is given a task or reports.
        held: token -> task.
    """

    deadline: float = math.inf
    latest: float = math.inf
    held: dict[int, OpenTask] = field(default_factory=dict)


class Ledger:
    """The tasks of one data set: lease, complete, fail, release, renew, lose, expire."""

    def __init__(self, dataset: DataSet, rules: LeaseRules | None = None) -> None:
        self.dataset = dataset
        self.rules = rules or LeaseRules()
        self.epoch = 0
        """The last epoch that has begun; 0: none has."""
        self.handed_out = 0
        """Number of tasks of the epoch that were leased at least once, the first of its order."""
        self.run = ""
        """Identity of its run, if the service has one."""
        self.last_token = 0
        self.records = 0
        """Number of records that are done, of all epochs."""
        self.tasks: dict[tuple[int, int], OpenTask] = {}
        """The open tasks: epoch and position -> task."""
        self.longest = 0.0
        """Seconds that the longest of the last completed tasks took; 0: not known."""
        self.leased = 0
        """Number of tasks that workers hold."""
        self.lost_leases = 0
        """Number of leases that ended because their worker was lost, since this process began."""
        self.next_deadline = math.inf
        """Time before which ``expire`` has nothing to do."""
        self._changed: set[tuple[int, int]] = set()
        self._taken: set[tuple[int, int]] = set()
        self._first: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._last: OrderedDict[tuple[int, int], None] = OrderedDict()
        """Tasks that came back: before the rest of the epoch, and the failed ones after it."""
        self._dead: dict[tuple[int, int], OpenTask] = {}
        self._by_token: dict[int, OpenTask] = {}
        self._workers: dict[str, _Worker] = {}
        self._durations: deque[float] = deque(maxlen=100)

    # Calls of workers.

    def lease(self, worker: str, now: float) -> Lease | NoShard:
        """Lease a task to a worker, or return WAIT, DRAIN or END.

        Raises:
            TooManyDeadError: too many tasks are dead, so no more are handed out.
        """
        self.expire(now)
        self.renew(worker, now)
        if self.aborted:
            raise TooManyDeadError(
                f"data set {quoted(self.dataset.name)} has {counted(len(self._dead), 'dead shard')}, and the limit is "
                f"{self.rules.dead}: no more are handed out; see the reasons, then reset it, or allow more (--max-dead)"
            )
        task = self._next()
        if task is None:
            return NoShard.WAIT if self.leased else NoShard.END
        self.last_token += 1
        task.token, task.worker, task.granted = self.last_token, worker, now
        self._hold(task, now)
        self._changed.add(task.key)
        shard = self.dataset.shard(*task.key)
        todo = tuple(missing_ranges(task.ranges, shard.end - shard.start))
        return Lease(task.token, task.epoch, shard, self.seconds, todo)

    def complete(self, token: int, now: float, ranges: Iterable[tuple[int, int]] | None = None) -> Verdict:
        """Take the report that a task, or ``ranges`` of its records, is done.

        With ``ranges``, only these of its records, as [first, end) in their order. Once all records
        are, the task is done.

        Raises:
            UsageError: a range is not in the task; nothing has changed.
        """
        task = self._by_token.get(token)
        if task is None:
            return self._unknown(token)
        shard = self.dataset.bounds(*task.key)
        every = [(0, shard.end - shard.start)]
        done = every if ranges is None else merged_ranges(task.ranges, ranges, every[0][1])
        held, worker = token == task.token, task.worker
        granted = task.granted if held else task.lost[token]
        if done != task.ranges:
            self.records += covered_records(done) - covered_records(task.ranges)
            task.ranges = done
            if not task.ended:
                task.losses = 0
            self._changed.add(task.key)
        if done == every:
            self._finish(task)
            if granted is not None:
                self.learn(now - granted)
        if held:
            self.renew(worker, now, works=True)
        return Verdict.ACCEPTED if held else Verdict.LATE

    def fail(self, token: int, now: float, reason: str) -> Verdict:
        """Take the report that a task failed.

        The task comes back after the rest of the epoch, or is dead. A report on a task that the
        worker does not hold any more changes nothing.
        """
        task = self._by_token.get(token)
        if task is None or token != task.token:
            return self._unknown(token)
        self.renew(task.worker, now, works=True)
        self._unlease(task)
        del self._by_token[token]
        task.errors += 1
        self._back(task, task.errors >= self.rules.errors, reason)
        return Verdict.ACCEPTED

    def renew(self, worker: str, now: float, *, works: bool = False) -> int:
        """Renew the leases of a worker that was heard from; return their number.

        They last no longer than ``ceiling`` after it was last given a task or reported one.

        Args:
            works: the worker was given a task or reported one now.
        """
        known = self._workers.get(worker)
        if known is None:
            return 0
        if works:
            known.latest = now + self.rules.ceiling
        known.deadline = min(now + self.seconds, known.latest)
        self.next_deadline = min(self.next_deadline, known.deadline)
        return len(known.held)

    def renew_seen(self, seen: Mapping[str, float]) -> None:
        """Renew the leases of workers that were last heard from at the given times.

        It is called before ``expire``, since renewing all data sets in each call would cost too
        much.
        """
        for worker, known in self._workers.items():
            if (at := seen.get(worker)) is not None and at + self.seconds > known.deadline:
                self.renew(worker, at)

    def release(self, worker: str, tokens: Iterable[int] | None = None) -> int:
        """Take back tasks that a worker did not use, or all; return their number.

        That is not a failure of the tasks.
        """
        held = self.held(worker)
        given = [held[token] for token in dict.fromkeys(held if tokens is None else tokens) if token in held]
        for task in given:
            del self._by_token[task.token]
            self._unlease(task)
            self._back(task)
        return len(given)

    def lose(
        self, worker: str, reason: str = "the worker's connection broke", tokens: Iterable[int] | None = None
    ) -> int:
        """Take back all leases of a lost worker, or its idle ones; return their number.

        Their tasks come back before the rest of the epoch.
        """
        held = self.held(worker)
        lost = [token for token in dict.fromkeys(held if tokens is None else tokens) if token in held]
        for token in lost:
            task = held[token]
            task.lost[token] = task.granted
            self._unlease(task)
            task.losses += 1
            self._back(task, task.losses >= self.rules.losses, reason)
        if tokens is None:
            self._workers.pop(worker, None)
        self.lost_leases += len(lost)
        return len(lost)

    def expire(self, now: float) -> int:
        """Lose workers that were silent or idle for too long; return the number of their leases."""
        if now < self.next_deadline:
            return 0
        lost = 0
        for worker, known in [*self._workers.items()]:
            if known.deadline <= now:
                idle = known.latest <= now
                lost += self.lose(worker, self.idle_reason if idle else "the worker was silent until its lease ended")
        self.next_deadline = min((known.deadline for known in self._workers.values()), default=math.inf)
        return lost

    # Queries of the service.

    @property
    def idle_reason(self) -> str:
        """Reason for the loss of a worker that still sends heartbeats."""
        return f"the worker was given no shard and reported none for {self.rules.ceiling:g} s"

    @property
    def seconds(self) -> float:
        """Seconds of a lease that begins now."""
        rules = self.rules
        return min(max(rules.factor * self.longest or rules.first, rules.floor), rules.ceiling)

    @property
    def ended(self) -> bool:
        """True if no task is left to hand out, and none is with a worker.

        Dead ones may be left.
        """
        return not self.available and not self.leased

    @property
    def available(self) -> int:
        """Number of tasks that could be leased now."""
        back, shards, epochs = len(self._first) + len(self._last), self.dataset.shards, self.dataset.epochs
        rest = shards - self.handed_out if self.epoch else 0
        if self._may_begin(rest + back):
            rest += (1 if self.dataset.strict_epochs else epochs - self.epoch if epochs else ENDLESS) * shards
        return back + min(rest, self._room)

    @property
    def aborted(self) -> bool:
        """True if tasks are left that are not handed out, because too many are dead."""
        return len(self._dead) >= self.rules.dead and self.available > 0

    @property
    def _room(self) -> int:
        """Number of further tasks that may be handed out and not done."""
        return max(0, self.rules.outstanding - len(self.tasks) + len(self._dead))

    def in_order(self) -> list[OpenTask]:
        """Return all open tasks; those that came back are in the order of their next leases."""
        back = [self.tasks[key] for key in (*self._first, *self._last)]
        return back + [task for task in self.tasks.values() if task.state != "todo"]

    def progress(self, listed: int = 0) -> DataSetProgress:
        """Return the counts of the epochs that have begun.

        Args:
            listed: largest number of dead tasks that are listed.
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
        """Number of tasks of the begun epochs that were never handed out, or came back."""
        return len(self._first) + len(self._last) + (self.dataset.shards - self.handed_out if self.epoch else 0)

    @property
    def done(self) -> int:
        """Number of tasks that are done, of the epochs that have begun."""
        return self.epoch * self.dataset.shards - self.todo - self.leased - len(self._dead)

    @property
    def last_epoch(self) -> bool:
        """True if no further epoch begins after this one."""
        return bool(self.dataset.epochs) and self.epoch >= self.dataset.epochs

    @property
    def epochs_done(self) -> int:
        """Number of epochs in which each task is done or dead."""
        # Tasks are handed out epoch by epoch, so the first one that is outstanding is of the first
        # such epoch.
        first = next((task.epoch for task in self.tasks.values() if not task.ended), None)
        if first is not None:
            return first - 1
        return self.epoch - (self.epoch > 0 and self.handed_out < self.dataset.shards)

    @property
    def known_workers(self) -> Collection[str]:
        """Workers that hold a task, or held one and sent a heartbeat within one lease."""
        return self._workers.keys()

    def held(self, worker: str) -> dict[int, OpenTask]:
        """Return the leases of a worker: token -> task."""
        known = self._workers.get(worker)
        return dict(known.held) if known else {}

    def workers(self) -> dict[str, list[OpenTask]]:
        """Return the workers that hold tasks: worker -> tasks."""
        return {worker: list(known.held.values()) for worker, known in self._workers.items() if known.held}

    def dead(self, most: int | None = None) -> list[DeadShard]:
        """List the first ``most`` dead tasks, in the order in which they died."""
        found = ((each, self.dataset.bounds(*each.key)) for each in islice(self._dead.values(), most))
        return [
            DeadShard(each.epoch, shard.name, shard.start, shard.end, each.errors, each.losses, each.ended)
            for each, shard in found
        ]

    def learn(self, seconds: float) -> None:
        """Record the duration of a task, from which the length of leases follows."""
        self._durations.append(seconds)
        self.longest = max(self._durations)

    def resume(self, epoch: int, handed_out: int, records: int, tasks: Iterable[OpenTask], now: float) -> None:
        """Replace the state; 0, 0, 0 and no tasks is the beginning.

        Earlier tokens that are not in the new state are stale. Entries with a token are leased from
        now on. The caller must check that the state is possible for the data set.
        """
        self.epoch, self.handed_out, self.records = epoch, handed_out, records
        given = list(tasks)
        self.tasks = {task.key: task for task in sorted(given, key=lambda task: task.key)}
        for emptied in (self._first, self._last, self._dead, self._by_token, self._workers):
            emptied.clear()
        self.leased, self.next_deadline = 0, math.inf
        for task in given:
            self._by_token.update(dict.fromkeys(task.lost, task))
            if task.ended:
                self._dead[task.key] = task
            elif task.token:
                self._hold(task, now)
            else:
                (self._last if task.errors else self._first)[task.key] = None
        self._changed = self._taken | self.tasks.keys()

    def take_changes(self) -> tuple[list[OpenTask], list[tuple[int, int]]]:
        """Return the changes of ``tasks`` since the last call.

        They are the tasks that are new or changed, and the keys of those that were removed.
        """
        changed = [self.tasks[key] for key in self._changed if key in self.tasks]
        gone = [key for key in self._changed if key not in self.tasks]
        self._taken.update(task.key for task in changed)
        self._taken.difference_update(gone)
        self._changed.clear()
        return changed, gone

    def begin_next_epoch(self) -> bool:
        """Begin the next of strict epochs although tasks are leased; return True if it began.

        A batch may need records of both epochs. It does not begin if there is no further epoch, or
        if this one has tasks to hand out.
        """
        left = not self.epoch or self.handed_out < self.dataset.shards or self._first or self._last
        if not self.dataset.strict_epochs or self.last_epoch or left:
            return False
        self.epoch, self.handed_out = self.epoch + 1, 0
        return True

    # Its own steps.

    def _may_begin(self, todo: int) -> bool:
        """Return True if another epoch may begin once ``todo`` tasks are handed out."""
        if self.epoch and self.dataset.strict_epochs and (todo or self.leased):
            return False
        return not self.dataset.epochs or self.epoch < self.dataset.epochs

    def _next(self) -> OpenTask | None:
        if self._first:
            return self.tasks[self._first.popitem(last=False)[0]]
        rest = self.dataset.shards - self.handed_out if self.epoch else 0
        if self._last and not (rest and self._room):
            return self.tasks[self._last.popitem(last=False)[0]]
        if not self._room:
            return None
        if not rest:
            if not self._may_begin(0):
                return None
            self.epoch, self.handed_out = self.epoch + 1, 0
        task = OpenTask(self.epoch, self.handed_out)
        self.tasks[task.key] = task
        self.handed_out += 1
        return task

    def _unknown(self, token: int) -> Verdict:
        return Verdict.STALE if 0 < token <= self.last_token else Verdict.UNKNOWN

    def _hold(self, task: OpenTask, now: float) -> None:
        """Assign a task to a worker."""
        self._by_token[task.token] = task
        self._workers.setdefault(task.worker, _Worker()).held[task.token] = task
        self.leased += 1
        self.renew(task.worker, now, works=True)

    def _unlease(self, task: OpenTask) -> None:
        if task.token:
            del self._workers[task.worker].held[task.token]
            self.leased -= 1
        task.token, task.worker, task.granted = 0, "", None

    def _back(self, task: OpenTask, dead: bool = False, reason: str = "") -> None:
        """Make a leased task todo, or dead."""
        self._changed.add(task.key)
        if dead:
            task.ended = reason[:LINE] or "no reason was given"
            self._dead[task.key] = task
        elif task.errors:
            self._last[task.key] = None
        else:
            self._first[task.key] = None

    def _finish(self, task: OpenTask) -> None:
        """Remove a task that is done."""
        for token in (task.token, *task.lost):
            self._by_token.pop(token, None)
        self._unlease(task)
        for waiting in (self._first, self._last, self._dead):
            waiting.pop(task.key, None)
        del self.tasks[task.key]
        if task.key not in self._taken:
            self._changed.discard(task.key)
