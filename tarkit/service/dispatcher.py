"""The dispatcher: all data sets of a service, their callers, the journal and the clock.

It runs in one event loop. An answer is on the disk before the caller gets it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tarkit.errors import StreamError, UsageError, counted, quoted
from tarkit.service import checkpoint
from tarkit.service.dataset import DataSet
from tarkit.service.heartbeats import Heartbeats
from tarkit.service.journal import GroupCommit, Journal
from tarkit.service.leases import (
    Lease,
    LeaseRules,
    Limits,
    NoShard,
    NoSuchDataSetError,
    OtherDataSetError,
    Report,
    StoppingError,
    TaskRequest,
    TooManyDeadError,
    TooManyError,
    Verdict,
)
from tarkit.service.ledger import Ledger
from tarkit.service.pendingcalls import PendingCalls
from tarkit.service.progress import MOST_DEAD, DataSetProgress, Rate

_log = logging.getLogger(__name__)
_STOOD_STILL = 2.0
"""Seconds without a check of the leases after which this process, not the workers, counts as
suspended.
"""
_REJOIN = 5.0
"""Seconds that workers have to find a restarted service, before the leases that it knows begin
again.
"""
_FIRST_TOKENS = 1 << 40
"""Upper bound of the random first token of a data set that is declared."""


class Dispatcher:
    """A dispatcher, which hands out shards and takes reports, for any number of workers.

    An asynchronous context manager.

    Args:
        journal: journal that stores the state.
        grace: seconds between the loss of a worker's connection and that of its leases, in which
            the worker may come back.
        clock: function that returns seconds and never goes back.
        tick: seconds between two checks of the leases.
        run: identity of the run of these data sets; "": not known.
    """

    def __init__(
        self, journal: Journal, rules: LeaseRules | None = None, *, limits: Limits | None = None, grace: float = 2.0,
        clock: Callable[[], float] = time.monotonic, tick: float = 0.25, run: str = "",
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self.rules = rules or LeaseRules()
        self.ledgers = {each.dataset.name: each for each in journal.load(self.rules, clock() + _REJOIN)}
        self.run = run
        for each in self.ledgers.values():
            each.run = each.run if each.ended else run
        self.default = ""
        """Name of the data set of callers that name none; "": the only one."""
        self.verdicts: Counter[str] = Counter()
        self.differing = 0
        """Declarations that differed from the first, and were not refused."""
        self.deserted = False
        self.heartbeats = Heartbeats(self._lose, grace, self.limits.workers, clock)
        self.pending = PendingCalls(self.heartbeats, clock)
        self._rates: dict[str, Rate] = {}
        self._commits = GroupCommit(journal)
        self._clock, self._tick_seconds = clock, tick
        self._ticked = clock()

    async def __aenter__(self) -> Dispatcher:
        self._commits.start()
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; workers keep their leases for the next service."""
        self.close()
        self._ticking.cancel()
        await asyncio.wait({self._ticking})
        await self._commits.stop()

    def close(self) -> None:
        """End held calls with StoppingError.

        Calls that end from now on do not mean that their worker is lost.
        """
        self.heartbeats.closing = True
        self.pending.stop()

    @property
    def trouble(self) -> StreamError | None:
        """Error that prevents writing the state, or None.

        Meanwhile no shard is handed out, and no report answered.
        """
        return self._commits.trouble

    @property
    def ended(self) -> bool:
        """True if there are data sets, and all of them are over."""
        return bool(self.ledgers) and all(each.progress().over for each in self.ledgers.values())

    def progress(self, *names: str) -> list[DataSetProgress]:
        """Return the counts of the named data sets, or of all.

        They are for the status page, the metrics and callers.
        """
        ledgers = [self.ledger(name) for name in names] or self.ledgers.values()
        found = [
            replace(
                each.progress(MOST_DEAD),
                rate=self._rates[name].per_second if (name := each.dataset.name) in self._rates else 0.0,
                workers=len(self.workers(each)),
                lost=each.lost_leases,
            )
            for each in ledgers
        ]
        if not self.deserted:
            return found
        none = DataSetProgress("(none declared)", 0, 0, 0, 0, 0, 0, 0, 0, False, 0)
        return [replace(each, aborted=not each.ended) for each in found or [none]]

    def workers(self, ledger: Ledger) -> set[str]:
        """Return the workers of a data set.

        They hold a shard of it, wait for one, or did so within the last lease.
        """
        return self.pending.workers(ledger).union(ledger.known_workers)

    def desert(self) -> None:
        """Abort all data sets, because no worker is left and the service does not wait for one."""
        self.deserted = True
        for worker in {worker for each in self.ledgers.values() for worker in each.workers()}:
            self._lose(worker)

    # Data sets.

    async def declare(self, dataset: DataSet, *, first_counts: bool = False) -> bool:
        """Add a data set, and return whether it is new.

        Args:
            first_counts: one that differs is counted and logged, not refused.

        Raises:
            OtherDataSetError: a data set of that name exists and differs; the message says how.
            UsageError: the shards have too many shuffled records.
            TooManyError: the service has too many data sets.
        """
        if dataset.shuffle_records and min(dataset.records_per_shard, dataset.size) > self.limits.indices:
            raise UsageError(
                f"records_per_shard is {dataset.records_per_shard}; with shuffled records it is {self.limits.indices} "
                "at most, since the number of each record is sent"
            )
        known = self.ledgers.get(dataset.name)
        if known is None:
            if len(self.ledgers) >= self.limits.datasets:
                raise TooManyError(f"the service has {counted(len(self.ledgers), 'data set')}, which is its limit")
            ledger = self.ledgers[dataset.name] = Ledger(dataset, self.rules)
            # Workers may come with tokens of a state that is gone, where they were of other shards.
            ledger.run, ledger.last_token = self.run, secrets.randbelow(_FIRST_TOKENS)
            self._commits.add(dataset)
            self._commits.changed(ledger)
        elif differences := known.dataset.differences(dataset):
            text = f"data set {quoted(dataset.name)} is declared differently: {differences}"
            if not first_counts:
                raise OtherDataSetError(text)
            self.differing += 1
            _log.warning("%s; the first declaration counts", text)
        await self._commits.written()
        return known is None

    def ledger(self, name: str) -> Ledger:
        """Return the ledger of a data set; "" is the default one, or the only one.

        Raises:
            NoSuchDataSetError: the data set was not declared.
        """
        name = name or self.default
        if not name and len(self.ledgers) == 1:
            return next(iter(self.ledgers.values()))
        try:
            return self.ledgers[name]
        except KeyError:
            if name:
                raise NoSuchDataSetError(f"data set {quoted(name)} was not declared") from None
            raise NoSuchDataSetError(f"no data set was named, and {len(self.ledgers)} were declared") from None

    async def reset(self, ledger: Ledger) -> None:
        """Restart the data set; earlier leases are stale."""
        ledger.resume(0, 0, 0, (), self._clock())
        await self._begin_again(ledger)

    async def restore(self, ledger: Ledger, content: str) -> None:
        """Restore the state of a data set from a checkpoint.

        Raises:
            UsageError: the text is not a checkpoint of the data set.
        """
        checkpoint.restore(ledger, content, self._clock())
        await self._begin_again(ledger)

    async def _begin_again(self, ledger: Ledger) -> None:
        ledger.run = self.run
        self.heartbeats.forget_told()
        self._rates.pop(ledger.dataset.name, None)  # what the new state has done was not done now
        self._moved(ledger)
        await self._commits.written()

    # Workers.

    async def exchange(
        self, ledger: Ledger, worker: str, reports: Sequence[Report] = (), unused: Sequence[int] = (),
        request: TaskRequest | None = None,
    ) -> tuple[list[Verdict], list[Lease] | NoShard]:  # fmt: skip
        """Take reports, and shards that come back unused, in this order; then hand out shards.

        Without reports, the call waits until there is a shard, or the end. A worker that makes
        batches across shards needs the end to finish its last one, while the records that it holds
        for that batch prevent the end. So if all remaining shards of the last epoch are with
        waiting workers, these get the answer DRAIN one after another: finish the held records, and
        ask again. If the shards are of an earlier epoch of strict ones, the next epoch begins.

        Args:
            worker: a worker that was ``heard``; "" is one without a name.
            request: None asks for no shard; the answer is WAIT.

        Raises:
            UsageError: a reported range is not in its shard; earlier reports of the call count.
            TooManyDeadError: too many shards are dead, so no more are handed out.
            StoppingError: the service stops.
        """
        if self.heartbeats.closing:
            raise StoppingError
        now = self._clock()
        verdicts = self._report(ledger, worker, reports, unused, now) if reports or unused else []
        answer: list[Lease] | NoShard = NoShard.WAIT
        try:
            if request is not None:
                wait = 0.0 if reports else request.wait
                answer = await self._lease(ledger, worker, request, None if wait is None else now + wait)
            await self._commits.written()
        except asyncio.CancelledError:
            if isinstance(answer, list):  # the caller has gone without them
                ledger.release(worker, [lease.token for lease in answer])
                self._moved(ledger)
            raise
        return verdicts, answer

    def _report(
        self, ledger: Ledger, worker: str, reports: Sequence[Report], unused: Sequence[int], now: float
    ) -> list[Verdict]:
        verdicts: list[Verdict] = []
        try:
            for each in reports:
                if each.error:
                    verdicts.append(ledger.fail(each.token, now, each.error))
                else:
                    verdicts.append(ledger.complete(each.token, now, each.ranges))
            if unused:
                ledger.release(worker, unused)
        finally:
            for verdict in verdicts:
                self.verdicts[verdict.value] += 1
            if verdicts or unused:
                self.pending.moves(ledger)
                self._moved(ledger)
        return verdicts

    async def _lease(
        self, ledger: Ledger, worker: str, request: TaskRequest, until: float | None
    ) -> list[Lease] | NoShard:
        while True:
            if self._commits.trouble is not None:
                await self._commits.written()
            try:
                leases = self._take(ledger, worker, min(request.want, self.limits.tasks))
            except TooManyDeadError:
                self.heartbeats.told(worker)
                raise
            if isinstance(leases, list):
                self._commits.changed(ledger)
                self.pending.moves(ledger)
                return leases
            if leases is NoShard.END:
                await self._commits.written()
                if ledger.ended:
                    self.heartbeats.told(worker)
                    return leases
            elif until is not None and self._clock() >= until:
                return leases
            elif await self.pending.hold(ledger, worker, until, bound=request.bound):
                if request.bound:
                    self.heartbeats.told(worker)
                return NoShard.DRAIN

    def _take(self, ledger: Ledger, worker: str, want: int) -> list[Lease] | NoShard:
        now = self._clock()
        self._expire(ledger, now)
        leases: list[Lease] = []
        indices = 0
        while len(leases) < want and indices < self.limits.indices:
            lease = ledger.lease(worker, now)
            if isinstance(lease, NoShard):
                return leases or lease
            leases.append(lease)
            indices += len(lease.shard.indices)
        return leases

    def unanswered(self, ledger: Ledger, worker: str, call: int, held: Iterable[int]) -> list[int]:
        """Return the tokens of leases that a worker does not know, because the answer was lost.

        Args:
            call: number of the call that lists the worker's leases.

        Raises:
            UsageError: a later call of the worker was received first, so that ``held`` is out of
                date.
        """
        calls = self.heartbeats.calls.setdefault(worker, {})
        if call <= calls.get(ledger.dataset.name, 0):
            raise UsageError(f"call {call} of worker {quoted(worker)} came after a later one; it is not answered")
        calls[ledger.dataset.name] = call
        known = set(held)
        return [token for token in ledger.held(worker) if token not in known]

    def attend(self, worker: str) -> AbstractContextManager[None]:
        """Keep a worker attached for as long as the context lasts.

        Its leases do not end before the longest time.
        """
        self.heard(worker)
        return self.heartbeats.during(worker, bound=False)

    def heard(self, worker: str) -> None:
        """Note that a worker called.

        Raises:
            UsageError: the name of the worker is empty or too long.
        """
        if not 0 < len(worker.encode()) <= self.limits.worker:
            raise UsageError(f"worker must be a word of 1 to {self.limits.worker} bytes that no other process has")
        self.heartbeats.heard(worker, self._clock())

    def is_over(self, ledger: Ledger, worker: str) -> bool:
        """Return True if a worker comes after the end of the data set, and log it.

        False if the data set ended in the run of this service: then the worker is a late one of
        that run.
        """
        over = ledger.ended and not (self.run and ledger.run == self.run)
        if over:
            _log.warning(
                "data set %s has ended; worker %s, which comes now, gets no shard of it",
                quoted(ledger.dataset.name), quoted(worker),
            )  # fmt: skip
        return over

    def lose_idle(self, ledger: Ledger, worker: str, tokens: Iterable[int]) -> None:
        """Lose the leases that a worker reports as idle: their threads do nothing."""
        if number := ledger.lose(worker, ledger.idle_reason, tokens):
            _log_idle(ledger, worker, number)
            self._moved(ledger)

    def _lose(self, worker: str) -> None:
        for ledger in self.ledgers.values():
            if ledger.lose(worker):
                self._moved(ledger)

    def _moved(self, ledger: Ledger) -> None:
        """Schedule the writing of a change of leases; calls that wait for it are answered then."""
        self.pending.wake(ledger)
        self._commits.changed(ledger)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_seconds)
            try:
                for ledger in self.ledgers.values():
                    now = self._clock()
                    self._expire(ledger, now)
                    self.pending.end_standstill(ledger, now)
                    self._rates.setdefault(ledger.dataset.name, Rate(self._clock)).add(ledger.done)
                self._ticked = self._clock()
            except Exception as error:  # else the service would stand still in silence
                _log.error("unexpected %s: %s; this is a bug in tarkit", type(error).__name__, error)

    def _expire(self, ledger: Ledger, now: float) -> None:
        """Lose the silent workers.

        The dispatcher does so before the ledger, which does not know which workers are attached.
        """
        if ledger.next_deadline <= now:
            # Calls that came while this process stood still are not taken yet.
            still = now - self._ticked > _STOOD_STILL
            there = [*(ledger.workers() if still else self.heartbeats.attached)]
            held = {worker: ledger.renew(worker, now, works=still) for worker in there}
            ledger.renew_seen(self.heartbeats.seen)
            if ledger.expire(now):
                for worker in there:
                    if held[worker] and not ledger.held(worker):
                        _log_idle(ledger, worker, held[worker])
                self._moved(ledger)


def _log_idle(ledger: Ledger, worker: str, number: int) -> None:
    where = f"data set {quoted(ledger.dataset.name)}: worker {quoted(worker)}"
    _log.warning("%s hangs: %s; it loses %s", where, ledger.idle_reason, counted(number, "shard"))
