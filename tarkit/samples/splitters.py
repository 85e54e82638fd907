"""Which shards a process reads, where several read a data set: one for each rank, and the workers of a DataLoader.

The names are those of webdataset. Each takes shards, and gives some of them or an error; nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from tarkit.errors import UsageError
from tarkit.trainers.world import Consumer, consumer, loader_worker

Splitter = Callable[[Iterable[str]], Iterable[str]]

_EXACT = "tarkit.trainers.torch.ShardDataset divides samples exactly over ranks and workers"


def single_node_only(urls: Iterable[str], group: Consumer | None = None) -> Iterable[str]:
    """All shards. Raises: UsageError: there are several ranks, which would read the same."""
    rank, world = group or consumer()
    if world > 1:
        raise UsageError(
            f"this is rank {rank} of {world}, and each would read every sample. {_EXACT}; WebDataset("
            "nodesplitter=split_by_node) gives each rank some of the shards; nodesplitter=None reads all shards given"
        )
    return urls


def split_by_node(urls: Iterable[str], group: Consumer | None = None) -> Iterator[str]:
    """The shards of this rank: every W-th of them, if there are W ranks."""
    rank, world = group or consumer()
    return islice(urls, rank, None, world)


def split_by_worker(urls: Iterable[str]) -> Iterator[str]:
    """The shards of this worker of a DataLoader: every n-th of them, if it has n workers."""
    worker = loader_worker()
    return iter(urls) if worker is None else islice(urls, worker.number, None, worker.workers)


def split_whole(urls: Iterable[str], dataset: object) -> Iterable[str]:
    """The shards of this worker of a DataLoader that reads ``dataset`` itself: every n-th of them, if it has n workers.

    Raises:
        UsageError: the DataLoader has several workers and reads another data set, which may have divided the shards.
    """
    worker = loader_worker()
    if worker is None or worker.workers == 1:
        return urls
    if worker.dataset is not dataset:
        raise UsageError(
            f"this is worker {worker.number} of {worker.workers} of a DataLoader, of which each may read every sample. "
            f"{_EXACT}; WebDataset(workersplitter=split_by_worker) gives each worker some of the shards; "
            "workersplitter=None reads all shards given, where each worker is given its own"
        )
    return split_by_worker(urls)


def check_alone() -> None:
    """Refuse to read all shards in one of several ranks or DataLoader workers.
    Raises: UsageError: the process is one of several."""
    worker = loader_worker()
    rank, world = 0, 1
    with suppress(UsageError):  # RANK alone may be a variable of any program
        rank, world = consumer()
    if worker is not None and worker.workers > 1:
        where = f"worker {worker.number} of {worker.workers} of a DataLoader"
    elif world > 1:
        where = f"rank {rank} of {world}"
    else:
        return
    raise UsageError(
        f"read_samples in {where}: each would read every sample. {_EXACT}; split=True reads the shards given, where "
        "each process is given its own, such as by tarkit.samples.splitters.split_by_worker"
    )
