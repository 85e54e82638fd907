"""Runs the failed samples of an earlier run again, and puts the results into its shards.

The done record says before which output sample each failed one has its place, so that a
shard whose samples all succeed in the end has the bytes of one that never failed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace

from tarkit.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_SET_ASIDE,
    DataError,
    MissingExtraError,
    MissingInputError,
    TarkitError,
    UsageError,
)
from tarkit.formats.tally import lost_samples
from tarkit.mapping.parallel import in_batches
from tarkit.runs.account import Account, Sinks, TooManyErrorsError
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.runs.engine import Engine, without_reports
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.specs.outputnames import DONE_SUFFIX, done_record_url, failed_samples_url
from tarkit.store.entries import entries, remove
from tarkit.store.retry import GoneStores
from tarkit.store.url import join
from tarkit.toolbox.indexing import ensure_index

_INTERRUPTED = "putting back its failed samples was interrupted; run it anew, without --retry-failed"


def outputs_of(folder: str) -> list[str]:
    """Each output of a folder that has a done record, in order of names."""
    names = sorted(entry.name for entry in entries(folder) if entry.name.endswith(DONE_SUFFIX))
    if not names:
        raise MissingInputError("holds no done record", url=folder, hint="name the folder of an earlier run with -O")
    return [join(folder, name.removesuffix(DONE_SUFFIX)) for name in names]


class RetryRun:
    """Retries the failed samples of a folder, and counts its shards. One call of run()."""

    def __init__(self, engine: Engine, counts: Counts) -> None:
        self._engine = engine
        self._counts = counts
        self._reporter = engine.reporter
        self._fingerprint = engine.work.fingerprint()

    def run(self, folder: str) -> None:
        """Retry every shard of the folder that has failed samples."""
        self._reporter.started(self._counts, None, failed_are_kept=self._engine.work.errors != "skip")
        gone = GoneStores()
        for output_url in outputs_of(folder):
            try:
                with gone.asking(output_url):
                    record = read_record(done_record_url(output_url))
                    if record is None:
                        raise TarkitError("its record is of another version")
                    if record.state == "done" and not record.failed:
                        if self._engine.work.index:
                            ensure_index(output_url, rule=self._engine.work.key_rule)
                        self._counts.count_shard(record, before=True)
                        self._reporter.shard_skipped(output_url)
                        continue
                    if record.state == "done":
                        record = self._retry(output_url, record)
                    elif record.error != _INTERRUPTED:
                        record.error = f"{record.error}; run it anew, without --retry-failed"
            except (TooManyErrorsError, UsageError, MissingExtraError):
                raise
            except TarkitError as problem:
                # A report only, which is not written.
                record = DoneRecord("failed", {}, "", "", error=str(problem), exit_code=problem.exit_code)
            self._counts.count_shard(record)
            self._reporter.shard_done(output_url, record)

    def _retry(self, output_url: str, record: DoneRecord) -> DoneRecord:
        failed_url = failed_samples_url(output_url)
        if record.failed_output is None:
            raise MissingInputError("the failed samples were not kept (--errors skip)", url=failed_url)
        sinks = Sinks(output_url, failed_url, {**self._engine.writer_options, "checksum": True})
        account = Account(Counts(), sinks, self._engine, before=self._counts)
        with sinks:
            # As they were written: what the policies allowed then is allowed now.
            with closing(self._read(output_url)) as old, closing(self._read(failed_url)) as failed:
                self._merge(old, self._as_given(failed, record), record, account)
            account.check()
            # The output is replaced before its record is. Killed in between, it must not be taken for
            # what the record says: the failed samples would be put into it once more.
            replace(record, state="failed", error=_INTERRUPTED, exit_code=EXIT_FAILED).publish(output_url)
        self._counts.add(account.counts)
        renewed = _renewed(record, account, self._fingerprint)
        renewed.publish(output_url)
        if not sinks.has_failed:
            remove(failed_url)
        return renewed

    def _read(self, url: str) -> Generator[Sample, None, None]:
        # The rule is that by which the shards were written; by another one their samples would be others.
        work, large = self._engine.work, self._engine.large
        return read_samples([url], literal=True, split=True, rule=work.key_rule, on_repeated_key="allow", large=large)

    def _as_given(self, failed: Iterator[Sample], record: DoneRecord) -> Iterator[Sample]:
        """Failed samples as the first run had them, with the place that they came from."""
        url = record.input["url"]
        return self._engine.with_fields(({**sample, "__url__": url} for sample in without_reports(failed)), None)

    def _merge(self, old: Iterator[Sample], failed: Iterator[Sample], record: DoneRecord, account: Account) -> None:
        """Old outputs and the outcomes of the failed samples, each at its place."""
        places = iter(record.failed)
        copied = 0

        def copy_earlier(sample: Sample) -> None:
            nonlocal copied
            key, place = next(places, (None, 0))
            if key != sample["__key__"]:
                raise _other_samples(sample["__key__"])
            while copied < place and (earlier := next(old, None)) is not None:
                account.sinks.copy(earlier)
                copied += 1

        with closing(self._engine.outcomes(in_batches(failed, self._engine.batch_size))) as outcomes:
            for batch, outcome in outcomes:
                account.enter(batch, outcome, copy_earlier)
        if (left := next(places, None)) is not None:
            raise _other_samples(left[0])
        for sample in old:
            account.sinks.copy(sample)


def _other_samples(key: str) -> DataError:
    hint = "remove the record, and run the shard anew"
    return DataError("the failed samples are not those of the done record", key=key, hint=hint)


def _renewed(record: DoneRecord, account: Account, work: str) -> DoneRecord:
    """The record after a retry. The fingerprint of the first run stays: most samples are of it."""
    size, sha256 = account.sinks.checksum()
    samples = Counts.of(record.samples)
    samples.add(replace(account.counts, read=0))
    samples.failed = account.counts.failed
    output = {**(record.output or {}), "size": size, "sha256": sha256}
    lost = samples.failed or record.damage or record.dropped_fields or lost_samples(record.skipped_members)
    return replace(
        record,
        output=output,
        failed_output=record.failed_output if account.failed_at else None,
        samples=samples.as_dict(),
        failed=account.failed_at,
        emptied_fields=record.emptied_fields + account.counts.emptied,
        retried=[*record.retried, work],
        exit_code=EXIT_SET_ASIDE if lost else EXIT_OK,
    )
