"""The steps of a WebDataset: its methods, and how they run, are pickled, and draw in each epoch."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from tarkit.errors import DataError, UsageError
from tarkit.samples import batching, transforms
from tarkit.samples.decoders import FieldDecoder, decoded
from tarkit.samples.epochs import Draw, Epochs, spawning
from tarkit.samples.handlers import Handler, handled
from tarkit.trainers.world import Consumer, consumer, loader_worker

_log = logging.getLogger(__name__)

Step = tuple[Callable[..., Iterable[Any]], tuple[Any, ...]]
"""A function and what it is given after the samples."""
Self = TypeVar("Self", bound="Steps")


class Steps:
    """What makes samples, and the steps that they go through."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._steps: tuple[Step, ...] = ()
        self._epochs = Epochs()
        self._placed: Consumer | None = None
        self._passes: int | None = 1
        self._limit: int | None = None
        self._length: int | None = None
        self.handled: Counter[str] = Counter()

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                "a WebDataset does not know its length; with_length(n) sets it. If a DataLoader asks: import torch "
                "before the WebDataset is made, or use tarkit.trainers.torch.ShardDataset"
            )
        return self._length

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        if self._passes == 1 and self._limit is None:
            return self._counted(self._pass())
        return islice(self._endless(), self._limit)

    def _endless(self) -> Iterator[Any]:
        for _ in itertools.repeat(None) if self._passes is None else range(self._passes):
            empty = True
            for sample in self._counted(self._pass()):
                empty = False
                yield sample
            if empty and self._passes is None:
                raise DataError("an epoch without end is to be made of passes, and one has no samples")

    def _counted(self, samples: Iterator[Any]) -> Iterator[Any]:
        before = self.handled.total()
        try:
            yield from samples
        finally:
            if self.handled.total() > before:
                _log.warning("handlers have passed over errors: %s", dict(self.handled))

    def _pass(self) -> Iterator[Any]:
        place = (self._epochs.begin(), *self._reader())
        samples: Iterable[Any] = self._read((*place, 0))
        for number, (function, arguments) in enumerate(self._steps, 1):
            drawn = (each.at(*place, number) if isinstance(each, Draw) else each for each in arguments)
            samples = function(samples, *drawn)
        return iter(samples)

    def _reader(self) -> tuple[int, int]:
        """Rank and worker, 0 where they are to read the same."""
        raise NotImplementedError

    def _read(self, place: tuple[int, ...]) -> Iterator[Any]:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that the next iteration is, in this process and in workers; else it counts."""
        self._epochs.set(epoch)

    def _rank(self) -> Consumer:
        return self._placed or consumer()

    def _add(self, function: Callable[..., Iterable[Any]], *arguments: Any) -> None:
        checked = (each.seed if isinstance(each, Draw) else each for each in arguments)
        function((), *checked)  # checks the step's arguments here, where they were written
        self._steps = (*self._steps, (function, arguments))

    def _copied(self: Self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._epochs = Epochs()
        return other

    def _then(
        self: Self, function: Callable[..., Iterable[Any]], *arguments: Any, handler: Handler | None = None
    ) -> Self:
        other = self._copied()
        other._add(function, *arguments)
        if handler is not None:
            other._steps = (*self._steps, (handled, (function, arguments, handler, self.handled)))
        return other

    def _draw(self, seed: int | None, step: str) -> Draw:
        if seed is None and self.seed is None:
            self.seed = secrets.randbits(32)
            _log.warning("%s: no seed was given; seed=%d gives this order again", step, self.seed)
        return Draw(self.seed if seed is None else seed)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        if spawning():
            for name, value in self._given():
                _check_pickled(name, value)
        # A spawned process has no process group to ask.
        return self.__dict__ | {"_placed": self._rank()}

    def _given(self) -> list[tuple[str, object]]:
        steps = [given if function is handled else (function, given) for function, given in self._steps]
        return [(getattr(step[0], "__name__", "a step").lstrip("_"), step) for step in steps]

    def decode(
        self: Self,
        *decoders: str | FieldDecoder | None,
        only: str | Collection[str] | None = None,
        handler: Handler | None = None,
    ) -> Self:
        """Decode all fields, or ``only`` those named; see :func:`tarkit.samples.decoders.decoded`.

        A field in ``only`` that no sample has is an error after the last sample (DataError)."""
        wanted = only.split() if isinstance(only, str) else only
        watched = self._then(transforms.require_fields, wanted) if wanted else self
        return watched._then(decoded, decoders, wanted, handler=handler)

    def to_tuple(self: Self, *fields: str, handler: Handler | None = None) -> Self:
        """Tuples of values; see :func:`tarkit.samples.transforms.to_tuple`."""
        return self._then(transforms.to_tuple, *fields, handler=handler)

    def rename(
        self: Self, *, keep: bool = True, handler: Handler | None = None, **names: str | Collection[str]
    ) -> Self:
        """``rename(image="jpg;png")``; see :func:`tarkit.samples.transforms.rename_fields`."""
        return self._then(transforms.rename_fields, names, keep, handler=handler)

    def rename_keys(
        self: Self,
        *pairs: tuple[str, str],
        keep_unselected: bool = False,
        must_match: bool = True,
        duplicate_is_error: bool = True,
        **patterns: str,
    ) -> Self:
        """``rename_keys(image="*.jpg")`` or ``rename_keys(("image", "*.jpg"))``, by pattern of the field;
        see :func:`tarkit.samples.transforms.rename_keys`."""
        plan = [*pairs, *patterns.items()]
        return self._then(transforms.rename_keys, plan, keep_unselected, must_match, duplicate_is_error)

    def select(self: Self, predicate: Callable[[Any], object], *, handler: Handler | None = None) -> Self:
        """Only the samples for which ``predicate(sample)`` is true."""
        return self._then(transforms.select, predicate, handler=handler)

    def map(self: Self, function: Callable[[Any], Any], *, handler: Handler | None = None) -> Self:
        """``function(sample)`` for each sample, except those for which it is None.

        A dict that comes back from a dict without a ``__key__`` is given the sample's."""
        return self._then(_mapped, function, handler=handler)

    def map_dict(self: Self, *, handler: Handler | None = None, **functions: Callable[[Any], Any]) -> Self:
        """``map_dict(jpg=resize)``; see :func:`tarkit.samples.transforms.map_fields`."""
        return self._then(transforms.map_fields, functions, handler=handler)

    def map_tuple(self: Self, *functions: Callable[[Any], Any] | None, handler: Handler | None = None) -> Self:
        """``map_tuple(resize, None)`` for tuples; see :func:`tarkit.samples.transforms.map_tuple`."""
        return self._then(transforms.map_tuple, functions, handler=handler)

    def shuffle(self: Self, size: int, *, seed: int | None = None) -> Self:
        """A buffer shuffle, in another order each epoch; see :func:`~tarkit.samples.transforms.shuffle`. 0: none."""
        return self if size == 0 else self._then(transforms.shuffle, size, self._draw(seed, "shuffle"))

    def rsample(self: Self, p: float = 0.5, *, seed: int | None = None) -> Self:
        """Each sample with the probability ``p``, others in each epoch."""
        return self._then(transforms.rsample, p, self._draw(seed, "rsample"))

    def slice(self: Self, *bounds: int | None) -> Self:
        """Samples by number: ``slice(stop)`` or ``slice(start, stop[, step])``, as :func:`itertools.islice`."""
        if not 1 <= len(bounds) <= 3:
            raise UsageError(f"slice takes stop, or start, stop and step; got {bounds!r}")
        try:
            return self._then(islice, *bounds)
        except ValueError as error:
            raise UsageError(f"slice{bounds!r}: {error}") from None

    def take(self: Self, count: int) -> Self:
        """The first ``count`` samples."""
        return self._then(transforms.take, count)

    def batched(
        self: Self,
        batchsize: int,
        collation_fn: batching.Collation | None = batching.collated,
        partial: bool = True,
    ) -> Self:
        """Batches of samples, by default columns, see :func:`tarkit.samples.batching.collated`; None: lists. partial:
        the last one may be smaller, else it is left out."""
        return self._then(batching.batched, batchsize, collation_fn, partial)

    def unbatched(self: Self) -> Self:
        """The samples of batches that are tuples or dicts of columns."""
        return self._then(batching.unbatched)

    def listed(self: Self, batchsize: int, partial: bool = True) -> Self:
        """Lists of samples. partial: the last one may be smaller, else it is left out."""
        return self._then(batching.lists, batchsize, partial)

    def unlisted(self: Self) -> Self:
        """The samples of lists."""
        return self._then(batching.unlisted)

    def log_keys(self: Self, logfile: str | os.PathLike[str] | None = None) -> Self:
        """Append a line for each sample: number, worker, rank and key, with tabs between them. None: do nothing."""
        return self if logfile is None else self._then(_log_keys, os.fspath(logfile), self._rank)

    def compose(self: Self, *stages: Callable[[Iterable[Any]], Iterable[Any]]) -> Self:
        """Steps of one's own: functions from an iterable of samples to another one."""
        other = self._copied()
        other._steps += tuple((stage, ()) for stage in stages)
        return other

    def repeat(self: Self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """All of it ``nepochs`` times, or without end; ``nbatches``: at most so many items in all."""
        return self._repeated(nepochs, nbatches)

    def with_epoch(self: Self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Epochs of so many items, of as many passes as they need; each begins a new pass."""
        return self._repeated(-1, max(nsamples, nbatches))

    def with_length(self: Self, n: int, silent: bool = False) -> Self:
        """What ``len()`` gives; it changes nothing else, and nothing is checked by it."""
        other = self._copied()
        other._length = n
        return other

    def _repeated(self: Self, passes: int, limit: int) -> Self:
        other = self._copied()
        other._passes, other._limit = passes if passes > 0 else None, limit if limit > 0 else None
        return other


def _check_pickled(name: str, value: object) -> None:
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(value)
    except Exception as error:  # pickle raises what the object's own methods raise
        raise UsageError(
            f"WebDataset goes to a process that is spawned, and what {name} was given cannot be pickled ({error}): "
            "use functions defined at the top of a module, or DataLoader(multiprocessing_context='fork')"
        ) from error


def _mapped(samples: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    for sample in samples:
        result = function(sample)
        if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
            result = {"__key__": sample["__key__"], **result}
        if result is not None:
            yield result


def _log_keys(samples: Iterable[Any], path: str, rank: Callable[[], Consumer]) -> Iterator[Any]:
    worker = loader_worker()
    with open(path, "a", encoding="utf-8", buffering=1) as stream:
        for number, sample in enumerate(samples):
            key = sample.get("__key__") if isinstance(sample, dict) else None
            stream.write(f"{number}\t{worker and worker.number}\t{rank().rank}\t{key}\n")
            yield sample
