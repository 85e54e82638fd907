"""The steps of a WebDataset: its methods. Names and arguments are those of webdataset 1.0.2, and some more."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from tarkit.errors import UsageError
from tarkit.samples import batching, patterns, transforms
from tarkit.samples.decoders import Decoders, FieldDecoder, any_picture, decoded
from tarkit.samples.handlers import Handler
from tarkit.samples.pipeline import Pipeline
from tarkit.trainers.world import Consumer, loader_worker

Self = TypeVar("Self", bound="Steps")


class Steps(Pipeline):
    """What makes samples, and the methods that each give it with one more step."""

    def decode(
        self: Self,
        *decoders: str | FieldDecoder | None,
        pre: Iterable[FieldDecoder] | None = None,
        post: Iterable[FieldDecoder] | None = None,
        only: str | Collection[str] | None = None,
        partial: bool = True,
        handler: Handler | None = None,
    ) -> Self:
        """Decode all fields, or ``only`` those named; see :class:`tarkit.samples.decoders.Decoders`.

        A field in ``only`` that no sample has is an error after the last sample (DataError), but for a picture that
        has another extension of those named. partial: is ignored, as values that are not bytes always stay."""
        wanted = only.split() if isinstance(only, str) else only
        watched = self._then(transforms.require_fields, any_picture(wanted)) if wanted else self
        before, after = (None if each is None else tuple(each) for each in (pre, post))
        return watched._then(decoded, Decoders(decoders, before, after), wanted, handler=handler)

    def xdecode(
        self: Self,
        *pairs: tuple[str, Any],
        must_decode: bool = True,
        defaults: Sequence[tuple[str, Any]] | None = None,
        handler: Handler | None = None,
        **functions: Any,
    ) -> Self:
        """Decode by functions of a stream: ``xdecode(("*.jpg", imread), npy=numpy.load)``; see
        :func:`tarkit.samples.patterns.decoded_by_pattern`. By default bin stays bytes and txt is text."""
        first = patterns.STREAM_DECODERS if defaults is None else defaults
        plan = [*first, *pairs, *((f"*.{name}", function) for name, function in functions.items())]
        return self._then(patterns.decoded_by_pattern, plan, must_decode, handler=handler)

    def to_tuple(
        self: Self,
        *fields: str,
        missing_is_error: bool = True,
        none_is_error: bool | None = None,
        handler: Handler | None = None,
    ) -> Self:
        """Tuples of values; see :func:`tarkit.samples.transforms.to_tuple`."""
        step = partial(transforms.to_tuple, missing_is_error=missing_is_error, none_is_error=none_is_error)
        return self._then(step, *fields, handler=handler)

    def extract_keys(
        self: Self,
        *wanted: str | Sequence[str],
        duplicate_is_error: bool = True,
        ignore_missing: bool = False,
        handler: Handler | None = None,
    ) -> Self:
        """``extract_keys("*.jpg;*.png", "*.cls")``: tuples of values, by pattern of the field; see
        :func:`tarkit.samples.patterns.extract_keys`."""
        return self._then(patterns.extract_keys, wanted, duplicate_is_error, ignore_missing, handler=handler)

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
        handler: Handler | None = None,
        **named: str,
    ) -> Self:
        """``rename_keys(image="*.jpg")`` or ``rename_keys(("image", "*.jpg"))``, by pattern of the field;
        see :func:`tarkit.samples.patterns.rename_keys`."""
        plan = [*pairs, *named.items()]
        return self._then(patterns.rename_keys, plan, keep_unselected, must_match, duplicate_is_error, handler=handler)

    def select(self: Self, predicate: Callable[[Any], object], *, handler: Handler | None = None) -> Self:
        """Only the samples for which ``predicate(sample)`` is true."""
        return self._then(transforms.select, predicate, handler=handler)

    def map(self: Self, f: Callable[[Any], Any], handler: Handler | None = None) -> Self:
        """``f(sample)`` for each sample, except those for which it is None.

        A dict that comes back from a dict without a ``__key__`` is given the sample's."""
        return self._then(_mapped, f, handler=handler)

    def map_dict(self: Self, handler: Handler | None = None, **functions: Callable[[Any], Any]) -> Self:
        """``map_dict(jpg=resize)``; see :func:`tarkit.samples.transforms.map_fields`."""
        return self._then(transforms.map_fields, functions, handler=handler)

    def map_tuple(self: Self, *functions: Callable[[Any], Any] | None, handler: Handler | None = None) -> Self:
        """``map_tuple(resize, None)`` for tuples; see :func:`tarkit.samples.transforms.map_tuple`."""
        return self._then(transforms.map_tuple, functions, handler=handler)

    def shuffle(
        self: Self,
        size: int,
        *,
        initial: int | None = None,
        rng: random.Random | None = None,
        seed: int | None = None,
    ) -> Self:
        """A buffer shuffle, in another order each epoch; see :func:`~tarkit.samples.transforms.shuffle`. 0: none.
        rng: a seed is drawn from it, here."""
        if size == 0:
            return self
        seed = seed if rng is None else rng.getrandbits(32)
        return self._then(transforms.shuffle, size, self._draw(seed, "shuffle"), initial)

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

    def mcached(self: Self) -> Self:
        """Keep samples in memory: after an iteration that came to its end, the next ones here have the same."""
        return self._then(Kept())

    def log_keys(self: Self, logfile: str | os.PathLike[str] | None = None) -> Self:
        """Append a line for each sample: number, worker, rank and key, with tabs between them. None: do nothing."""
        return self if not logfile else self._then(_log_keys, os.fspath(logfile), self._rank)

    def compose(self: Self, *stages: Callable[[Iterable[Any]], Iterable[Any]]) -> Self:
        """Steps of one's own: functions from an iterator of samples to another one, or stages of webdataset."""
        other = self._copied()
        other._steps += tuple((getattr(stage, "run", stage), ()) for stage in stages)
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


class Kept:
    """A step that keeps what goes through it."""

    def __init__(self) -> None:
        self._kept: list[Any] | None = None

    def __call__(self, samples: Iterable[Any]) -> Iterator[Any]:
        return iter(self._kept) if self._kept is not None else self._keeping(samples)

    def _keeping(self, samples: Iterable[Any]) -> Iterator[Any]:
        kept = []
        for sample in samples:
            kept.append(sample)
            yield sample
        self._kept = kept

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": None}


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
