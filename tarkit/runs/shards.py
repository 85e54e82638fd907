"""Many shards in, as many shards out: each published whole, with a done record beside it.

The samples of all shards go through one pool in one row, so that the next shard begins
while the last samples of the one before it are still running. A shard that can not be
read or published does not stop the others: it is counted, and recorded with its reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

from tarkit.errors import (
    EXIT_MISSING,
    EXIT_OK,
    EXIT_SET_ASIDE,
    EncodeError,
    MissingExtraError,
    MissingInputError,
    StreamError,
    TarkitError,
    UsageError,
    exit_code_of_all,
)
from tarkit.formats.tally import Tally
from tarkit.mapping.parallel import Batch, Outcome, Pool, in_batches, ordered_map
from tarkit.runs.account import Account, Policy, Reporter, Sinks, TooManyErrorsError
from tarkit.runs.counts import Books
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.shardkeeper import Finished, Shard, ShardKeeper
from tarkit.samples.sample import Sample
from tarkit.store.entries import Identity
from tarkit.store.url import display_name
from tarkit.store.waits import Workers

_LOOK_AHEAD = 32
"""Done records that are fetched before their turn."""

_MOMENT = 1.0
"""Seconds that publishing gets after a signal."""

_EXAMPLES = 3
"""Missing inputs whose names are kept."""


class ShardReporter(Reporter, Protocol):
    """What a run over shards tells while it goes on."""

    def shard_skipped(self, output_url: str) -> None:
        """It was done before."""

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        """It is published, or it failed; the record says which."""

    def shard_missing(self, url: str) -> None:
        """There is no such input."""


@dataclass
class Totals:
    """What became of the shards. missing: inputs that do not exist; missing_names: the first of them.
    set_aside: whether any shard that is done now lacks samples. books: of the shards that were
    published; skipped_members: of the same shards, by reason; missing_fields: in the same shards, how many samples
    lack a field. codes: exit codes of failed shards, each once."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    missing: int = 0
    missing_names: list[str] = field(default_factory=list)
    set_aside: bool = False
    books: Books = field(default_factory=Books)
    skipped_members: dict[str, int] = field(default_factory=dict)
    missing_fields: dict[str, int] = field(default_factory=dict)
    codes: set[int] = field(default_factory=set)

    def exit_code(self) -> int:
        """Of the failed shards, if there are any; see :func:`tarkit.errors.exit_code_of_all`."""
        return exit_code_of_all(self.codes) or (EXIT_SET_ASIDE if self.set_aside else EXIT_OK)


@dataclass
class _Boundary:
    """Between two batches: a shard begins, or ends. at: number of batches before it."""

    at: int
    shard: Shard
    tally: Tally
    ends: bool
    error: TarkitError | None = None


class ShardRun:
    """Runs shards through a pool. One call of run().

    Args:
        read: gives the samples of one shard; fills the tally.
        pool, policy, reporter, window, batch_size: as for :func:`tarkit.runs.stream.run`; the limit for
            errors counts over all shards.
        writer_options: arguments of TarWriter.
        work: fingerprint of what is done to the samples. version: of tarkit.
        open_shards: how many may be begun and not yet published.
    """

    def __init__(
        self,
        read: Callable[[str, Tally], Iterator[Sample]],
        pool: Pool,
        *,
        policy: Policy,
        reporter: ShardReporter,
        window: int,
        batch_size: int,
        writer_options: Mapping[str, Any],
        work: str,
        version: str,
        open_shards: int,
    ) -> None:
        self.totals = Totals()
        self._read = read
        self._pool = pool
        self._policy = policy
        self._reporter = reporter
        self._window = window
        self._batch_size = batch_size
        self._writer_options = writer_options
        self._keeper = ShardKeeper(work, version)
        self._open_shards = max(1, open_shards)
        self._boundaries: deque[_Boundary] = deque()
        self._entered = 0
        self._spent = Books()
        self._current: tuple[Shard, Account] | None = None
        self._publisher = Workers(2, "publish")
        self._publishing: deque[Future[Finished]] = deque()

    def run(self, outputs: Iterable[tuple[str, str]]) -> Totals:
        """Make every output that is not done yet.

        Raises:
            TooManyErrorsError: the limit for failed samples was exceeded; shards published before stay.
            UsageError, MissingExtraError: what is wrong for all shards alike.
        """
        try:
            for batch, outcome in ordered_map(self._batches(outputs), self._pool, window=self._window):
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
        return self.totals

    def _batches(self, outputs: Iterable[tuple[str, str]]) -> Iterator[Batch]:
        count = 0
        for shard in self._to_do(outputs):
            tally = Tally()
            error: TarkitError | None = None
            self._mark(_Boundary(count, shard, tally, ends=False))
            try:
                for batch in in_batches(self._read(shard.url, tally), self._batch_size):
                    yield batch
                    count += 1
            except (UsageError, MissingExtraError):
                raise
            except TarkitError as problem:
                error = problem
            self._mark(_Boundary(count, shard, tally, ends=True, error=error))

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
                    # What the record says, and whether it is one, is not known: it is left alone.
                    self._fail(Shard(url, output_url, Identity(None, None)), problem, keep_record=True)
                else:
                    if done is None:
                        yield shard
                    else:
                        self._skip(output_url, done)

    def _skip(self, output_url: str, record: DoneRecord) -> None:
        self.totals.skipped += 1
        # A run that was interrupted and resumed ends like one that was not.
        self.totals.set_aside |= record.exit_code == EXIT_SET_ASIDE
        self._reporter.shard_skipped(output_url)

    def _miss(self, url: str) -> None:
        self.totals.missing += 1
        self.totals.codes.add(EXIT_MISSING)
        if len(self.totals.missing_names) < _EXAMPLES:
            self.totals.missing_names.append(display_name(url))
        self._reporter.shard_missing(url)

    def _catch_up(self) -> None:
        """Begin and end shards whose place in the row of batches is reached."""
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
            failed_url = None if self._policy.errors == "skip" else shard.failed_url
            sinks = Sinks(shard.output_url, failed_url, {**self._writer_options, "checksum": True})
        except UsageError:
            raise
        except TarkitError as problem:
            self._fail(shard, problem)
            return
        self._current = shard, Account(Books(), sinks, self._policy, self._reporter, before=self._spent)

    def _enter(self, batch: Batch, outcome: Outcome) -> None:
        """One outcome into the shard that is under way, unless that has failed."""
        if self._current is None:
            outcome.printed.discard()
            return
        try:
            self._current[1].enter(batch, outcome)
        except (StreamError, EncodeError) as problem:
            outcome.printed.discard()
            self._give_up(problem)

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
            self._give_up(error)
            return
        self._current = None
        self._spent.add(account.books)
        self._publishing.append(self._publisher.submit(self._keeper.publish, shard, account, boundary.tally))

    def _give_up(self, problem: TarkitError) -> None:
        """The shard that is under way comes to nothing."""
        if self._current is not None:
            (shard, account), self._current = self._current, None
            self._spent.add(account.books)
            account.sinks.discard()
            self._fail(shard, problem)

    def _fail(self, shard: Shard, problem: TarkitError, *, keep_record: bool = False) -> None:
        """A shard that comes to nothing: record why, if the output's folder takes a record."""
        record = self._keeper.record(shard, "failed")
        record.error, record.exit_code = str(problem), problem.exit_code
        self._keeper.gone.note(problem)
        try:
            if not keep_record:
                self._keeper.gone.refuse(shard.output_url)
                record.publish(shard.output_url)
        except TarkitError as second:
            record.error = f"{record.error}; and the record can not be written: {second}"
        self._count(Finished(shard, record, Books()))

    def _settle(self, most: int) -> None:
        """Wait until at most so many shards are being published."""
        while len(self._publishing) > most:
            self._count(self._publishing.popleft().result())

    def _count(self, finished: Finished) -> None:
        record, output_url = finished.record, finished.shard.output_url
        if finished.by_another:
            self._skip(output_url, record)
            return
        if record.state == "done":
            self.totals.done += 1
            self.totals.set_aside |= record.exit_code == EXIT_SET_ASIDE
            self.totals.books.add(finished.books)
            _add(self.totals.skipped_members, record.skipped_members)
            _add(self.totals.missing_fields, record.missing_fields)
        else:
            self.totals.failed += 1
            self.totals.codes.add(record.exit_code)
        self._reporter.shard_done(output_url, record)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
