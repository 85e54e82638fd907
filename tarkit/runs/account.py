"""Where the samples of a run go: into the output, among the failed ones, and into the books."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, EncodeError, TarkitError, printable, shortened
from tarkit.formats.fieldfile import PIECE, FieldFile
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.runs.counts import Books, Limit
from tarkit.samples.sample import Sample, first_dot, is_bookkeeping, key_rule
from tarkit.samples.tarwriter import TarWriter

ERROR_POLICIES = ("keep", "skip", "ignore", "abort")
ERROR_FIELD = "__error__.txt"
"""The field of a failed sample that says what went wrong."""

_ERROR_METADATA = "__error__"
"""Its name where the key rule does not read that field back: by last-dot, it would be a sample of its own."""

_ERROR_TAIL = 4096


class Reporter(Protocol):
    """What a run tells while it goes on."""

    def printed(self, key: str, printed: Printed) -> None:
        """What a command printed, whole, in the order of the samples."""

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        """A sample has failed."""

    def stray(self, key: str, names: list[str]) -> None:
        """A command left files that belong to no sample."""

    def advanced(self, books: Books) -> None:
        """One more sample is accounted for."""


class TooManyErrorsError(TarkitError):
    """More samples failed than the limit allows, or nothing succeeded at all."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UnbalancedError(TarkitError):
    """The books do not balance: a bug in tarkit."""


@dataclass
class Policy:
    """What to do with failures.

    errors: one of ERROR_POLICIES. limit: how many failures end the run. log_field: keep what
    was printed in this field of the samples.
    """

    errors: str = "keep"
    limit: Limit = Limit()
    log_field: str | None = None


class Sinks:
    """Where samples go: the output, and beside it a shard of failed samples, made when needed.

    target, failed_target: names, or None to write nothing. options: arguments of TarWriter.
    copied: samples of the output that came from elsewhere, and are not in the books.
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
        """Whether any sample was set aside."""
        return self._failed is not None

    def checksum(self) -> tuple[int, str | None]:
        """After publish(): bytes and SHA-256 of the output; see TarWriter."""
        return (0, None) if self.output is None else self.output.checksum_of_file()

    def copy(self, sample: Sample) -> None:
        """Write a sample that was made by an earlier run."""
        if self.output is not None:
            self.output.write(sample)
            self.copied += 1

    def write_failed(self, sample: Sample, report: bytes) -> None:
        """Set a sample aside, with a report of what went wrong.

        Raises:
            EncodeError: the key rule reads no form of the report back, or takes it for another field.
        """
        if self._failed_target is None:
            return
        if self._failed is None:
            options = {**self._options, "on_repeated_key": "allow", "keep_meta": True}
            if options.get("format") == "ustar":
                # A sample may fail just because its name does not fit.
                options["format"] = "pax"
            self._failed = TarWriter(self._failed_target, **options)
        if sample["__key__"] == self._last_failed:
            # Of another shard, or of a shard with repeated keys. Side by side they would be read as one.
            self._failed.separate()
        key = sample["__key__"]
        kept = {name: value for name, value in sample.items() if name == "__key__" or not is_bookkeeping(name)}
        comes_back = self._rule(f"{key}.{ERROR_FIELD}") == (key, ERROR_FIELD)
        self._failed.write({**kept, ERROR_FIELD if comes_back else _ERROR_METADATA: report})
        self._last_failed = key

    def publish(self) -> None:
        """Publish both, the failed samples first: an output without them would look complete."""
        if self._failed is not None:
            self._failed.close()
        if self.output is not None:
            self.output.close()

    def discard(self) -> None:
        """Give both up."""
        for writer in (self._failed, self.output):
            if writer is not None:
                writer.discard()


class Account:
    """Enters outcomes into the books, one batch after the other.

    failed_at: for each failed sample its key and how many samples had been written before it.
    before: books of what the same run did before, which counts for the limit of failures.
    """

    def __init__(
        self, books: Books, sinks: Sinks, policy: Policy, reporter: Reporter, before: Books | None = None
    ) -> None:
        self.books = books
        self._before = Books() if before is None else before
        self._fate = "nothing was published" if before is None else "this shard is not published"
        self.failed_at: list[tuple[str, int]] = []
        self.sinks = sinks
        self.policy = policy
        self.reporter = reporter
        self.codes: set[int | None] = set()

    def enter(self, batch: Batch, outcome: Outcome, first: Callable[[Sample], None] | None = None) -> None:
        """Put the samples of one batch where they belong. first: is called before each of them."""
        key = batch[0]["__key__"]
        failure = outcome.failure
        ignored = failure is not None and failure.kind == "exit" and self.policy.errors == "ignore" and outcome.made
        log = _log(outcome.printed) if self.policy.log_field is not None else None
        for number, sample in enumerate(batch):
            if first is not None:
                first(sample)
            self.books.read += 1
            if failure is not None and not ignored:
                self._fail(sample, failure, outcome.printed)
                continue
            if ignored:
                self.books.ignored += 1
            self._write(sample, outcome.made[number], log, outcome.printed)
        if outcome.stray:
            self.books.stray_files += len(outcome.stray)
            self.reporter.stray(key, outcome.stray)
        # With no sample to keep it in, it is shown.
        if log is None or (failure is not None and not ignored) or not any(outcome.made):
            self.reporter.printed(key, outcome.printed)
        outcome.printed.discard()
        self.reporter.advanced(self.books)

    def _write(self, sample: Sample, made: list[Sample], log: bytes | FieldFile | None, printed: Printed) -> None:
        if not made:
            self.books.filtered += 1
            return
        if log is not None and self.policy.log_field is not None:
            if any(self.policy.log_field in each for each in made):
                message = f"the sample has a field {self.policy.log_field!r}, which --add-log would replace"
                self._fail(sample, Failure("unwritable", message), printed)
                return
            made = [{**each, self.policy.log_field: log} for each in made]
        before = 0
        if self.sinks.output is not None:
            before = self.sinks.output.samples
            try:
                self.sinks.output.write_all(made)
            except EncodeError as error:
                self._fail(sample, Failure("unwritable", str(error)), printed)
                return
        self.books.out += len(made) if self.sinks.output is None else self.sinks.output.samples - before
        self.books.added += len(made) - 1

    def _fail(self, sample: Sample, failure: Failure, printed: Printed) -> None:
        books = self.books
        books.failed += 1
        before = books.out if self.sinks.output is None else self.sinks.output.samples
        self.failed_at.append((sample["__key__"], before))
        books.failures[failure.kind] = books.failures.get(failure.kind, 0) + 1
        self.codes.add(failure.code if failure.kind == "exit" else None)
        self.reporter.failed(sample["__key__"], failure, printed)
        if self.policy.errors == "abort":
            raise self._too_many(f"{printable(sample['__key__'])}: {failure.message}; --errors abort ends the run")
        if self.policy.errors != "skip":
            self.sinks.write_failed(sample, _report(failure, printed))
        self._check_limit(at_end=False)

    def _check_limit(self, *, at_end: bool) -> None:
        failed, read = self._before.failed + self.books.failed, self._before.read + self.books.read
        if failed and self.policy.limit.exceeded(failed, read, at_end=at_end):
            raise self._too_many(f"{failed} of {read} samples failed; --max-errors is {self.policy.limit}")

    def conclude(self, *, at_end: bool = True) -> None:
        """At the end of the samples: do the books balance, and did anything succeed?

        at_end: of all samples; otherwise a limit in percent waits until there are enough of them.
        """
        books = self.books
        self._check_limit(at_end=at_end)
        if books.failed and books.failed == books.read:
            raise self._too_many(f"all {books.read} samples failed")
        self.balance()

    def balance(self) -> None:
        """Is every sample accounted for, and does the writer agree?

        Raises:
            UnbalancedError: no; that is a bug.
        """
        books = self.books
        written = books.out if self.sinks.output is None else self.sinks.output.samples - self.sinks.copied
        if not books.balanced() or written != books.out:
            raise UnbalancedError(f"the books do not balance, please report this: {books}")

    def _too_many(self, message: str) -> TooManyErrorsError:
        nothing_ran = self.books.failed == self.books.read and len(self.codes) == 1
        code = next(iter(self.codes), None)
        if nothing_ran and code in (EXIT_CANNOT_RUN, EXIT_NOT_FOUND):
            return TooManyErrorsError(f"{message}; the command can not be run", code)
        return TooManyErrorsError(f"{message}; {self._fate}")


def _log(printed: Printed) -> bytes | FieldFile:
    """The content of the field for what was printed; in a file, if that is long."""
    return printed.read() if printed.size <= PIECE else FieldFile.keep(printed.pieces())


def _report(failure: Failure, printed: Printed) -> bytes:
    """The text of ERROR_FIELD."""
    message = shortened(failure.message, _ERROR_TAIL)
    return f"{message}\n".encode("utf-8", "surrogateescape") + printed.report(_ERROR_TAIL)
