"""Runs a shell command over samples, one long-lived shell for each slot.

Starting bash costs about 1 ms, a subshell of a running one a third of that. So each slot
keeps one shell that is told folders, one a line, and runs the command in each of them in
a subshell. ``exit``, ``cd``, ``exec``, traps and ``set -e`` end with that subshell, as they
would with ``bash -c``. If a command kills its shell, the sample has failed and the slot
gets a new shell.
"""

from __future__ import annotations

import errno
import itertools
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tarkit.errors import CommandNotRunnableError, StreamError, signal_name
from tarkit.formats.fieldfile import TOO_MANY_FILES, scratch_hint
from tarkit.mapping.output import Printed, PrintFiles
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.mapping.removal import Remover, remove_folder
from tarkit.mapping.scratch import FieldNameError, Rules, extract, gather, has_other_names
from tarkit.samples.sample import Sample

# Standard input brings names of folders below $1, standard output takes exit codes; the command sees neither.
# The redirections belong to the subshell, so that a failing one is that sample's failure.
# All on one line, so that the command's own lines are counted from 1 in messages and LINENO.
_DRIVER = (
    # The caller may have exported SHELLOPTS with errexit: that is for the command, not for this loop.
    "__tarkit_set=:; case $- in *e*) __tarkit_set='set -e'; set +e;; esac; "
    "__tarkit_scratch=$1 __tarkit_out=$2 __tarkit_err=$3 __tarkit_command=$4; shift 4; "
    "while IFS= read -r __tarkit_folder; do "
    '( cd -- "$__tarkit_scratch/$__tarkit_folder" || exit 126; $__tarkit_set; eval "$__tarkit_command"; ) '
    '</dev/null >>"$__tarkit_out" 2>>"$__tarkit_err"; '
    "echo $?; done"
)
_DRIVEN_DIRECTLY = ("bash", "sh", "dash")
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, *TOO_MANY_FILES)
_POLL = 0.02


@dataclass
class _Job:
    """A batch on its way. name: of its folder in the scratch folder. printed: once it has run."""

    ticket: int
    batch: Batch
    name: str
    folder: str
    printed: Printed = field(default_factory=Printed)


class _Slot:
    """One shell, and the job it runs. number: that no other slot has."""

    def __init__(self, number: int, shell: str, command: str, scratch: str) -> None:
        self.job: _Job | None = None
        self.files = PrintFiles(os.path.join(scratch, f"slot-{number}"))
        self.runs = 0
        self.started = 0.0
        self.timed_out = False
        self.kill_at = 0.0
        with open(os.path.join(scratch, "shell.log"), "ab") as log:
            try:
                self.process = subprocess.Popen(
                    [shell, "-c", _DRIVER, shell, scratch, self.files.out, self.files.err, command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                code = 127 if isinstance(error, FileNotFoundError) else 126
                reason = "not found" if code == 127 else error.strerror
                if error.errno == errno.E2BIG:
                    reason = "the command is too long; put it into a file and use --script"
                raise CommandNotRunnableError(f"shell {shell}: {reason}", code) from None
        self.to_shell, self.from_shell = (
            pipe.fileno() for pipe in (self.process.stdin, self.process.stdout) if pipe is not None
        )

    def run(self, job: _Job, now: float) -> None:
        """Hand a prepared job to the shell."""
        self.job, self.started, self.timed_out = job, now, False
        self.runs += 1
        # If the shell is dead, the end of its answers will tell.
        with suppress(BrokenPipeError):
            os.write(self.to_shell, f"{job.name}\n".encode())

    def finish(self, job: _Job) -> None:
        """The job has run: what it printed is put aside, so that the next one may print."""
        self.job = None
        job.printed = self.files.take(job.name)

    def terminate(self, now: float, grace: float) -> None:
        """Ask all that the shell started to end."""
        self.timed_out, self.kill_at = True, now + grace
        self._signal_group(signal.SIGTERM)

    def is_gone(self) -> bool:
        """Whether nothing that the shell started is left."""
        return self.process.poll() is not None and not self._signal_group(0)

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # What is left has another owner (macOS says so of zombies as well).
            return False
        return True

    def end(self) -> None:
        """Kill whatever is left, and reap the shell."""
        self._signal_group(signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


class ShellPool:
    """A pool (see :class:`tarkit.mapping.parallel.Pool`) of shells. A context manager.

    Args:
        command: run in each sample's folder; with more than one sample in a batch, run once in a
            folder that holds one folder for each sample.
        scratch: folder for the samples' folders.
        slots: how many commands at once.
        shell: bash, sh and dash are kept running; others are started for each batch.
        timeout: seconds for one batch, or None.
        grace: seconds between TERM and KILL.
        rules: how files become samples; None if they are not wanted.
        base: the part of the file names before the first dot.
        batched: lay out batches of one sample like those of several, too.
        ignore_status: gather the files whatever the command's exit code is.

    Raises:
        CommandNotRunnableError: the shell cannot be started.
        StreamError: the scratch folder's disk is full.
    """

    def __init__(
        self,
        command: str,
        scratch: str,
        *,
        slots: int = 1,
        shell: str = "bash",
        timeout: float | None = None,
        grace: float = 5.0,
        rules: Rules | None = None,
        base: str = "sample",
        batched: bool = False,
        ignore_status: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if os.path.basename(shell) in _DRIVEN_DIRECTLY:
            self._shell, self._command = shell, command
        else:
            self._shell, self._command = "sh", f"exec {shlex.quote(shell)} -c {shlex.quote(command)}"
        self._scratch = scratch
        self._timeout = timeout
        self._grace = grace
        self._rules = None if rules is None else rules._replace(folder=scratch)
        self._base = base
        self._batched = batched
        self._ignore_status = ignore_status
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._ready: deque[_Job] = deque()  # extracted, waiting for a slot
        self._done: list[tuple[int, Outcome]] = []
        self._slots: list[_Slot] = []
        self._numbers = itertools.count()
        self._idle: list[_Slot] = []
        self._remover = Remover()
        try:
            for _ in range(slots):
                self._add_slot()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> ShellPool:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            slot.end()
        self._slots = []
        self._selector.close()
        self._remover.__exit__()

    def _add_slot(self) -> None:
        slot = _Slot(next(self._numbers), self._shell, self._command, self._scratch)
        self._slots.append(slot)
        self._idle.append(slot)
        self._selector.register(slot.from_shell, selectors.EVENT_READ, slot)

    def _replace(self, slot: _Slot) -> None:
        with suppress(KeyError):
            self._selector.unregister(slot.from_shell)
        slot.end()
        self._slots.remove(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        self._add_slot()

    def has_room(self) -> bool:
        """One batch is kept extracted for each slot, so that no slot waits for the disk."""
        return len(self._ready) < len(self._slots)

    def submit(self, ticket: int, batch: Batch) -> None:
        """Extract a batch, and start it if a slot is free."""
        name = f"{ticket:08d}"
        job = _Job(ticket, batch, name, os.path.join(self._scratch, name))
        while True:
            try:
                self._extract(job)
                break
            except FieldNameError as error:
                remove_folder(job.folder)
                self._done.append((ticket, Outcome([], Printed(), Failure("folder", str(error)))))
                return
            except OSError as error:
                remove_folder(job.folder)
                if isinstance(error, StreamError):
                    # A field that cannot be read from its file.
                    raise
                # What could not be removed would be in the way of another attempt.
                stays = os.path.lexists(job.folder)
                if stays or error.errno not in _DISK_ERRORS or not self._wait_for_space():
                    raise self._scratch_error("a sample cannot be extracted", job, error) from None
        self._ready.append(job)
        self._start_ready()

    def _scratch_error(self, problem: str, job: _Job, error: OSError) -> StreamError:
        """The error for what no sample is the cause of."""
        key = job.batch[0]["__key__"]
        return StreamError(f"{problem}: {error.strerror}", url=self._scratch, key=key, hint=scratch_hint(error))

    def _extract(self, job: _Job) -> None:
        if not self._batched:
            extract(job.batch[0], job.folder, self._base)
            return
        os.mkdir(job.folder, 0o700)
        for number, sample in enumerate(job.batch):
            extract(sample, f"{job.folder}/{number:08d}", self._base)

    def _wait_for_space(self) -> bool:
        """Let a folder be removed, or a running command end; False if there is neither."""
        if self._remover.wait_for_one():
            return True
        if all(slot.job is None for slot in self._slots):
            return False
        self._done += self._collect_some()
        return True

    def _start_ready(self) -> None:
        while self._ready and self._idle:
            if self._idle[-1].process.poll() is not None:
                self._shell_died(self._idle.pop())
                continue
            self._idle.pop().run(self._ready.popleft(), self._clock())

    def collect(self) -> list[tuple[int, Outcome]]:
        """Wait for at least one batch to finish."""
        done = self._done
        self._done = []
        return done or self._collect_some()

    def _collect_some(self) -> list[tuple[int, Outcome]]:
        finished: list[tuple[_Job, int, Failure | None]] = []
        while not finished:
            for event, _ in self._selector.select(self._time_to_next_deadline()):
                slot: _Slot = event.data
                answer = os.read(slot.from_shell, 4096)
                job = slot.job
                if job is not None and answer.endswith(b"\n") and answer[:-1].isdigit():
                    slot.finish(job)
                    finished.append((job, int(answer), None))
                    self._idle.append(slot)
                else:
                    finished += self._shell_died(slot)
            finished += self._timed_out()
            # Slots get their next batch before the files of the last ones are read, unless it could change them.
            outcomes = [self._outcome(*each) for each in finished if self._has_other_names(each[0])]
            self._start_ready()
        read = {ticket for ticket, _ in outcomes}
        return outcomes + [self._outcome(*each) for each in finished if each[0].ticket not in read]

    def _has_other_names(self, job: _Job) -> bool:
        return self._rules is not None and has_other_names(job.folder, self._batched + self._rules.subdirs)

    def _shell_died(self, slot: _Slot) -> list[tuple[_Job, int, Failure | None]]:
        slot.process.kill()
        code = slot.process.wait()
        job = slot.job
        if job is None and not slot.runs:
            raise CommandNotRunnableError(f"shell {self._shell} ended with status {code} before it ran a command", 126)
        self._replace(slot)
        if job is None:
            # Killed by something from outside, or that an earlier command left behind; no sample is hurt.
            return []
        slot.finish(job)
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with status {code}"
        return [(job, code, Failure("shell-died", f"the shell that ran the command {how}"))]

    def _time_to_next_deadline(self) -> float | None:
        if self._timeout is None:
            return None
        now = self._clock()
        times = [
            _POLL if slot.timed_out else max(0.0, slot.started + self._timeout - now)
            for slot in self._slots
            if slot.job is not None
        ]
        return min(times, default=None)

    def _timed_out(self) -> list[tuple[_Job, int, Failure | None]]:
        """Batches whose time is over and whose processes are gone, after TERM or after KILL."""
        if self._timeout is None:
            return []
        now = self._clock()
        finished: list[tuple[_Job, int, Failure | None]] = []
        for slot in list(self._slots):
            job = slot.job
            if job is None:
                continue
            if not slot.timed_out and now >= slot.started + self._timeout:
                self._selector.unregister(slot.from_shell)
                slot.terminate(now, self._grace)
            if slot.timed_out and (slot.is_gone() or now >= slot.kill_at):
                how = "killed" if now >= slot.kill_at else "terminated"
                message = f"timed out after {self._timeout:g} s, and was {how}"
                finished.append((job, 124, Failure("timeout", message)))
                self._replace(slot)
                slot.finish(job)
        return finished

    def _outcome(self, job: _Job, code: int, failure: Failure | None) -> tuple[int, Outcome]:
        made: list[list[Sample]] = []
        stray: list[str] = []
        if failure is None and code:
            failure = Failure("exit", _exit_message(code), code)
        if failure is None or (failure.kind == "exit" and self._ignore_status):
            try:
                made, stray = self._gather(job)
            except FileNotFoundError:
                failure = Failure("folder", "the command removed its own folder")
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
                    raise self._scratch_error("what the command left cannot be read", job, error) from None
                failure = Failure("folder", f"what the command left cannot be used: {error}")
        self._remover.add(job.folder)
        return job.ticket, Outcome(made, job.printed, failure, stray)

    def _gather(self, job: _Job) -> tuple[list[list[Sample]], list[str]]:
        if self._rules is None:
            return [[{"__key__": sample["__key__"]}] for sample in job.batch], []
        if not self._batched:
            made, stray = gather(job.folder, job.batch[0], self._rules)
            return [made], stray
        results = [gather(job.folder, sample, self._rules, f"{number:08d}") for number, sample in enumerate(job.batch)]
        return [made for made, _ in results], [name for _, stray in results for name in stray]


def _exit_message(code: int) -> str:
    if code == 127:
        return "exit code 127 (a command was not found)"
    if code == 126:
        return "exit code 126 (a command cannot be run)"
    if code > 128:
        with suppress(ValueError):
            return f"exit code {code} ({signal.Signals(code - 128).name})"
    return f"exit code {code}"
