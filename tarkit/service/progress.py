"""Progress of a data set: its counts, its rate, and the exit code at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, counted

MOST_DEAD = 1000
"""Largest number of dead shards of a data set that are listed; all of them are counted."""
_WINDOW = 60.0
"""Seconds of the average of a rate."""


@dataclass(frozen=True)
class DeadShard:
    """A shard that is not retried any more.

    Attributes:
        start, end: range of its records.
        reason: reason of its last failure.
    """

    epoch: int
    name: str
    start: int
    end: int
    errors: int
    losses: int
    reason: str


@dataclass(frozen=True)
class DataSetProgress:
    """Counts of a data set.

    ``todo + leased + done + dead`` is the number of shards of the epochs that have begun.

    Attributes:
        shards: number of shards of an epoch.
        epochs: number of epochs; 0 is without an end.
        epoch: number of epochs begun.
        records: number of records done.
        workers: number of workers that hold a shard, wait for one, or did so recently.
        dead_shards: the first dead shards.
        aborted: no more shards are handed out, since too many are dead, or no worker is left.
        rate: shards done per second, over the last minute.
        epochs_done: number of epochs in which each shard is done or dead.
        lost: number of leases that ended because their worker was lost, since the start of the
            service.
        todo: number of shards that were never handed out, or came back.
    """

    name: str
    shards: int
    epochs: int
    epoch: int
    todo: int
    leased: int
    done: int
    dead: int
    records: int
    ended: bool
    workers: int
    dead_shards: Sequence[DeadShard] = ()
    aborted: bool = False
    rate: float = 0.0
    epochs_done: int = 0
    lost: int = 0

    @property
    def over(self) -> bool:
        """True if it has ended, or is aborted and none of its shards is with a worker."""
        return self.ended or (self.aborted and not self.leased)

    @property
    def total(self) -> int:
        """Number of shards of all epochs; 0: without an end."""
        return self.shards * self.epochs

    @property
    def standing(self) -> str:
        """The progress in one line."""
        parts, over = [], self.done + self.dead
        if self.epochs != 1 and self.epoch:
            current = min(self.epochs_done + 1, self.epoch)
            ahead = f" (leased ahead to {self.epoch})" if current < self.epoch else ""
            parts.append(f"epoch {current}{f' of {self.epochs}' if self.epochs else ''}{ahead}")
        if self.total:
            parts.append(f"{self.done} of {self.total} shards done ({over / self.total:.0%})")
        else:
            parts.append(f"{counted(self.done, 'shard')} done")
        if self.dead:
            parts.append(f"{self.dead} dead")
        parts.append(counted(self.workers, "worker"))
        if self.rate:
            parts.append(f"{self.rate:.1f} shards/s")
            if self.total > over:
                parts.append(f"about {timedelta(seconds=int((self.total - over) / self.rate))} left")
        return ", ".join(parts)


class Rate:
    """Shards per second, as the average of the last minute.

    Args:
        clock: function that returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._points: deque[tuple[float, int]] = deque()

    def add(self, done: int) -> None:
        """Record the current number of done shards."""
        now = self._clock()
        if self._points and done < self._points[-1][1]:
            self._points.clear()  # the data set was reset
        self._points.append((now, done))
        while len(self._points) > 2 and self._points[1][0] <= now - _WINDOW:
            self._points.popleft()

    @property
    def per_second(self) -> float:
        """The rate; 0.0 if it is not known yet."""
        if len(self._points) < 2:
            return 0.0
        (then, before), (now, done) = self._points[0], self._points[-1]
        return (done - before) / (now - then) if now > then else 0.0


def progress_of_message(message: Any) -> DataSetProgress:
    """Make the progress from a ``Progress`` message of ``shards.proto``."""
    dead = [
        DeadShard(**{each.name: getattr(shard, each.name) for each in fields(DeadShard)})
        for shard in message.dead_shards
    ]
    values = {each.name: getattr(message, each.name) for each in fields(DataSetProgress)}
    return DataSetProgress(**values | {"dead_shards": dead})


def outcome_code(progress: Iterable[DataSetProgress]) -> int:
    """Return the exit code of ended data sets: 0; 3 if shards are dead; 1 if one is aborted."""
    found = list(progress)
    if any(each.aborted for each in found):
        return EXIT_FAILED
    return EXIT_SET_ASIDE if any(each.dead for each in found) else EXIT_OK
