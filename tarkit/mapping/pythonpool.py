"""Runs a Python function over samples, in processes that stay alive.

Samples travel to the workers and back on a socket, as :mod:`tarkit.mapping.frames`. The parent never
blocks on one, so no two processes can wait for each other.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tarkit.errors import CommandNotRunnableError, UsageError, printable, signal_name
from tarkit.formats.fieldfile import LARGE, FieldFile
from tarkit.mapping.frames import next_message, pack, unsent
from tarkit.mapping.output import Output, Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.mapping.pythonworker import MAX_PIECES, READY, FunctionSpec, log_path, serve, with_known
from tarkit.samples.sample import Sample, is_reserved

_READ_SIZE = 1024 * 1024
_DEPTH = 4
_QUICK = 0.005  # seconds
_POLL = 0.02
_FOREIGN = (
    "the mapper's process sent what is not the answer to this sample: does it fork, or write to open descriptors?"
)

Message = tuple[Any, list[Sample]]


class _Worker:
    """One process, the batches it was given, and the bytes on their way to and from it."""

    def __init__(self, context: Any, arguments: tuple[Any, ...], others: Sequence[_Worker]) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self.connection = ours
        self.fd: int = ours.fileno()
        # Started afresh, a process has no copies, and those numbers may be its own files.
        forked = context.get_start_method() == "fork"
        inherited = [self.fd, *(worker.fd for worker in others)] if forked else []
        self.process = context.Process(target=serve, args=(theirs, inherited, os.getpid(), *arguments), daemon=True)
        self.process.start()
        theirs.close()
        # Its end is seen here even if what it forked keeps its socket open.
        self.pidfd = os.pidfd_open(self.process.pid) if hasattr(os, "pidfd_open") else -1
        os.set_blocking(self.fd, False)
        self.jobs: deque[tuple[int, Batch]] = deque()
        self.outgoing: list[memoryview] = []
        self.incoming = bytearray()
        self.ready = self.ended = False
        self.started = 0.0
        self.last_seconds = 1.0
        self.kill_at: float | None = None

    def depth(self) -> int:
        """How many batches it may hold: more than one only while they are quick, so that a slow
        one holds up no others."""
        return _DEPTH if self.last_seconds < _QUICK else 1

    def give(self, ticket: int, batch: Batch, now: float) -> None:
        """Put a batch on its way."""
        if not self.jobs:
            self.started = now
        self.jobs.append((ticket, batch))
        self.outgoing += pack(ticket, batch)
        self.send()

    def send(self) -> None:
        """Send as much as the socket takes now."""
        while self.outgoing:
            try:
                self.outgoing = unsent(self.outgoing, os.writev(self.fd, self.outgoing[:MAX_PIECES]))
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                # A dead worker is noticed when it is read from.
                return

    def receive(self) -> list[Message] | None:
        """Messages that came in whole; None if the worker is gone.

        Raises:
            ValueError, EOFError, TypeError: what came is not a message.
        """
        try:
            piece = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            # What it forked may hold the other end open. Its last words come before it ends: read once more.
            if self.ended:
                return None
            self.ended = not self.process.is_alive()
            return self.receive() if self.ended else []
        except ConnectionResetError:
            piece = b""
        if not piece:
            return None
        self.incoming += piece
        messages = []
        while (message := next_message(self.incoming)) is not None:
            messages.append(message)
        return messages

    def end(self) -> None:
        """Kill it, and what it started, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # It may not have made its process group yet.
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


class PythonPool:
    """A pool (see :class:`tarkit.mapping.parallel.Pool`) of Python processes. A context manager.

    Args:
        function: ``module:name``, ``file.py:name``, or a callable: from a sample (a dict with
            ``__key__``, ``__url__`` and bytes) to a sample, None, or several samples.
        setup: called once in each process, given like ``function``; if it returns something other
            than None, that is the function's second argument.
        scratch: folder for what the function prints.
        slots: number of processes.
        batched: the function takes a list of samples and returns a list of as many answers.
        timeout: seconds for one batch, or None. grace: seconds between TERM and KILL.
        start_method: fork, spawn or forkserver; None takes the platform's default.
        mem: bytes that a sample may have, since it is held in memory; a larger one fails, but
            not below 32 MiB. None: no limit.

    Raises:
        UsageError: the function cannot be loaded.
    """

    def __init__(
        self,
        function: FunctionSpec,
        scratch: str,
        *,
        setup: FunctionSpec | None = None,
        slots: int = 1,
        batched: bool = False,
        timeout: float | None = None,
        grace: float = 5.0,
        start_method: str | None = None,
        mem: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not the standard library's: this one can send functions that were typed into a notebook.
        import multiprocess

        self._context = multiprocess.get_context(start_method)
        self._arguments = (function, setup, scratch, batched)
        self._scratch = scratch
        self._timeout = timeout
        self._grace = grace
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._mem = sys.maxsize if mem is None else max(mem, LARGE)
        self._queue: deque[tuple[int, Batch]] = deque()
        self._refused: list[tuple[int, Outcome]] = []
        self._workers: list[_Worker] = []
        try:
            for _ in range(slots):
                self._add_worker()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> PythonPool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._selector.close()

    def _add_worker(self) -> None:
        worker = _Worker(self._context, self._arguments, self._workers)
        self._workers.append(worker)
        self._selector.register(worker.fd, selectors.EVENT_READ, worker)
        if worker.pidfd >= 0:
            self._selector.register(worker.pidfd, selectors.EVENT_READ, worker)

    def has_room(self) -> bool:
        """One batch more than the workers hold waits here."""
        return not self._queue

    def submit(self, ticket: int, batch: Batch) -> None:
        """Take a batch, and send it to a worker if one has room."""
        if too_large := next((sample for sample in batch if _field_bytes(sample) > self._mem), None):
            failure = Failure("too-large", _why_too_large(too_large, self._mem))
            self._refused.append((ticket, Outcome([], Printed(), failure)))
            return
        self._queue.append((ticket, [_in_memory(sample) for sample in batch]))
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue:
            worker = min(self._workers, key=lambda each: len(each.jobs))
            if len(worker.jobs) >= worker.depth() or worker.kill_at is not None:
                return
            worker.give(*self._queue.popleft(), self._clock())
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outgoing else 0)
        if self._selector.get_key(worker.fd).events != events:
            self._selector.modify(worker.fd, events, worker)

    def collect(self) -> list[tuple[int, Outcome]]:
        """Wait for at least one batch to finish."""
        finished, self._refused = self._refused, []
        while not finished:
            for event, ready in self._selector.select(self._time_to_next_deadline()):
                worker: _Worker = event.data
                if worker not in self._workers:
                    # Replaced, for another event of this round.
                    continue
                if ready & selectors.EVENT_WRITE:
                    worker.send()
                    self._watch(worker)
                if ready & selectors.EVENT_READ:
                    finished += self._read_from(worker)
            finished += self._timed_out()
            self._hand_out()
        return finished

    def _read_from(self, worker: _Worker) -> list[tuple[int, Outcome]]:
        try:
            messages = worker.receive()
        except (ValueError, EOFError, TypeError):
            return self._replace(worker, Failure("exception", f"{_FOREIGN} (it is not an answer at all)"))
        if messages is None:
            return self._died(worker)
        if messages and worker.kill_at is not None:
            # It was told to end, so the batch has failed whatever it answers; it gets no other one.
            return self._replace(worker, self._timeout_failure())
        finished: list[tuple[int, Outcome]] = []
        for header, samples in messages:
            if not worker.ready:
                if header != READY:
                    raise UsageError(header)
                worker.ready, worker.started = True, self._clock()
                continue
            pid, ticket = header[:2]
            if pid != worker.process.pid or not worker.jobs or ticket != worker.jobs[0][0]:
                return finished + self._replace(worker, Failure("exception", f"{_FOREIGN} (process {pid}, {ticket})"))
            finished.append(self._answered(worker, header, samples))
        return finished

    def _answered(self, worker: _Worker, header: Any, samples: list[Sample]) -> tuple[int, Outcome]:
        now = self._clock()
        worker.last_seconds, worker.started = now - worker.started, now
        ticket, batch = worker.jobs.popleft()
        _, _, answers, printed, problem = header
        failure = None if problem is None else Failure("exception", problem)
        new = iter(samples)
        made = [
            [with_known(next(new), same, known) for same in each] for each, known in zip(answers, batch, strict=False)
        ]
        outputs = [Output(each) if isinstance(each, bytes) else Output.of_file(each) for each in printed]
        return ticket, Outcome(made, Printed(*outputs), failure)

    def _died(self, worker: _Worker) -> list[tuple[int, Outcome]]:
        worker.process.join()
        if worker.kill_at is not None:
            return self._replace(worker, self._timeout_failure())
        code = worker.process.exitcode
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with status {code}"
        if not worker.ready:
            raise CommandNotRunnableError(f"the mapper's process {how} before its first sample", 126)
        return self._replace(worker, Failure("exit", f"the mapper's process {how}", code))

    def _replace(self, worker: _Worker, failure: Failure) -> list[tuple[int, Outcome]]:
        """A new process in the place of one; the batch that it was at has failed, the others wait again."""
        jobs = worker.jobs
        self._selector.unregister(worker.fd)
        if worker.pidfd >= 0:
            self._selector.unregister(worker.pidfd)
        logs = [log_path(self._scratch, worker.process.pid, stream) for stream in ("out", "err")]
        worker.end()
        printed = Printed(*(Output.of_file(log) if os.path.exists(log) else Output() for log in logs))
        self._workers.remove(worker)
        self._add_worker()
        if not jobs:
            # Killed by the system for want of memory, or by what an earlier call left behind: no sample is lost.
            printed.discard()
            return []
        ticket, _ = jobs.popleft()
        self._queue.extendleft(reversed(jobs))
        return [(ticket, Outcome([], printed, failure))]

    def _time_to_next_deadline(self) -> float | None:
        if self._timeout is None:
            return None
        now = self._clock()
        times = [
            _POLL if worker.kill_at is not None else max(0.0, worker.started + self._timeout - now)
            for worker in self._workers
            if worker.jobs and worker.ready
        ]
        return min(times, default=None)

    def _timed_out(self) -> list[tuple[int, Outcome]]:
        if self._timeout is None:
            return []
        now = self._clock()
        finished = []
        for worker in list(self._workers):
            if not worker.jobs or not worker.ready:
                continue
            if worker.kill_at is None and now >= worker.started + self._timeout:
                worker.kill_at = now + self._grace
                with suppress(ProcessLookupError):
                    os.killpg(worker.process.pid, signal.SIGTERM)
            if worker.kill_at is not None and (now >= worker.kill_at or not worker.process.is_alive()):
                finished += self._replace(worker, self._timeout_failure())
        return finished

    def _timeout_failure(self) -> Failure:
        return Failure("timeout", f"timed out after {self._timeout:g} s, and was killed")


def _field_bytes(sample: Sample) -> int:
    return sum(len(value) for name, value in sample.items() if not is_reserved(name))


def _in_memory(sample: Sample) -> Sample:
    """The sample with all fields as bytes."""
    return {name: value.read() if isinstance(value, FieldFile) else value for name, value in sample.items()}


def _why_too_large(sample: Sample, mem: int) -> str:
    """The shard, the largest member, its size, what is set and what would be right."""
    field = max((name for name in sample if not is_reserved(name)), key=lambda name: len(sample[name]))
    member = getattr(sample[field], "member", None) or f"{sample['__key__']}.{field}"
    size = _field_bytes(sample)
    return (
        f"{printable(str(sample.get('__url__', '-')))}, member {printable(member)!r} of {len(sample[field])} bytes: "
        f"the sample has {size} bytes, and a function gets it in memory; --mem is {_mebibytes(mem)}, "
        f"--mem {_mebibytes(size)} would hold it, or use a command (-c), which gets files"
    )


def _mebibytes(size: int) -> str:
    """The size as --mem takes it, rounded up."""
    return f"{-(-size >> 20)}M"
