"""Runs the failed samples of an earlier run again, and puts what comes of them into its shards.

The done record says before which output sample each failed one has its place, so that a
shard whose samples all succeed in the end has the bytes of one that never failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarkit.donerecord import SUFFIX, DoneRecord, read_record
from tarkit.entries import remove
from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, DataError, TarkitError
from tarkit.output import Output
from tarkit.parallel import Outcome, Pool, in_batches, ordered_map
from tarkit.run import Account, Books, Policy, Sinks, TooManyErrorsError, without_reports
from tarkit.sample import Sample, Tally
from tarkit.shardrun import ShardReporter, Totals
from tarkit.shards import expand
from tarkit.tarshard import read_samples


def records_of(folder: str) -> Iterator[tuple[str, DoneRecord]]:
    """Each output of a folder that has a done record, with the record; in order of names.

    Raises:
        MissingInputError: there is none. DataError: one is damaged.
    """
    for url in expand(f"{folder.rstrip('/')}/*{SUFFIX}"):
        record = read_record(url)
        if record is not None:
            yield url.removesuffix(SUFFIX), record


class RetryRun:
    """Retries the failed samples of a folder. One call of run(); arguments as for ShardRun."""

    def __init__(
        self,
        pool: Pool,
        *,
        prepare: Callable[[Iterator[Sample]], Iterator[Sample]],
        policy: Policy,
        reporter: ShardReporter,
        window: int,
        batch_size: int,
        writer_options: Mapping[str, Any],
        work: str,
    ) -> None:
        self.totals = Totals()
        self._pool = pool
        self._prepare = prepare
        self._policy = policy
        self._reporter = reporter
        self._window = window
        self._batch_size = batch_size
        self._writer_options = writer_options
        self._work = work

    def run(self, folder: str) -> Totals:
        """Retry every shard of the folder that has failed samples.

        Raises:
            TooManyErrorsError: the limit for failed samples was exceeded.
        """
        for output_url, record in records_of(folder):
            if record.state != "done" or not record.failed:
                self.totals.skipped += 1
                continue
            try:
                record = self._retry(output_url, record)
                self.totals.done += 1
                self.totals.set_aside |= record.exit_code == EXIT_SET_ASIDE
            except TooManyErrorsError:
                raise
            except TarkitError as problem:
                record.state, record.error, record.exit_code = "failed", str(problem), problem.exit_code
                self.totals.failed += 1
                self.totals.codes.add(problem.exit_code)
            self._reporter.shard_done(output_url, record)
        return self.totals

    def _retry(self, output_url: str, record: DoneRecord) -> DoneRecord:
        failed_url = f"{output_url}.failed.tar"
        options = {**self._writer_options, "checksum": True}
        sinks = Sinks(output_url, failed_url, options)
        account = Account(Books(), sinks, self._policy, self._reporter, before=self.totals.books)
        try:
            # As they were written: what the policies allowed then is allowed now.
            old = read_samples(output_url, on_repeated_key="allow")
            self._merge(old, self._failed_samples(failed_url), record, account)
            account.balance()
            sinks.publish()
        except BaseException:
            sinks.discard()
            raise
        self.totals.books.add(account.books)
        renewed = _renewed(record, account, self._work)
        renewed.publish(output_url)
        if not sinks.has_failed:
            remove(failed_url)
        return renewed

    def _failed_samples(self, failed_url: str) -> Iterator[Sample]:
        samples = read_samples(failed_url, on_repeated_key="allow", tally=Tally())
        return self._prepare(without_reports(samples))

    def _merge(self, old: Iterator[Sample], failed: Iterator[Sample], record: DoneRecord, account: Account) -> None:
        """Old outputs and the outcomes of the failed samples, each at its place."""
        places = iter(record.failed)
        copied = 0
        for batch, outcome in ordered_map(in_batches(failed, self._batch_size), self._pool, window=self._window):
            for number, sample in enumerate(batch):
                key, place = next(places, (None, 0))
                if key != sample["__key__"]:
                    raise DataError(
                        "the failed samples are not those of the done record", key=sample["__key__"], hint="run it anew"
                    )
                while copied < place and (earlier := next(old, None)) is not None:
                    account.sinks.copy(earlier)
                    copied += 1
                account.enter([sample], _part(outcome, number))
        for sample in old:
            account.sinks.copy(sample)


def _part(outcome: Outcome, number: int) -> Outcome:
    """What came of one sample of a batch; what was printed goes with the first."""
    if number == 0:
        return Outcome(outcome.made[:1], outcome.printed, outcome.failure, outcome.stray)
    return Outcome(outcome.made[number : number + 1], Output(), outcome.failure)


def _renewed(record: DoneRecord, account: Account, work: str) -> DoneRecord:
    """The record after a retry. The fingerprint of the first run stays: most samples are of it."""
    books = account.books
    size, sha256 = account.sinks.checksum()
    samples = dict(record.samples)
    samples["failed"] = books.failed
    for name, more in (("out", books.out), ("added", books.added), ("filtered", books.filtered)):
        samples[name] = samples.get(name, 0) + more
    output = {**(record.output or {}), "size": size, "sha256": sha256}
    return DoneRecord(
        state="done",
        input=record.input,
        work=record.work,
        tarkit=record.tarkit,
        output=output,
        failed_output=record.failed_output if account.failed_at else None,
        samples=samples,
        failed=account.failed_at,
        skipped_members=record.skipped_members,
        damage=record.damage,
        retried=[*record.retried, work],
        exit_code=EXIT_SET_ASIDE if books.failed or record.damage else EXIT_OK,
    )
