"""The steps of a WebDataset: its methods, and how they run, are pickled, and draw in each epoch."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from tarkit.errors import UsageError
from tarkit.samples import transforms
from tarkit.samples.codecs import decode_field, decode_sample
from tarkit.samples.epochs import Draw, Epochs, spawning
from tarkit.trainers.world import Consumer, consumer

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

    def __iter__(self) -> Iterator[Any]:
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

    def _then(self: Self, function: Callable[..., Iterable[Any]], *arguments: Any) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._epochs = Epochs()
        other._add(function, *arguments)
        return other

    def _draw(self, seed: int | None, step: str) -> Draw:
        if seed is None and self.seed is None:
            self.seed = secrets.randbits(32)
            _log.warning("%s: no seed was given; seed=%d gives this order again", step, self.seed)
        return Draw(self.seed if seed is None else seed)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        if spawning():
            for name, value in self._given().items():
                _check_pickled(name, value)
        # In a spawned process there is no process group to ask.
        return self.__dict__ | {"_placed": self._rank()}

    def _given(self) -> dict[str, Any]:
        return {getattr(function, "__name__", "a step"): (function, given) for function, given in self._steps}

    def decode(self: Self, image: str | None = None, *, only: str | Collection[str] | None = None) -> Self:
        """Decode all fields, or ``only`` those named; see :func:`tarkit.samples.codecs.decode_sample`.

        A field in ``only`` that no sample has is an error after the last sample (DataError)."""
        wanted = only.split() if isinstance(only, str) else only
        return self._then(_decoded_of, image, wanted)

    def to_tuple(self: Self, *fields: str) -> Self:
        """Tuples of values; see :func:`tarkit.samples.transforms.to_tuple`."""
        return self._then(transforms.to_tuple, *fields)

    def rename(self: Self, **names: str) -> Self:
        """``rename(image="jpg;png")``; see :func:`tarkit.samples.transforms.rename_fields`."""
        return self._then(transforms.rename_fields, names)

    def select(self: Self, predicate: Callable[[Any], object]) -> Self:
        """Only the samples for which ``predicate(sample)`` is true."""
        return self._then(transforms.select, predicate)

    def map(self: Self, function: Callable[[Any], Any]) -> Self:
        """``function(sample)`` for each sample, except those for which it is None.

        A dict that comes back from a dict without a ``__key__`` is given the sample's."""
        return self._then(_mapped, function)

    def map_dict(self: Self, **functions: Callable[[Any], Any]) -> Self:
        """``map_dict(jpg=resize)``; see :func:`tarkit.samples.transforms.map_fields`."""
        return self._then(transforms.map_fields, functions)

    def shuffle(self: Self, size: int, *, seed: int | None = None) -> Self:
        """A buffer shuffle, in another order each epoch; see :func:`~tarkit.samples.transforms.shuffle`. 0: none."""
        return self if size == 0 else self._then(transforms.shuffle, size, self._draw(seed, "shuffle"))

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


def _check_pickled(name: str, value: object) -> None:
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(value)
    except Exception as error:  # pickle raises what the object's own methods raise
        raise UsageError(
            f"WebDataset goes to a process that is spawned, and what {name} was given cannot be pickled ({error}): "
            "use functions defined at the top of a module, or DataLoader(multiprocessing_context='fork')"
        ) from error


def decoded(samples: Iterable[Any], image: str | None, only: Collection[str] | None) -> Iterator[Any]:
    """Samples decoded by ``decode_sample``. Raises: UsageError: no such image."""
    decode_field("bin", b"", image=image)
    return (decode_sample(sample, image=image, only=only) for sample in samples)


def _decoded_of(samples: Iterable[Any], image: str | None, only: Collection[str] | None) -> Iterator[Any]:
    return decoded(transforms.require_fields(samples, only or ()), image, only)


def _mapped(samples: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    for sample in samples:
        result = function(sample)
        if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
            result = {"__key__": sample["__key__"], **result}
        if result is not None:
            yield result
