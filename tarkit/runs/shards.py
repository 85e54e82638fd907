"""Many shards in, as many shards out: each published whole, with a done record beside it.

The samples of all shards go through one pool as one stream, in which marks say where a shard begins
and ends, so that the next shard begins while the last samples of the one before it are still
running. A shard that cannot be read or published does not stop the others: it is counted, and
recorded with its reason.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from tarkit.errors import (
    EXIT_MISSING,
    EncodeError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
    counted,
)
from tarkit.extras import MissingExtraError
from tarkit.mapping.parallel import Batch, Outcome, in_batches
from tarkit.names.outputnames import done_record_url, failed_samples_url, output_name
from tarkit.names.url import display_name, local_path
from tarkit.runs.account import Account, Sinks
from tarkit.runs.counts import MISSING_NAMES, Counts, TooManyErrorsError
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.runs.engine import Engine
from tarkit.runs.usedfiles import UsedFile
from tarkit.samples.indexing import ensure_index
from tarkit.store.entries import Identity, identify, remove
from tarkit.store.retry import GoneStores
from tarkit.store.waits import Workers

_LOOKS = 8
"""Number of threads that read done records ahead."""

_LOCAL_TOGETHER = 4
"""Number of local shards that a thread looks at in turn."""

_MOMENT = 1.0
"""Seconds that publishing may take after a signal."""


@dataclass
class _Shard:
    """One input with the place of its output.

    Attributes:
        source: identity of the input before it was read.
        record: the earlier record if it is ``done_before``, else the record of this run.
        recorded: a record existed before.
        counts: counts of its samples.
    """

    url: str
    output_url: str
    source: Identity
    record: DoneRecord
    recorded: bool = False
    done_before: bool = False
    counts: Counts = field(default_factory=Counts)


class _Mark:
    """A place between two batches of the stream."""


@dataclass
class _ShardBegins(_Mark):
    """The batches of this shard follow this mark."""

    shard: _Shard


@dataclass
class _ShardEnds(_Mark):
    """The shard has no more batches, or the rest of it cannot be read."""

    error: TarkitError | None


def _together(outputs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs that a thread looks at in turn: several if they are local.

    To hand a pair to a thread takes longer than to look at a local file.
    """
    for is_local, pairs in itertools.groupby(outputs, lambda pair: None not in map(local_path, pair)):
        while group := list(itertools.islice(pairs, _LOCAL_TOGETHER if is_local else 1)):
            yield group


class ShardRun:
    """A run of shards through an engine; it also counts them.

    Args:
        counts: filled while it runs.
        work: fingerprint of the command.
        version: version of tarkit.
        files: files that the work uses.
    """

    def __init__(self, engine: Engine, counts: Counts, work: str, version: str, files: Sequence[UsedFile] = ()) -> None:
        self._engine = engine
        self._counts = counts
        self._work = work
        self._version = version
        self._files = list(files)
        self._not_compared: Counter[str] = Counter()
        self._reporter = engine.reporter
        self._gone = GoneStores()
        # Shards that may be begun and not yet published.
        self._open_shards = max(1, engine.work.parallel or 1)
        self._spent = Counts()
        self._current: tuple[_Shard, Account] | None = None
        self._publisher = Workers(2, "publish")
        self._publishing: deque[Future[_Shard]] = deque()

    def run(self, outputs: Iterable[tuple[str, str]]) -> None:
        """Make every output that is not done yet."""
        try:
            # Closed here: a traceback that is kept keeps generators too, and they the input.
            with closing(self._stream(outputs)) as stream, closing(self._engine.outcomes(stream)) as outcomes:
                for item in outcomes:
                    if isinstance(item, _ShardBegins):
                        self._begin(item.shard)
                    elif isinstance(item, tuple):
                        self._enter(*item)
                    elif isinstance(item, _ShardEnds):
                        self._end(item.error)
            self._settle(0)
            if self._not_compared:
                self._reporter.noted(
                    f"{counted(self._not_compared.total(), 'shard')} done before, with files that cannot be compared "
                    f"({next(iter(self._not_compared))}); --force makes all shards anew"
                )
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

    def _stream(self, outputs: Iterable[tuple[str, str]]) -> Generator[Batch | _Mark, None, None]:
        """Yield the batches of each shard that is not done, between two marks."""
        for shard in self._to_do(outputs):
            error: TarkitError | None = None
            yield _ShardBegins(shard)
            try:
                with closing(self._engine.read([shard.url], shard.counts.met)) as samples:
                    yield from in_batches(samples, self._engine.batch_size)
            except (UsageError, MissingExtraError):
                raise
            except TarkitError as problem:
                error = problem
            yield _ShardEnds(error)

    def _to_do(self, outputs: Iterable[tuple[str, str]]) -> Iterator[_Shard]:
        """Yield the shards that are not done, in order, and read the next records meanwhile."""
        # A run that ends early does not wait for what is being asked.
        with Workers(_LOOKS, "records") as executor:
            groups = executor.ahead(self._look_at_all, _together(outputs), _LOOKS)
            for shard, problem in itertools.chain.from_iterable(groups):
                if isinstance(problem, MissingInputError):
                    self._miss(shard.url)
                elif problem is not None:
                    # Whether there is a record, and what it says, is not known: it is left alone.
                    self._fail(shard, problem, keep_record=True)
                elif shard.done_before:
                    self._count(shard)
                else:
                    yield shard

    def _shard(self, url: str, output_url: str, source: Identity) -> _Shard:
        named = {"url": display_name(url), "size": source.size, "tag": source.tag}
        record = DoneRecord("failed", named, self._work, self._version, files=self._files)
        return _Shard(url, output_url, source, record)

    def _look_at_all(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[_Shard, TarkitError | None]]:
        return list(map(self._look, pairs))

    def _look(self, pair: tuple[str, str]) -> tuple[_Shard, TarkitError | None]:
        """Return a shard, and the error if it is not known whether the shard is done.

        Called from several threads.
        """
        try:
            # Noted there: the next look may be under way before this answer is looked at.
            with self._gone.asking(*pair):
                shard = self._shard(*pair, identify(pair[0]))
                self._look_at_record(shard)
        except (UsageError, MissingExtraError):
            raise
        except TarkitError as problem:
            return self._shard(*pair, Identity(None, None)), problem
        return shard, None

    def _look_at_record(self, shard: _Shard) -> None:
        """Read the record of a shard, and note if the shard is done."""
        record = read_record(done_record_url(shard.output_url))
        shard.recorded = record is not None
        if record is None or self._engine.work.force:
            return

        why_stale = record.why_stale(
            lambda: identify(shard.output_url).size,
            url=shard.url,
            source=shard.source,
            work=self._work,
            tarkit=self._version,
            files=self._files,
        )
        if not why_stale:
            if self._engine.work.index:
                # It may have been made by a run that wrote no index.
                ensure_index(shard.output_url, rule=self._engine.work.key_rule)
            shard.record, shard.done_before = record, True

    def _begin(self, shard: _Shard) -> None:
        self._settle(self._open_shards - 1)
        failed_url = None if self._engine.work.errors == "skip" else failed_samples_url(shard.output_url)
        try:
            sinks = Sinks(shard.output_url, failed_url, {**self._engine.writer_options, "checksum": True})
            self._current = shard, Account(shard.counts, sinks, self._engine, before=self._spent)
        except UsageError:
            raise
        except TarkitError as problem:
            self._fail(shard, problem)

    def _enter(self, batch: Batch, outcome: Outcome) -> None:
        """Add one outcome to the current shard, unless that has failed."""
        if self._current is None:
            outcome.printed.discard()
            return
        try:
            self._current[1].enter(batch, outcome)
        except (StreamError, EncodeError) as problem:
            outcome.printed.discard()
            self._end(problem)

    def _end(self, error: TarkitError | None) -> None:
        """Complete the current shard, or fail it with an error."""
        if self._current is None:
            return
        shard, account = self._current
        if error is None:
            try:
                account.conclude(at_end=False)
            except TooManyErrorsError as problem:
                error = problem
        self._current = None
        self._spent.add(account.counts)
        if error is None:
            self._publishing.append(self._publisher.submit(self._publish, shard, account))
        else:
            account.sinks.discard()
            self._fail(shard, error)

    def _publish(self, shard: _Shard, account: Account) -> _Shard:
        """Publish a shard and then its record; unless another run did in the meantime.

        Called from several threads.
        """
        try:
            with self._gone.asking(shard.output_url):
                self._look_at_record(shard)
                if shard.done_before:
                    account.sinks.discard()
                else:
                    self._replace(shard, account)
        except TarkitError as problem:
            account.sinks.discard()
            shard.record.state, shard.record.error, shard.record.exit_code = "failed", str(problem), problem.exit_code
        except BaseException:
            account.sinks.discard()
            raise
        return shard

    def _replace(self, shard: _Shard, account: Account) -> None:
        # A local file has no version that could be asked for, so what was read may be of two.
        if local_path(shard.url) is not None:
            with suppress(MissingInputError):
                if identify(shard.url) != shard.source:
                    raise TemporaryStreamError("the input changed while it was read", url=display_name(shard.url))
        if shard.recorded:
            # Sizes are multiples of 10 KiB: an old record might be taken for that of a new output.
            with suppress(MissingInputError):
                remove(done_record_url(shard.output_url))
        account.sinks.close()
        counts, failed_url = account.counts, failed_samples_url(shard.output_url)
        size, sha256 = account.sinks.checksum()
        shard.record = replace(
            shard.record,
            state="done",
            output={"name": output_name(shard.output_url), "size": size, "sha256": sha256},
            failed_output=output_name(failed_url) if account.sinks.has_failed else None,
            samples=counts.as_dict(),
            failed=account.failed_at,
            skipped_members=counts.met.skipped,
            missing_fields=counts.met.missing_fields,
            dropped_fields=counts.met.replaced,
            emptied_fields=counts.emptied,
            damage=counts.met.damage_as_dicts(),
            exit_code=counts.exit_code,
        )
        if not account.sinks.has_failed:
            with suppress(MissingInputError):
                remove(failed_url)
        shard.record.publish(shard.output_url)

    def _fail(self, shard: _Shard, problem: TarkitError, *, keep_record: bool = False) -> None:
        """Fail a shard, and write the reason to its done record if possible."""
        record = shard.record
        record.error, record.exit_code = str(problem), problem.exit_code
        self._gone.note(problem)
        try:
            if not keep_record:
                self._gone.refuse(shard.output_url)
                record.publish(shard.output_url)
        except TarkitError as second:
            record.error = f"{record.error}; and the record cannot be written: {second}"
        self._count(shard)

    def _miss(self, url: str) -> None:
        self._counts.shards_missing += 1
        self._counts.codes.add(EXIT_MISSING)
        if len(self._counts.missing_names) < MISSING_NAMES:
            self._counts.missing_names.append(display_name(url))
        self._reporter.shard_missing(url)

    def _settle(self, most: int) -> None:
        """Wait until at most this number of shards are being published."""
        while len(self._publishing) > most:
            self._count(self._publishing.popleft().result())

    def _count(self, shard: _Shard) -> None:
        self._counts.count_shard(shard.record, before=shard.done_before)
        if shard.done_before:
            if reason := shard.record.not_compared(self._files):
                self._not_compared[reason] += 1
            self._reporter.shard_skipped(shard.output_url)
            return
        if shard.record.state == "done":
            self._counts.add(shard.counts)
        self._reporter.shard_done(shard.output_url, shard.record)
