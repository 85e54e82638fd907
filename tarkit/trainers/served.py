"""Batches of the samples that a shard service hands out.

Acknowledged samples were used by the training loop.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import DataError, ReplacedError, TarkitError, UsageError, printable, quoted
from tarkit.readers.identity import COUNT_ANEW, checked_content, parsed_content
from tarkit.service.client import HeldShard, NoShard, ServedRecord, acknowledge
from tarkit.trainers.delivery import Delivery, UseCounts
from tarkit.trainers.order import Place
from tarkit.trainers.source import BatchSource
from tarkit.world import loader_worker

_WAIT = 0.05
"""Seconds to wait for a shard. A loop takes the batches of its workers in turn: a worker that waits
longer delays the others, whose batches may be the ones that it waits for.
"""
_LOOK = 0.05
"""Seconds between two checks of the used batches."""


class ServedBatches:
    """The batches of one worker, to the end of the service's data set.

    Iterate once. A record is acknowledged when the loop has used its batch. If the iteration ends
    early, all others are given back.

    Args:
        source: source of the samples, with a ``service``.
        counts: counts of the batches that the loop has used.
        worker: the number of this worker in ``counts``.
    """

    def __init__(self, source: BatchSource, counts: UseCounts, worker: int = 0) -> None:
        if source.service is None:
            raise UsageError("the data set has no service=")
        self._source, self._counts, self._worker = source, counts, worker
        self._client = copy.copy(source.service)
        """A separate client: a worker reads several times, and a closed client cannot be used
        again.
        """
        self._turn = counts.turn[0]
        self._loop_process = None if loader_worker() is None else os.getppid()
        self._shards = {url: number for number, url in enumerate(source.samples.urls)}
        self._same: set[tuple[int, str]] = set()
        """Numbers of shards whose content is that which the service counted, and its identity."""
        self._made: deque[list[ServedRecord]] = deque()
        """For each batch that is not acknowledged, its records."""
        self._settled = 0
        self._error: TarkitError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._acknowledge_used, name="tarkit acknowledgements", daemon=True)

    def __iter__(self) -> Iterator[Delivery]:
        with self._client, self._acknowledging():
            yield from self._deliveries()

    def _deliveries(self) -> Iterator[Delivery]:
        records: list[ServedRecord] = []
        number = 0
        for found in self._records():
            if self._error is not None:
                raise self._error
            if found is not None:
                records.append(found)
            # Where no shard is left, the others of this epoch are with workers that may wait for
            # these records.
            full = len(records) == self._source.settings.batch
            if full or (found is None and records and not self._client.progress().todo):
                yield Delivery(self._worker, number, False, self._batch(records, number))
                number, records = number + 1, []
            elif found is None:
                yield Delivery(self._worker, number, True, None)

    def _records(self) -> Iterator[ServedRecord | None]:
        """Yield records to the end of the data set, and None when none is available."""
        while (shard := self._client.fetch(_WAIT)) is not NoShard.END:
            if not isinstance(shard, HeldShard):
                yield None
                continue
            order = shard.indices or range(shard.start, shard.end)
            number = self._number(shard)
            self._refuse_replaced(number, shard)
            self._source.samples.shards.begin_epoch()
            for first, end in shard.ranges:
                for at in range(first, end):
                    yield ServedRecord(Place(number, order[at]), shard, at)

    def _number(self, shard: HeldShard) -> int:
        number = self._shards.get(shard.name)
        if number is None:
            raise UsageError(
                f"the service hands out {quoted(shard.name)}, which is not a shard of this data set; "
                "name the shards here as they are named to tarkit serve --data"
            )
        count = self._source.samples.counts[number]
        if shard.end > count:
            reason = f"the service hands out samples {shard.start} to {shard.end}, and it has {count} by its index"
            raise DataError(reason, url=shard.name, hint="begin the service anew, with a new state")
        return number

    def _refuse_replaced(self, number: int, shard: HeldShard) -> None:
        if not shard.identity or (number, shard.identity) in self._same:
            return
        counted = parsed_content(shard.identity)
        try:
            checked_content(self._source.samples.urls[number], counted, "since its records were counted", COUNT_ANEW)
        except ReplacedError as error:
            self._client.failed(shard, f"{type(error).__name__}: {printable(str(error))}")
            self._client.flush()
            raise
        self._same.add((number, shard.identity))

    def _batch(self, records: list[ServedRecord], number: int) -> object:
        number = self._counts.number_of(self._worker, number)
        try:
            batch = self._source.maker.batch_of((record.value for record in records), number)
        except Exception as error:
            self._stop_acknowledging()  # of a shard that failed, nothing more is taken
            for shard in {record.shard.token: record.shard for record in records}.values():
                self._client.failed(shard, f"{type(error).__name__}: {printable(str(error))}")
            self._client.flush()
            raise
        self._made.append(records)
        return batch

    @contextmanager
    def _acknowledging(self) -> Iterator[None]:
        """Run a thread that acknowledges what the loop uses, even while it asks for nothing."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop_acknowledging()

    def _stop_acknowledging(self) -> None:
        """Return when all batches used until now are acknowledged."""
        self._stop.set()
        self._thread.join()

    def _acknowledge_used(self) -> None:
        try:
            while not self._stop.wait(_LOOK):
                self._settle()
                if self._loop_process not in (None, os.getppid()):
                    self._client.close(give_back=False)  # the loop is gone, maybe because of what it holds
                    return
            self._settle()
        except TarkitError as error:
            self._error = error

    def _settle(self) -> None:
        used = self._counts.used[self._worker]
        if self._counts.turn[0] != self._turn or used == self._settled:
            return
        while self._settled < used:
            acknowledge(self._client, self._made.popleft())
            self._settled += 1
        self._client.flush()
        self._counts.settle(self._worker, self._turn, self._settled)


def wait_until_settled(counts: UseCounts, seconds: float) -> bool:
    """Return True when all used batches are on the service's disk; False after a timeout."""
    until = time.monotonic() + seconds
    while not counts.settled:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK / 5)
    return True
