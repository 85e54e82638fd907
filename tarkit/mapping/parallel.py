"""An ordered parallel map over processes that stay alive, with memory bounded in bytes.

The results have the order of the items, whatever runs at the same time, so that the output of a run
does not depend on the number of slots.
"""

from __future__ import annotations

import itertools
import os
import selectors
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tarkit.errors import LINE, CommandNotRunnableError, printable, shortened, signal_name
from tarkit.mapping.output import Printed, PrintFiles
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import FieldFile

POLL = 0.02
"""Seconds between two checks of processes that must end."""
_LONGEST_WAIT = 86_400.0

Batch = list[Sample]


@dataclass
class Failure:
    """Reason why a batch failed.

    Attributes:
        kind: one word: exit, timeout, left-running, shell-died, exception, folder, mount,
            too-large, unwritable, incomplete.
        message: one line for the user.
        code: exit code of the command or of its process (negative for a signal), or None.
        detail: the traceback of an exception.
        url: shard of the failed sample, if known.
    """

    kind: str
    message: str
    code: int | None = None
    detail: str = ""
    url: str | None = None

    @property
    def is_of_command(self) -> bool:
        """True if the output of the command explains the failure."""
        return self.kind in ("exit", "timeout", "shell-died")

    def line(self, key: str, printed: Printed | None) -> str:
        """Return the sample's key, the reason, and the last line of the command's output."""
        last = printed.last_line() if printed is not None and self.is_of_command else ""
        return f"{printable(key)}: {shortened(self.message, LINE // 2)}" + (f": {printable(last)}" if last else "")


@dataclass
class Outcome:
    """Result of one batch.

    Attributes:
        made: for each sample of the batch, the list of resulting samples; empty if it was filtered
            out. Valid only without a failure, or if failures are ignored.
        printed: output of the command.
        stray: names of files that were left but belong to no sample.
    """

    made: list[list[Sample]]
    printed: Printed
    failure: Failure | None = None
    stray: list[str] = field(default_factory=list)


Job = tuple[int, Batch]
"""A batch that was submitted, with its ticket."""


class Worker(ABC):
    """A process of a pool, the first of a process group of its own.

    Args:
        poll: function that returns its exit status, or None.
        files: files for its output.
        fds: descriptors that become readable when it has answered or ended.

    Attributes:
        jobs: its jobs; it runs the first one.
        room: largest number of jobs.
        is_ready: it can run its first job, or did.
        started: when it began its current job.
        kill_at: when it is killed, after a timeout of its current job.
    """

    def __init__(self, pid: int, poll: Callable[[], int | None], files: PrintFiles, *fds: int) -> None:
        self.pid = pid
        self.poll = poll
        self.files = files
        self.fds = fds
        self.jobs: deque[Job] = deque()
        self.room = 1
        self.is_ready = self.is_lost = False
        self.started = 0.0
        self.kill_at: float | None = None

    @abstractmethod
    def give(self, job: Job, now: float) -> None:
        """Send one more job to the worker."""

    def signal(self, number: int) -> bool:
        """Send a signal to its processes; return False if none of them is left."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # What is left has another owner (macOS says so of zombies as well).
            return False
        return True

    def end(self) -> None:
        """Kill its processes, and reap it."""
        self.signal(signal.SIGKILL)


W = TypeVar("W", bound=Worker)
Mark = TypeVar("Mark")


class Pool(ABC, Generic[W]):
    """A pool of processes that stay alive and run batches.

    Args:
        slots: number of processes.
        timeout: seconds for one batch, or None.
        grace: seconds between TERM and KILL.
    """

    def __init__(self, slots: int, timeout: float | None, grace: float, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._grace = grace
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._queue: deque[Job] = deque()
        self._done: list[tuple[int, Outcome]] = []
        self._workers: list[W] = []
        try:
            for _ in range(slots):
                self._add_worker()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Pool[W]:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._selector.close()

    @abstractmethod
    def submit(self, ticket: int, batch: Batch) -> None:
        """Take a batch; its outcome will carry the ticket."""

    @abstractmethod
    def _new_worker(self) -> W:
        """Start one more process."""

    @abstractmethod
    def _heard(self, worker: W, events: int) -> list[tuple[Job, Outcome]]:
        """Return the jobs that have ended, of a worker that can be read from or written to."""

    def has_room(self) -> bool:
        """Return True if submit() would accept one more batch now.

        In addition to the batches of the workers, one batch waits here.
        """
        return not self._queue

    def collect(self) -> list[tuple[int, Outcome]]:
        """Wait until at least one batch is finished, and return all finished ones."""
        done, self._done = self._done, []
        return done or self._collect_some()

    def _collect_some(self) -> list[tuple[int, Outcome]]:
        done: list[tuple[int, Outcome]] = []
        while not done:
            finished: list[tuple[Job, Outcome]] = []
            for key, events in self._selector.select(self._time_to_next_deadline()):
                # It may have been replaced for another event of this round.
                if key.data in self._workers:
                    finished += self._heard(key.data, events)
            done = self._conclude(finished + self._timed_out())
        return done

    def _conclude(self, finished: list[tuple[Job, Outcome]]) -> list[tuple[int, Outcome]]:
        """Return the outcomes by ticket, and send the workers their next jobs."""
        self._hand_out()
        return [(ticket, outcome) for (ticket, _), outcome in finished]

    def _hand_out(self) -> None:
        while self._queue:
            worker = min(self._workers, key=lambda each: len(each.jobs))
            if worker.kill_at is not None or len(worker.jobs) >= worker.room:
                return
            job = self._queue.popleft()
            worker.jobs.append(job)
            worker.give(job, self._clock())

    def _add_worker(self) -> None:
        worker = self._new_worker()
        self._workers.append(worker)
        for fd in worker.fds:
            self._selector.register(fd, selectors.EVENT_READ, worker)

    def _unwatch(self, worker: W) -> None:
        for fd in worker.fds:
            with suppress(KeyError):
                self._selector.unregister(fd)

    def _died(self, worker: W, status: int, kind: str, name: str) -> list[tuple[Job, Outcome]]:
        """Handle the end of a worker that was not asked to end.

        Args:
            status: its exit code, or the negative number of a signal.
        """
        how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
        if not worker.is_ready:
            raise CommandNotRunnableError(f"{name} {how} before its first sample", 126)
        return self._replace(worker, Failure(kind, f"{name} {how}", status))

    def _replace(self, worker: W, failure: Failure) -> list[tuple[Job, Outcome]]:
        """Replace a worker by a new process.

        The job that it was running has failed; its other jobs wait again.
        """
        self._unwatch(worker)
        worker.end()
        self._workers.remove(worker)
        self._add_worker()
        # Without a job it was killed by the system for want of memory, or by what an earlier one
        # left behind.
        failed = [worker.jobs.popleft()] if worker.jobs and not worker.is_lost else []
        self._queue.extendleft(reversed(worker.jobs))
        return [(job, Outcome([], worker.files.take(f"{job[0]:08d}"), failure)) for job in failed]

    def _time_to_next_deadline(self) -> float | None:
        if self._timeout is None:
            return None
        now = self._clock()
        times = [
            POLL if worker.kill_at is not None else max(0.0, worker.started + self._timeout - now)
            for worker in self._workers
            if worker.jobs and worker.is_ready
        ]
        # The system takes no time of more than 24 days.
        return min((*times, _LONGEST_WAIT)) if times else None

    def _timed_out(self) -> list[tuple[Job, Outcome]]:
        """Return the jobs that timed out and whose processes have ended, after TERM or KILL."""
        if self._timeout is None:
            return []
        now = self._clock()
        finished = []
        for worker in [each for each in self._workers if each.jobs and each.is_ready]:
            if worker.kill_at is None and now >= worker.started + self._timeout:
                worker.kill_at = now + self._grace
                self._terminate(worker)
            if worker.kill_at is not None:
                is_late = now >= worker.kill_at
                if is_late or (worker.poll() is not None and not worker.signal(0)):
                    finished += self._replace(worker, self._timeout_failure("killed" if is_late else "terminated"))
        return finished

    def _terminate(self, worker: W) -> None:
        """Ask the processes of a worker to end."""
        worker.signal(signal.SIGTERM)

    def _timeout_failure(self, how: str) -> Failure:
        return Failure("timeout", f"timed out after {self._timeout:g} s, and was {how}")


def content_bytes(samples: Iterable[Sample]) -> int:
    """Return the bytes of all fields, those in files too, plus a little for each sample."""
    total = 0
    for sample in samples:
        total += 1000
        for value in sample.values():
            if isinstance(value, (bytes, str, FieldFile)):
                total += len(value)
    return total


def in_batches(samples: Iterable[Sample], size: int) -> Iterator[Batch]:
    """Yield lists of ``size`` samples; the last one may be shorter."""
    source = iter(samples)
    while batch := list(itertools.islice(source, size)):
        yield batch


def ordered_map(
    items: Iterable[Batch | Mark], pool: Pool[Any], *, window: int
) -> Generator[tuple[Batch, Outcome] | Mark, None, None]:
    """Yield each batch with its outcome, and each mark as it is, in the order of the items.

    Args:
        items: batches, and marks between them, neither lists nor None; taken one at a time, and
            only when there is room for a batch.
        pool: pool that runs the batches.
        window: largest number of bytes of the samples that are held: they wait for a slot, run, or
            are finished and wait for an earlier batch. A single batch may exceed it.
    """
    source = iter(items)
    # Ticket, batch, bytes, the marks behind the batch; in input order.
    waiting: deque[tuple[int, Batch, int, list[Mark]]] = deque()
    finished: dict[int, tuple[Outcome, int]] = {}
    held = 0
    ticket = 0
    exhausted = False
    drawn: tuple[Batch, int] | None = None
    while True:
        # A pool that holds nothing has room for a batch.
        while not exhausted and (not waiting or pool.has_room()):
            if drawn is None:
                if (item := next(source, None)) is None:
                    exhausted = True
                    break
                if not isinstance(item, list):
                    if waiting:
                        waiting[-1][3].append(item)
                    else:
                        yield item
                    continue
                drawn = item, content_bytes(item)
            if waiting and held + drawn[1] > window:
                break
            pool.submit(ticket, drawn[0])
            waiting.append((ticket, *drawn, []))
            held += drawn[1]
            ticket += 1
            drawn = None
        if not waiting:
            return
        while waiting[0][0] not in finished:
            for done, outcome in pool.collect():
                size = sum(map(content_bytes, outcome.made)) + outcome.printed.held
                finished[done] = outcome, size
                held += size
            if not exhausted and pool.has_room() and held < window:
                break
        while waiting and waiting[0][0] in finished:
            done, batch, size, marks = waiting.popleft()
            outcome, made_size = finished.pop(done)
            yield batch, outcome
            yield from marks
            held -= size + made_size
