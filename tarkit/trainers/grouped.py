"""Send small batches from a DataLoader's worker to the loop several at a time.

A message takes both processes about as long as to read dozens of small samples, however little is
in it. The first one has one batch, so that it comes at once, and each other one twice as many as
the one before it, up to a number that all workers have: so none gets ahead of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tarkit.names.outputnames import is_packed_name
from tarkit.store.entries import identify
from tarkit.trainers.source import BatchSource

_SIZE = 1 << 20
"""Size in bytes, in their shard, of the samples of a message."""
_MOST = 8


def batches_at_once(source: BatchSource) -> int:
    """Return how many batches of unchanged bytes a message may have: 1 MiB, but at most 8.

    It is one for remote and compressed shards, where a batch may take long. The first shard that
    has samples tells their size; of several streams, the largest size decides.
    """
    samples = source.samples
    if samples.shards.remote or any(map(is_packed_name, samples.urls)):
        return 1
    streams = [len(samples.urls)] if source.mixture is None else source.mixture.sizes.values()
    shards, mean = zip(samples.urls, samples.counts, samples.all_counts, strict=True), 0.0
    for size in streams:
        found = [(url, count) for url, chosen, count in islice(shards, size) if chosen][:1]
        mean = max([mean, *((identify(url).size or _SIZE) / count for url, count in found)])
    return max(1, min(_MOST, round(_SIZE * source.consumer.world / (max(1, mean) * source.settings.batch))))


class GroupedBatches(Iterator[tuple[int, list[Any]]]):
    """The messages of a worker: its number, and some batches.

    Args:
        batches: batches of the worker; the call after an error raises it again.
        worker: number of the worker.
        most: largest number of batches of a message.
    """

    def __init__(self, batches: Iterator[Any], worker: int, most: int) -> None:
        self._batches, self._worker, self._most = batches, worker, most
        self._next = 1

    def __next__(self) -> tuple[int, list[Any]]:
        made: list[Any] = []
        try:
            while len(made) < self._next:
                made.append(next(self._batches))
        except Exception:
            if not made:  # else they come first
                raise
        self._next = min(2 * self._next, self._most)
        return self._worker, made


def in_order(messages: Iterable[tuple[int, list[Any]]], workers: int) -> Iterator[Any]:
    """Yield the batches of all workers' messages, one of each worker in turn."""
    waiting: list[deque[Any]] = [deque() for _ in range(workers)]
    message = iter(messages)
    while True:
        for mine in waiting:
            while not mine:
                worker, batches = next(message, (0, None))
                if batches is None:
                    return
                waiting[worker].extend(batches)
            yield mine.popleft()
