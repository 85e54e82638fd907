"""Shards to PyTorch: an IterableDataset whose batches do not depend on how many ranks and workers read them.

``docs/order.md`` says which batches those are.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from tarkit.errors import UsageError, library, printable
from tarkit.samples.codecs import decode_sample
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.samples.transforms import to_tuple
from tarkit.trainers.order import EpochOrder, OrderSettings, Place
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.world import Consumer, consumer

torch = library("torch", "tarkit.trainers.torch", "torch")
data = library("torch.utils.data", "tarkit.trainers.torch", "torch")

_VERSION = 1
_LANES = 8
_MOST_WORKERS = 1022


class ShardDataset(data.IterableDataset):  # type: ignore[misc,name-defined]
    """Batches of samples: each sample once an epoch, over all ranks and DataLoader workers.

    ``loader()`` is the way to read it; a DataLoader of one's own has ``batch_size=None``.

    Args:
        urls: a path, URL or shard spec, or several, or a manifest (``dataset.json``); see
            :class:`tarkit.trainers.shardmap.ShardMap`. Each shard has an index beside it (``tarkit index``).
        batch: samples of a global batch; each rank has its part of it.
        fields: ``"jpg;png cls"``: a batch is a tuple of columns, collated; None: a list of samples.
        decode: what images become, a word of :func:`tarkit.samples.codecs.decode_field`, and other fields are decoded;
            None: all fields stay bytes.
        transform: is called with each sample, or tuple of fields.
        collate: makes a batch of a list of them; None: torch's ``default_collate`` with ``fields``, else the list.
        shuffle, seed: another order in each epoch. lanes, turns, run, block, equalize: see
            :class:`tarkit.trainers.order.OrderSettings`; lanes is by default the largest power of two up to 8 that
            divides the batch. With ``equalize="pad"`` each sample has ``__pad__``, which is True of one that fills.
        rank, world: see :func:`tarkit.trainers.world.consumer`.
        rule: key rule.

    Raises:
        UsageError: an argument that cannot be, or a shard without an index.
        MissingExtraError: PyTorch is not installed.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        batch: int,
        fields: str | None = None,
        decode: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        lanes: int | None = None,
        turns: int = 1,
        run: int = 100,
        block: int = 10_000,
        equalize: str = "drop",
        rank: int | None = None,
        world: int | None = None,
        rule: str | KeyRule = first_dot,
    ) -> None:
        lanes = math.gcd(batch, _LANES) if lanes is None else lanes
        self.settings = OrderSettings(batch, seed if shuffle else None, lanes, turns, run, block, equalize)
        self.samples = ShardMap(urls, rule=rule)
        self._fields, self._decode, self._transform = fields, decode, transform
        self._collate = collate or (data.default_collate if fields is not None else list)
        self._asked = rank, world
        self._consumer: Consumer | None = None
        # Epoch, its first batch, and of each worker the number of epochs up to the last that it began: workers of
        # later epochs, and those that persist, see what the main process sets.
        self._shared = torch.zeros(2 + _MOST_WORKERS, dtype=torch.int64).share_memory_()
        self.consumer  # noqa: B018 (an environment that cannot be is an error here)
        EpochOrder(self.samples.counts, self.settings, 0)

    @property
    def consumer(self) -> Consumer:
        """Rank and world."""
        return self._consumer or consumer(*self._asked)

    @property
    def epoch(self) -> int:
        """The epoch that is read next, or now. From 0."""
        return int(self._shared[0])

    def set_epoch(self, epoch: int, first: int = 0) -> None:
        """What the next iteration reads: this epoch, from batch ``first`` on. Workers that persist see it, too."""
        self._shared[2:] = 0
        self._shared[0], self._shared[1] = epoch, first

    def __len__(self) -> int:
        """Batches of an epoch, the same for each rank."""
        return self.settings.batches(len(self.samples))

    def __iter__(self) -> BatchIterator:
        info = data.get_worker_info()
        if info is None:
            return BatchIterator(self, self.epoch, int(self._shared[1]), 0, 1)
        if info.num_workers > _MOST_WORKERS:
            raise UsageError(f"{info.num_workers} workers read one data set; {_MOST_WORKERS} can")
        again = int(self._shared[2 + info.id]) > self.epoch
        self._shared[2 + info.id] = self.epoch + 1
        return BatchIterator(self, self.epoch, int(self._shared[1]), info.id, info.num_workers, again)

    def loader(self, num_workers: int = 0, **options: Any) -> ShardLoader:
        """A DataLoader that goes on to the next epoch by itself, and knows where it is. options: of the DataLoader."""
        return ShardLoader(self, num_workers, options)

    def state(self, epoch: int, next_batch: int) -> dict[str, Any]:
        """The state of a training that goes on with a batch of an epoch: the same for each rank, under 1 kB."""
        names = ("batch", "seed", "lanes", "turns", "run", "block", "equalize")
        order = {name: getattr(self.settings, name) for name in names}
        # A copy of the data set, at another place, is the same one.
        shards = [
            (url.rpartition("/")[2], count) for url, count in zip(self.samples.urls, self.samples.counts, strict=True)
        ]
        digest = blake2b(json.dumps(shards).encode(), digest_size=8).hexdigest()
        return {"version": _VERSION, "shards": digest, **order, "epoch": epoch, "next_batch": next_batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state is, with any number of ranks and workers.

        Raises:
            UsageError: the state is of another data set, other settings, or another version; the message says which.
        """
        self.set_epoch(*self.place_in(state))

    def place_in(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Epoch and next batch of a state. Raises: UsageError: see :meth:`load_state_dict`."""
        mine = self.state(0, 0)
        for name in mine.keys() - {"epoch", "next_batch"}:
            if state.get(name) != mine[name]:
                what = "the shards are others" if name == "shards" else f"{name} is {mine[name]!r}"
                raise UsageError(
                    f"the state is of another order: {what}, and it has {printable(repr(state.get(name)))}"
                )
        return state["epoch"], state["next_batch"]

    def read(self, places: list[Place]) -> Any:
        """The batch of these samples."""
        return self._collate([self._value(place) for place in places])

    def _value(self, place: Place) -> Any:
        sample: Sample = self.samples.sample(place.shard, place.sample)
        if self._decode is not None:
            sample = decode_sample(sample, image=self._decode)
        if self.settings.equalize == "pad":
            sample["__pad__"] = place.filler
        value: Any = sample
        if self._fields is not None:
            (value,) = to_tuple([sample], self._fields)
        return value if self._transform is None else self._transform(value)

    def __getstate__(self) -> dict[str, Any]:
        # In a spawned process there is no process group to ask.
        return self.__dict__ | {"_consumer": self.consumer}


class BatchIterator(Iterator[Any]):
    """The batches of one worker of a rank. Its state is what torchdata's StatefulDataLoader keeps.

    again: the worker has read this epoch before, so its first batch is an error; torch hands on none from before that.
    """

    def __init__(
        self, dataset: ShardDataset, epoch: int, first: int, worker: int, workers: int, again: bool = False
    ) -> None:
        self._dataset, self._workers, self._worker, self._again = dataset, workers, worker, again
        self._set(epoch, first + worker)

    def _set(self, epoch: int, number: int) -> None:
        self._order = EpochOrder(self._dataset.samples.counts, self._dataset.settings, epoch)
        self._number = number

    def __next__(self) -> Any:
        order, dataset = self._order, self._dataset
        if self._again:
            hint = "use the data set's loader(), or call set_epoch() before each"
            raise UsageError(f"epoch {order.epoch} is read a second time: {hint}")
        if self._number >= order.batches:
            if data.get_worker_info() is None:
                dataset.set_epoch(order.epoch + 1)
            raise StopIteration
        size, (rank, world) = dataset.settings.batch, dataset.consumer
        batch = dataset.read(order.batch(self._number, rank * size // world, (rank + 1) * size // world))
        self._number += self._workers
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return self._dataset.state(self._order.epoch, self._number) | {"workers": self._workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there. Raises: UsageError: another number of workers, or another order."""
        if state.get("workers") != self._workers:
            raise UsageError(
                f"the state is of {state.get('workers')} workers, and there are {self._workers}: "
                "give dataset_state(it) to the data set's load_state_dict() before the loader is made"
            )
        epoch, number = self._dataset.place_in(state)
        self._dataset.set_epoch(epoch)
        self._dataset._shared[2 + self._worker] = epoch + 1
        self._again = False
        self._set(epoch, number)


def dataset_state(loader_state: Any) -> dict[str, Any]:
    """The state of the data set in what a StatefulDataLoader of any rank keeps, for any number of ranks and workers.

    Raises:
        UsageError: there is none.
    """
    found = list(_states_in(loader_state))
    if not found:
        raise UsageError("there is no state of a ShardDataset in it")
    first = min(found, key=lambda state: (state["epoch"], state["next_batch"]))
    return {name: value for name, value in first.items() if name != "workers"}


def _states_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "next_batch" in value:
            yield value
        else:
            for each in value.values():
                yield from _states_in(each)


class ShardLoader:
    """A DataLoader over a ShardDataset, epoch after epoch. ``len`` is the number of batches of an epoch.

    A state taken after batch k was delivered goes on with batch k + 1, whatever workers have read ahead.
    """

    def __init__(self, dataset: ShardDataset, num_workers: int, options: Mapping[str, Any]) -> None:
        self.dataset = dataset
        self._loader = data.DataLoader(dataset, batch_size=None, num_workers=num_workers, **options)
        self._next = self._at = dataset.epoch, int(dataset._shared[1])
        """Epoch and batch with which the next iteration begins, and with which this one goes on."""

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        epoch, number = self._at = self._next
        self._next = epoch + 1, 0
        self.dataset.set_epoch(epoch, number)
        for batch in self._loader:
            number += 1
            self._at = (epoch, number) if number < len(self) else self._next
            yield batch
        if number != len(self):
            raise RuntimeError(f"epoch {epoch} has {len(self)} batches, and {number} came")

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration; without it, the one after the last, even if that was left early."""
        self._next = self._at = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the training is: under 1 kB, the same for each rank."""
        return self.dataset.state(*self._at)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there, with any number of ranks and workers. Raises: UsageError: see the data set's."""
        self._next = self._at = self.dataset.place_in(state)
