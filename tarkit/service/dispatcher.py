"""All data sets of a service at one place: calls that are held, the journal behind them, and the clock.

All of it runs in one event loop; only the journal is written in a thread. What a caller hears of is on the disk: a
lease before it is handed out, a report before it is answered, and the end before it is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tarkit.errors import StreamError, TarkitError, UsageError, counted, quoted
from tarkit.service import checkpoint
from tarkit.service.dataset import DataSet
from tarkit.service.journal import Change, Journal, change_of
from tarkit.service.ledger import Lease, LeaseRules, Ledger, NoShard, Verdict

_log = logging.getLogger(__name__)
_TICK = 0.25
_RETRY = 1.0
_BLOCKED = 1.0
"""Seconds after which workers that can do nothing before they are answered are told to finish what they hold."""
_LOOKS = 5.0
"""Seconds after which one that looked at the progress does not look again."""


@dataclass(frozen=True)
class Limits:
    """Of what callers may ask. datasets: data sets. held: calls held at once. shards: leases of one call.
    message: bytes. worker: bytes of a worker's word."""

    datasets: int = 1000
    held: int = 20_000
    shards: int = 1000
    message: int = 256 << 20
    worker: int = 1024


class NoSuchDataSetError(TarkitError):
    """A data set that was not declared."""


class OtherDataSetError(TarkitError):
    """A data set of that name is there, and is another one."""


class TooManyError(TarkitError):
    """A limit of the service was reached."""


@dataclass(frozen=True)
class Report:
    """Of a lease. ranges: those of its records that are done; None: all. error: why it failed; "": it did not."""

    token: int
    ranges: Sequence[tuple[int, int]] | None = None
    error: str = ""


@dataclass(frozen=True, eq=False)
class _Held:
    """A call that waits. woken: with True, its worker is to finish what it holds."""

    worker: str
    drains: bool
    woken: asyncio.Future[bool]


class Dispatcher:
    """Hands out shards and takes reports, for any number of workers.

    journal: where the state is. rules: of leases. grace: seconds between the break of a worker's connection and the
    loss of its leases, in which it may come back. standstill: seconds after which workers that hold all that is left,
    and all wait, are told one by one to finish what they hold. clock: seconds that never go back.
    """

    def __init__(
        self,
        journal: Journal,
        rules: LeaseRules | None = None,
        *,
        limits: Limits | None = None,
        grace: float = 2.0,
        standstill: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.rules = rules or LeaseRules()
        self.ledgers = {each.dataset.name: each for each in journal.load(self.rules, clock())}
        self.trouble: StreamError | None = None
        """Why the journal can not be written now."""
        self.verdicts: Counter[str] = Counter()
        self.differing = 0
        """Declarations that differed from the first, and were not refused."""
        self.held = 0
        self.seen: dict[str, float] = {}
        """Worker -> when it was last heard of."""
        self.default = ""
        """The data set of callers that name none; "": the only one."""
        self._told: set[str] = set()
        self._watching: dict[str, float] = {}
        self._journal, self._grace, self._standstill, self._clock = journal, grace, standstill, clock
        self._calls: dict[str, dict[str, int]] = {}
        """Worker -> data set -> number of its last call for shards."""
        self._made: list[DataSet] = []
        self._waiters: dict[str, deque[_Held]] = {}
        self._moved: dict[str, float] = {}
        """Data set -> when a shard of it was last handed out or reported."""
        self._blocked: set[str] = set()
        """Workers that can do nothing before a held call of theirs is answered."""
        self._attached: Counter[str] = Counter()
        self._uncommitted: list[asyncio.Future[None]] = []
        self._dirty = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Dispatcher:
        self._tasks = [asyncio.create_task(self._commit()), asyncio.create_task(self._tick())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Workers keep their leases: the next service goes on with them."""
        self._closing = True
        if self.trouble is None:
            await self._durable()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What callers ask.

    async def declare(self, dataset: DataSet, *, first_counts: bool = False) -> bool:
        """Add a data set; False: it was there.

        first_counts: one that differs is counted and logged, not refused, as ElasticDL's clients expect.

        Raises:
            OtherDataSetError: one of that name is there, and differs; the message says how.
            TooManyError: too many data sets.
        """
        known = self.ledgers.get(dataset.name)
        if known is None:
            if len(self.ledgers) >= self.limits.datasets:
                raise TooManyError(f"the service has {counted(len(self.ledgers), 'data set')}, which is its limit")
            self.ledgers[dataset.name] = Ledger(dataset, self.rules)
            self._made.append(dataset)
        elif known.dataset != dataset:
            text = f"data set {quoted(dataset.name)} is declared otherwise: {known.dataset.differences(dataset)}"
            if not first_counts:
                raise OtherDataSetError(text)
            self.differing += 1
            _log.warning("%s; the first declaration counts", text)
        await self._durable()
        return known is None

    def ledger(self, name: str) -> Ledger:
        """The ledger of a data set; "" is the default one, or the only one.

        Raises:
            NoSuchDataSetError: it was not declared.
        """
        name = name or self.default
        if not name and len(self.ledgers) == 1:
            return next(iter(self.ledgers.values()))
        try:
            return self.ledgers[name]
        except KeyError:
            raise NoSuchDataSetError(f"data set {quoted(name)} was not declared") from None

    async def declared(self, name: str, seconds: float) -> Ledger:
        """The ledger of a data set, once it is declared.

        Raises:
            NoSuchDataSetError: it was not declared in that time.
        """
        until = self._clock() + seconds
        while name not in self.ledgers and (name or len(self.ledgers) != 1) and self._clock() < until:
            await asyncio.sleep(_TICK)
        return self.ledger(name)

    async def lease(
        self, ledger: Ledger, worker: str, want: int, wait: float | None = None, *, drains: bool = True
    ) -> list[Lease] | NoShard:
        """Shards for a worker, ``want`` at most; the call is held until there is one, or the end.

        A worker that makes batches across shards needs the end to finish its last one, while what it holds of that
        batch keeps the end from coming. So where all that is left is with workers who wait, DRAIN is the answer to one
        of them after another: finish what you hold, and ask again.

        wait: seconds after which the answer is WAIT; None: it is never. drains: False: for this worker DRAIN would be
        the end; it is answered so in the last epoch only.

        Raises:
            TooManyError: too many calls are held.
        """
        if len(worker.encode("utf-8", "surrogatepass")) > self.limits.worker:
            raise UsageError(f"the worker's name has more than {self.limits.worker} bytes")
        until = None if wait is None else self._clock() + wait
        while True:
            leases = self._take(ledger, worker, min(want, self.limits.shards))
            if not isinstance(leases, NoShard):
                try:
                    await self._durable()
                except asyncio.CancelledError:
                    # The caller has gone without them.
                    ledger.release(worker, [lease.token for lease in leases])
                    self._wake(ledger)
                    raise
                self._moves(ledger, worker)
                return leases
            if leases is NoShard.END:
                await self._durable()
                if ledger.ended:
                    self._told.add(worker)
                    return leases
            elif until is not None and self._clock() >= until:
                return leases
            elif await self._hold(ledger, worker, until, drains):
                return NoShard.DRAIN

    def _take(self, ledger: Ledger, worker: str, want: int) -> list[Lease] | NoShard:
        self.seen[worker] = now = self._clock()
        leases: list[Lease] = []
        while len(leases) < want:
            lease = ledger.lease(worker, now)
            if isinstance(lease, NoShard):
                return leases or lease
            leases.append(lease)
        return leases

    def blocked(self, worker: str) -> None:
        """The worker can do nothing before its held call is answered."""
        self._blocked.add(worker)

    def _moves(self, ledger: Ledger, worker: str) -> None:
        self._moved[ledger.dataset.name] = self._clock()
        self._blocked.discard(worker)

    async def _hold(self, ledger: Ledger, worker: str, until: float | None, drains: bool) -> bool:
        """Wait until there may be a shard or the end; whether the worker is to finish what it holds first."""
        if self.held >= self.limits.held:
            raise TooManyError(f"{counted(self.held, 'call')} are held, which is the service's limit; ask again later")
        waiters = self._waiters.setdefault(ledger.dataset.name, deque())
        held = _Held(worker, drains, asyncio.get_running_loop().create_future())
        waiters.append(held)
        self.held += 1
        try:
            async with self.attached(worker, lost_at_once=True):
                await asyncio.wait({held.woken}, timeout=None if until is None else max(0.0, until - self._clock()))
        except asyncio.CancelledError:
            if held.woken.done():
                self._wake(ledger)  # what woke it is for another one
            raise
        finally:
            self.held -= 1
            if held in waiters:
                waiters.remove(held)
        return held.woken.done() and held.woken.result()

    @asynccontextmanager
    async def attached(self, worker: str, *, lost_at_once: bool = False) -> AsyncIterator[None]:
        """As long as it lasts, the worker is there: its leases do not end. Cancelled, the worker's connection broke."""
        self._attached[worker] += 1
        try:
            yield
        except asyncio.CancelledError:
            if not self._closing:
                delay = 0.0 if lost_at_once else self._grace
                asyncio.get_running_loop().call_later(delay, self._lose, worker)
            raise
        finally:
            self._attached[worker] -= 1
            if not self._attached[worker]:
                del self._attached[worker]

    def _lose(self, worker: str) -> None:
        if self._attached[worker] or self._closing:
            return
        self.seen.pop(worker, None)
        self._told.discard(worker)
        self._calls.pop(worker, None)
        for ledger in self.ledgers.values():
            if ledger.lose(worker):
                self._wake(ledger)
                self._dirty.set()

    async def report(
        self, ledger: Ledger, worker: str, reports: Sequence[Report], unused: Sequence[int] = ()
    ) -> list[Verdict]:
        """Take reports, and shards that come back unused, in this order. worker: "" is one without a name.

        Raises:
            UsageError: ranges that a shard does not have; the reports before it count.
        """
        now = self._clock()
        verdicts: list[Verdict] = []
        try:
            for each in reports:
                if each.error:
                    verdicts.append(ledger.fail(each.token, now, each.error))
                else:
                    verdicts.append(ledger.complete(each.token, now, each.ranges))
            ledger.release(worker, unused)
            self.heard(worker)
        finally:
            self._moves(ledger, worker)
            self.verdicts.update(verdict.value for verdict in verdicts)
            self._wake(ledger)
            await self._durable()
        return verdicts

    def unanswered(self, ledger: Ledger, worker: str, call: int, held: Iterable[int]) -> list[int]:
        """Tokens of a worker's leases that it does not know of, because the answer was lost.

        call: the number of the call that says what the worker holds.

        Raises:
            UsageError: a later call of the worker came first, so that ``held`` is out of date.
        """
        calls = self._calls.setdefault(worker, {})
        if call <= calls.get(ledger.dataset.name, 0):
            raise UsageError(f"call {call} of worker {quoted(worker)} came after a later one; it is not answered")
        calls[ledger.dataset.name] = call
        known = set(held)
        return [token for token in ledger.tokens(worker) if token not in known]

    def heard(self, worker: str) -> None:
        """A worker gave a sign of life; "" is one that has no name."""
        if worker:
            self.seen[worker] = now = self._clock()
            for ledger in self.ledgers.values():
                ledger.renew(worker, now)

    def close(self) -> None:
        """Calls that end from now on do not mean that their worker is lost."""
        self._closing = True

    async def reset(self, ledger: Ledger) -> None:
        """Begin the data set anew; what is leased now is stale."""
        ledger.resume(0, 0, (), self._clock())
        self._wake(ledger)
        await self._durable()

    async def restore(self, ledger: Ledger, content: str) -> None:
        """Take a checkpoint for the state of a data set. UsageError: not a checkpoint of it."""
        checkpoint.restore(ledger, content, self._clock())
        self._wake(ledger)
        await self._durable()

    @property
    def ended(self) -> bool:
        """Whether all data sets have ended."""
        return all(ledger.ended for ledger in self.ledgers.values())

    def looked(self, caller: str) -> None:
        """Somebody looked at the progress; if it goes on looking, it is to see the end."""
        if self.ended:
            self._watching.pop(caller, None)
        else:
            self._watching[caller] = self._clock()

    async def drained(self, seconds: float) -> None:
        """Return when each worker that was seen was told of the end, or after so many seconds."""
        until = self._clock() + seconds
        while (now := self._clock()) < until and not (
            self.seen.keys() <= self._told and all(at < now - _LOOKS for at in self._watching.values())
        ):
            await asyncio.sleep(_TICK)

    # Its own steps.

    def _wake(self, ledger: Ledger) -> None:
        """As many held calls as there are shards; all of them at the end."""
        waiters = self._waiters.get(ledger.dataset.name)
        if not waiters:
            return
        number = len(waiters) if ledger.ended else min(len(waiters), ledger.waiting)
        for _ in range(number):
            woken = waiters.popleft().woken
            if not woken.done():
                woken.set_result(False)

    async def _durable(self) -> None:
        """Return when all that has changed until now is on the disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._uncommitted.append(future)
        self._dirty.set()
        await future

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            waiting, self._uncommitted = self._uncommitted, []
            changes: list[Change | DataSet] = [*self._made]
            changes += (change_of(each) for each in self.ledgers.values() if each.changed)
            self._made = []
            while changes:
                try:
                    await loop.run_in_executor(None, self._journal.write, changes)
                    break
                except StreamError as error:
                    if self.trouble is None:
                        _log.error("%s; no shard is handed out until it can be", error)
                    self.trouble = error
                    await asyncio.sleep(_RETRY)
            if self.trouble is not None:
                _log.warning("the state is written again")
                self.trouble = None
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = self._clock()
            for ledger in self.ledgers.values():
                deadline = ledger.next_deadline()
                if deadline is not None and deadline <= now:
                    for worker in self._attached:
                        ledger.renew(worker, now)
                    if ledger.expire(now):
                        self._wake(ledger)
                        self._dirty.set()
                self._end_standstill(ledger, now)

    def _end_standstill(self, ledger: Ledger, now: float) -> None:
        waiters, holders = self._waiters.get(ledger.dataset.name), ledger.workers().keys()
        if not waiters or not holders or ledger.waiting:
            return
        still = now - self._moved.setdefault(ledger.dataset.name, now)
        if still < (_BLOCKED if holders <= self._blocked else self._standstill) or not holders <= {
            held.worker for held in waiters
        }:
            return
        for held in waiters:
            if held.worker in holders and (held.drains or ledger.last_epoch):
                waiters.remove(held)
                held.woken.set_result(True)
                self._moves(ledger, held.worker)
                return
        self._moved[ledger.dataset.name] = now
        _log.warning(
            "data set %s: each worker waits for the end of epoch %d, and holds shards of it; "
            "end batches with a shard, or let epochs overlap",
            quoted(ledger.dataset.name),
            ledger.epoch,
        )
