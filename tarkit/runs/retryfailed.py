"""Run the failed samples of an earlier run again, and put the results into its shards.

The done record has the place of each failed sample among the output samples, so that a shard whose
samples all succeed in the end has the bytes of one that never failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from tarkit.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_SET_ASIDE,
    DataError,
    MissingInputError,
    TarkitError,
    UsageError,
    printable,
)
from tarkit.extras import MissingExtraError
from tarkit.formats.tally import lost_samples
from tarkit.mapping.parallel import in_batches
from tarkit.names.outputnames import DONE_SUFFIX, FAILED_SUFFIX, done_record_url, failed_samples_url, output_name
from tarkit.names.url import join
from tarkit.runs.account import Account, Sinks
from tarkit.runs.counts import Counts, TooManyErrorsError
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.runs.engine import ERROR_FIELD, Engine, without_reports
from tarkit.runs.runrecord import is_run_record, read_run_record
from tarkit.samples.indexing import ensure_index
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.store.entries import Entry, entries, remove
from tarkit.store.read import open_read
from tarkit.store.retry import GoneStores

_INTERRUPTED = "putting back its failed samples was interrupted"


def outputs_of(folder: str) -> list[str]:
    """List the outputs of a folder that have a done record, sorted by name."""
    names = sorted(entry.name for entry in entries(folder) if entry.name.endswith(DONE_SUFFIX))
    if not names:
        raise MissingInputError("holds no done record", url=folder, hint="name the folder of an earlier run with -O")
    return [join(folder, name.removesuffix(DONE_SUFFIX)) for name in names]


class RetryRun:
    """A run over the failed samples of a folder; it also counts the folder's shards."""

    def __init__(self, engine: Engine, counts: Counts) -> None:
        self._engine = engine
        self._counts = counts
        self._reporter = engine.reporter
        self._fingerprint = engine.work.fingerprint()

    def run(self, folder: str) -> None:
        """Retry every shard of the folder that has failed samples."""
        self._reporter.started(self._counts, None, failed_are_kept=self._engine.work.errors != "skip")
        gone = GoneStores()
        listed = {entry.name: entry for entry in entries(folder)}
        for name in _without_record(listed):
            problem = "it has failed samples and no done record, as of a run that was killed"
            error = f"{problem}; {_anew(_input(name, listed))}"
            self._count(join(folder, name), DoneRecord("failed", {}, "", "", error=error, exit_code=EXIT_FAILED))
        for output_url in outputs_of(folder):
            try:
                with gone.asking(output_url):
                    record = read_record(done_record_url(output_url))
                    if record is None:
                        raise TarkitError("its record is of another version")
                    if record.state == "done" and not record.failed:
                        self._skip(output_url, record, listed)
                        continue
                    record = self._retried(output_url, record)
            except (TooManyErrorsError, UsageError, MissingExtraError):
                raise
            except TarkitError as problem:
                # A report only, which is not written.
                record = DoneRecord("failed", {}, "", "", error=str(problem), exit_code=problem.exit_code)
            self._count(output_url, record)

    def _skip(self, output_url: str, record: DoneRecord, listed: Container[str]) -> None:
        """Count a shard that has no failed samples."""
        _remove_left(output_url, listed)
        if self._engine.work.index:
            ensure_index(output_url, rule=self._engine.work.key_rule)
        self._counts.count_shard(record, before=True)
        self._reporter.shard_skipped(output_url)

    def _retried(self, output_url: str, record: DoneRecord) -> DoneRecord:
        """Return the record after a retry; for a shard that failed as a whole, with a hint."""
        if record.state == "done":
            return self._retry(output_url, record)
        if record.pending is not None:
            return self._go_on(output_url, record, record.pending)
        record.error = f"{record.error}; {_anew(str(record.input.get('url')))}"
        return record

    def _count(self, output_url: str, record: DoneRecord) -> None:
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
                again = self._merge(old, self._as_given(failed, record), record, account)
            account.check()
            renewed = _renewed(record, account, self._fingerprint)
            # The output is replaced before its record is. Killed in between, it must not be taken
            # for what the record says: the failed samples would be put into it once more.
            interrupted = replace(record, state="failed", error=_INTERRUPTED, exit_code=EXIT_FAILED)
            after, now = vars(renewed), vars(interrupted)
            interrupted.pending = {"again": again, **{name: after[name] for name in after if after[name] != now[name]}}
            interrupted.publish(output_url)
            if sinks.output is not None:
                # First: with the failed samples of before, the same command can go on after a kill.
                sinks.output.close()
        self._counts.add(account.counts)
        return _finished(output_url, renewed, sinks.checksum())

    def _go_on(self, output_url: str, record: DoneRecord, pending: dict[str, Any]) -> DoneRecord:
        """Finish a retry that was killed before its record was written.

        If nothing was published yet, the retry is repeated. Its samples are counted in the record,
        not in this run.
        """
        failed_url, before = failed_samples_url(output_url), [key for key, _ in record.failed]
        again = {number: before[number] for number in pending["again"]}
        checksum = _checksum(output_url)
        try:
            with closing(self._read(failed_url)) as samples:
                there = [sample["__key__"] for sample in samples]
        except MissingInputError:
            there = []
        if there == before and checksum[1] == (record.output or {}).get("sha256"):
            as_before = replace(record, state="done", error=None, exit_code=EXIT_SET_ASIDE, pending=None)
            return self._retry(output_url, as_before)
        if again and there == before:
            with (
                closing(self._read(failed_url)) as samples,
                Sinks(None, failed_url, self._engine.writer_options) as kept,
            ):
                for number, sample in enumerate(samples):
                    if number in again:
                        report = sample.pop(ERROR_FIELD, b"")
                        kept.write_failed(sample, bytes(report))
        elif again and there != [*again.values()]:
            raise _other_samples(str(next(iter(again.values()))))
        values = {name: pending[name] for name in pending if name in vars(record)}
        values["failed"] = [(key, at) for key, at in values.get("failed", record.failed)]
        if self._engine.work.index:
            ensure_index(output_url, rule=self._engine.work.key_rule)
        renewed = replace(record, pending=None, **values)
        return _finished(output_url, renewed, checksum)

    def _read(self, url: str) -> Generator[Sample, None, None]:
        # The rule is that by which the shards were written; by another one their samples would be
        # others.
        work, large = self._engine.work, self._engine.large
        return read_samples(
            [url], literal=True, split=True, rule=work.key_rule, on_repeated_key="allow", mem=work.mem, large=large
        )

    def _as_given(self, failed: Iterator[Sample], record: DoneRecord) -> Iterator[Sample]:
        """Yield failed samples as the first run received them, with the URL of their input."""
        url = record.input["url"]
        return self._engine.with_fields(({**sample, "__url__": url} for sample in without_reports(failed)), None)

    def _merge(
        self, old: Iterator[Sample], failed: Iterator[Sample], record: DoneRecord, account: Account
    ) -> list[int]:
        """Write the old outputs and the outcomes of the failed samples, each at its place.

        Returns:
            The numbers of the samples that failed again.
        """
        places = iter(record.failed)
        copied = 0
        # How many had failed again before each of them.
        failures: list[int] = []

        def copy_earlier(sample: Sample) -> None:
            nonlocal copied
            failures.append(len(account.failed_at))
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
        later = [*failures[1:], len(account.failed_at)]
        return [number for number, (one, two) in enumerate(zip(failures, later, strict=False)) if one != two]


def _anew(url: str) -> str:
    """Return the advice for a shard without anything to retry."""
    return f"run it anew, without --retry-failed: name {printable(url)} in its place"


def _without_record(names: Collection[str]) -> Iterator[str]:
    """Yield the names of outputs that have failed samples, and no done record."""
    for name in names:
        shard = name.removesuffix(FAILED_SUFFIX)
        if name.endswith(FAILED_SUFFIX) and shard + DONE_SUFFIX not in names and name + DONE_SUFFIX not in names:
            yield shard


def _input(name: str, listed: Mapping[str, Entry]) -> str:
    """Return the input of an output, from the record of a run in its folder."""
    for entry in filter(lambda each: is_run_record(each.name), listed.values()):
        with suppress(TarkitError):
            found = (url for url in read_run_record(entry).inputs.urls() or () if output_name(url) == name)
            if (url := next(found, None)) is not None:
                return url
    return "its input"


def _remove_left(output_url: str, listed: Container[str]) -> None:
    """Remove failed samples that a killed run had already put back into their shard."""
    name = output_name(output_url) + FAILED_SUFFIX
    if name in listed and name + DONE_SUFFIX not in listed:
        remove(failed_samples_url(output_url))


def _checksum(url: str) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file."""
    size, digest = 0, hashlib.sha256()
    with open_read(url, compression=None) as stream:
        while piece := stream.read(1 << 20):
            size += len(piece)
            digest.update(piece)
    return size, digest.hexdigest()


def _finished(output_url: str, record: DoneRecord, checksum: tuple[int, str | None]) -> DoneRecord:
    """Publish the record after a retry.

    Args:
        checksum: bytes and SHA-256 of the output.
    """
    record.output = {**(record.output or {}), "size": checksum[0], "sha256": checksum[1]}
    record.publish(output_url)
    if record.failed_output is None:
        with suppress(MissingInputError):
            remove(failed_samples_url(output_url))
    return record


def _other_samples(key: str) -> DataError:
    hint = "remove the record, and run the shard anew"
    return DataError("the failed samples are not those of the done record", key=key, hint=hint)


def _renewed(record: DoneRecord, account: Account, work: str) -> DoneRecord:
    """Return the record after a retry, without its output.

    The fingerprint of the first run stays, since most samples are from it.
    """
    samples = Counts.of(record)
    samples.add(replace(account.counts, read=0))
    samples.failed = account.counts.failed
    lost = samples.failed or record.damage or record.dropped_fields or lost_samples(record.skipped_members)
    return replace(
        record,
        failed_output=record.failed_output if account.sinks.has_failed else None,
        samples=samples.as_dict(),
        failed=account.failed_at,
        emptied_fields=samples.emptied,
        retried=[*record.retried, work],
        exit_code=EXIT_SET_ASIDE if lost else EXIT_OK,
    )
