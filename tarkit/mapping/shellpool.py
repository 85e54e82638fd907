"""Run a shell command over samples, with one long-lived shell for each slot.

Starting bash costs about 1 ms, a subshell of a running one a third of that. So each slot keeps one
shell that reads folders, one a line, and runs the command in each of them in a subshell. ``exit``,
``cd``, ``exec``, traps and ``set -e`` end with that subshell, as they would with ``bash -c``. If a
command kills its shell, the sample has failed and the slot gets a new shell.
"""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from tarkit.errors import CommandNotRunnableError, StreamError, printable
from tarkit.mapping.leftrunning import LeftRunning, start_adopting
from tarkit.mapping.mounts import MountWatch
from tarkit.mapping.output import Printed, PrintFiles
from tarkit.mapping.parallel import POLL, Batch, Failure, Job, Outcome, Pool, Worker
from tarkit.mapping.removal import Remover, remove_folder
from tarkit.mapping.scratch import FieldNameError, Rules, collect, extract, has_other_names
from tarkit.mapping.shellrules import Driven, driven, flags_of
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import TOO_MANY_FILES, scratch_hint

# Standard input brings names of folders below $1, standard output takes exit codes; the command
# sees neither. The redirections belong to the subshell, so that a failing one is that sample's
# failure. All on one line, so that the command's own lines are counted from 1 in messages and
# LINENO.
_DRIVER = (
    # The caller may have exported SHELLOPTS with errexit: that is for the command, not for this
    # loop.
    "__tarkit_set=:; case $- in *e*) __tarkit_set='set -e'; set +e;; esac; "
    "__tarkit_scratch=$1 __tarkit_out=$2 __tarkit_err=$3 __tarkit_command=$4 __tarkit_tail=$6; "
    'eval "$5"; shift 6; '
    "while IFS= read -r __tarkit_folder; do "
    '( cd -- "$__tarkit_scratch/$__tarkit_folder" || exit 126; $__tarkit_set; '
    'eval "$__tarkit_command$__tarkit_tail"; %s) '
    '</dev/null >>"$__tarkit_out" 2>>"$__tarkit_err"; '
    "echo $?; done"
)
"""Script of the shell; %s takes the commands that follow the command."""
_DRIVEN_DIRECTLY = ("bash", "sh", "dash")
_FIRST_POLL = 0.001  # seconds
_PATIENCE = 1.0
"""Seconds that processes left by a command have to end, like the last program of ``> >(gzip >
sample.gz)``.
"""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM)


class _Slot(Worker):
    """A shell that runs one command at a time."""

    def __init__(self, number: int, shell: str, command: str, rules: Driven, scratch: str) -> None:
        """Prepare a slot.

        Args:
            number: unique among the slots.
        """
        files = PrintFiles(os.path.join(scratch, f"slot-{number}"))
        with open(os.path.join(scratch, "shell.log"), "ab") as log:
            try:
                self.process, adopts = start_adopting(
                    [shell, "-c", _DRIVER % rules.end, shell, scratch, files.out, files.err, command, *rules[:2]],
                    bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                code = 127 if isinstance(error, FileNotFoundError) else 126
                reason = "not found" if code == 127 else error.strerror
                if error.errno == errno.E2BIG:
                    reason = "the command is too long; put it into a file and use --script"
                raise CommandNotRunnableError(f"shell {shell}: {reason}", code) from None
        self._to_shell, self.from_shell = (
            pipe.fileno() for pipe in (self.process.stdin, self.process.stdout) if pipe is not None
        )
        super().__init__(self.process.pid, self.process.poll, files, self.from_shell)
        self.left = LeftRunning(self.process.pid, os.path.realpath(scratch), adopts=adopts)
        # Of a command that has ended: its exit code, and when that was.
        self.code: int | None = None
        self.ended = 0.0

    def give(self, job: Job, now: float) -> None:
        """Send the name of the job's folder to the shell."""
        self.started = now
        try:
            os.write(self._to_shell, b"%08d\n" % job[0])
            self.is_ready = True
        except BrokenPipeError:
            self.is_lost = True

    def end(self) -> None:
        """Kill whatever is left, and reap the shell."""
        self.left.kill()
        super().end()
        self.left.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


class ShellPool(Pool[_Slot]):
    """A pool of shells.

    A context manager.

    Args:
        command: run in each sample's folder; with more than one sample in a batch, run once in a
            folder that holds one folder for each sample.
        scratch: folder for the samples' folders.
        slots: number of commands at once.
        shell: bash, sh and dash are kept running; others are started for each batch.
        flags: flags of the shell; None means the rules of tarkit.mapping.shellrules, "" no flags;
            with other flags, a shell is started for each batch.
        timeout: seconds for one batch, or None.
        grace: seconds between TERM and KILL.
        rules: rules for making samples of files; None: no samples are made.
        base: the part of the file names before the first dot.
        batched: lay out batches of one sample like those of several, too.
        ignore_status: use the files even if the command fails.
        is_filter: the command does not change its sample: exit code 0 keeps it, 1 drops it, and
            others are failures.

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
        flags: str | None = None,
        timeout: float | None = None,
        grace: float = 5.0,
        rules: Rules | None = None,
        base: str = "sample",
        batched: bool = False,
        ignore_status: bool = False,
        is_filter: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if os.path.basename(shell) in _DRIVEN_DIRECTLY and not flags:
            self._shell, self._command = shell, command
            self._driven = driven(command, shell, flags, is_filter=is_filter)
        else:
            self._shell, self._driven = "sh", Driven()
            self._command = f"exec {shlex.join([shell, *flags_of(shell, flags), '-c', command])}"
        self._scratch = scratch
        self._rules = None if rules is None else rules._replace(folder=scratch)
        self._base = base
        self._batched = batched
        self._ignore_status = ignore_status
        self._is_filter = is_filter
        self._numbers = itertools.count()
        self._remover = Remover()
        self._mounts = MountWatch(scratch)
        super().__init__(slots, timeout, grace, clock)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._remover.__exit__()
        self._mounts.__exit__()

    def _new_worker(self) -> _Slot:
        try:
            return _Slot(next(self._numbers), self._shell, self._command, self._driven, self._scratch)
        except OSError as error:
            reason = f"a shell cannot be started: {error.strerror}"
            raise StreamError(reason, url=self._scratch, hint=scratch_hint(error)) from None

    def has_room(self) -> bool:
        """True if a slot is free.

        One more batch is kept extracted for each slot, so that no slot waits for the disk.
        """
        return len(self._queue) < len(self._workers)

    def submit(self, ticket: int, batch: Batch) -> None:
        """Extract a batch, and start it if a slot is free."""
        job, folder = (ticket, batch), self._folder(ticket)
        while True:
            try:
                self._extract(batch, folder)
                break
            except FieldNameError as error:
                remove_folder(folder)
                self._done.append((ticket, Outcome([], Printed(), Failure("folder", str(error)))))
                return
            except OSError as error:
                remove_folder(folder)
                if isinstance(error, StreamError):
                    # A field that cannot be read from its file.
                    raise
                # What could not be removed would be in the way of another attempt.
                stays = os.path.lexists(folder)
                if stays or error.errno not in _DISK_ERRORS or not self._wait_for_space():
                    raise self._scratch_error("a sample cannot be extracted", batch, error) from None
        self._queue.append(job)
        self._hand_out()

    def _folder(self, ticket: int) -> str:
        return f"{self._scratch}/{ticket:08d}"

    def _scratch_error(self, problem: str, batch: Batch, error: OSError) -> StreamError:
        """Return the error for a problem of the scratch folder, for which no sample is to blame."""
        key = batch[0]["__key__"]
        return StreamError(f"{problem}: {error.strerror}", url=self._scratch, key=key, hint=scratch_hint(error))

    def _extract(self, batch: Batch, folder: str) -> None:
        if not self._batched:
            extract(batch[0], folder, self._base)
            return
        os.mkdir(folder, 0o700)
        for number, sample in enumerate(batch):
            extract(sample, f"{folder}/{number:08d}", self._base)

    def _wait_for_space(self) -> bool:
        """Wait until a folder is removed or a command ends; return False at once if none can."""
        if self._remover.wait_for_one():
            return True
        if not any(slot.jobs for slot in self._workers):
            return False
        self._done += self._collect_some()
        return True

    def _heard(self, worker: _Slot, events: int) -> list[tuple[Job, Outcome]]:
        answer = os.read(worker.from_shell, 4096)
        if not (worker.jobs and answer.endswith(b"\n") and answer[:-1].isdigit()):
            worker.process.kill()
            return self._died(worker, worker.process.wait(), "shell-died", "the shell that ran the command")
        worker.code, worker.ended = int(answer), self._clock()
        return self._settle(worker)

    def _settle(self, worker: _Slot) -> list[tuple[Job, Outcome]]:
        """Return the outcome of a command that has ended, once all of its processes are gone."""
        code, left = worker.code, worker.left.processes()
        end = worker.ended + _PATIENCE
        if self._timeout is not None:
            end = min(end, worker.started + self._timeout)
        if left and self._clock() < end:
            return []
        worker.code = None
        is_answer = self._is_filter and code in (0, 1)
        failure = None if is_answer or not code else self._exit_failure(worker.jobs[0][0], code)
        if left:
            if failure is None or self._ignore_status:
                programs = worker.left.names(left)
                message = f"the command ended and left {programs} running; end it, or add `wait` to the command"
                failure = Failure("left-running", message)
            return self._replace(worker, failure)
        job = worker.jobs.popleft()
        made = [] if not is_answer else [[]] if code else [job[1]]
        # What it printed is put aside, so that the next one may print.
        return [(job, Outcome(made, worker.files.take(f"{job[0]:08d}"), failure))]

    def _exit_failure(self, ticket: int, code: int) -> Failure:
        """Return the exit code of a failed command, and the failed part if the shell named it."""
        message = _exit_message(code)
        # There is none after exit, nor if the disk is full; and the command may have put anything
        # there.
        with suppress(OSError):
            path = f"{self._folder(ticket)}.why"
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                reported, _, why = (file.read(4096) or b"").decode("utf-8", "replace").partition(" ")
            os.unlink(path)
            if reported == str(code) and why:
                message = f"{message}: {why}"
        return Failure("exit", message, code)

    def _time_to_next_deadline(self) -> float | None:
        until = super()._time_to_next_deadline()
        for worker in self._workers:
            if worker.code is not None:
                soon = min(POLL, _FIRST_POLL + self._clock() - worker.ended)
                until = soon if until is None else min(until, soon)
        return until

    def _timed_out(self) -> list[tuple[Job, Outcome]]:
        settling = [each for each in self._workers if each.code is not None]
        return [done for worker in settling for done in self._settle(worker)] + super()._timed_out()

    def _terminate(self, worker: _Slot) -> None:
        # Where the shell ends first, the rest of its group has the time of grace, too.
        self._unwatch(worker)
        super()._terminate(worker)

    def _conclude(self, finished: list[tuple[Job, Outcome]]) -> list[tuple[int, Outcome]]:
        # Slots get their next batch before the files of the last ones are read, unless it could
        # change them.
        if not any(self._has_other_names(job[0]) for job, _ in finished):
            self._hand_out()
        for job, outcome in finished:
            self._complete(job, outcome)
        return super()._conclude(finished)

    def _has_other_names(self, ticket: int) -> bool:
        return self._rules is not None and has_other_names(self._folder(ticket), self._batched + self._rules.subdirs)

    def _complete(self, job: Job, outcome: Outcome) -> None:
        """Read the files that a command left in its folder, and have the folder removed."""
        ticket, batch = job
        if (mount := self._mounts.find(f"{ticket:08d}")) is not None:
            before = "" if outcome.failure is None else f"{outcome.failure.message}; "
            stays = f"the command left {printable(mount)} mounted, which stays"
            hint = f"unmount it, then remove {printable(self._scratch)}"
            outcome.failure = Failure("mount", f"{before}{stays}; {hint}")
        # A filter has given its answer.
        ignored = outcome.failure is not None and outcome.failure.kind == "exit" and self._ignore_status
        if not self._is_filter and (outcome.failure is None or ignored):
            try:
                outcome.made, outcome.stray = self._gather(batch, self._folder(ticket))
            except FileNotFoundError:
                outcome.failure = Failure("folder", "the command removed its own folder")
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in TOO_MANY_FILES:
                    raise self._scratch_error("what the command left cannot be read", batch, error) from None
                outcome.failure = Failure("folder", f"what the command left cannot be used: {error}")
        self._remover.add(self._folder(ticket))

    def _gather(self, batch: Batch, folder: str) -> tuple[list[list[Sample]], list[str]]:
        if self._rules is None:
            return [[{"__key__": sample["__key__"]}] for sample in batch], []
        if not self._batched:
            made, stray = collect(folder, batch[0], self._rules)
            return [made], stray
        results = [collect(folder, sample, self._rules, f"{number:08d}") for number, sample in enumerate(batch)]
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
