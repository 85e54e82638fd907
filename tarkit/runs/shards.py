"""Many shards in, as many shards out: each published whole, with a done record beside it.

The samples of all shards go through one pool as one series, so that the next shard begins
while the last samples of the one before it are still running. A shard that cannot be
read or published does not stop the others: it is counted, and recorded with its reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass

from tarkit.errors import (
    EXIT_MISSING,
    EncodeError,
    MissingExtraError,
    MissingInputError,
    StreamError,
    TarkitError,
    UsageError,
)
from tarkit.mapping.parallel import Batch, Outcome
from tarkit.runs.account import Account, Sinks, TooManyErrorsError
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.engine import Engine
from tarkit.runs.shardkeeper import Finished, Shard, ShardKeeper
from tarkit.store.entries import Identity
from tarkit.store.url import display_name
from tarkit.store.waits import Workers

_LOOK_AHEAD = 32
"""Done records that are fetched before their turn."""

_MOMENT = 1.0
"""Seconds that publishing gets after a signal."""

_EXAMPLES = 3
"""Missing inputs whose names are kept."""


@dataclass
class _Boundary:
    """Between two batches: a shard begins, or ends. at: number of batches before it. counts: of its samples."""

    at: int
    shard: Shard
    counts: Counts
    ends: bool
    error: TarkitError | None = None


class ShardRun:
    """Runs shards through an engine, and counts them. One call of run().

    counts: filled while it runs. keeper: knows which shards are done.
    """

    def __init__(self, engine: Engine, counts: Counts, keeper: ShardKeeper) -> None:
        self._engine = engine
        self._counts = counts
        self._keeper = keeper
        self._reporter = engine.reporter
        # Shards that may be begun and not yet published.
        self._open_shards = max(1, engine.work.parallel or 1)
        self._boundaries: deque[_Boundary] = deque()
        self._entered = 0
        self._spent = Counts()
        self._current: tuple[Shard, Account] | None = None
        self._publisher = Workers(2, "publish")
        self._publishing: deque[Future[Finished]] = deque()

    def run(self, outputs: Iterable[tuple[str, str]]) -> None:
        """Make every output that is not done yet.

        Raises:
            TooManyErrorsError: the limit for failed samples was exceeded; shards published before stay.
            UsageError, MissingExtraError: what is wrong for all shards alike.
        """
        try:
            # Closed here: a traceback that is kept keeps generators too, and they the input.
            with closing(self._batches(outputs)) as batches, closing(self._engine.outcomes(batches)) as outcomes:
                for batch, outcome in outcomes:
                    self._enter(batch, outcome)
                    self._entered += 1
                    self._catch_up()
            self._settle(0)
        except BaseException as problem:
            if not isinstance(problem, Exception):
                # A signal: what is almost published may come to its end.
                wait(self._publishing, _MOMENT)
                self._publisher.stop()
            if self._current is not None:
                self._current[1].sinks.discard()
            raise
        finally:
            self._publisher.shutdown()
            # After an error: what was on its way is published by now, and counts.
            while self._publishing:
                if (last := self._publishing.popleft()).exception() is None:
                    self._count(last.result())

    def _batches(self, outputs: Iterable[tuple[str, str]]) -> Generator[Batch, None, None]:
        count = 0
        for shard in self._to_do(outputs):
            counts = Counts()
            error: TarkitError | None = None
            self._mark(_Boundary(count, shard, counts, ends=False))
            try:
                with closing(self._engine.read([shard.url], counts.met)) as samples:
                    for batch in self._engine.in_batches(samples):
                        yield batch
                        count += 1
            except (UsageError, MissingExtraError):
                raise
            except TarkitError as problem:
                error = problem
            self._mark(_Boundary(count, shard, counts, ends=True, error=error))

    def _mark(self, boundary: _Boundary) -> None:
        self._boundaries.append(boundary)
        # A shard of which nothing runs any more is published before the next one is begun.
        self._catch_up()

    def _to_do(self, outputs: Iterable[tuple[str, str]]) -> Iterator[Shard]:
        """Shards that are not done, in order; looks at the records of the next ones meanwhile."""
        # A run that ends early does not wait for what is being asked.
        with Workers(8, "records") as executor:
            ahead: deque[tuple[tuple[str, str], Future[tuple[Shard, DoneRecord | None]]]] = deque()
            source = iter(outputs)
            while True:
                while len(ahead) < _LOOK_AHEAD and (pair := next(source, None)) is not None:
                    ahead.append((pair, executor.submit(self._keeper.look, *pair)))
                if not ahead:
                    return
                (url, output_url), future = ahead.popleft()
                try:
                    shard, done = future.result()
                except MissingInputError:
                    self._miss(url)
                except (UsageError, MissingExtraError):
                    raise
                except TarkitError as problem:
                    # Whether there is a record, and what it says, is not known: it is left alone.
                    self._fail(Shard(url, output_url, Identity(None, None)), problem, keep_record=True)
                else:
                    if done is None:
                        yield shard
                    else:
                        self._skip(output_url, done)

    def _skip(self, output_url: str, record: DoneRecord) -> None:
        self._counts.count_shard(record.exit_code, done=True, before=True)
        self._reporter.shard_skipped(output_url)

    def _miss(self, url: str) -> None:
        self._counts.shards_missing += 1
        self._counts.codes.add(EXIT_MISSING)
        if len(self._counts.missing_names) < _EXAMPLES:
            self._counts.missing_names.append(display_name(url))
        self._reporter.shard_missing(url)

    def _catch_up(self) -> None:
        """Begin and end shards whose place in the series of batches is reached."""
        while self._boundaries and self._boundaries[0].at <= self._entered:
            boundary = self._boundaries.popleft()
            if boundary.ends:
                self._end(boundary)
            else:
                self._settle(self._open_shards - 1)
                self._begin(boundary)

    def _begin(self, boundary: _Boundary) -> None:
        shard = boundary.shard
        try:
            failed_url = None if self._engine.work.errors == "skip" else shard.failed_url
            sinks = Sinks(shard.output_url, failed_url, {**self._engine.writer_options, "checksum": True})
        except UsageError:
            raise
        except TarkitError as problem:
            self._fail(shard, problem)
            return
        self._current = shard, Account(boundary.counts, sinks, self._engine, before=self._spent)

    def _enter(self, batch: Batch, outcome: Outcome) -> None:
        """One outcome into the shard that is under way, unless that has failed."""
        if self._current is None:
            outcome.printed.discard()
            return
        try:
            self._current[1].enter(batch, outcome)
        except (StreamError, EncodeError) as problem:
            outcome.printed.discard()
            self._abandon(problem)

    def _end(self, boundary: _Boundary) -> None:
        if self._current is None:
            return
        shard, account = self._current
        error: TarkitError | None = boundary.error
        if error is None:
            try:
                account.conclude(at_end=False)
            except TooManyErrorsError as problem:
                error = problem
        if error is not None:
            self._abandon(error)
            return
        self._current = None
        self._spent.add(account.counts)
        self._publishing.append(self._publisher.submit(self._keeper.publish, shard, account))

    def _abandon(self, problem: TarkitError) -> None:
        """The shard that is under way fails."""
        if self._current is not None:
            (shard, account), self._current = self._current, None
            self._spent.add(account.counts)
            account.sinks.discard()
            self._fail(shard, problem)

    def _fail(self, shard: Shard, problem: TarkitError, *, keep_record: bool = False) -> None:
        """A shard that fails: record why, if the output's folder takes a record."""
        record = self._keeper.record(shard, "failed")
        record.error, record.exit_code = str(problem), problem.exit_code
        self._keeper.gone.note(problem)
        try:
            if not keep_record:
                self._keeper.gone.refuse(shard.output_url)
                record.publish(shard.output_url)
        except TarkitError as second:
            record.error = f"{record.error}; and the record cannot be written: {second}"
        self._count(Finished(shard, record, Counts()))

    def _settle(self, most: int) -> None:
        """Wait until at most so many shards are being published."""
        while len(self._publishing) > most:
            self._count(self._publishing.popleft().result())

    def _count(self, finished: Finished) -> None:
        record, output_url = finished.record, finished.shard.output_url
        if finished.by_another:
            self._skip(output_url, record)
            return
        self._counts.count_shard(record.exit_code, done=record.state == "done")
        if record.state == "done":
            self._counts.add(finished.counts)
        self._reporter.shard_done(output_url, record)
