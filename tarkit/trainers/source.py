"""The samples of shards as batches of an epoch, for any number of processes, without a trainer's library."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from tarkit.errors import DataError, MissingInputError, StreamError, TarkitError, UsageError, printable
from tarkit.samples.codecs import decode_sample
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.samples.transforms import to_tuple
from tarkit.service.client import ShardClient
from tarkit.store.cache import default_folder
from tarkit.trainers.auditlog import AuditLog, evidence_of, key_digest, name_of_shard
from tarkit.trainers.delivery import Delivery
from tarkit.trainers.gaps import GapCounts
from tarkit.trainers.order import EpochOrder, OrderSettings, Place, Segment
from tarkit.trainers.shardmap import NoIndexError, ShardMap
from tarkit.trainers.world import Consumer, consumer

_log = logging.getLogger(__name__)

_VERSION = 1
_LANES = 8
_ORDER_OPTIONS = "shuffle, seed, lanes, turns, run, block, equalize, rank and world"
_SETTINGS = ("batch", "seed", "lanes", "turns", "run", "block", "equalize")
_COUNTED = (DataError, MissingInputError, NoIndexError, StreamError)
_DEALT = ("batch", "lanes", "turns")
"""Settings that may change in the middle of an epoch."""
MOST_SEGMENTS = 16


class BatchSource:
    """The batches of a rank, of any epoch, from any batch on. It can be handed to other processes.

    Args:
        urls: a path, URL or shard spec, or several, or a manifest (``dataset.json``); see
            :class:`tarkit.trainers.shardmap.ShardMap`. Each shard has an index beside it (``tarkit index``).
        batch: samples of a global batch; each rank has its part of it.
        fields: ``"jpg;png cls"``: a batch is a tuple of columns, collated; None: a list of samples.
        decode: what images become, a word of :func:`tarkit.samples.codecs.decode_field`, and other fields are decoded;
            None: all fields stay bytes.
        transform: is called with each sample, or tuple of fields; None that it returns drops the sample.
        collate: makes a batch of a list of them; None: the list.
        shuffle, seed: another order in each epoch. lanes, turns, run, block, equalize: see
            :class:`tarkit.trainers.order.OrderSettings`; lanes is by default the largest power of two up to 8 that
            divides the batch. With ``equalize="pad"`` each sample has ``__pad__``, which is True of one that fills.
        rank, world: see :func:`tarkit.trainers.world.consumer`.
        rule: key rule.
        service: ``"HOST:PORT"`` of a shard service, or a :class:`tarkit.service.client.ShardClient`: ranges of samples
            come from there, and ``batch`` is the number of samples of a batch of this process. The order, the number
            of epochs and what is done are the service's; rank and world are not asked for.
        on_error: "raise"; or "count": samples that cannot be read or decoded, and those of shards that cannot be
            opened, are left out and counted, see :attr:`tarkit.trainers.loader.EpochLoader.counts`.
        cache: the folder of this machine where parts of remote shards are kept, for all processes and later runs; True:
            ``tarkit/shards`` in the user's folder for caches; False: none, each sample is a request.
        audit: a folder where each process writes which samples its loop was given; ``tarkit audit`` proves from it that
            each was used once. None: nowhere.
        cache_size: bytes of it at most; by default 16 GiB, or half of what its disk has free, if that is less.

    Raises:
        UsageError: an argument that cannot be, or a shard without an index.
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
        service: str | ShardClient | None = None,
        on_error: str = "raise",
        cache: str | os.PathLike[str] | bool = True,
        cache_size: int | None = None,
        audit: str | os.PathLike[str] | None = None,
    ) -> None:
        if on_error not in ("raise", "count"):
            raise UsageError(f"on_error is {on_error!r}; it must be raise or count")
        if service is not None:
            given = OrderSettings(batch, seed, lanes or 1, turns, run, block, equalize)
            if on_error != "raise":
                raise UsageError("on_error='count' is not for service=: the service lists the shards that fail")
            if not shuffle or lanes is not None or given != OrderSettings(batch) or (rank, world) != (None, None):
                raise UsageError(f"{_ORDER_OPTIONS} are not for service=: tarkit serve --shuffle has its order")
            if audit is not None:
                raise UsageError("audit= is not for service=: the service's own counts show what was acknowledged")
            rank, world = 0, 1
        self.audit = audit
        self.service = ShardClient(service) if isinstance(service, str) else service
        lanes = math.gcd(batch, _LANES) if lanes is None else lanes
        self.settings = OrderSettings(batch, seed if shuffle else None, lanes, turns, run, block, equalize)
        place = cache if not isinstance(cache, bool) else default_folder() if cache else None
        self.samples = ShardMap(urls, rule=rule, cache=place, cache_size=cache_size, run=run)
        self._fields, self._decode, self._transform = fields, decode, transform
        self._collate = collate or list
        self._asked = rank, world
        self.is_placed = rank is not None or world is not None
        """Whether the caller or a service says which part this is."""
        self._consumer: Consumer | None = None
        self._changed: tuple[int, list[Segment]] = 0, []
        self._counts_errors = on_error == "count"
        self._lost: set[int] = set()
        """Shards that cannot be read in this epoch."""
        self._reported: set[int] = set()
        self.gaps = GapCounts()
        self._left_out: list[bool] = []
        self._fillers: list[Place] = []
        self._keys: dict[tuple[int, int], str] = {}
        """Of the batch that was read last, for an audit."""
        self.consumer  # noqa: B018 (an environment that cannot be is an error here)
        if self.service is None:
            len(self)  # an epoch without a batch is an error here

    @property
    def consumer(self) -> Consumer:
        """Rank and world."""
        return self._consumer or consumer(*self._asked)

    def __len__(self) -> int:
        """Batches of an epoch, the same for each rank. Raises: TypeError: it is not known, as a service deals them."""
        if self.service is not None:
            raise TypeError("the shard service decides how many batches this process gets")
        return self.settings.batches(len(self.samples))

    def order(self, epoch: int, first: int = 0) -> EpochOrder:
        """The global batches of an epoch. first: the batch with which it is begun, or gone on: only behind the batches
        of a state that had another ``batch``, the epoch has these."""
        self.samples.begin_epoch()
        self._lost.clear()
        self._reported.clear()
        return EpochOrder(self.samples.counts, self.settings, epoch, self._segments_before(epoch, first))

    def batches_of(self, epoch: int, first: int) -> int:
        """Batches of an epoch that is begun, or gone on, with batch ``first``."""
        return self.order(epoch, first).batches if self._segments_before(epoch, first) else len(self)

    def _segments_before(self, epoch: int, first: int) -> list[Segment]:
        of, segments = self._segments()
        return segments if of == epoch and first >= sum(segment.batches for segment in segments) else []

    def _segments(self) -> tuple[int, list[Segment]]:
        """An epoch, and its first batches, which had another size."""
        return self._changed

    def _set_segments(self, epoch: int, segments: list[Segment]) -> None:
        self._changed = epoch, segments

    def read(self, order: EpochOrder, number: int) -> Any:
        """The rank's part of a global batch.

        Raises:
            DataError: all samples were left out. What reading a sample raises.
        """
        places, counts = order.rank_batch(number, *self.consumer), Counter[str]()
        values = self._values(places, counts)
        self._left_out = [value is None for value in values]
        if any(counts.values()):
            values = self._filled(order, number, values, counts)
        self.gaps.note(number, counts)
        return self._collate(values)

    def delivery(self, order: EpochOrder, number: int, worker: int = 0) -> Delivery:
        """The rank's part of a global batch, with what an audit writes of it. Raises: what :meth:`read` raises."""
        self._keys, self._fillers = {}, []
        batch, places = self.read(order, number), order.rank_batch(number, *self.consumer)
        evidence = evidence_of(places, self._left_out, self._fillers, self._keys)
        return Delivery(worker, number, False, batch, evidence)

    def batch_of(self, places: Iterable[Place]) -> Any:
        """The batch that these samples make. Raises: UsageError: the transform drops one. What reading them raises."""
        counts = Counter[str]()
        values = self._values(list(places), counts)
        if counts["filtered"]:
            raise UsageError("transform returned None, which drops a sample: that cannot be with service=")
        return self._collate(values)

    def example(self, samples: int) -> Any:
        """The batch that the first samples make, without those that are left out: what a batch looks like.
        Raises: DataError: all are left out. What reading them raises."""
        counts = enumerate(self.samples.counts)
        places = (Place(shard, number) for shard, count in counts for number in range(count))
        values = (value for place in places for value in self._values([place], Counter()) if value is not None)
        first = list(islice(values, samples))
        if not first:
            raise DataError("no sample of the data set is left", hint="see transform= and on_error=")
        return self._collate(first)

    def _values(self, places: Sequence[Place], counts: Counter[str]) -> list[Any]:
        """What samples become; None: one is left out, and counted."""
        wanted = [(place.shard, place.sample) for place in places if place.shard not in self._lost]
        self.samples.fetch(wanted)
        if self._counts_errors:
            return [self._attempt(place, counts) for place in places]
        values = [self._value(*each) for each in zip(places, self.samples.take(wanted), strict=True)]
        counts["filtered"] = sum(value is None for value in values)
        return values

    def _attempt(self, place: Place, counts: Counter[str]) -> Any:
        if place.shard in self._lost:
            counts["failed"] += 1
            return None
        try:
            value = self._value(place, self.samples.sample(place.shard, place.sample))
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

    def _filled(self, order: EpochOrder, number: int, values: list[Any], counts: Counter[str]) -> list[Any]:
        """The rank's part, where samples were left out. With "drop" it is shorter, but has one sample; else each gap
        has the next sample of the global batch that is left, the same for any number of ranks."""
        batch, (rank, world) = order.batch(number), self.consumer
        begin = rank * len(batch) // world
        gaps = [at for at, value in enumerate(values) if value is None]
        if self.settings.equalize == "drop":
            gaps = gaps[:1] if len(gaps) == len(values) else []
        for at in gaps:
            values[at] = self._next_left(batch, begin + at)
            counts["filled"] += 1
            if values[at] is None:
                reason = f"epoch {order.epoch}, batch {number}: transform dropped all its samples, or they failed"
                raise DataError(reason, hint="see the warnings; a larger batch has more samples")
        return [value for value in values if value is not None]

    def _next_left(self, batch: list[Place], slot: int) -> Any:
        for place in (*batch[slot + 1 :], *batch[:slot]):
            value = self._attempt(place._replace(filler=self.settings.equalize == "pad"), Counter())
            if value is not None:
                self._fillers.append(place)
                return value
        return None

    def epoch_batches(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """The batches of an epoch from batch ``first`` on; with an audit, as deliveries."""
        order = self.order(epoch, first)
        read = self.read if self.audit is None else self.delivery
        return (read(order, number) for number in range(first, order.batches))

    def audit_log(self) -> AuditLog | None:
        """Where this process writes what its loop is given."""
        if self.audit is None:
            return None
        shards = [
            (name_of_shard(url), count) for url, count in zip(self.samples.urls, self.samples.counts, strict=True)
        ]
        return AuditLog(self.audit, *self.consumer, shards, self.state(0, 0)["shards"])

    def state(self, epoch: int, next_batch: int) -> dict[str, Any]:
        """The state of a training that goes on with a batch of an epoch: the same for each rank, under 1 kB.

        Raises:
            UsageError: a service keeps it.
        """
        self.refuse_service()
        # A copy of the data set, at another place or under another signature, is the same one.
        shards = [[name_of_shard(url) for url in self.samples.urls], self.samples.counts]
        digest = blake2b(json.dumps(shards).encode(), digest_size=8).hexdigest()
        order = {name: getattr(self.settings, name) for name in _SETTINGS}
        state = {"version": _VERSION, "shards": digest, **order, "epoch": epoch, "next_batch": next_batch}
        if segments := self._segments_before(epoch, next_batch):
            state["segments"] = [list(segment) for segment in segments]
        return state

    def place_in(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Epoch and next batch of a state. If it had another ``batch``, ``lanes`` or ``turns``, the rest of its epoch
        has those of this source from now on.

        Raises:
            UsageError: the state is of other shards, settings, or another version; the message says which. Or the batch
                was changed more than 16 times in its epoch.
        """
        mine = self.state(0, 0)
        for name in mine.keys() - {"epoch", "next_batch", *_DEALT}:
            if state.get(name) != mine[name]:
                what = "the shards are others" if name == "shards" else f"{name} is {mine[name]!r}"
                found = printable(repr(state.get(name)))
                raise UsageError(f"the state is of another order: {what}, and it has {found}")
        epoch, number = state["epoch"], state["next_batch"]
        segments = [Segment(*each) for each in state.get("segments", ())]
        made = number - sum(segment.batches for segment in segments)
        if made and any(state[name] != mine[name] for name in _DEALT):
            segments.append(Segment(state["batch"], state["lanes"], state["turns"], made))
        if len(segments) > MOST_SEGMENTS:
            raise UsageError(f"the batch was changed {len(segments)} times in epoch {epoch}; it can be {MOST_SEGMENTS}")
        self._set_segments(epoch, segments)
        return epoch, number

    def refuse_service(self) -> None:
        """Raises: UsageError: the batches come from a service."""
        if self.service is not None:
            raise UsageError("the shard service keeps the state, and goes on where it is; see tarkit serve --state")

    def _value(self, place: Place, sample: Sample) -> Any:
        if self.audit is not None:
            self._keys[place.shard, place.sample] = key_digest(sample["__url__"], sample["__key__"])
        if self._decode is not None:
            sample = decode_sample(sample, image=self._decode)
        if self.settings.equalize == "pad":
            sample["__pad__"] = place.filler
        value: Any = sample
        if self._fields is not None:
            (value,) = to_tuple([sample], self._fields)
        return value if self._transform is None else self._transform(value)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned process has no process group to ask.
        return self.__dict__ | {"_consumer": self.consumer}
