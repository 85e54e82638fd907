"""Shards that a worker holds, and its reports until the service has answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from tarkit.readers.reader import Task, TaskShard
from tarkit.service.leases import add_range, checked_ranges, missing_ranges

_VERDICTS = ("accepted", "late", "stale", "unknown")


@dataclass(frozen=True)
class HeldShard:
    """A shard that this process must read.

    Attributes:
        name: name of its file, or of the data set.
        start, end: the records from ``start`` up to, not including, ``end``.
        indices: numbers of the records in the requested order, if they are shuffled; else ().
        epoch: number of the epoch, from 1.
        token: token of its lease.
        ranges: ranges to process, [first, end) in the order of its records: the whole shard, unless
            another worker reported a part before it was lost.
        worker: ID of the worker that holds it.
        identity: identifies the content that its file had when the records were counted; "": not
            known.
    """

    name: str
    start: int
    end: int
    indices: tuple[int, ...] = ()
    epoch: int = 1
    token: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    worker: str = ""
    identity: str = ""

    @property
    def task(self) -> Task:
        """Task in the form that a reader's ``read_records`` takes."""
        return Task(TaskShard(self.name, self.start, self.end, self.indices, self.identity), task_id=self.token)

    @property
    def records(self) -> Iterator[int]:
        """Numbers of the records to process, in order."""
        order = self.indices or range(self.start, self.end)
        return (order[at] for first, end in self.ranges for at in range(first, end))


@dataclass
class _Holding:
    """State of a lease in its worker.

    Attributes:
        done: ranges that were reported, or will be.
        unsent: ranges of ``done`` that were not sent yet.
        over: no more is reported of it.
        thread: thread that holds it; None: it was not fetched yet, or counts as lost.
    """

    records: int
    done: list[tuple[int, int]]
    unsent: list[tuple[int, int]] = field(default_factory=list)
    error: str = ""
    over: bool = False
    thread: threading.Thread | None = None


class Reports:
    """The leases of a worker, and its reports on them.

    Only one thread may use it at a time.

    Attributes:
        counts: numbers of answers to the reports, see ``ShardClient.counts``.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((*_VERDICTS, "repeated"), 0))
        self._holdings: dict[int, _Holding] = {}
        self._outbox: dict[int, _Holding] = {}
        self._sending: dict[int, _Holding] = {}
        self._taken: list[dict[str, Any]] = []
        self._again = False
        self._worked: WeakKeyDictionary[threading.Thread, float] = WeakKeyDictionary()
        """Thread -> when it was last given a shard, or reported one."""

    @property
    def tokens(self) -> Collection[int]:
        """Tokens of the leases; the service takes back any other that it has given."""
        return self._holdings.keys()

    @property
    def unfinished(self) -> int:
        """Number of leases on which a report is due."""
        return sum(not each.over for each in self._holdings.values())

    @property
    def waiting(self) -> bool:
        """True if there are reports to take."""
        return bool(self._outbox)

    @property
    def unanswered(self) -> int:
        """Number of leases with reports that are to be taken, or were taken and not answered."""
        return len(self._outbox.keys() | self._sending.keys())

    def lease(self, token: int, records: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Add a lease.

        Args:
            ranges: ranges of its records to process.
        """
        self._holdings[token] = _Holding(records, missing_ranges(ranges, records))

    def given(self, token: int, now: float) -> None:
        """Note that the calling thread was given a shard."""
        if (holding := self._holdings.get(token)) is not None:
            holding.thread = threading.current_thread()
            self._worked[holding.thread] = now

    def works(self, token: int, now: float) -> None:
        """Note that the calling thread reports a shard."""
        self._worked[threading.current_thread()] = now
        if (holding := self._holdings.get(token)) is not None and holding.thread is not None:
            self._worked[holding.thread] = now

    def idle(self, since: float) -> list[int]:
        """Return the leases of threads that were given no shard and reported none since a time."""
        held = [(token, each.thread) for token, each in self._holdings.items() if each.thread and not each.over]
        return [token for token, thread in held if self._worked[thread] <= since]

    def lost(self, tokens: Iterable[int]) -> None:
        """Note that the service counts the leases as lost; a report on them may still count."""
        for token in tokens:
            if (holding := self._holdings.get(token)) is not None:
                holding.thread = None

    def add(self, token: int, ranges: Iterable[tuple[int, int]] | None, error: str) -> bool:
        """Add a report: a shard, or ranges of it, is done; or with ``error``, it failed.

        Return False if there is nothing new to send.

        Raises:
            UsageError: a range is not in the shard; nothing has changed.
        """
        holding = self._holdings.get(token)
        if holding is None or holding.over:
            return False
        if error:
            holding.error, holding.over = error, True
        else:
            whole = (0, holding.records)
            for first, end in [whole] if ranges is None else checked_ranges(ranges, holding.records):
                add_range(holding.done, first, end)
                add_range(holding.unsent, first, end)
            holding.over = holding.done == [whole]
        self._outbox[token] = holding
        return True

    def take(self) -> list[dict[str, Any]]:
        """Return all reports to send, as fields of messages.

        The next call returns the same reports again until they are ``answered``.
        """
        self._again = bool(self._taken)
        if not self._again:
            self._sending, self._outbox = self._outbox, {}
            self._taken = [report for token, each in self._sending.items() for report in _messages(token, each)]
        return self._taken

    def answered(self, verdicts: Iterable[int]) -> None:
        """Take the answers to the reports that were sent."""
        for verdict in verdicts:
            word = _VERDICTS[verdict]
            # Where it was sent again, the first answer was lost, and may have been another.
            self.counts["repeated" if self._again and word == "stale" else word] += 1
        for token, holding in self._sending.items():
            if holding.over and token not in self._outbox:
                self._holdings.pop(token, None)
        self._sending, self._taken = {}, []

    def begin_anew(self) -> None:
        """Forget all leases."""
        self._holdings.clear()


def _messages(token: int, holding: _Holding) -> Iterator[dict[str, Any]]:
    parts, holding.unsent = holding.unsent, []
    if holding.over and not holding.error:
        # Without ranges it is the whole shard, of which another worker may have done a part.
        yield {"token": token}
        return
    if parts:
        yield {"token": token, "ranges": [{"first": first, "end": end} for first, end in parts]}
    if holding.error:
        yield {"token": token, "error": holding.error}
