"""One output of an exchange: a shard, a shard of failed samples beside it, and their record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import chain
from typing import cast

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, MissingInputError
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import failure, shard_and_number
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.names.outputnames import failed_samples_url, has_index_name, index_url, output_name
from tarkit.names.url import display_name
from tarkit.runs.account import CountsError, Sinks
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord
from tarkit.samples.sample import Sample, key_rule
from tarkit.samples.tarwriter import TarWriter
from tarkit.store.entries import remove


class GatheredOutput:
    """An output that is published whole, with its index, and then its record.

    Args:
        url: path or URL of the shard.
        plan: plan of the exchange.
        settings: its settings.
        replaces: True if the shard may replace one of another run, with failed samples.
        mem: bytes of memory that the step may use for samples.
        parallel: number of commands that the step may run at once.

    Attributes:
        name: name of the shard, for messages.
        counts: counts of its samples.
        dropped: reason -> number of samples that were left out.
        noted: numbers of samples that the step counts in addition, by their names.
    """

    def __init__(
        self,
        url: str,
        plan: Plan,
        settings: ExchangeSettings,
        *,
        replaces: bool = False,
        mem: int = 1 << 28,
        parallel: int = 1,
    ) -> None:
        self._url, self._plan, self._replaces = url, plan, replaces
        self.name, self.settings, self.mem, self.parallel = display_name(url), settings, mem, parallel
        self._rule = key_rule(settings.key_rule)
        self._separates = settings.on_repeated_key == "allow"
        self._last_key = ""
        self._failed: list[tuple[str, int]] = []
        self.counts = Counts()
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()
        self._sinks = Sinks(url, failed_samples_url(url), {
            "mtime": settings.mtime, "format": settings.format, "rule": settings.key_rule,
            "on_repeated_key": settings.on_repeated_key, "checksum": True,
            "index": settings.index and not self._separates,
        })  # fmt: skip

    @property
    def _writer(self) -> TarWriter:
        return cast(TarWriter, self._sinks.output)

    def copy(self, rows: Iterable[Row]) -> None:
        """Write samples with the bytes that they have."""
        if self._separates:
            for row in rows:
                self._separate(row.key(self._rule))
                self.counts.out += self._writer.write_raw([row])
        else:
            self.counts.out += self._writer.write_raw(rows)

    def write(self, sample: Sample) -> None:
        """Write a sample that the step has made, with ``__key__`` and bytes for each field."""
        if self._separates:
            self._separate(sample["__key__"])
        self._writer.write(sample)
        self.counts.out += 1

    def write_all(self, samples: Sequence[Sample]) -> None:
        """Write several samples that the step has made, or none of them if one cannot be written.

        Raises:
            EncodeError: a key or a field cannot be a name, or a key is there already.
        """
        if self._separates and samples:
            self._separate(samples[0]["__key__"])
        self._writer.write_all(samples)
        self.counts.out += len(samples)
        if samples:
            self._last_key = samples[-1]["__key__"]

    def sample_of(self, row: Row) -> Sample:
        """Return the sample of a row, with its input as ``__url__``."""
        shard, _ = shard_and_number(row.position)
        key, *fields = row.sample(self._rule).items()
        return {key[0]: key[1], "__url__": self._plan.inputs[shard][0], **dict(fields)}

    def _separate(self, key: str) -> None:
        if key == self._last_key:
            # Side by side they would be read as one sample.
            self._writer.separate()
        self._last_key = key

    def drop(self, reason: str, number: int = 1) -> None:
        """Count samples that are left out, or become part of another one."""
        self.dropped[reason] += number
        self.counts.filtered += number

    def fail(self, sample: Sample, reason: str) -> None:
        """Keep a failed sample beside the output.

        Args:
            sample: the sample.
            reason: why it failed, for its field ``__error__.txt``.
        """
        self._sinks.write_failed(sample, f"{reason}\n".encode("utf-8", "backslashreplace"))
        self.counts.failed += 1
        self._failed.append((sample["__key__"], self.counts.out))

    def fill(self, write: Callable[[Iterator[Row], GatheredOutput], object], batches: Iterable[list[Row]]) -> None:
        """Have a step write the samples of this output, and count all that come in.

        Args:
            write: the method of the step.
            batches: its samples in the order of their positions; those without one are the last.
        """
        left = iter(batches)
        failed: list[Row] = []
        placed = chain.from_iterable(self._placed(left, failed))
        write(placed, self)
        for _ in placed:
            pass  # what the step has left is counted, so that its loss is found
        # Behind those that fail in the step, which may take samples before it writes earlier ones.
        while failed:
            for row in failed:
                self.fail(row.sample(self._rule), failure(row.position) or "")
            failed = next(left, [])
            self.counts.read += len(failed)

    def _placed(self, batches: Iterator[list[Row]], failed: list[Row]) -> Iterator[list[Row]]:
        """Count samples, and yield those with a position; the first others are put into a list."""
        for rows in batches:
            self.counts.read += len(rows)
            if rows and failure(rows[-1].position) is not None:
                first = next(number for number, row in enumerate(rows) if failure(row.position) is not None)
                failed += rows[first:]
                yield rows[:first]
                return
            yield rows

    def publish(self) -> DoneRecord:
        """Publish the shard and its failed samples, and then the record.

        Raises:
            CountsError: the counts do not add up.
            StreamError, TemporaryStreamError: it cannot be published.
        """
        try:
            return self._publish()
        finally:
            self.discard()

    def _publish(self) -> DoneRecord:
        counts = self.counts
        if not counts.add_up() or self._writer.samples != counts.out:
            raise CountsError(f"the counts do not add up, please report this: {counts.sum_of_samples()}")
        if self._replaces:
            index = [index_url(self._url)] if has_index_name(self._url) else []
            for earlier in (failed_samples_url(self._url), *index):
                with suppress(MissingInputError):
                    remove(earlier)
        self._sinks.close()
        size, digest = self._sinks.checksum()
        name = output_name(self._url)
        numbers = {what: dict(found) for what, found in (("dropped", self.dropped), ("noted", self.noted)) if found}
        record = DoneRecord(
            "done", {"url": name}, self._plan.id, version("tarkit"),
            output={"name": name, "size": size, "sha256": digest, **numbers},
            failed_output=output_name(failed_samples_url(self._url)) if self._sinks.has_failed else None,
            samples=counts.as_dict(), files=[], failed=self._failed,
            exit_code=EXIT_SET_ASIDE if counts.failed else EXIT_OK,
        )  # fmt: skip
        self._complete(record)
        record.publish(self._url)
        return record

    def _complete(self, record: DoneRecord) -> None:
        """Add facts to the record before it is published; here, there are none to add."""

    def discard(self) -> None:
        """Publish nothing; after :meth:`publish`, it does nothing."""
        self._sinks.discard()
