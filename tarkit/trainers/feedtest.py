"""Measure how fast a machine reads a data set, without a model, and what limits it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tarkit.errors import TarkitError, printable
from tarkit.extras import library
from tarkit.trainers.arrays import columns
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.sharednumbers import checked_number, checked_seconds
from tarkit.trainers.source import BatchSource
from tarkit.trainers.stageclock import STAGES

_SHORT = 0.1
"""Seconds of an epoch in which workers look too rarely at their processor time for a rate."""


@dataclass(frozen=True)
class StageSpeed:
    """How much of the workers' time a stage takes.

    Attributes:
        share: share of the workers' time, from 0 to 1.
        samples_per_second: samples a second if the workers did nothing else; None for ``idle``, and
            if they spent no time in it.
    """

    share: float
    samples_per_second: float | None


@dataclass(frozen=True)
class FeedReport:
    """Result of a test: rates are of the time after the first batch of each epoch.

    Attributes:
        workers: number of worker processes; 0: the process of the loop made the batches.
        epochs: number of epochs that were begun.
        batches, samples, bytes: numbers of what the loop was given; bytes of samples in the shards.
        seconds: time after the first batches.
        first_batch_seconds: time until the first batch of each epoch came, of all epochs together.
        samples_per_second, megabytes_per_second: speed; None if no second batch came.
        waits: share of its time in which the loop waited; None likewise.
        limit: ``loop``, ``network``, ``reading``, ``decoding``, ``ordering``, ``collating`` or
            ``pipe``; see :func:`tarkit.trainers.loopnumbers.limit_of`. None likewise.
        stages: stage -> its speed, for the stages of :data:`tarkit.trainers.stageclock.STAGES`.
        processors: number of processors that the workers used; None if epochs were too short to
            measure it.
        processors_wanted: number that they could have used, by the time of all stages but fetching
            and idle. If fewer were used, they waited for the disk, or other programs were running.
            None likewise.
        machine_processors: number of processors that this process may use.
    """

    workers: int
    epochs: int
    batches: int
    samples: int
    bytes: int
    seconds: float
    first_batch_seconds: float
    samples_per_second: float | None
    megabytes_per_second: float | None
    waits: float | None
    limit: str | None
    stages: dict[str, StageSpeed]
    processors: float | None
    processors_wanted: float | None
    machine_processors: int


def feed_test(
    urls: str | os.PathLike[str] | Iterable[str],
    *,
    workers: int = 0,
    batch: int = 64,
    fields: str | None = None,
    decode: str | None = None,
    seconds: float = 10.0,
    batches: int | None = None,
    step: float = 0.0,
    cache: str | os.PathLike[str] | bool = True,
) -> FeedReport:
    """Read batches of a data set as a training would, and report what limits their speed.

    The data set is read by this process alone, in the order of its first epochs. With ``fields``,
    values of one shape or numbers become arrays, and others stay lists.

    Args:
        urls, batch, fields, decode, cache: see :class:`tarkit.trainers.source.BatchSource`.
        workers: number of worker processes of torch's DataLoader; 0: this process reads.
        seconds: time to read after the first batch, if ``batches`` is not given.
        batches: number of batches to read, in as many epochs as they need.
        step: time in seconds that a model would need for a batch; the loop sleeps so long.

    Raises:
        UsageError: an argument has a wrong value, a shard has no index, or the samples do not fill
            a batch.
        MissingExtraError: there are workers and no PyTorch, or fields and no NumPy.
        TarkitError: a sample cannot be read or decoded, or a worker process failed.
    """
    checked_number("workers", workers)
    step = checked_seconds("step", step)
    until = checked_seconds("seconds", seconds)
    most = None if batches is None else checked_number("batches", batches, 1)
    if fields is not None:
        library("numpy", "a test with fields", "images")
    options = {"batch": batch, "fields": fields, "decode": decode, "cache": cache, "rank": 0, "world": 1}
    loader = _loader(urls, workers, {**options, "collate": None if fields is None else columns})
    try:
        epochs = _read(loader, until, most, step)
    except (TarkitError, RuntimeError) as error:
        if not workers:
            raise
        raise _of_worker(error) from error
    return _report(loader, workers, epochs)


def _loader(urls: Any, workers: int, options: dict[str, Any]) -> EpochLoader:
    if not workers:
        return EpochLoader(BatchSource(urls, **options))
    library("torch", "a test with workers, and not with 0 of them,", "torch")
    from tarkit.trainers.torch import ShardDataset

    with warnings.catch_warnings():  # that there are more workers than processors is measured
        warnings.simplefilter("ignore")
        return ShardDataset(urls, **options).loader(workers, worker_init_fn=_leave_signals)


def _leave_signals(worker: int) -> None:
    """Let only the process of the loop react to Ctrl-C; it ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _read(loader: EpochLoader, seconds: float, most: int | None, step: float) -> int:
    """Read batches for some time after the first one, or as many as ``most``; return the epochs."""
    read, epochs, end = 0, 0, None
    while True:
        epochs += 1
        for _ in loader:
            read += 1
            end = time.monotonic() + seconds if end is None else end
            if read == most or (most is None and time.monotonic() >= end):
                return epochs
            if step:  # sleep(0) would let other processes run
                time.sleep(step)


def _of_worker(error: Exception) -> TarkitError:
    """Return the error of a worker, without the worker's traceback in its message."""
    if isinstance(error, TarkitError):
        return type(error)(str(error).rpartition(f"{type(error).__name__}: ")[2])
    return TarkitError(f"a worker process failed: {printable(str(error))}")


def _report(loader: EpochLoader, workers: int, epochs: int) -> FeedReport:
    total = loader.numbers()["total"]
    worked = total["workers"]
    spent = {stage: worked[stage] for stage in STAGES if workers or stage != "idle"}
    whole = sum(spent.values()) or 1.0
    made = worked["samples"] * max(1, workers)
    alone = {stage: made / time for stage, time in spent.items() if time and stage != "idle"}
    stages = {stage: StageSpeed(time / whole, alone.get(stage)) for stage, time in spent.items()}
    seconds = total["seconds"]
    is_long = seconds > _SHORT * epochs
    busy = sum(time for stage, time in spent.items() if stage not in ("fetching", "idle"))
    known = "batches samples bytes seconds first_batch_seconds samples_per_second megabytes_per_second waits limit"
    return FeedReport(
        workers=workers,
        epochs=epochs,
        **{name: total[name] for name in known.split()},
        stages=stages,
        processors=worked["processor"] / seconds if is_long else None,
        processors_wanted=busy / seconds if is_long else None,
        machine_processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
