"""The reader of a run's samples, and the pool that maps them, for all of its shards."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, Any

from tarkit.errors import CommandNotRunnableError, UsageError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Batch, Failure, Mark, Outcome, Pool, ordered_map
from tarkit.mapping.scratch import Rules, Scratch
from tarkit.mapping.shellrules import what_is_missing
from tarkit.runs.counts import Counts, Limit
from tarkit.runs.work import Function, Work
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.samples.transforms import alternatives, field_names, keep_fields
from tarkit.store.fieldfile import LARGE

if TYPE_CHECKING:
    from tarkit.runs.donerecord import DoneRecord

ERROR_FIELD = "__error__.txt"
"""Field of a failed sample with the reason of the failure."""


class Reporter:
    """Callbacks of a run, for its progress.

    The methods of this class do nothing; override the needed ones.

    All methods are called from one thread; those for samples in the order of the input.
    """

    def started(self, counts: Counts, shards: int | None, *, failed_are_kept: bool) -> None:
        """Called before the first sample.

        Args:
            counts: filled from now on.
            shards: number of inputs, None if it is not known.
            failed_are_kept: failed samples are written to a shard.
        """

    def reading(self, tally: Tally) -> None:
        """Called when a reader begins: of one shard with ``outdir``, otherwise of all shards."""

    def printed(self, key: str, printed: Printed) -> None:
        """Called with the whole output of a command."""

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        """Called when a sample has failed."""

    def stray(self, key: str, names: list[str]) -> None:
        """Called when a command left files that do not belong to a sample."""

    def advanced(self, read: int, failed: int) -> None:
        """Called for each sample, with the numbers of samples so far and of failures."""

    def shard_skipped(self, output_url: str) -> None:
        """Called when a shard was done by an earlier run."""

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        """Called when a shard is published, or has failed; the record says which."""

    def shard_missing(self, url: str) -> None:
        """Called when an input does not exist."""

    def noted(self, message: str) -> None:
        """Called with one line about the run, not about a sample or a shard."""


class Engine:
    """A reader of samples and a pool that maps them, as the work defines.

    Args:
        scratch: folder for data that is too large for memory; None keeps all data in memory.
    """

    def __init__(self, work: Work, pool: Pool[Any], reporter: Reporter, scratch: str | None = None) -> None:
        self.work = work
        self.reporter = reporter
        self.limit = Limit.parse(work.max_errors)
        self.required = required_fields(work.require)
        self.batch_size = work.batch or 1
        self.writer_options: dict[str, Any] = {
            "mtime": work.mtime,
            "format": work.format,
            "rule": work.key_rule,
            "on_repeated_key": work.on_repeated_key,
            "index": work.index,
        }
        # For a command what is large is kept in files of the scratch folder, for a function what
        # exceeds --mem.
        field = sample = max(LARGE, work.mem)
        if work.function is None:
            field, sample = _large_field(work), 2 * _large_field(work)
        self.large = None if scratch is None else KeepInFiles(scratch, field, sample)
        self._pool = pool

    def outcomes(self, items: Iterable[Batch | Mark]) -> Generator[tuple[Batch, Outcome] | Mark, None, None]:
        """Yield each batch with its outcome, and each mark between them, in order."""
        return ordered_map(items, self._pool, window=self.work.mem)

    def read(self, shards: Iterable[str], tally: Tally) -> Generator[Sample, None, None]:
        """Yield the samples of some shards, by their names, with the fields that the work wants.

        Closing the generator closes the shard that is being read.
        """
        work = self.work
        self.reporter.reading(tally)
        retry = work.retry_failed is not None
        reader = read_samples(
            shards,
            split=True,
            rule=work.key_rule,
            on_duplicate_field=work.on_duplicate_field,
            on_repeated_key="allow" if retry else work.on_repeated_key,
            on_damage=work.on_damage,
            tally=tally,
            literal=True,
            mem=work.mem,
            large=self.large,
        )
        with closing(reader):
            samples = without_reports(reader) if retry else reader
            yield from self.with_fields(itertools.islice(samples, work.count), tally)

    def with_fields(self, samples: Iterator[Sample], tally: Tally | None) -> Iterator[Sample]:
        """Yield the samples with only the requested fields."""
        work = self.work
        if work.fields is None:
            return samples
        wanted = field_names(work.fields)
        # The samples that failed may be just those that lack a field.
        may_lack = work.fieldmode == "ignore" and work.retry_failed is not None
        return keep_fields(samples, wanted, missing="allow" if may_lack else work.fieldmode, tally=tally)


def without_reports(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield failed samples as they were before they failed."""
    for sample in samples:
        sample.pop(ERROR_FIELD, None)
        yield sample


@contextmanager
def open_engine(work: Work, reporter: Reporter) -> Iterator[Engine]:
    """Open the engine of a run, with its folder and its pool."""
    if (work.command or work.filter) and (missing := what_is_missing(work.shell, work.shell_flags)):
        reporter.noted(missing)
    with Scratch(path=work.working_dir) as scratch, _open_pool(work, scratch.path) as pool:
        yield Engine(work, pool, reporter, scratch.path)


def _open_pool(work: Work, scratch: str) -> AbstractContextManager[Pool[Any]]:
    slots = max(1, work.parallel or 1)
    if work.function is not None:
        from tarkit.mapping.pythonpool import PythonPool

        return PythonPool(
            work.function,
            scratch,
            setup=_setup(work),
            slots=slots,
            batched=work.batch is not None,
            timeout=work.timeout,
            mem=work.mem,
        )
    if work.setup:
        raise UsageError("--setup goes with --map")
    from tarkit.mapping.shellpool import ShellPool

    if "/" in work.base or "." in work.base or not work.base:
        raise UsageError(f"--base {work.base!r} must be a file name without a dot")
    include, exclude = _pattern(work.include, "--include"), _pattern(work.exclude, "--exclude")
    rules = Rules(work.base, work.multi, work.subdirs, work.separator, include, exclude, _large_field(work))
    command = work.command if work.filter is None else work.filter
    return ShellPool(
        command if command is not None else _script(str(work.script), work.interpreter),
        scratch,
        slots=slots,
        shell=work.shell,
        flags=work.shell_flags if command is not None else "",
        timeout=work.timeout,
        rules=rules if work.output is not None or work.outdir is not None else None,
        base=work.base,
        batched=work.batch is not None,
        ignore_status=work.errors == "ignore",
        is_filter=work.filter is not None,
    )


def required_fields(text: str | None) -> list[list[str]]:
    """Parse groups of fields, such as ``"jpg|png,cls"``: a sample must have one field of each.

    Raises:
        UsageError: the text names no field.
    """
    if text is None:
        return []
    try:
        groups = alternatives(text.replace(",", " "))
    except UsageError as error:
        raise UsageError(f"--require: {error}") from None
    if not groups:
        raise UsageError(f"--require {text!r} names no field; write for example 'jpg|png,cls'")
    return groups


def _script(script: str, interpreter: str) -> str:
    """Return the shell command that runs a script, or a program on the path."""
    if os.path.exists(script):
        return f"exec {interpreter} {shlex.quote(os.path.abspath(script))}"
    found = shutil.which(script)
    if found is None:
        raise CommandNotRunnableError(f"script {script!r} is neither a file nor a program on the path", 127)
    return f"exec {shlex.quote(found)}"


def _setup(work: Work) -> str | Function | None:
    """Return the setup; a name alone is looked up where the function is defined."""
    if not isinstance(work.setup, str) or ":" in work.setup or not work.setup:
        return work.setup or None
    if not isinstance(work.function, str):
        raise UsageError(f"setup {work.setup!r} must be module:function, file.py:function, or a callable")
    return f"{work.function.rpartition(':')[0]}:{work.setup}"


def _pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is not a regular expression: {error}") from None


def _large_field(work: Work) -> int:
    """Return the size in bytes above which a field is passed as a file.

    Only few such fields are used at once, since each is an open file.
    """
    return max(LARGE, work.mem // 16)
