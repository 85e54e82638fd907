"""Destination of each sample of a run: the output or the failed samples, with the counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, EncodeError, TarkitError, printable, shortened
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome, in_batches
from tarkit.runs.counts import Counts, TooManyErrorsError
from tarkit.runs.engine import ERROR_FIELD, Engine
from tarkit.samples.sample import Sample, first_dot, is_bookkeeping, is_reserved, key_rule
from tarkit.samples.tarwriter import TarWriter
from tarkit.samples.transforms import field_list
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import WholeOutput

_ERROR_METADATA = "__error__"
"""Name of the report in a failed sample if the key rule does not read the name of the field back:
by last-dot, it would be a separate sample.
"""
_ERROR_TAIL = 4096


class CountsError(TarkitError):
    """The counts do not add up: a bug in tarkit."""


class Sinks(WholeOutput):
    """The output, and a shard of failed samples beside it, created when needed.

    Args:
        target, failed_target: names, or None to write nothing.
        options: arguments of TarWriter.

    Attributes:
        copied: number of samples of the output that were copied from elsewhere, and are not
            counted.
    """

    def __init__(self, target: str | None, failed_target: str | None, options: Mapping[str, Any]) -> None:
        self._failed_target = failed_target
        self._options = {**options, "encoder": False}
        self._rule = key_rule(options.get("rule", first_dot))
        self._failed: TarWriter | None = None
        self._last_failed: str | None = None
        self.copied = 0
        self.output = TarWriter(target, **self._options) if target is not None else None

    @property
    def has_failed(self) -> bool:
        """True if any failed sample was kept."""
        return self._failed is not None

    def checksum(self) -> tuple[int, str | None]:
        """Return the size in bytes and the SHA-256 of the output, after ``close()``."""
        return (0, None) if self.output is None else self.output.checksum_of_file()

    def copy(self, sample: Sample) -> None:
        """Write a sample that was made by an earlier run."""
        if self.output is not None:
            self.output.write(sample)
            self.copied += 1

    def write_failed(self, sample: Sample, report: bytes) -> None:
        """Add a sample to the failed samples, with a report of the failure."""
        if self._failed_target is None:
            return
        if self._failed is None:
            options = {**self._options, "on_repeated_key": "allow", "keep_meta": True, "index": False}
            if options.get("format") == "ustar":
                # A sample may fail just because its name does not fit.
                options["format"] = "pax"
            self._failed = TarWriter(self._failed_target, **options)
        if sample["__key__"] == self._last_failed:
            # Of another shard, or of a shard with repeated keys. Side by side they would be read as
            # one.
            self._failed.separate()
        key = sample["__key__"]
        kept = {name: value for name, value in sample.items() if name == "__key__" or not is_bookkeeping(name)}
        comes_back = self._rule(f"{key}.{ERROR_FIELD}") == (key, ERROR_FIELD)
        self._failed.write({**kept, ERROR_FIELD if comes_back else _ERROR_METADATA: report})
        self._last_failed = key

    def close(self) -> None:
        """Publish the failed samples, then the output, which would look complete without them."""
        if self._failed is not None:
            self._failed.close()
        if self.output is not None:
            self.output.close()

    def discard(self) -> None:
        """Discard both."""
        for writer in (self._failed, self.output):
            if writer is not None:
                writer.discard()


class Account:
    """The account of a run: writes each outcome to the output or the failed samples, and counts it.

    Args:
        before: counts of earlier work in the same run, which count for the limit of failures.

    Attributes:
        failed_at: for each failed sample its key, and how many samples had been written before it.
    """

    def __init__(self, counts: Counts, sinks: Sinks, engine: Engine, before: Counts | None = None) -> None:
        self.counts = counts
        self.sinks = sinks
        self.failed_at: list[tuple[str, int]] = []
        self._before = Counts() if before is None else before
        self._fate = "nothing was published" if before is None else "this shard is not published"
        self._engine = engine
        self._work = engine.work
        self._codes: set[int | None] = set()

    def enter(self, batch: Batch, outcome: Outcome, first: Callable[[Sample], None] | None = None) -> None:
        """Write and count the samples of one batch.

        Args:
            first: called before each sample.
        """
        key = batch[0]["__key__"]
        failure = outcome.failure
        ignored = failure is not None and failure.kind == "exit" and self._work.errors == "ignore" and outcome.made
        log = outcome.printed.kept() if self._work.add_log is not None else None
        for number, sample in enumerate(batch):
            if first is not None:
                first(sample)
            self.counts.read += 1
            if failure is not None and not ignored:
                self._fail(sample, failure, outcome.printed)
                continue
            if ignored:
                self.counts.ignored += 1
            self._write(sample, outcome.made[number], log, outcome.printed)
        if outcome.stray:
            self.counts.stray_files += len(outcome.stray)
            self._engine.reporter.stray(key, outcome.stray)
        # With no sample to keep it in, it is shown.
        if log is None or (failure is not None and not ignored) or not any(outcome.made):
            self._engine.reporter.printed(key, outcome.printed)
        outcome.printed.discard()
        self._engine.reporter.advanced(self._before.read + self.counts.read, self._before.failed + self.counts.failed)

    def _write(self, sample: Sample, made: list[Sample], log: bytes | FieldFile | None, printed: Printed) -> None:
        if not made:
            self.counts.filtered += 1
            return
        if self._engine.required and (lacking := self._lacking(sample, made)):
            self._fail(sample, Failure("incomplete", lacking), printed)
            return
        emptied = sum(_emptied(sample, each) for each in made)
        if log is not None and (field := self._work.add_log) is not None:
            if any(field in each for each in made):
                message = f"the sample has a field {field!r}, which --add-log would replace"
                self._fail(sample, Failure("unwritable", message), printed)
                return
            made = [{**each, field: log} for each in made]
        before = 0
        if self.sinks.output is not None:
            before = self.sinks.output.samples
            try:
                self.sinks.output.write_all(made)
            except EncodeError as error:
                self._fail(sample, Failure("unwritable", str(error)), printed)
                return
            self.counts.emptied += emptied
        self.counts.out += len(made) if self.sinks.output is None else self.sinks.output.samples - before
        self.counts.added += len(made) - 1

    def _lacking(self, sample: Sample, made: list[Sample]) -> str | None:
        """Return the fields of --require that a new sample lacks."""
        for each in made:
            for group in self._engine.required:
                if not any(name in each for name in group):
                    has = field_list(name for name in each if not is_reserved(name))
                    which = "" if each["__key__"] == sample["__key__"] else f" {printable(each['__key__'])}"
                    return f"the sample{which} came out without {' or '.join(group)} (--require); it has {has}"
        return None

    def _fail(self, sample: Sample, failure: Failure, printed: Printed) -> None:
        counts = self.counts
        counts.failed += 1
        before = counts.out if self.sinks.output is None else self.sinks.output.samples
        self.failed_at.append((sample["__key__"], before))
        counts.failures[failure.kind] = counts.failures.get(failure.kind, 0) + 1
        self._codes.add(failure.code if failure.kind == "exit" else None)
        failure = replace(failure, url=sample.get("__url__"))
        self._engine.reporter.failed(sample["__key__"], failure, printed)
        if self._work.errors == "abort":
            raise self._too_many(f"{failure.line(sample['__key__'], printed)}; --errors abort ends the run")
        if self._work.errors != "skip":
            message = f"{shortened(failure.message, _ERROR_TAIL)}\n{failure.detail[-_ERROR_TAIL:]}"
            report = message.encode("utf-8", "surrogateescape") + printed.report(_ERROR_TAIL)
            self.sinks.write_failed(sample, report)
        self._check_limit(at_end=False)

    def _check_limit(self, *, at_end: bool) -> None:
        failed, read = self._before.failed + self.counts.failed, self._before.read + self.counts.read
        if failed and self._engine.limit.exceeded(failed, read, at_end=at_end):
            raise self._too_many(f"{failed} of {read} samples failed; --max-errors is {self._engine.limit}")

    def conclude(self, *, at_end: bool = True) -> None:
        """Check, after the last sample, that the counts add up, and that a sample succeeded."""
        counts = self.counts
        self._check_limit(at_end=at_end)
        if counts.failed and counts.failed == counts.read:
            raise self._too_many(f"all {counts.read} samples failed")
        self.check()

    def check(self) -> None:
        """Refuse counts that do not add up, or that differ from those of the writer."""
        counts = self.counts
        written = counts.out if self.sinks.output is None else self.sinks.output.samples - self.sinks.copied
        if not counts.add_up() or written != counts.out:
            raise CountsError(f"the counts do not add up, please report this: {counts.sum_of_samples()}")

    def _too_many(self, message: str) -> TooManyErrorsError:
        nothing_ran = self.counts.failed == self.counts.read and len(self._codes) == 1
        code = next(iter(self._codes), None)
        if nothing_ran and code in (EXIT_CANNOT_RUN, EXIT_NOT_FOUND):
            return TooManyErrorsError(f"{message}; the command cannot be run", code)
        return TooManyErrorsError(f"{message}; {self._fate}")


def _emptied(before: Sample, made: Sample) -> int:
    """Count the fields of a sample that are empty, and had content or did not exist before."""
    if all(made.values()):
        return 0
    return sum(not value and not is_reserved(name) and before.get(name) != b"" for name, value in made.items())


def run_samples(samples: Iterator[Sample], sinks: Sinks, engine: Engine, counts: Counts) -> None:
    """Run every sample, and publish the result; on an exception, publish nothing."""
    with sinks:
        account = Account(counts, sinks, engine)
        with closing(engine.outcomes(in_batches(samples, engine.batch_size))) as outcomes:
            for batch, outcome in outcomes:
                account.enter(batch, outcome)
        account.conclude()
