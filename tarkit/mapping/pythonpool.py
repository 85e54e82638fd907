"""Run a Python function over samples, in processes that stay alive.

Samples are sent to the workers and back over a socket, as :mod:`tarkit.mapping.frames`. The parent
never blocks on one, so no two processes can wait for each other.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Callable
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.mapping.frames import next_message, pack, unsent
from tarkit.mapping.output import Output, Printed
from tarkit.mapping.parallel import Batch, Failure, Job, Outcome, Pool, Worker
from tarkit.mapping.pythonworker import MAX_PIECES, READY, FunctionSpec, print_files, serve
from tarkit.samples.sample import Sample, is_reserved
from tarkit.store.fieldfile import LARGE, FieldFile

_READ_SIZE = 1024 * 1024
_DEPTH = 4
_QUICK = 0.005  # seconds
_FOREIGN = (
    "the mapper's process sent what is not the answer to this sample: does it fork, or write to open descriptors?"
)

Message = tuple[Any, list[Sample]]


class _Process(Worker):
    """A worker process, and the bytes to and from it."""

    def __init__(
        self, context: Any, arguments: tuple[Any, ...], scratch: str, selector: selectors.BaseSelector
    ) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self.connection = ours
        self.fd: int = ours.fileno()
        # Started afresh, a process has no copies, and what it has open is its own.
        forked = context.get_start_method() == "fork"
        self.process = process = context.Process(
            target=serve, args=(theirs, forked, os.getpid(), scratch, *arguments), daemon=True
        )
        process.start()
        theirs.close()
        # Its end is seen here even if what it forked keeps its socket open.
        self.pidfd = [os.pidfd_open(process.pid)] if hasattr(os, "pidfd_open") else []
        os.set_blocking(self.fd, False)
        files = print_files(scratch, process.pid)
        super().__init__(process.pid, lambda: process.exitcode, files, self.fd, *self.pidfd)
        self.selector = selector
        self.outgoing: list[memoryview] = []
        self.incoming = bytearray()
        self.ended = False

    def give(self, job: Job, now: float) -> None:
        """Begin to send a batch."""
        if len(self.jobs) == 1:
            self.started = now
        self.outgoing += pack(*job)
        self.send()

    def send(self) -> None:
        """Send as much as the socket accepts now, and poll for the rest."""
        while self.outgoing:
            try:
                self.outgoing = unsent(self.outgoing, os.writev(self.fd, self.outgoing[:MAX_PIECES]))
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                # A dead worker is noticed when it is read from.
                break
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outgoing else 0)
        if self.selector.get_key(self.fd).events != events:
            self.selector.modify(self.fd, events, self)

    def receive(self) -> list[Message] | None:
        """Return the messages that were received completely; None if the worker has ended.

        Raises:
            ValueError, EOFError, TypeError: the received bytes are not a message.
        """
        try:
            piece = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            # What it forked may hold the other end open. Its last words come before it ends: read
            # once more.
            if self.ended:
                return None
            self.ended = self.poll() is not None
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
        """Kill its processes, and reap it."""
        super().end()
        # It may not have made its process group yet.
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()
        for fd in self.pidfd:
            os.close(fd)


class PythonPool(Pool[_Process]):
    """A pool of Python processes.

    A context manager.

    Args:
        function: ``module:name``, ``file.py:name``, or a callable: from a sample (a dict with
            ``__key__``, ``__url__`` and bytes) to a sample, None, or several samples.
        setup: called once in each process, given like ``function``; if it returns something other
            than None, that is the function's second argument.
        scratch: folder for what the function prints.
        slots: number of processes.
        batched: the function takes a list of samples and returns a list of as many answers.
        timeout: seconds for one batch, or None.
        grace: seconds between TERM and KILL.
        start_method: fork, spawn or forkserver; None takes the platform's default.
        mem: bytes that a sample may have, since it is held in memory; a larger one fails, but not
            below 32 MiB. None: no limit.

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
        self._arguments = (function, setup, batched)
        self._scratch = scratch
        self._is_first = True
        self._mem = sys.maxsize if mem is None else max(mem, LARGE)
        super().__init__(slots, timeout, grace, clock)

    def _new_worker(self) -> _Process:
        return _Process(self._context, self._arguments, self._scratch, self._selector)

    def submit(self, ticket: int, batch: Batch) -> None:
        """Take a batch, and send it to a worker if one has room."""
        if too_large := next((sample for sample in batch if _field_bytes(sample) > self._mem), None):
            failure = Failure("too-large", _why_too_large(too_large, self._mem))
            self._done.append((ticket, Outcome([], Printed(), failure)))
            return
        self._queue.append((ticket, [_in_memory(sample) for sample in batch]))
        self._hand_out()

    def _heard(self, worker: _Process, events: int) -> list[tuple[Job, Outcome]]:
        if events & selectors.EVENT_WRITE:
            worker.send()
        if not events & selectors.EVENT_READ:
            return []
        try:
            messages = worker.receive()
        except (ValueError, EOFError, TypeError):
            return self._replace(worker, Failure("exception", f"{_FOREIGN} (it is not an answer at all)"))
        if worker.kill_at is not None and messages != []:
            # It was told to end, so the batch has failed whatever it answers; it gets no other one.
            return self._replace(worker, self._timeout_failure("terminated"))
        if messages is None:
            worker.process.join()
            return self._died(worker, worker.process.exitcode, "exit", "the mapper's process")
        finished: list[tuple[Job, Outcome]] = []
        for header, samples in messages:
            if not worker.is_ready:
                if header != READY:
                    raise UsageError(header)
                worker.is_ready, worker.started = True, self._clock()
                continue
            pid, ticket = header[:2]
            if pid != worker.pid or not worker.jobs or ticket != worker.jobs[0][0]:
                return finished + self._replace(worker, Failure("exception", f"{_FOREIGN} (process {pid}, {ticket})"))
            finished.append(self._answered(worker, header, samples))
        return finished

    def _answered(self, worker: _Process, header: Any, samples: list[Sample]) -> tuple[Job, Outcome]:
        now = self._clock()
        # More than one only while they are quick, so that a slow one holds up no others.
        worker.room = _DEPTH if now - worker.started < _QUICK else 1
        worker.started = now
        job = worker.jobs.popleft()
        _, _, counts, printed, problem = header
        first, self._is_first = self._is_first, self._is_first and job[0] != 0
        failure = None
        if problem is not None:
            is_answer, message, detail = problem
            if is_answer and first and job[0] == 0:
                # It would be the same for all: one error, not one a sample. Of others, the function
                # may be to blame.
                name = function if isinstance(function := self._arguments[0], str) else "the mapper"
                raise UsageError(f"{name}, for the first sample, {printable(job[1][0]['__key__'])}: {message}")
            failure = Failure("exception", message, detail=detail)
        new = iter(samples)
        made = [[_restored(next(new), known) for _ in range(n)] for n, known in zip(counts, job[1], strict=False)]
        outputs = [Output(each) if isinstance(each, bytes) else Output.of_file(each) for each in printed]
        return job, Outcome(made, Printed(*outputs), failure)


def _restored(sample: Sample, known: Sample) -> Sample:
    """Return a sample, completed with the unchanged fields that the worker did not send back."""
    return {name: known[value[0]] if type(value) is tuple else value for name, value in sample.items()}


def _field_bytes(sample: Sample) -> int:
    return sum(len(value) for name, value in sample.items() if not is_reserved(name))


def _in_memory(sample: Sample) -> Sample:
    """Return the sample with all fields as bytes."""
    return {name: value.read() if isinstance(value, FieldFile) else value for name, value in sample.items()}


def _why_too_large(sample: Sample, mem: int) -> str:
    """Return why a batch is too large: shard, largest member, its size, a better limit."""
    field = max((name for name in sample if not is_reserved(name)), key=lambda name: len(sample[name]))
    member = getattr(sample[field], "member", None) or f"{sample['__key__']}.{field}"
    size = _field_bytes(sample)
    return (
        f"{printable(str(sample.get('__url__', '-')))}, member {printable(member)!r} of {len(sample[field])} bytes: "
        f"the sample has {size} bytes, and a function gets it in memory; --mem is {_mebibytes(mem)}, "
        f"--mem {_mebibytes(size)} would hold it, or use a command (-c), which gets files"
    )


def _mebibytes(size: int) -> str:
    """Format a size as --mem takes it, rounded up to MiB."""
    return f"{-(-size >> 20)}M"
