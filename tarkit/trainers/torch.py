"""Shards for PyTorch: batches that do not depend on the number of ranks and workers.

``docs/order.md`` says which batches those are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypedDict
from weakref import finalize

from tarkit.errors import UsageError
from tarkit.extras import library
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.trainers.checkedstate import check_state, with_checksum
from tarkit.trainers.delivery import Delivery, UseCounts
from tarkit.trainers.grouped import GroupedBatches, batches_at_once, in_order
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.options import OF_SHARD_MAP, SourceOptions
from tarkit.trainers.served import ServedBatches
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.sharednumbers import SharedNumbers, checked_number
from tarkit.trainers.source import BatchSource
from tarkit.trainers.stageclock import WorkerNumbers
from tarkit.trainers.streams import Stream
from tarkit.trainers.torchprocess import (
    check_not_dispatched,
    check_reader,
    current_worker,
    loader_batches,
    warn_of_ranks,
)
from tarkit.world import LoaderWorker

data = library("torch.utils.data", "tarkit.trainers.torch", "torch")


class LoaderOptions(TypedDict, total=False):
    """Keyword arguments of torch's ``DataLoader``, without those that decide on the batches."""

    collate_fn: Callable[[Any], Any] | None
    pin_memory: bool
    timeout: float
    worker_init_fn: Callable[[int], object] | None
    multiprocessing_context: Any
    generator: Any
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool


class ShardDatasetOptions(SourceOptions, total=False):
    """Keyword arguments of :class:`ShardDataset`."""

    batch: int
    fields: str | None
    decode: str | None
    collate: Callable[[list[Any]], Any] | None


class ShardDataset(BatchSource, data.IterableDataset):  # type: ignore[misc,name-defined]
    """Batches of samples: each sample once an epoch, over all ranks and DataLoader workers.

    ``loader()`` reads it, or torchdata's StatefulDataLoader with ``batch_size=None``; anything else
    is an error.

    >>> shards = "s3://bucket/train-{0000..0147}.tar"
    >>> dataset = ShardDataset(shards, batch=64, fields="jpg cls")  # doctest: +SKIP
    >>> for images, labels in dataset.loader(num_workers=4):  # doctest: +SKIP
    ...     step(images, labels)

    Args:
        urls: a path, URL, shard spec or manifest (``dataset.json``), or several; or a
            :class:`~tarkit.trainers.shardmap.ShardMap`. Each shard has an index beside it (``tarkit
            index``). Or streams, which are mixed: a list of
            :class:`~tarkit.trainers.streams.Stream`.
        batch: samples of a global batch; each rank has its part of it.
        fields: names of fields: a batch is made of tuples of their values; ``jpg;png`` takes the
            first one that a sample has. None: of samples, dicts.
        decode: form of decoded images: ``torchrgb`` (float32, 0 to 1) or ``torchrgb8`` (uint8) for
            tensors of shape (3, height, width); ``rgb`` or ``rgb8`` for arrays of shape (height,
            width, 3); ``bytes``: images stay bytes, and other fields are decoded. None: all fields
            stay bytes.
        collate: function from a list of samples, or of tuples, to a batch. None: torch's
            ``default_collate`` with ``fields``, else the list.
        options: the subset, order, rank and world, errors, cache, service and audit; see
            :class:`~tarkit.trainers.options.SourceOptions`.

    Raises:
        TypeError: an option does not exist.
        UsageError: an option has a wrong value, or a shard has no index.
        MissingExtraError: PyTorch is not installed.
    """

    @keywords_of(SourceOptions)
    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str] | ShardMap | Stream | Sequence[Stream],
        *,
        batch: int,
        fields: str | None = None,
        decode: str | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        **options: Unpack[SourceOptions],
    ) -> None:
        given: dict[str, Any] = {"batch": batch, "fields": fields, "decode": decode, "collate": collate, **options}
        self._arguments = {name: value for name, value in given.items() if name not in OF_SHARD_MAP}
        if collate is None and fields is not None:
            collate = data.default_collate
        # Epoch, its first batch, whether it was begun, and how many iterations have ended.
        # Workers of later epochs, and those that persist, see what the main process sets.
        self._shared = SharedNumbers(4)
        self._process = os.getpid()
        self.placings = 0
        """Number of times that the caller has set where the next iteration begins."""
        super().__init__(urls, batch=batch, fields=fields, decode=decode, collate=collate, **options)

    @property
    def epoch(self) -> int:
        """Epoch that is read now or next, from 0."""
        epoch: int = self._shared[0]
        return epoch

    @property
    def begins(self) -> tuple[int, int]:
        """Epoch and batch with which a loader that is made now begins."""
        epoch, first, begun, _ = self._shared[:]
        return (epoch + 1, 0) if begun else (epoch, first)

    def set_epoch(self, epoch: int, first: int = 0) -> None:
        """Set the epoch of the next iteration, and its first batch.

        Persistent workers see it, too. If a ``loader()`` was made before, call its ``set_epoch``
        instead.

        Raises:
            UsageError: an argument is not a whole number from 0 on.
        """
        self._part_ranks()
        self.placings += 1
        self.place(epoch, first)

    def place(self, epoch: int, first: int, *, begun: bool = False) -> None:
        """Set the epoch and first batch, for loaders and iterators.

        Args:
            begun: only a loader() or a state reads the position from now on.
        """
        self._shared[:3] = [checked_number("epoch", epoch), checked_number("first", first), begun]

    def ended(self) -> int:
        found: int = self._shared[3]
        return found

    def end_iteration(self) -> None:
        self._shared[3] += 1

    def __iter__(self) -> BatchIterator:
        if self.service is not None or self.audit is not None:
            raise UsageError("with service= or audit=, read it by loader(), which knows what your loop has used")
        check_reader()  # of the caller of this method
        check_not_dispatched(self.consumer.world)
        found = self.read_epoch()
        if found.worker == 0:  # of which the first batch is
            found.again, self._shared[2] = bool(self._shared[2]), True
        return found

    def read_epoch(self) -> BatchIterator:
        """Return the batches of this worker."""
        worker = current_worker() or LoaderWorker(0, 1)
        return BatchIterator(self, self.epoch, self._shared[1], *worker)

    @keywords_of(ShardDatasetOptions)
    def subset(self, numbers: range | slice, **changes: Unpack[ShardDatasetOptions]) -> ShardDataset:
        """Return a data set of the samples with these numbers, in the order of the shards.

        >>> train, rest = dataset.subset(range(50_000)), slice(50_000, None)  # doctest: +SKIP
        >>> test = dataset.subset(rest, shuffle=False, equalize="pad")  # doctest: +SKIP

        Args:
            numbers: numbers of the samples, with or without a step: ``range(0, 1000)``,
                ``slice(None, None, 10)``.
            changes: arguments of the new data set that differ from those of this one.

        Raises:
            UsageError: the numbers do not ascend, are not all in the data set, or there are none;
                this data set has streams; or it has an ``audit``, and the new one is not given its
                own.
        """
        if self.mixture is not None:
            raise UsageError("a subset by numbers is not for streams, which keys=, where= and split= choose from")
        if self.audit is not None and "audit" not in changes:
            raise UsageError("an audit is of one data set: give audit= of the subset, a folder or None")
        return ShardDataset(self.samples.subset(numbers), **{**self._arguments, **changes})

    def __getstate__(self) -> dict[str, Any]:
        check_not_dispatched(self.consumer.world)
        return super().__getstate__()

    def __getitem__(self, number: object) -> Any:
        raise TypeError(
            "a ShardDataset gives batches, in their order, by its loader(); dataset.samples[number] gives a sample"
        )

    def loader(self, num_workers: int = 0, **options: Unpack[LoaderOptions]) -> ShardLoader:
        """Return a DataLoader whose iterations are the epochs, with a state to resume from.

        It begins with the epoch after the last one that was begun.

        Args:
            num_workers: number of processes that read; 0: the batches are read in this process.
            options: other arguments of the DataLoader, such as ``pin_memory``.

        Raises:
            TypeError: the DataLoader has no such argument.
            UsageError: an argument would change the batches or their order.
        """
        self._part_ranks()
        return ShardLoader(self, num_workers, options)

    def _part_ranks(self) -> None:
        """Separate the shared numbers of ranks that were forked with the data set.

        Workers still share them with the process of the loop.
        """
        if self._process != os.getpid():
            self._process = os.getpid()
            for numbers in (self._shared, self.maker.gaps, *([self.mixture.begun] if self.mixture else [])):
                numbers.part()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, with any number of ranks and workers.

        Raises:
            UsageError: see :meth:`place_in`.
        """
        self.set_epoch(*self.place_in(state))


class BatchIterator(Iterator[Any]):
    """The batches of one worker of a rank.

    Its state is stored by torchdata's StatefulDataLoader.
    """

    def __init__(self, dataset: ShardDataset, epoch: int, first: int, worker: int, workers: int) -> None:
        self._dataset, self.worker, self._workers = dataset, worker, workers
        self.again = False
        """The epoch was read before, so its first batch is an error; unless a state is loaded
        before that.
        """
        self.delivers = False
        """True if a batch of which samples failed is a Delivery, with a list of them."""
        self._set(epoch, first + worker)

    def _set(self, epoch: int, number: int) -> None:
        self._order = self._dataset.order(epoch)
        self._number, self._skipped = number, self._dataset.skipped_samples(epoch)
        numbers = range(number, self._order.batches, self._workers)
        finalize(self, self._dataset.fetch_ahead(self._order, numbers))

    def __next__(self) -> Any:
        order, dataset = self._order, self._dataset
        if self.again:
            hint = "call set_epoch() before each iteration, or use the data set's loader()"
            raise UsageError(f"epoch {order.epoch} is read a second time: {hint}")
        if self._number >= order.batches:
            raise StopIteration
        number = self._number
        batch = dataset.read(order, number, self.worker)
        self._number += self._workers
        if skipped := dataset.maker.pop_skipped(order.epoch, number):
            if self.delivers:
                made = batch if isinstance(batch, Delivery) else Delivery(self.worker, number, False, batch)
                return made._replace(skipped=skipped)
            self._skipped.add(number, skipped)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the iterator's position."""
        return with_checksum(self._dataset.state(self._order.epoch, self._number) | {"workers": self._workers})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state.

        Raises:
            UsageError: the state is of another number of workers, or of another order.
        """
        if state.get("workers") != self._workers:
            raise UsageError(
                f"the state has workers {state.get('workers')}, and here it is {self._workers}: "
                "give dataset_state(it) to the data set's load_state_dict() before the loader is made"
            )
        epoch, number = self._dataset.place_in(state)
        self._dataset.place(epoch, 0, begun=True)
        self.again = False
        self._set(epoch, number)


def dataset_state(loader_state: Any) -> dict[str, Any]:
    """Return the data set's state from that of a StatefulDataLoader of any rank.

    It is for any number of ranks and workers.

    >>> dataset.load_state_dict(dataset_state(torch.load("loader.pt")))  # doctest: +SKIP

    Args:
        loader_state: result of the loader's ``state_dict()``.

    Raises:
        UsageError: the state has no state of a data set, one was changed, or the workers' states do
            not fit together.
    """
    found = list(_states_in(loader_state))
    if not found:
        raise UsageError("there is no state of a ShardDataset in it")
    first = min(found, key=lambda state: (state["epoch"], state["next_batch"]))
    if any(state["next_batch"] >= first["next_batch"] + state.get("workers", 1) for state in found):
        raise UsageError("its workers' states are not of batches in their order, as with in_order=False")
    return with_checksum({name: value for name, value in first.items() if name != "workers"})


def _states_in(value: Any, later: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the data set's states in the state of a loader.

    Args:
        later: number of batches that the loop was given after the workers made their states
            (``snapshot_every_n_steps``).
    """
    if isinstance(value, dict):
        later = value.get("_steps_since_snapshot", later)
        if "next_batch" in value:
            check_state(value)
            yield {**value, "next_batch": value["next_batch"] + later}
        else:
            for each in value.values():
                yield from _states_in(each, later)


class ShardLoader(EpochLoader):
    """A DataLoader over a ShardDataset, epoch after epoch.

    accelerate's ``skip_first_batches``, and so the Trainer of transformers, uses the parts of the
    DataLoader: ``dataset``, ``batch_sampler`` and the other attributes are those of a DataLoader
    over the numbers of the next epoch's batches.
    """

    def __init__(self, dataset: ShardDataset, num_workers: int, options: Mapping[str, Any]) -> None:
        if options.get("in_order") is False and dataset.service is None:
            raise UsageError("in_order=False: a state is a place in the order, so batches must come in it")
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if options.get(name) is not None:  # also shuffle=False, which would not have the order of the shards
                raise UsageError(f"loader() has no {name}=: see batch=, shuffle= and equalize= of the data set")
        super().__init__(dataset, num_workers)
        self._dataset, self._placings = dataset, dataset.placings
        self._running: tuple[Iterator[Any], int] | None = None
        """The iteration that is read by numbers, and the number of its next batch."""
        self.sampler = self.prefetch_factor = None
        self.collate_fn = itemgetter(0)
        self._next = self._at = dataset.begins
        if dataset.maker.stays_bytes:
            # PyTorch would look for what to convert in each field: that takes longer than to read
            # small samples.
            options = {"collate_fn": list, **options}
        if dataset.service is not None:
            warn_of_ranks()
        is_plain = dataset.service is None and dataset.audit is None and not dataset.maker.counts_errors
        if not is_plain and options.get("collate_fn") is not None:
            options = {**options, "collate_fn": partial(_collated, options["collate_fn"])}
        is_small = (
            is_plain
            and dataset.maker.stays_bytes
            and options.get("collate_fn") is list  # and so the same for a message as for its batches
            and options.get("prefetch_factor") is None
        )
        self._at_once = batches_at_once(dataset) if num_workers and is_small else 1
        read = _Read(dataset, self._counts, self._numbers.shared, self._at_once)
        self._loader: Any = data.DataLoader(read, num_workers=num_workers, **{**options, "batch_size": None})

    # Not attributes: in a cycle with the loader, persistent workers would be waited for.
    @property
    def dataset(self) -> _NumberedBatches:
        return _NumberedBatches(self)

    @property
    def batch_sampler(self) -> _BatchNumbers:
        return _BatchNumbers(self)

    def _place(self) -> tuple[int, int]:
        """Return the epoch and the batch with which the next iteration begins.

        Raises:
            UsageError: a service decides on the batches.
        """
        self.source.refuse_service()
        return self._next

    def _begin_at(self, number: int) -> Iterator[Any]:
        """Return the next iteration, without the first ``number`` of its batches."""
        epoch, first = self._place()
        self._next = epoch, first + number
        return iter(self)

    def _epoch(self, epoch: int, first: int) -> Iterable[Any]:
        if self._dataset.placings != self._placings:
            raise UsageError(
                "set_epoch() or load_state_dict() of the data set was called after its loader() was made: call the "
                "loader's method"
            )
        self._dataset.place(epoch, first, begun=True)
        batches = loader_batches(self._loader)
        return batches if self._at_once == 1 else in_order(batches, self._loader.num_workers)

    def _deliveries(self) -> Iterable[Delivery]:
        return loader_batches(self._loader)


class _NumberedBatches:
    """The batches of a loader's next iteration by number, in order, beginning at any number."""

    def __init__(self, loader: ShardLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader.source.samples)

    def __getitem__(self, number: int) -> Any:
        running, expected = self._loader._running or (self._loader._begin_at(number), number)
        if number != expected:
            raise UsageError(f"batches come in their order: the next one is {expected}, and not {number}")
        self._loader._running = running, number + 1
        return next(running)


class _BatchNumbers:
    """The numbers of the next epoch's batches, each in a list of its own."""

    def __init__(self, loader: ShardLoader) -> None:
        self._loader = loader
        self.set_epoch = loader.set_epoch  # which the Trainer calls

    def __len__(self) -> int:
        _, first = self._loader._place()
        return len(self._loader) - first

    def __iter__(self) -> Iterator[list[int]]:
        loader, count = self._loader, len(self)
        loader._running = None
        yield from ([number] for number in range(count))
        running, _ = loader._running or (loader._begin_at(count), count)  # all were skipped
        next(running, None)  # the loop asks for more, so it has used the last one


class _Read(data.IterableDataset):  # type: ignore[misc,name-defined]
    """Data set of a ``loader()``'s worker: batches, or deliveries where used batches count.

    If ``at_once`` is above 1, it gives messages of so many of them.
    """

    def __init__(self, dataset: ShardDataset, counts: UseCounts, numbers: WorkerNumbers, at_once: int) -> None:
        self._dataset, self._counts, self._numbers, self._at_once = dataset, counts, numbers, at_once

    def __iter__(self) -> Iterator[Any]:
        worker = current_worker() or LoaderWorker(0, 1)
        self._dataset.maker.clock.attach(self._numbers, worker.number)
        if self._dataset.service is None:
            found = self._dataset.read_epoch()
            found.delivers = True
            return found if self._at_once == 1 else GroupedBatches(found, worker.number, self._at_once)
        return iter(ServedBatches(self._dataset, self._counts, worker.number))


def _collated(collate: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch, or a delivery of one, with the DataLoader's ``collate_fn`` applied to it."""
    if not isinstance(batch, Delivery):
        return collate(batch)
    return batch if batch.empty else batch._replace(value=collate(batch.value))
