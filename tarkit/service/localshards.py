"""The shards of a data set for one process, without a service: the same answers, nothing kept when it ends."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from tarkit.service import checkpoint
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules, NoShard, Verdict
from tarkit.service.ledger import Ledger
from tarkit.service.progress import MOST_DEAD, DataSetProgress
from tarkit.service.reports import HeldShard

_RULES = LeaseRules(floor=math.inf, ceiling=math.inf, first=math.inf)
_DRAIN = 5.0
"""Seconds without a report after which a caller that waits for its own process is told so."""


class LocalShards:
    """A ledger in this process, with the methods of a ``ShardClient``. Threads may share it."""

    def __init__(self, dataset: DataSet) -> None:
        self._ledger = Ledger(dataset, _RULES)
        self._news = threading.Condition()
        self._reported = time.monotonic()
        self._waits_since = 0.0
        self._counts: Counter[str] = Counter({verdict.value: 0 for verdict in Verdict})

    def __iter__(self) -> Iterator[HeldShard]:
        """Shards to the end; or to where none comes before the shards in hand are reported."""
        while isinstance(shard := self.fetch(), HeldShard):
            yield shard

    def fetch(self, timeout: float | None = None) -> HeldShard | NoShard:
        """The next shard; WAIT: there was none in that time; END: the end; DRAIN: none comes before the shards in hand
        are reported."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._news:
            self._waits_since = self._waits_since or time.monotonic()
            while isinstance(lease := self._ledger.lease("local", 0.0), NoShard):
                now = time.monotonic()
                drain = max(self._waits_since, self._reported) + _DRAIN
                if lease is NoShard.WAIT and now < drain:
                    if now >= until:
                        return lease
                    self._news.wait(min(drain, until) - now)
                    continue
                self._waits_since = 0.0
                return NoShard.DRAIN if lease is NoShard.WAIT else lease
            self._waits_since = 0.0
            shard = lease.shard
            where = shard.name, shard.start, shard.end, tuple(shard.indices)
            return HeldShard(*where, lease.epoch, lease.token, lease.ranges, "local")

    def done(self, shard: HeldShard, ranges: Iterable[tuple[int, int]] | None = None) -> None:
        """A shard was used, or ``ranges`` of it. Raises: UsageError: a range that the shard does not have."""
        with self._news:
            self._counts[self._ledger.complete(shard.token, 0.0, ranges).value] += 1
            self._reports()

    def failed(self, shard: HeldShard, reason: str) -> None:
        """What is left of a shard could not be used: it comes again, or is dead."""
        with self._news:
            self._counts[self._ledger.fail(shard.token, 0.0, reason).value] += 1
            self._reports()

    def _reports(self) -> None:
        self._reported = time.monotonic()
        self._news.notify_all()

    def flush(self) -> None:
        """All reports are taken already."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def counts(self) -> dict[str, int]:
        """Answers to the reports."""
        return dict(self._counts)

    @property
    def in_hand(self) -> int:
        """Number of shards that were fetched, and are not done or failed."""
        with self._news:
            return self._ledger.progress().leased

    @property
    def ended(self) -> bool:
        """Whether the data set has ended."""
        with self._news:
            return self._ledger.ended

    def progress(self) -> DataSetProgress:
        """Counts of the data set."""
        with self._news:
            return self._ledger.progress(MOST_DEAD)

    def save(self) -> str:
        """A checkpoint of the data set: JSON text of what is not done."""
        with self._news:
            return checkpoint.checkpoint(self._ledger)

    def restore(self, text: str) -> None:
        """Take a checkpoint for the state. Raises: UsageError: not a checkpoint of this data set."""
        with self._news:
            checkpoint.restore(self._ledger, text, 0.0)
            self._reports()

    def reset(self) -> None:
        """Begin anew."""
        with self._news:
            self._ledger.resume(0, 0, (), 0.0)
            self._reports()
