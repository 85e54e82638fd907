"""A worker of one data set: it fetches shards ahead, sends reports, and keeps a heartbeat."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tarkit.errors import ServiceLostError, TarkitError, UsageError, counted, printable, quoted
from tarkit.names.redaction import redact
from tarkit.service.connection import ServiceConnection
from tarkit.service.leases import NoShard
from tarkit.service.reports import HeldShard, Reports

_log = logging.getLogger(__name__)
_HELD = 30.0
"""Seconds for which the service may hold a call for shards; then it is made again."""
_LINGER = 0.1
"""Seconds for which reports wait for more of them, unless a caller waits for a shard."""
_GIVING_BACK = 5.0
_NOT_HELD = 0.001
_AHEAD, _MOST_AHEAD = 0.1, 64
"""Seconds of work that are fetched ahead, longer than a call takes and too short to delay other
workers; and the largest number of shards, which is at least 1.
"""


class ShardWorker:
    """The threads of a worker: one requests shards, one sends reports, one is its heartbeat.

    The heartbeat is a call that is open for as long as the worker lives.

    Args:
        label: prefix of the worker ID.
    """

    def __init__(self, connection: ServiceConnection, name: str, prefetch: int | None, label: str = "") -> None:
        self.pid = os.getpid()
        self.id = f"{label or socket.gethostname()}-{self.pid}-{secrets.token_hex(6)}"
        self.ended = False
        self._drain = False
        self.connection, self._name, self._prefetch = connection, name, prefetch
        self._answered: float | None = None
        """Time at which ``fetch`` last returned a shard."""
        self._mean = _AHEAD
        """Seconds for which a shard is used: between an answer of ``fetch`` and its next call."""
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)  # for the thread that asks for shards
        self._mail = threading.Condition(self._lock)  # for the thread that sends reports
        self._hurry = threading.Event()  # for it, too
        self._news = threading.Condition(self._lock)  # for callers
        self._shards: deque[HeldShard] = deque()
        self.reports = Reports()
        self._waiting = 0
        # There was no shard, or no caller has asked: none is asked for before one asks, and while
        # it waits.
        self._dry = True
        self._asked = 0
        self._call: Any = None
        self._paused = False
        self._error: TarkitError | None = None
        self._stopped = threading.Event()
        # A data set that is missing is an error before anything is begun.
        self.ended_before = bool(connection.call("Exchange", worker=self.id, name=name).end)
        """True if the data set had ended before this worker took part."""
        if self.ended_before:
            _log.warning(
                "%s had ended before this worker came, which gets no record of it; to train once more, reset it, give "
                "it another name, or start the service with another --state",
                f"data set {quoted(name)}" if name else "the data set of the service",
            )
        self._threads = [
            threading.Thread(target=self._run, args=work, name=f"tarkit shards: {work[0].__name__}", daemon=True)
            for work in (
                (self._ask, self._room, self._wanted),
                (self._send, self._mail, lambda: self.reports.waiting),
                (self._attend, self._room, lambda: not self._idle),
            )
        ]
        for thread in self._threads:
            thread.start()

    # Calls of the client.

    def fetch(self, timeout: float | None) -> HeldShard | NoShard:
        """Return the next shard, or WAIT after a time without one, or END.

        DRAIN: no shard comes before this process, or another one that waits as well, reports the
        records that it holds.
        """
        now = time.monotonic()
        until = None if timeout is None else now + timeout
        with self._lock:
            if self._answered is not None:
                self._mean += (now - self._answered - self._mean) / 4
                self._answered = None
            self._waiting += 1
            self._dry = False
            self._room.notify_all()
            if self._waits and self.reports.waiting:
                self._hurry.set()
            try:
                found = self._next(until)
            finally:
                self._waiting -= 1
            if isinstance(found, HeldShard):
                self._answered = time.monotonic()
                self.reports.given(found.token, self._answered)
            return found

    def _next(self, until: float | None) -> HeldShard | NoShard:
        while True:
            self._raise_error()
            if self._stopped.is_set():
                raise UsageError("the client of the shard service was closed while a shard was waited for")
            if self._shards:
                return self._shards.popleft()
            if self.ended:
                return NoShard.END
            if self._drain and self.in_hand:
                self._drain = False
                return NoShard.DRAIN
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return NoShard.WAIT
            self._news.wait(left)

    def report(self, shard: HeldShard, ranges: Iterable[tuple[int, int]] | None, error: str) -> None:
        """Report that a shard, or ranges of it, is done; or with ``error``, that it failed.

        Never waits for the service.
        """
        if shard.worker != self.id:
            raise UsageError(
                f"shard {printable(redact(shard.name))} {shard.start} to {shard.end} was handed to another process, or "
                "before this client was opened; report it where it was fetched"
            )
        with self._lock:
            self._raise_error()
            self.reports.works(shard.token, time.monotonic())
            if self.reports.add(shard.token, ranges, error):
                self._drain = False
                self._mail.notify()
                if self._waits:
                    self._hurry.set()

    @property
    def in_hand(self) -> int:
        """Number of shards that callers have fetched and not reported."""
        with self._lock:
            return self.reports.unfinished - len(self._shards)

    def flush(self, timeout: float | None = None) -> None:
        """Return when the service has all reports on its disk.

        Raises:
            ServiceLostError: the service did not store them in that time.
        """
        with self._lock:
            self._hurry.set()
            self._news.wait_for(lambda: self._error or self._stopped.is_set() or not self.reports.unanswered, timeout)
            self._raise_error()
            if self.reports.unanswered:
                number = counted(self.reports.unanswered, "shard")
                raise ServiceLostError(f"reports of {number} were not answered in time; what they hold is done again")

    def anew(self, call: str, **fields: str) -> None:
        """Make a call after which no earlier lease counts: a reset, or a restore."""
        self._pause()
        try:
            self.flush()
            self.connection.call(call, name=self._name, **fields)
            with self._lock:
                self.reports.begin_anew()
                self._shards.clear()
                self.ended = self.ended_before = False
        finally:
            with self._lock:
                self._paused = False
                self._room.notify_all()

    def close(self, *, give_back: bool = True, seconds: float | None = None) -> None:
        """Send all reports, give back the unused shards, and end the threads.

        Args:
            give_back: give back shards in the caller's hands, too; else the service counts them as
                lost.
            seconds: largest time to wait for the service; None: for as long as calls are retried.
        """
        try:
            self._pause()
            with self._lock:
                if self.reports.unanswered:
                    self.flush(seconds)
            self._give_back(give_back)
        finally:
            self._stopped.set()
            self._hurry.set()
            with self._lock:
                for condition in (self._room, self._mail, self._news):
                    condition.notify_all()
            self.connection.close()
            for thread in self._threads:
                thread.join(_GIVING_BACK)

    def _give_back(self, give_back: bool) -> None:
        with self._lock:
            if self._error or self._idle:
                return
            unused = {shard.token for shard in self._shards}
            held = [] if give_back else [token for token in self.reports.tokens if token not in unused]
        try:
            self.connection.call("Exchange", _GIVING_BACK, **self._request(0, held))
        except TarkitError as error:
            _log.warning("%s; the shards of this worker are handed out again when their leases end", error)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error))  # anew, in the caller's thread

    # Its threads.

    def _run(self, step: Callable[[], None], news: threading.Condition, wanted: Callable[[], object]) -> None:
        """Run the loop of a thread: a step at each request, until the worker is closed."""
        try:
            while True:
                with self._lock:
                    news.wait_for(lambda: self._stopped.is_set() or wanted())
                self.connection.insist(step, self._stopped)
        except Exception as error:  # of any kind: else callers would wait for ever
            if self._stopped.is_set():
                return  # Unwanted, or in the middle of a step
            if not isinstance(error, TarkitError):
                error = TarkitError(f"unexpected {type(error).__name__}: {printable(str(error))}; is a value wrong?")
            with self._lock:
                self._error = self._error or error
                self._news.notify_all()

    def _request(self, want: int, held: Iterable[int]) -> dict[str, Any]:
        self._asked += 1
        exchange = {"worker": self.id, "name": self._name, "call": self._asked, "held": held}
        return {**exchange, "want": want, "wait": _HELD if self._waits else _NOT_HELD}

    def _pause(self) -> None:
        """Stop requesting shards, and end the open call."""
        with self._lock:
            self._paused = True
            if self._call is not None:
                self._call.cancel()
            self._news.wait_for(lambda: self._call is None, _GIVING_BACK)

    def _ask(self) -> None:
        with self._lock:
            want = self._wanted()
            if not want:
                return
            self._call = self.connection.start("Exchange", **self._request(want, self.reports.tokens))
        reply = None
        try:
            reply = self._call.result()
        finally:
            with self._lock:
                self._call = None
                if reply is not None:
                    self._take(reply)
                self._news.notify_all()

    def _wanted(self) -> int:
        """Return the number of shards to request now.

        It is 0 until half of the fetched ones are gone, so that each call brings several.
        """
        number, ahead = self._number, len(self._shards) - self._waiting
        if self._paused or self.ended or ahead > number // 2 or (self._dry and not self._waits):
            return 0
        return max(0, number - ahead)

    @property
    def _waits(self) -> bool:
        """True if a caller waits and there is no shard for it yet."""
        return self._waiting > len(self._shards)

    @property
    def _number(self) -> int:
        """Number of shards to fetch ahead."""
        if self._prefetch is not None:
            return self._prefetch
        return max(1, int(_AHEAD / max(self._mean, _AHEAD / _MOST_AHEAD)))

    def _take(self, reply: Any) -> None:
        self.ended, self._drain = reply.end, reply.drain and bool(self._waiting)
        self._dry = not reply.leases
        for lease in reply.leases:
            ranges = tuple((part.first, part.end) for part in lease.ranges)
            self.reports.lease(lease.token, lease.end - lease.start, ranges)
            where = lease.name, lease.start, lease.end, tuple(lease.indices)
            self._shards.append(HeldShard(*where, lease.epoch, lease.token, ranges, self.id, lease.identity))

    def _send(self) -> None:
        self._hurry.wait(_LINGER)
        with self._lock:
            self._hurry.clear()
            reports = self.reports.take()
        reply = self.connection.start("Exchange", worker=self.id, name=self._name, reports=reports).result()
        with self._lock:
            self.reports.answered(reply.verdicts)
            self._news.notify_all()

    def _attend(self) -> None:
        with self._lock:
            if self._idle:
                return
        answered = False
        try:
            for attending in self.connection.start("Attend", worker=self.id):
                self._lose_idle(attending.ceiling or math.inf)  # 0: a service of before
                answered = True
            self._stopped.wait(1.0)
        except self.connection.broken:
            if not answered:
                raise

    def _lose_idle(self, ceiling: float) -> None:
        """Report the leases of idle threads, so that other workers get their shards.

        The service cannot see which threads are idle, only that the process is alive.
        """
        with self._lock:
            tokens = self.reports.idle(time.monotonic() - ceiling)
        if not tokens:
            return
        _log.warning(
            "%s: the thread that holds it was given no shard and reported none for %g s; another worker gets it "
            "(see tarkit serve --lease-ceiling)",
            counted(len(tokens), "shard"),
            ceiling,
        )
        self.connection.start("Exchange", worker=self.id, name=self._name, idle=tokens).result()
        with self._lock:
            self.reports.lost(tokens)

    @property
    def _idle(self) -> bool:
        """True if the worker does not need the service any more."""
        return self.ended and not self.reports.tokens
