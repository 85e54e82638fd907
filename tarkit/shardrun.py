"""Many shards in, as many shards out: each published whole, with a done record beside it.

The samples of all shards go through one pool in one row, so that the next shard begins
while the last samples of the one before it are still running. A shard that can not be
read or published does not stop the others: it is counted, and recorded with its reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from tarkit.donerecord import SUFFIX, DoneRecord, read_record
from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, EXIT_TEMPORARY, TarkitError, UsageError, redact
from tarkit.identity import Identity, identify
from tarkit.parallel import Batch, Pool, in_batches, ordered_map
from tarkit.run import Account, Books, Policy, Reporter, Sinks, TooManyErrorsError, lost_anything
from tarkit.sample import Sample, Tally
from tarkit.shards import output_name

_LOOK_AHEAD = 32
"""Done records that are fetched before their turn."""


@dataclass(frozen=True)
class Shard:
    """One input with the place of its output."""

    url: str
    output_url: str
    source: Identity

    @property
    def failed_url(self) -> str:
        """Where its failed samples go."""
        return f"{self.output_url}.failed.tar"


class ShardReporter(Reporter, Protocol):
    """What a run over shards tells while it goes on."""

    def shard_skipped(self, output_url: str) -> None:
        """It was done before."""

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        """It is published, or it failed; the record says which."""


@dataclass
class Totals:
    """What became of the shards. codes: exit codes of failed shards, each once."""

    done: int = 0
    skipped: int = 0
    failed: int = 0
    set_aside: bool = False
    books: Books = field(default_factory=Books)
    codes: set[int] = field(default_factory=set)

    def exit_code(self) -> int:
        """75 if a retry may help one of the failed shards; else what failed first in order of weight."""
        if EXIT_TEMPORARY in self.codes:
            return EXIT_TEMPORARY
        if self.codes:
            return min(self.codes, key=lambda code: (code == EXIT_FAILED, code))
        return EXIT_SET_ASIDE if self.set_aside else EXIT_OK


@dataclass
class _Boundary:
    """Between two batches: a shard begins, or ends. at: number of batches before it."""

    at: int
    shard: Shard
    tally: Tally
    ends: bool
    error: TarkitError | None = None


def plan_outputs(urls: Iterable[str], folder: str) -> Iterator[tuple[str, str]]:
    """Each input with its output: the same name in ``folder``.

    Raises:
        UsageError: two inputs have the same name, or one has none.
    """
    seen: dict[str, str] = {}
    for url in urls:
        name = output_name(url)
        if name in seen:
            raise UsageError(f"{redact(seen[name])} and {redact(url)} would both become {name}; run them apart")
        seen[name] = url
        yield url, f"{folder.rstrip('/')}/{name}"


class ShardRun:
    """Runs shards through a pool. One call of run().

    Args:
        read: gives the samples of one shard; fills the tally.
        pool, policy, reporter, window, batch_size: as for :func:`tarkit.run.run`; the limit for
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
        self._work = work
        self._version = version
        self._open_shards = max(1, open_shards)
        self._boundaries: deque[_Boundary] = deque()
        self._current: Account | None = None
        self._publisher = ThreadPoolExecutor(2, thread_name_prefix="publish")
        self._publishing: deque[Future[tuple[Shard, DoneRecord]]] = deque()

    def run(self, outputs: Iterable[tuple[str, str]]) -> Totals:
        """Make every output that is not done yet.

        Raises:
            TooManyErrorsError: the limit for failed samples was exceeded; shards published before stay.
        """
        entered = 0
        try:
            for batch, outcome in ordered_map(self._batches(outputs), self._pool, window=self._window):
                self._catch_up(entered)
                if self._current is not None:
                    self._enter(batch, outcome)
                else:
                    outcome.printed.discard()
                entered += 1
            self._catch_up(entered)
            self._settle(0)
        except BaseException:
            if self._current is not None:
                self._current.sinks.discard()
            raise
        finally:
            self._publisher.shutdown()
        return self.totals

    def _batches(self, outputs: Iterable[tuple[str, str]]) -> Iterator[Batch]:
        count = 0
        for shard in self._to_do(outputs):
            tally = Tally()
            error: TarkitError | None = None
            self._boundaries.append(_Boundary(count, shard, tally, ends=False))
            try:
                for batch in in_batches(self._read(shard.url, tally), self._batch_size):
                    yield batch
                    count += 1
            except TarkitError as problem:
                error = problem
            self._boundaries.append(_Boundary(count, shard, tally, ends=True, error=error))

    def _to_do(self, outputs: Iterable[tuple[str, str]]) -> Iterator[Shard]:
        """Shards that are not done, in order; looks at the records of the next ones meanwhile."""
        with ThreadPoolExecutor(8, thread_name_prefix="records") as executor:
            ahead: deque[tuple[tuple[str, str], Future[Shard | None]]] = deque()
            source = iter(outputs)
            while True:
                while len(ahead) < _LOOK_AHEAD and (pair := next(source, None)) is not None:
                    ahead.append((pair, executor.submit(self._unless_done, *pair)))
                if not ahead:
                    return
                (url, output_url), future = ahead.popleft()
                try:
                    shard = future.result()
                except TarkitError as problem:
                    self._fail_early(Shard(url, output_url, Identity(None, None)), problem)
                    continue
                if shard is None:
                    self.totals.skipped += 1
                    self._reporter.shard_skipped(output_url)
                else:
                    yield shard

    def _unless_done(self, url: str, output_url: str) -> Shard | None:
        source = identify(url)
        record = read_record(output_url + SUFFIX)
        if record is not None and record.why_stale(self._work, self._version, source, output_url) is None:
            return None
        return Shard(url, output_url, source)

    def _catch_up(self, entered: int) -> None:
        """Begin and end shards whose place in the row of batches is reached."""
        while self._boundaries and self._boundaries[0].at <= entered:
            boundary = self._boundaries.popleft()
            if boundary.ends:
                self._end(boundary)
            else:
                self._settle(self._open_shards - 1)
                self._begin(boundary)

    def _begin(self, boundary: _Boundary) -> None:
        try:
            failed_url = None if self._policy.errors == "skip" else boundary.shard.failed_url
            options = {**self._writer_options, "checksum": True}
            sinks = Sinks(boundary.shard.output_url, failed_url, options)
        except TarkitError as problem:
            boundary.error = problem
            self._fail_early(boundary.shard, problem)
            self._current = None
            return
        self._current = Account(Books(), sinks, self._policy, self._reporter, before=self.totals.books)

    def _enter(self, batch: Batch, outcome: Any) -> None:
        if self._current is None:
            return
        self._current.enter(batch, outcome)

    def _end(self, boundary: _Boundary) -> None:
        account, self._current = self._current, None
        if account is None:
            return
        error = boundary.error
        if error is None:
            try:
                account.conclude()
            except TooManyErrorsError as problem:
                error = problem
        self.totals.books.add(account.books)
        if error is not None:
            account.sinks.discard()
            self._fail_early(boundary.shard, error)
            return
        self._publishing.append(self._publisher.submit(self._publish, boundary.shard, account, boundary.tally))

    def _publish(self, shard: Shard, account: Account, tally: Tally) -> tuple[Shard, DoneRecord]:
        record = self._record(shard, "done")
        record.samples = account.books.as_dict()
        record.failed = account.failed_at
        record.skipped_members = tally.skipped
        record.damage = [
            {"url": url, "start": start, "end": end, "reason": reason} for url, start, end, reason in tally.damage
        ]
        try:
            account.sinks.publish()
            size, sha256 = account.sinks.checksum()
            record.output = {"name": output_name(shard.output_url), "size": size, "sha256": sha256}
            record.failed_output = output_name(shard.failed_url) if account.sinks.has_failed else None
            record.exit_code = EXIT_SET_ASIDE if lost_anything(account.books, tally) else EXIT_OK
            record.publish(shard.output_url)
        except TarkitError as problem:
            account.sinks.discard()
            record.state, record.error, record.exit_code = "failed", str(problem), problem.exit_code
        return shard, record

    def _record(self, shard: Shard, state: str) -> DoneRecord:
        source = {"url": redact(shard.url), "size": shard.source.size, "tag": shard.source.tag}
        return DoneRecord(state, source, self._work, self._version)

    def _fail_early(self, shard: Shard, problem: TarkitError) -> None:
        """A shard that comes to nothing: record why, if the output's folder takes a record."""
        record = self._record(shard, "failed")
        record.error, record.exit_code = str(problem), problem.exit_code
        try:
            record.publish(shard.output_url)
        except TarkitError as second:
            record.error = f"{record.error}; and the record can not be written: {second}"
        self._count(shard, record)

    def _settle(self, most: int) -> None:
        """Wait until at most so many shards are being published."""
        while len(self._publishing) > most:
            self._count(*self._publishing.popleft().result())

    def _count(self, shard: Shard, record: DoneRecord) -> None:
        if record.state == "done":
            self.totals.done += 1
            self.totals.set_aside |= record.exit_code == EXIT_SET_ASIDE
        else:
            self.totals.failed += 1
            self.totals.codes.add(record.exit_code)
        self._reporter.shard_done(shard.output_url, record)
