"""Samples to batches: read, decoded, transformed and collated; what is left out is counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from tarkit.errors import DataError, MissingInputError, StreamError, TarkitError, UsageError, library
from tarkit.samples.codecs import decode_sample, extension_of
from tarkit.samples.images import IMAGE_FORMATS
from tarkit.samples.sample import Sample
from tarkit.samples.transforms import alternatives, field_values
from tarkit.trainers.auditlog import Evidence, evidence_of, key_digest
from tarkit.trainers.delivery import GapCounts
from tarkit.trainers.order import EpochOrder, Place, rank_slots
from tarkit.trainers.shardmap import NoIndexError, ShardMap
from tarkit.trainers.world import Consumer

_log = logging.getLogger(__name__)

TORCH_WORDS = {"torch": "rgb", **{f"torch{word}": word for word in ("l", "rgb", "rgba", "l8", "rgb8", "rgba8")}}
"""Images as tensors: word -> the word for the array of which the tensor is made, of shape (channel, height, width)."""

_COUNTED = (DataError, MissingInputError, NoIndexError, StreamError)


class BatchMaker:
    """Makes batches of samples.

    Args:
        samples: where they are read.
        fields, decode, transform, collate, equalize: see :class:`tarkit.trainers.source.BatchSource`.
        counts_errors: ``on_error="count"``.
        has_evidence: whether each batch comes with what an audit writes of it.
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
        self._samples, self._decode, self._transform = samples, decode, transform
        self._fields = None if fields is None else alternatives(fields)
        if self._fields == []:
            raise UsageError(f"fields is {fields!r}, which names no field")
        self._collate, self._equalize, self._counts_errors = collate, equalize, counts_errors
        self._has_evidence = has_evidence
        self._decoded = None if self._fields is None else set(chain(*self._fields))
        self.stays_bytes = collate is list and (fields, decode, transform) == (None, None, None)
        """Whether a batch is a list of samples whose fields are as the shards have them."""
        self._lost: set[int] = set()
        """Shards that cannot be read in this epoch."""
        self._reported: set[int] = set()
        self._keys: dict[tuple[int, int], str] = {}
        """Digests of the keys in the batch that is made, for its evidence."""
        self.gaps = GapCounts()

    def begin_epoch(self) -> None:
        """Try again what failed, from now on."""
        self._samples.begin_epoch()
        self._lost.clear()
        self._reported.clear()

    def make(self, order: EpochOrder, number: int, consumer: Consumer) -> tuple[Any, Evidence | None]:
        """The rank's part of a global batch, and its evidence.

        Raises:
            DataError: all samples were left out. What reading a sample raises.
        """
        try:
            return self._made(order, number, consumer)
        except StopIteration as error:
            # It would be taken for the end of the samples, or of the worker's batches.
            raise RuntimeError(
                f"batch {number} of epoch {order.epoch}: transform or collate raised {error!r}"
            ) from error

    def _made(self, order: EpochOrder, number: int, consumer: Consumer) -> tuple[Any, Evidence | None]:
        self._keys = {}
        places, counts, fillers = order.rank_batch(number, *consumer), Counter[str](), list[Place]()
        values = self._values(places, counts)
        left_out = [value is None for value in values]
        if any(left_out):
            fillers = self._fill(order, number, consumer, values)
            counts["filled"] = len(fillers)
            values = [value for value in values if value is not None]
        self.gaps.note(number, counts)
        evidence = evidence_of(places, left_out, fillers, self._keys) if self._has_evidence else None
        return self._collate(values), evidence

    def batch_of(self, places: Iterable[Place]) -> Any:
        """The batch that these samples make. Raises: UsageError: the transform drops one. What reading them raises."""
        counts = Counter[str]()
        values = self._values(list(places), counts)
        if counts["filtered"]:
            raise UsageError("transform returned None, which drops a sample: that cannot be with service=")
        return self._collate(values)

    def _values(self, places: Sequence[Place], counts: Counter[str]) -> list[Any]:
        """What samples become; None: one is left out, and counted."""
        wanted = [(shard, sample) for shard, sample, _ in places if shard not in self._lost]
        self._samples.fetch(wanted)
        if self._counts_errors:
            return [self._attempt(place, counts) for place in places]
        values: list[Any] = self._samples.take(wanted)
        if not self.stays_bytes or self._has_evidence or self._equalize == "pad":
            values = [self._value(*each) for each in zip(places, values, strict=True)]
        counts["filtered"] = sum(value is None for value in values)
        return values

    def _attempt(self, place: Place, counts: Counter[str]) -> Any:
        if place.shard in self._lost:
            counts["failed"] += 1
            return None
        try:
            value = self._value(place, self._samples.sample(place.shard, place.sample))
        except _COUNTED as error:
            if not self._counts_errors:
                raise
            self._report(place.shard, error)
            counts["failed"] += 1
            return None
        counts["filtered"] += value is None
        return value

    def _report(self, shard: int, error: TarkitError) -> None:
        if not isinstance(error, DataError):
            self._lost.add(shard)
        if shard not in self._reported:
            self._reported.add(shard)
            _log.warning("%s; samples of it that fail are left out and counted (on_error='count')", error)

    def _fill(self, order: EpochOrder, number: int, consumer: Consumer, values: list[Any]) -> list[Place]:
        """Fill the gaps of a rank's part, and return with what. With "drop" gaps are left, but for one sample; else
        each has the next sample of the global batch that is left, the same for any number of ranks."""
        batch = order.batch(number)
        begin, _ = rank_slots(len(batch), *consumer)
        gaps = [at for at, value in enumerate(values) if value is None]
        if self._equalize == "drop":
            gaps = gaps[:1] if len(gaps) == len(values) else []
        fillers = []
        for at in gaps:
            for place in (*batch[begin + at + 1 :], *batch[: begin + at]):
                values[at] = self._attempt(place._replace(filler=self._equalize == "pad"), Counter())
                if values[at] is not None:
                    fillers.append(place)
                    break
            else:
                reason = f"epoch {order.epoch}, batch {number}: transform dropped all its samples, or they failed"
                raise DataError(reason, hint="see the warnings; a larger batch has more samples")
        return fillers

    def _value(self, place: Place, sample: Sample) -> Any:
        if self._has_evidence:
            self._keys[place.shard, place.sample] = key_digest(sample["__url__"], sample["__key__"])
        if self._decode is not None:
            word = TORCH_WORDS.get(self._decode, self._decode)
            sample = decode_sample(sample, image=word, only=self._decoded)
            if self._decode in TORCH_WORDS:
                sample = _with_tensors(sample, self._decoded)
        if self._equalize == "pad":
            sample["__pad__"] = place.filler
        value: Any = sample
        if self._fields is not None:
            value = field_values(sample, self._fields)
        return value if self._transform is None else self._transform(value)


def _with_tensors(sample: Sample, only: Collection[str] | None) -> Sample:
    """The sample with tensors of shape (channel, height, width) in place of the arrays of its pictures."""
    torch = library("torch", "the image words of torch", "torch")
    made = dict(sample)
    for name, value in sample.items():
        if (only is None or name in only) and extension_of(name)[0] in IMAGE_FORMATS:
            made[name] = torch.from_numpy((value.transpose(2, 0, 1) if value.ndim == 3 else value).copy())
    return made
