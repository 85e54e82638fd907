"""Shards into the pipelines of webdataset 1.0, and its steps behind tarkit's readers.

``docs/order.md`` says in which order the samples come. Shards have indexes beside them (``tarkit index``).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tarkit.errors import UsageError, library
from tarkit.samples.epochs import Epochs
from tarkit.trainers.loader import log_gaps
from tarkit.trainers.source import BatchSource
from tarkit.trainers.world import loader_worker

if TYPE_CHECKING:
    from tarkit.trainers.torch import ShardLoader

wds = library("webdataset", "tarkit.trainers.webdataset", "webdataset")

Stage = Callable[[Iterator[Any]], Iterable[Any]]
_SPLITTERS = ("split_by_node", "split_by_worker", "single_node_only")


class ShardSamples:
    """The first stage of a ``webdataset.DataPipeline``: samples of shards, each once an epoch.

    Over all ranks and DataLoader workers, each reads its part of each batch, or its batches. An iteration is an epoch,
    and the next one is the epoch after it. ``loader()`` goes on in the middle of an epoch.

    >>> pipeline = webdataset.DataPipeline(  # doctest: +SKIP
    ...     ShardSamples("train-{0000..0147}.tar", batch=64, seed=1),
    ...     webdataset.decode("rgb"), webdataset.to_tuple("jpg", "cls"), webdataset.batched(64),
    ... )

    Args:
        urls, batch, options: see :class:`tarkit.trainers.source.BatchSource`. Samples are dicts of bytes, unless
            ``decode`` or ``fields`` are given.

    Raises:
        UsageError: see there; or ``service``, ``collate`` or ``audit`` are given; or (from iterating) a stage divides
            samples over ranks or workers.
    """

    def __init__(self, urls: str | os.PathLike[str] | Iterable[str], *, batch: int, **options: Any) -> None:
        for name in options.keys() & {"service", "collate", "audit"}:
            raise UsageError(f"{name}= is for tarkit.trainers.torch.ShardDataset, which makes batches")
        self.given: dict[str, Any] = {"batch": batch, **options}
        self.given["urls"] = urls if isinstance(urls, (str, os.PathLike)) else list(urls)
        self.source = BatchSource(**self.given)
        self._epochs = Epochs()

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that the next iteration is, in this process and in workers; else it counts.
        Raises: UsageError: not a whole number from 0 on."""
        self._epochs.set(epoch)

    def __call__(self) -> Iterator[Any]:
        # What calls this is the method of a DataPipeline that has the other stages.
        _refuse_splitters(getattr(sys._getframe(1).f_locals.get("self"), "pipeline", ()))
        return self._samples()

    def _samples(self) -> Iterator[Any]:
        worker = loader_worker()
        first, step = (0, 1) if worker is None else (worker.number, worker.workers)
        order = self.source.order(self._epochs.begin())
        counts = Counter[str]()
        try:
            for number in range(first, order.batches, step):
                yield from self.source.read(order, number)
                counts += self.source.maker.gaps.of(number)
        finally:
            log_gaps(counts, order.epoch, order.batches)


class BatchStages:
    """Stages of webdataset that make a batch of a list of samples: ``collate=`` of a data set of tarkit.

    They run for each batch anew, so that a state is exact to the batch. The last one is ``webdataset.batched``.

    >>> ShardDataset("train-{0000..0147}.tar", batch=64, collate=BatchStages(  # doctest: +SKIP
    ...     webdataset.decode("rgb"), webdataset.to_tuple("jpg", "cls"), webdataset.batched(64)))

    Raises:
        UsageError: a stage divides samples over ranks or workers; or (when called) the stages do not make one batch.
    """

    def __init__(self, *stages: Any) -> None:
        _refuse_splitters(stages)
        self._stages: tuple[Stage, ...] = tuple(getattr(stage, "run", stage) for stage in stages)

    def __call__(self, samples: list[Any]) -> Any:
        items: Iterator[Any] = iter(samples)
        for stage in self._stages:
            items = iter(stage(items))
        made = list(items)
        if len(made) != 1:
            raise UsageError(
                f"the stages make {len(made)} items of the {len(samples)} samples of a batch, and must make one: "
                f"end them with webdataset.batched({len(samples)}), and shuffle in the data set"
            )
        return made[0]


def _refuse_splitters(stages: Iterable[Any]) -> None:
    for stage in stages:
        if (name := getattr(stage, "__name__", None)) in _SPLITTERS:
            raise UsageError(f"{name} would leave samples out: they are divided already; leave it out")


def loader(pipeline: Any, num_workers: int = 0, **options: Any) -> ShardLoader:
    """A DataLoader over a pipeline, which goes on to the next epoch by itself, and in the middle of one by its state.

    Args:
        pipeline: a ``webdataset.DataPipeline`` that begins with ShardSamples, and ends with ``webdataset.batched``.
        num_workers, options: of the DataLoader.

    Raises:
        UsageError: the pipeline is another one.
        MissingExtraError: PyTorch is not installed.
    """
    from tarkit.trainers.torch import ShardDataset

    stages = getattr(pipeline, "pipeline", None) or [None]
    if not isinstance(stages[0], ShardSamples):
        raise UsageError("the pipeline must begin with tarkit.trainers.webdataset.ShardSamples(...)")
    if pipeline.repetitions != 1:
        raise UsageError("the pipeline has with_epoch or repeat: leave it out, the loader goes on epoch after epoch")
    return ShardDataset(**stages[0].given, collate=BatchStages(*stages[1:])).loader(num_workers, **options)
