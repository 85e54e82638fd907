"""Leases of tasks, their rules, verdicts on reports, and ranges of a task's records.

A range is [first, end) in the order of the task's records. Ranges are sorted, and none is adjacent
to another.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tarkit.errors import TarkitError, UsageError
from tarkit.readers.reader import TaskShard


@dataclass(frozen=True)
class LeaseRules:
    """Rules of leases: how long a worker may be silent, and how often a task is retried.

    A worker that is silent for longer than its leases last is lost. They last ``factor`` times the
    longest time that one of the last 100 completed tasks took, but not less than ``floor`` nor more
    than ``ceiling``; and ``first`` before a task was completed. A worker that sends heartbeats, but
    was given no task and reported none for ``ceiling``, is lost as well.

    Each task that is leased, came back or is dead takes memory. Times are in seconds.

    Attributes:
        errors: number of reported failures after which a task is dead.
        losses: number of lost workers, since a record of the task was last reported as done, after
            which it is dead, because it may be the reason.
        outstanding: largest number of tasks of a data set that are handed out and not done.
        dead: number of dead tasks from which on no task is handed out.

    Raises:
        UsageError: ``floor`` is not above 0, or above ``ceiling``.
    """

    floor: float = 60.0
    ceiling: float = 3600.0
    first: float = 300.0
    factor: float = 3.0
    errors: int = 3
    losses: int = 10
    outstanding: int = 100_000
    dead: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.floor <= self.ceiling:
            raise UsageError(
                f"the shortest lease (floor) is {self.floor:g} s and the longest (ceiling) {self.ceiling:g} s; both "
                "must be above 0, and the shortest not above the longest"
            )


@dataclass(frozen=True)
class Limits:
    """Limits of the requests of callers.

    Attributes:
        datasets: number of data sets.
        calls: number of open calls.
        tasks: number of leases of a call.
        indices: number of shuffled record numbers of a call, which take time.
        message: size of a message in bytes.
        worker: length of a worker's name in bytes.
        workers: number of workers that are remembered.
    """

    datasets: int = 1000
    calls: int = 40_000
    tasks: int = 1000
    indices: int = 1_000_000
    message: int = 256 << 20
    worker: int = 1024
    workers: int = 100_000


class NoSuchDataSetError(TarkitError):
    """The data set was not declared."""


class OtherDataSetError(TarkitError):
    """A different data set of that name was declared."""


class TooManyError(TarkitError):
    """A limit of the service was reached."""


class TooManyDeadError(TarkitError):
    """Too many tasks are dead, so no more are handed out."""


class StoppingError(TarkitError):
    """The service stops; another one may resume from its state."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; ask again")


@dataclass(frozen=True)
class Report:
    """A report of a worker on a lease.

    Attributes:
        ranges: ranges of its records that are done; None: all.
        error: why it failed; "": it did not.
    """

    token: int
    ranges: Sequence[tuple[int, int]] | None = None
    error: str = ""


@dataclass(frozen=True)
class TaskRequest:
    """A worker's request for tasks.

    Attributes:
        want: largest number of tasks.
        wait: seconds after which the answer is WAIT; None: never.
        bound: the worker is its connection: if one of its calls breaks, the worker is lost. It
            would take DRAIN for the end, so it gets DRAIN in the last epoch only.
    """

    want: int
    wait: float | None = None
    bound: bool = False


class NoShard(enum.Enum):
    """Answers to a request for a task if there is none."""

    WAIT = "wait"
    """A leased task may come back, or an epoch may begin when it is done."""
    END = "end"
    DRAIN = "drain"
    """All remaining tasks are with workers that wait: each must finish the tasks that it holds. A
    ledger never returns it.
    """


class Verdict(enum.Enum):
    """Verdict on a report."""

    ACCEPTED = "accepted"
    LATE = "late"
    """Accepted after the lease had ended: the first success counts."""
    STALE = "stale"
    """Not counted: the task is done, was given back or reported as failed with this token, or the
    data set was reset or restored.
    """
    UNKNOWN = "unknown"
    """A token that was never given."""


@dataclass(frozen=True)
class Lease:
    """A task handed to a worker.

    Attributes:
        token: unique number of the lease.
        seconds: how long the worker may be silent.
        ranges: ranges to process, as [first, end) in the order of its records.
    """

    token: int
    epoch: int
    shard: TaskShard
    seconds: float
    ranges: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class OpenTask:
    """A task that was handed out and is not done.

    Attributes:
        epoch: number of the epoch, from 1.
        position: position in the epoch's order, from 0.
        token: token of its lease; 0: it is not leased.
        worker: the worker that holds it, or "".
        granted: when the lease began, in seconds of the ledger's clock; None: before the ledger's
            state was restored.
        lost: tokens of leases that ended because the worker was lost, and when they began: such a
            worker may still be running.
        errors: number of failures that trainers reported.
        losses: number of lost workers since a record of it was last reported.
        ranges: ranges that are done, as [first, end) in the order of its records, sorted, not
            adjacent.
        ended: why it is not retried any more; "": it is.
    """

    epoch: int
    position: int
    token: int = 0
    worker: str = ""
    granted: float | None = None
    lost: dict[int, float | None] = field(default_factory=dict)
    errors: int = 0
    losses: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ended: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """Epoch and position."""
        return self.epoch, self.position

    @property
    def state(self) -> str:
        """State: ``todo`` if it came back, ``leased``, or ``dead`` if it is not retried."""
        return "dead" if self.ended else "leased" if self.token else "todo"


def covered_records(ranges: Sequence[tuple[int, int]]) -> int:
    """Count the records in the ranges."""
    return sum(end - first for first, end in ranges)


def merged_ranges(
    ranges: Sequence[tuple[int, int]], more: Iterable[tuple[int, int]], records: int
) -> list[tuple[int, int]]:
    """Return the union of ranges and of more, which may overlap.

    Raises:
        UsageError: a range is not in the task.
    """
    union = list(ranges)
    for first, end in checked_ranges(more, records):
        add_range(union, first, end)
    return union


def checked_ranges(ranges: Iterable[tuple[int, int]], records: int) -> list[tuple[int, int]]:
    """Check that ranges are in a task, and return them.

    Raises:
        UsageError: a range is not in the task.
    """
    found = list(ranges)
    for first, end in found:
        if not 0 <= first < end <= records:
            raise UsageError(f"records {first} to {end} are not in a shard of {records} records")
    return found


def add_range(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    """Add a range to ranges, which stay sorted and not adjacent."""
    at = len(ranges)
    if ranges and first < ranges[-1][1]:
        at = bisect_left(ranges, (first,))
    at -= at > 0 and first <= ranges[at - 1][1]
    behind = at
    while behind < len(ranges) and ranges[behind][0] <= end:
        behind += 1
    if behind > at:
        first, end = min(first, ranges[at][0]), max(end, ranges[behind - 1][1])
    ranges[at:behind] = [(first, end)]


def missing_ranges(ranges: Sequence[tuple[int, int]], records: int) -> list[tuple[int, int]]:
    """Return the ranges of a task that the given ranges do not cover."""
    edges = [0, *(edge for pair in ranges for edge in pair), records]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]
