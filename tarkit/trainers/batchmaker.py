"""Make batches of samples: read, decode, transform and collate them; count those left out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from tarkit.errors import (
    DataError,
    MissingInputError,
    StreamError,
    TarkitError,
    TransformError,
    UsageError,
    printable,
    quoted,
)
from tarkit.extras import library
from tarkit.formats.tally import check_policy
from tarkit.samples.codecs import decode_sample, extension_of
from tarkit.samples.images import IMAGE_FORMATS, IMAGE_SPECS, quick_decoder
from tarkit.samples.sample import Sample
from tarkit.samples.transforms import alternatives, field_values
from tarkit.trainers.auditlog import Evidence, evidence_of, key_digest
from tarkit.trainers.delivery import GapCounts
from tarkit.trainers.order import BatchOrder, Place, rank_slots
from tarkit.trainers.shardlist import NoIndexError
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.skipped import Skipped, skipped_sample
from tarkit.trainers.stageclock import COLLATING, DECODING, IDLE, ORDERING, READING, StageClock
from tarkit.world import Consumer

_log = logging.getLogger(__name__)

TORCH_WORDS = {"torch": "rgb", **{f"torch{word}": word for word in ("l", "rgb", "rgba", "l8", "rgb8", "rgba8")}}
"""Images as tensors: word -> the word for the array from which the tensor is made, of shape
(channel, height, width).
"""

BYTES = "bytes"
"""The word with which images stay bytes, and other fields are decoded."""

_MOST_BATCHES = 1000
_COUNTED = (DataError, MissingInputError, NoIndexError, StreamError)


class BatchMaker:
    """A maker of batches of samples.

    Args:
        samples: data set that reads the samples.
        fields, decode, transform, collate, equalize: see
            :class:`tarkit.trainers.source.BatchSource`.
        counts_errors: ``on_error="count"``.
        has_evidence: each batch comes with evidence for an audit.
    """

    def __init__(
        self,
        samples: ShardMap,
        *,
        fields: str | None,
        decode: str | None,
        transform: Callable[[Any], Any] | None,
        collate: Callable[[list[Any]], Any],
        equalize: str,
        counts_errors: bool,
        has_evidence: bool,
    ) -> None:
        if fields is not None and not isinstance(fields, str):
            hint = "one text with blanks between the names, such as 'jpg cls'"
            raise UsageError(f"fields is {printable(repr(fields))}; it must be {hint}")
        if decode is not None:
            check_policy("decode", decode, (*IMAGE_SPECS, *TORCH_WORDS, BYTES))
            if not decode.startswith("pil") and decode != BYTES:
                quick_decoder()  # here, so that forked workers have it, and do not log its name again
        for name, function in (("transform", transform), ("collate", collate)):
            if not (function is None or callable(function)):
                raise UsageError(f"{name} is {printable(repr(function))}; it must be a function")
        self._samples, self._decode, self._transform = samples, decode, transform
        self._fields = None if fields is None else alternatives(fields)
        if self._fields == []:
            raise UsageError(f"fields is {fields!r}, which names no field")
        if equalize != "pad" and ["__pad__"] in (self._fields or []):
            raise UsageError(f"fields has __pad__, and equalize is {equalize!r}: samples have it with equalize='pad'")
        self._collate, self._equalize = collate, equalize
        self.counts_errors = counts_errors
        """True if samples that fail are counted, and batches may come with a list of them."""
        self._has_evidence = has_evidence
        self._decoded = None if self._fields is None else set(chain(*self._fields))
        self.stays_bytes = collate is list and (fields, decode, transform) == (None, None, None)
        """True if a batch is a list of samples with unchanged fields."""
        self._lost: dict[int, TarkitError] = {}
        """Shards that cannot be read in this epoch, and why."""
        self._reported: set[int] = set()
        self._keys: dict[tuple[int, int], str] = {}
        """Digests of the keys in the batch that is made, for its evidence."""
        self.gaps = GapCounts()
        self._failed: list[Skipped] = []
        """Failed samples of the batch that is made."""
        self._skipped: dict[tuple[int, int], list[Skipped]] = {}
        """Epoch and number of a batch that was made -> its failed samples, of the last batches."""
        self.clock = StageClock(samples.shards.reads)

    def begin_epoch(self) -> None:
        """Begin an epoch: failed reads are tried again."""
        self._samples.shards.begin_epoch()
        self._lost.clear()
        self._reported.clear()

    def make(
        self, order: BatchOrder, number: int, consumer: Consumer, take: Callable[[int], list[Place]] | None = None
    ) -> tuple[Any, Evidence | None]:
        """Return the rank's part of a global batch, and its evidence.

        Args:
            order: order of the epoch.
            number: number of the batch.
            consumer: rank and world.
            take: function from the number to the part's samples, which it has fetched; None: the
                order says which.

        Raises:
            DataError: all samples were left out, or one is damaged.
            StreamError, TemporaryStreamError: a sample cannot be read.
            UsageError, RuntimeError: see :meth:`_collated`.
        """
        self._keys, self._failed = {}, []
        self.clock.lap(IDLE)
        reads = self._samples.shards.reads
        places = order.rank_batch(number, *consumer) if take is None else reads.fetched(take, number)
        counts, fillers = Counter[str](), dict[int, Place]()
        self.clock.lap(ORDERING)
        values = self._values(places, counts, fetches=take is None)
        left_out = [value is None for value in values]
        if self._failed:
            self._skipped[order.epoch, number], self._failed = self._failed, []
            if len(self._skipped) > _MOST_BATCHES:
                del self._skipped[next(iter(self._skipped))]
        if any(left_out):
            fillers = self._fill(order, number, consumer, values)
            counts["filled"] = len(fillers)
        self.gaps.note(number, counts)
        evidence = evidence_of(places, left_out, [*fillers.values()], self._keys) if self._has_evidence else None
        if any(left_out):
            kept = [at for at, value in enumerate(values) if value is not None]
            places, values = [fillers.get(at, places[at]) for at in kept], [values[at] for at in kept]
        return self._timed(number, places, values, f"batch {number} of epoch {order.epoch}"), evidence

    def pop_skipped(self, epoch: int, number: int) -> list[Skipped]:
        """Return the samples that failed in a batch that was made, and forget them."""
        return self._skipped.pop((epoch, number), []) if self._skipped else []

    def batch_of(self, places: Iterable[Place], number: int = 0) -> Any:
        """Return the batch that these samples make.

        Args:
            number: number of the batch among those of the loader.

        Raises:
            UsageError: the transform drops a sample.
            TarkitError: a sample cannot be read.
        """
        counts = Counter[str]()
        self.clock.lap(IDLE)
        places = list(places)
        values = self._values(places, counts)
        if counts["filtered"]:
            raise UsageError("transform returned None, which drops a sample: that cannot be with service=")
        return self._timed(number, places, values, "a batch")

    def _timed(self, number: int, places: Sequence[Place], values: list[Any], batch: str) -> Any:
        samples = len(values)  # collate may change the list
        self.clock.lap(DECODING)
        made = self._collated(places, values, batch)
        self.clock.lap(COLLATING)
        self.clock.finish(number, samples)
        return made

    def _collated(self, places: Sequence[Place], values: list[Any], batch: str) -> Any:
        """Collate values into a batch.

        Args:
            places: places of the values' samples.

        Raises:
            UsageError: the values of one field have several shapes, and do not make a batch.
            RuntimeError: ``collate`` raised an error, which is the ``__cause__``: StopIteration
                would end the worker's batches, and other errors may be lost on their way from it.
                Those of tarkit are raised unchanged.
        """
        try:
            return self._collate(values)
        except Exception as error:
            raised = f"{batch}: collate raised {printable(repr(error))}"
            for place, value in zip(places, values, strict=True):
                for name, shape in _shapes(value).items():
                    if (first := _shapes(values[0]).get(name, shape)) != shape:
                        raise UsageError(
                            f"{raised}; {self._named(name)} has shape {first} in {self._shown(places[0])}, and {shape} "
                            f"in {self._shown(place)}: pass transform= that makes all of one size, or collate=list"
                        ) from error
            if isinstance(error, TarkitError):
                raise
            raise RuntimeError(raised) from error

    def _named(self, name: object) -> str:
        if isinstance(name, int) and self._fields is not None and self._transform is None:
            return f"field {quoted(';'.join(self._fields[name]))}"
        return f"value {name!r}"

    def _shown(self, place: Place) -> str:
        sample = self._samples.sample(place.shard, place.sample)
        return f"{sample['__url__']}, key {printable(sample['__key__'])!r}"

    def _values(self, places: Sequence[Place], counts: Counter[str], *, fetches: bool = True) -> list[Any]:
        """Return the values of samples; None for one that is left out and counted."""
        if fetches:
            self._samples.fetch(place[:2] for place in places if place.shard not in self._lost)
        if self.counts_errors:
            self.clock.lap(READING)
            return [self._attempt(place, counts) for place in places]
        values: list[Any] = self._samples.take(places)
        self.clock.lap(READING)
        if not self.stays_bytes or self._has_evidence:
            values = [self._value(*each) for each in zip(places, values, strict=True)]
        elif self._equalize == "pad":
            for place, sample in zip(places, values, strict=True):
                sample["__pad__"] = place.filler
        counts["filtered"] = sum(value is None for value in values)
        return values

    def _attempt(self, place: Place, counts: Counter[str]) -> Any:
        if place.shard in self._lost:
            self._fail(place, self._lost[place.shard], counts)
            return None
        try:
            sample = self._samples.sample(place.shard, place.sample)
            self.clock.lap(READING)
            value = self._value(place, sample)
            self.clock.lap(DECODING)
        except _COUNTED as error:
            if not self.counts_errors:
                raise
            self._report(place.shard, error)
            self._fail(place, error, counts)
            return None
        counts["filtered"] += value is None
        return value

    def _fail(self, place: Place, error: TarkitError, counts: Counter[str]) -> None:
        counts["failed"] += 1
        key = None if place.shard in self._lost else self._samples.key_of(place.shard, place.sample)
        self._failed.append(skipped_sample(self._samples.urls[place.shard], key, error))

    def _report(self, shard: int, error: TarkitError) -> None:
        if not isinstance(error, DataError):
            self._lost[shard] = error
        if shard not in self._reported:
            self._reported.add(shard)
            _log.warning("%s; samples of it that fail are left out and counted (on_error='count')", error)

    def _fill(self, order: BatchOrder, number: int, consumer: Consumer, values: list[Any]) -> dict[int, Place]:
        """Fill the gaps of a rank's part, and return the fillers.

        With "drop", one gap is filled if all samples are missing, and others stay; otherwise each
        gap gets the next remaining sample of the global batch, the same for any number of ranks.
        """
        begin, _ = rank_slots(order.settings.batch, *consumer)
        gaps = [at for at, value in enumerate(values) if value is None]
        if self._equalize == "drop":
            gaps = gaps[:1] if len(gaps) == len(values) else []
        fillers = {}
        for at in gaps:
            for place in order.replacements(number, begin + at):
                values[at] = self._attempt(place._replace(filler=self._equalize == "pad"), Counter())
                if values[at] is not None:
                    fillers[at] = place
                    break
            else:
                reason = f"epoch {order.epoch}, batch {number}: transform dropped all its samples, or they failed"
                raise DataError(reason, hint="see the warnings; a larger batch has more samples")
        return fillers

    def _value(self, place: Place, sample: Sample) -> Any:
        if self._has_evidence:
            self._keys[place.shard, place.sample] = key_digest(sample["__url__"], sample["__key__"])
        if self._decode is not None:
            word = None if self._decode == BYTES else TORCH_WORDS.get(self._decode, self._decode)
            sample = decode_sample(sample, image=word, only=self._decoded)
            if self._decode in TORCH_WORDS:
                sample = _with_tensors(sample, self._decoded)
        if self._equalize == "pad":
            sample["__pad__"] = place.filler
        value: Any = sample
        if self._fields is not None:
            value = field_values(sample, self._fields)
        if self._transform is None:
            return value
        try:
            return self._transform(value)
        except ImportError:
            raise  # a missing library is not a failure of the sample, and would fail all of them
        except Exception as error:
            reason = f"transform raised {printable(repr(error))}"
            raise TransformError(reason, url=sample["__url__"], key=sample["__key__"]) from error


def _shapes(value: Any) -> dict[object, tuple[int, ...]]:
    """Return the shapes of the values of a tuple of fields, or of a sample; audio has one, too."""
    # Decoded audio has its array in an attribute.
    arrays = ((name, getattr(each, "samples", each)) for name, each in parts_of(value))
    return {name: tuple(each.shape) for name, each in arrays if hasattr(each, "shape")}


def parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Yield the values of a sample, a tuple, a batch or its signature, with name or number."""
    return value.items() if isinstance(value, Mapping) else enumerate(value if isinstance(value, tuple) else [value])


def _with_tensors(sample: Sample, only: Collection[str] | None) -> Sample:
    """Return the sample with tensors (channel, height, width) instead of arrays of pictures."""
    torch = library("torch", "the image words of torch", "torch")
    made = dict(sample)
    for name, value in sample.items():
        if (only is None or name in only) and extension_of(name)[0] in IMAGE_FORMATS:
            made[name] = torch.from_numpy((value.transpose(2, 0, 1) if value.ndim == 3 else value).copy())
    return made
