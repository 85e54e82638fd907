"""``tarkit reduce``: make one sample of each group of samples."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Any, ClassVar

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, EncodeError, UsageError, counted, printable, shortened
from tarkit.exchange.exchange import TooManyFailedError
from tarkit.exchange.groupnames import groups_of_samples
from tarkit.exchange.grouppool import GroupPool, batch_of, group_of
from tarkit.exchange.groupsamples import GroupSamples
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.positions import PlaceOf, ordinal, text_of, text_value
from tarkit.exchange.runfile import Row
from tarkit.exchange.step import Step, groups
from tarkit.exchange.values import By, identity_of
from tarkit.mapping.mappererrors import AnswerError, one_line, traceback_text, why_not_callable
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome, ordered_map
from tarkit.mapping.pythonworker import FunctionSpec, as_samples, load
from tarkit.mapping.scratch import Rules, Scratch
from tarkit.runs.counts import Limit
from tarkit.runs.engine import Reporter
from tarkit.runs.usedfiles import sha256_of_file, used_files
from tarkit.runs.work import Work
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import LARGE, FieldFile

REDUCED = "samples merged into that of their group"
NO_RESULT = "samples of groups without a result"
_HELD = 256 * 1024
"""Bytes of samples of a group that are held in memory while its command runs."""
_TAIL = 4096


class Reduce(Step):
    """Make one sample of each group of samples, whose key is the name of the group.

    Args:
        by: ``folder``, that of the key; ``key:REGEX``, the part of the key that the group of the
            regular expression matches; or a value as for :class:`tarkit.exchange.sort.Sort`.
        command: run by a shell in the group's folder, in which the folders 000000/, 000001/, … have
            one sample each; the files sample.* in the group's folder are the new sample. None of
            them: the group has no result.
        function: ``module:name``, ``file.py:name``, or a callable: from the name of the group, and
            an iterator of its samples in input order, to a sample, None, or several samples.
        shell: program that runs the command.
        shell_flags: its flags before ``-c``; None: errexit and pipefail.
        timeout: seconds that one command may take; None: no limit.
        work_id: name for what functions do that have no name of their own, by which outputs of an
            earlier run are recognized.
        reporter: object whose methods ``failed``, ``printed`` and ``stray`` are called for groups
            of which a command made a sample.

    Raises:
        UsageError: an argument is not valid, or a function cannot be loaded.
    """

    name: ClassVar[str] = "reduce"
    in_groups: ClassVar[bool] = True

    def __init__(
        self,
        by: By,
        command: str | None = None,
        function: FunctionSpec | None = None,
        *,
        shell: str = "bash",
        shell_flags: str | None = None,
        timeout: float | None = None,
        work_id: str | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        if (command is None) == (function is None):
            raise UsageError("give one of -c COMMAND and --map FUNCTION")
        if function is not None and (timeout is not None or shell_flags is not None):
            raise UsageError("--timeout and --shell-flags go with -c, not with --map, which runs no command")
        self._by, self._command, self._function = by, command, function
        self._shell, self._shell_flags, self._timeout = shell, shell_flags, timeout
        if work_id is None and (callable(by) or callable(function)):
            work_id = os.urandom(16).hex()
        self._work_id = work_id
        self._reporter = reporter or Reporter()
        self._seen = self._failed = 0
        self._codes = set[int | None]()
        self.runs_commands, self.runs_functions = command is not None, function is not None
        groups_of_samples(by)
        if function is not None:
            _loaded(function)
        self._options = self._described()

    def options(self) -> dict[str, Any]:
        return self._options

    def _described(self) -> dict[str, Any]:
        named = None if callable(self._function) else self._function
        work = Work(command=self._command, function=named, shell=self._shell, shell_flags=self._shell_flags)
        files = {each.get("name", each["path"]): each["sha256"] for each in used_files(work)}
        files |= {path: sha256_of_file(path) for path in work.files().values()}
        return {
            **identity_of(self._by, self._work_id), "command": self._command, "shell": self._shell,
            "shell_flags": self._shell_flags, "map": named, "work_id": self._work_id, "files": files,
        }  # fmt: skip

    def place_of(self, shard: int) -> PlaceOf:
        group = groups_of_samples(self._by)

        def position(sample: RawSample, number: int) -> bytes:
            name = group(sample).encode("utf-8", "surrogateescape")
            return text_value(name) + ordinal(shard, number)

        return position

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        """Write the sample of each group.

        Raises:
            TooManyFailedError: more groups have failed than the limit allows.
            CommandNotRunnableError: the shell cannot be started.
            StreamError: the disk of temporary files is full.
        """
        found = ((text_of(value).decode("utf-8", "surrogateescape"), group) for value, group in groups(rows))
        first = next(found, None)
        if first is None:
            return
        with Scratch() as scratch:
            run = self._outcomes_of_command if self._command is not None else self._outcomes_of_function
            with contextlib.closing(run(chain([first], found), output, scratch.path)) as outcomes:
                for key, group, outcome in outcomes:
                    self._enter(key, group, outcome, output)
                    group.discard()
        self._check_command(output.name)

    def _outcomes_of_command(
        self, found: Iterator[tuple[str, Iterator[Row]]], output: GatheredOutput, scratch: str
    ) -> Generator[tuple[str, GroupSamples, Outcome], None, None]:
        def batches() -> Iterator[Batch]:
            for number, (key, rows) in enumerate(found):
                yield batch_of(key, GroupSamples(rows, output.sample_of, f"{scratch}/group-{number}.tar", _HELD))

        large = max(1 << 20, min(LARGE, output.mem // 16))
        pool = GroupPool(
            self._command or "", scratch, slots=output.parallel, shell=self._shell, flags=self._shell_flags,
            timeout=self._timeout, rules=Rules(large=large),
        )  # fmt: skip
        window = output.mem * output.parallel // 2
        with pool, contextlib.closing(ordered_map(batches(), pool, window=window)) as outcomes:
            for batch, outcome in outcomes:
                yield batch[0]["__key__"], group_of(batch), outcome
                pool.released += 1

    def _outcomes_of_function(
        self, found: Iterator[tuple[str, Iterator[Row]]], output: GatheredOutput, scratch: str
    ) -> Generator[tuple[str, GroupSamples, Outcome], None, None]:
        function = _loaded(self._function or "")
        for number, (key, rows) in enumerate(found):
            group = GroupSamples(rows, output.sample_of, f"{scratch}/group-{number}.tar", output.mem // 4)
            yield key, group, _called(function, key, group)

    def _enter(self, key: str, group: GroupSamples, outcome: Outcome, output: GatheredOutput) -> None:
        """Write and count the result of a group."""
        self._seen += 1
        output.noted["groups"] += 1
        failure, made = outcome.failure, [] if outcome.failure else outcome.made[0]
        if failure is None:
            try:
                output.write_all(made)
            except EncodeError as error:
                failure = Failure("unwritable", str(error))
        if failure is not None:
            self._fail(key, group, failure, outcome.printed, output)
        elif not made:
            output.drop(NO_RESULT, group.count)
        elif group.count > len(made):
            output.drop(REDUCED, group.count - len(made))
        else:
            output.counts.added += len(made) - group.count
        if outcome.stray:
            self._reporter.stray(key, outcome.stray)
        self._reporter.printed(key, outcome.printed)
        outcome.printed.discard()

    def _check_command(self, output: str) -> None:
        """Refuse a command that could not be run for any group."""
        if self._failed == self._seen and self._codes in ({EXIT_CANNOT_RUN}, {EXIT_NOT_FOUND}):
            (code,) = self._codes
            error = TooManyFailedError(
                f"all {counted(self._seen, 'group')} failed with exit code {code}; the command cannot be run; "
                f"{output} is not published"
            )
            error.exit_code = code or error.exit_code
            raise error

    def _fail(self, key: str, group: GroupSamples, failure: Failure, printed: Printed, output: GatheredOutput) -> None:
        """Let all samples of a group fail."""
        self._failed += 1
        output.noted["failed groups"] += 1
        self._codes.add(failure.code if failure.kind == "exit" else None)
        self._reporter.failed(key, failure, printed)
        limit = Limit.parse(output.settings.max_errors)
        if limit.exceeded(self._failed, self._seen):
            raise TooManyFailedError(
                f"{self._failed} of {self._seen} groups failed, the last: {failure.line(key, printed)}; --max-errors "
                f"is {limit}; {output.name} is not published"
            )
        report = printed.report(_TAIL).decode("utf-8", "replace").rstrip()
        reason = f"group {printable(key)}: {shortened(failure.message, _TAIL)}\n{failure.detail[-_TAIL:]}{report}"
        for sample in group.samples():
            output.fail(sample, reason.rstrip())


def _loaded(function: FunctionSpec) -> Callable[..., Any]:
    """Return a function that can be called with a group.

    Raises:
        UsageError: it cannot be loaded, or takes other arguments.
    """
    shown = "--map" if callable(function) else f"--map {printable(function)}"
    try:
        found = load(function)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's module raises
        raise UsageError(f"{shown} cannot be loaded: {printable(one_line(error))}") from None
    reason = why_not_callable(found, ("the name of a group", ""), ("an iterator of its samples", iter(())))
    if reason is not None:
        raise UsageError(f"{shown}: {reason}")
    return found


def _called(function: Callable[..., Any], key: str, group: GroupSamples) -> Outcome:
    """Return the result of a function for a group."""
    try:
        # Standard output is that of the program.
        with contextlib.redirect_stdout(sys.stderr):
            return Outcome([as_samples(function(key, map(_in_memory, group.samples())), key)], Printed())
    except AnswerError as error:
        return _raised(str(error))
    except SystemExit as error:
        return _raised(f"the function ended the program with sys.exit({error.code!r})")
    except Exception as error:  # of the user's function: it fails this group
        return _raised(one_line(error), traceback_text(error, __file__))


def _raised(message: str, detail: str = "") -> Outcome:
    return Outcome([], Printed(), Failure("exception", message, detail=detail))


def _in_memory(sample: Sample) -> Sample:
    return {name: value.read() if isinstance(value, FieldFile) else value for name, value in sample.items()}
