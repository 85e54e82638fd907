"""Read samples of shards as batches of an epoch, for any number of processes.

It does not depend on a trainer's library.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tarkit.errors import UsageError, printable
from tarkit.formats.tally import check_policy
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.url import name_of_shard
from tarkit.runs.counts import Limit
from tarkit.samples.sample import KeyRule, first_dot
from tarkit.service.client import ShardClient
from tarkit.store.cache import default_folder
from tarkit.trainers.ahead import Ahead
from tarkit.trainers.auditlog import AuditLog
from tarkit.trainers.batchmaker import BatchMaker
from tarkit.trainers.checkedstate import check_state, with_checksum
from tarkit.trainers.choice import SubsetOptions
from tarkit.trainers.delivery import Delivery
from tarkit.trainers.fetchplan import FetchPlan
from tarkit.trainers.options import OF_SHARD_MAP, check_epoch_options, check_service_options, checked_ahead
from tarkit.trainers.order import ORDER_VERSION, BatchOrder, EpochOrder, OrderSettings, rank_slots
from tarkit.trainers.shardlist import digest_of_shards
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.sharednumbers import checked_number, checked_seconds
from tarkit.trainers.skipped import SkippedSamples
from tarkit.trainers.stageclock import ORDERING
from tarkit.trainers.streams import Stream, opened_specs, streams_of
from tarkit.world import Consumer, consumer

if TYPE_CHECKING:
    from tarkit.trainers.mixture import Mixture
    from tarkit.trainers.weighting import Weighting

_LANES = 8
_SETTINGS = ("batch", "seed", "lanes", "turns", "run", "block", "equalize")
_DEALT = ("batch", "lanes", "turns")
"""Settings that may change from one epoch to the next."""
_OTHERS = {
    "shards": "the shards differ, in their names, order or numbers of samples",
    "subset": "other samples are chosen (keys=, where=, split=, subset())",
}


class BatchSource:
    """The batches of a rank, of any epoch, from any batch on.

    The object can be sent to other processes.

    Args:
        urls: a path, URL or shard spec, or several, or a manifest (``dataset.json``); or a
            :class:`tarkit.trainers.shardmap.ShardMap`, with its own rule, cache and subset. Each
            shard has an index beside it (``tarkit index``). Or streams, which are mixed: a list of
            :class:`tarkit.trainers.streams.Stream`.
        batch: number of samples of a global batch; each rank has its part of it.
        fields: names of fields, such as ``"jpg;png cls"``: a batch is made of tuples of their
            values, ``jpg`` or ``png`` first; None: of samples.
        decode: form of decoded images, a word of :func:`tarkit.samples.codecs.decode_field` such as
            ``rgb8`` for arrays of shape (height, width, 3); ``torchrgb`` and such give tensors of
            shape (channel, height, width); with ``bytes`` images stay bytes. Other fields are
            decoded by their extension; with ``fields``, only those. None: all fields stay bytes.
        collate: function from a list of samples, or of tuples, to a batch; None: the list.
        transform, shuffle, seed, lanes, turns, run, block: see
            :class:`tarkit.trainers.options.EpochOptions`.
        equalize, epoch_size, stratified, weights, replacement: see
            :class:`tarkit.trainers.options.EpochOptions`.
        rank, world, rule, on_error, max_errors, cache, cache_size, ahead: see
            :class:`tarkit.trainers.options.EpochOptions`.
        service, audit, log_every: see :class:`tarkit.trainers.options.SourceOptions`.
        subset: see :class:`tarkit.trainers.choice.SubsetOptions`.

    Raises:
        UsageError: an argument is not valid, or a shard has no index.
        DataError, MissingInputError: no sample is chosen, or no sample has a key or field that is
            named to choose samples.
    """

    @keywords_of(SubsetOptions)
    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str] | ShardMap | Stream | Sequence[Stream],
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
        epoch_size: int | str | None = None,
        stratified: bool = True,
        weights: Callable[[str], float] | Mapping[str, float] | str | os.PathLike[str] | None = None,
        replacement: bool = False,
        rank: int | None = None,
        world: int | None = None,
        rule: str | KeyRule = first_dot,
        service: str | ShardClient | None = None,
        on_error: str = "raise",
        max_errors: int | str = 100,
        cache: str | os.PathLike[str] | bool = True,
        cache_size: int | None = None,
        ahead: int | None = None,
        audit: str | os.PathLike[str] | None = None,
        log_every: float | None = 0,
        **subset: Unpack[SubsetOptions],
    ) -> None:
        if shuffle and seed is None:
            raise UsageError("seed is None; every epoch's order follows from it. shuffle=False is that of the shards")
        check_policy("on_error", on_error, ("raise", "count"))
        streams = streams_of(urls)
        check_epoch_options(streams, weights, epoch_size, stratified, replacement, audit)
        self._limit = Limit.parse(str(max_errors))
        if on_error == "raise" and max_errors != 100:
            raise UsageError("max_errors= goes with on_error='count': without it, the first error ends the epoch")
        used_lanes = math.gcd(checked_number("batch", batch, 1), _LANES) if lanes is None else lanes
        self.settings = OrderSettings(batch, seed if shuffle else None, used_lanes, turns, run, block, equalize)
        if service is not None:
            has_order = lanes is not None or self.settings != OrderSettings(batch, lanes=used_lanes)
            check_service_options(streams, weights, on_error, has_order or (rank, world) != (None, None), audit)
            rank, world = 0, 1
        self.audit = audit
        self.log_every = checked_seconds("log_every", log_every)
        self.service = ShardClient(service) if isinstance(service, str) else service
        self.samples = _opened(urls, streams, rule=rule, cache=cache, cache_size=cache_size, run=run, subset=subset)
        chooses = self.samples.chosen is not None or any(value is not None for value in subset.values())
        if self.service is not None and chooses:
            raise UsageError("the shard service hands out all samples of its shards: a subset is not for service=")
        self.mixture: Mixture | None = None
        """Mixture of the streams, whose text has the samples of each; None: of no streams."""
        self._plan: Mixture | Weighting | None = None
        """Plan of epochs that do not have each sample once; None: they do."""
        if streams is not None:
            self._plan = self.mixture = self._mixture_of(streams, epoch_size, stratified)
        if weights is not None:
            from tarkit.trainers.weighting import Weighting  # which few programs need

            self._plan = Weighting(self.samples, self.settings, weights, replacement=replacement, epoch_size=epoch_size)
        self.maker = BatchMaker(
            self.samples,
            fields=fields,
            decode=decode,
            transform=transform,
            collate=collate or list,
            equalize=equalize,
            counts_errors=on_error == "count",
            has_evidence=audit is not None,
        )
        self._most_ahead = checked_ahead(ahead, self.samples.shards.cache is not None, self.service is not None)
        self._ahead: Ahead | None = None
        self.iterations = 0
        """Number of iterations that its loaders have begun."""
        self._asked = rank, world
        self.is_placed = rank is not None or world is not None
        """True if the caller or a service determines the part of this process."""
        self._consumer: Consumer | None = None
        """Rank and world of the process that sent it here."""
        self.consumer  # noqa: B018 (an environment that cannot be is an error here)
        if self.service is None:
            len(self)  # an epoch without a batch is an error here

    def _mixture_of(self, streams: list[Stream], epoch_size: int | str | None, stratified: bool) -> Mixture:
        from tarkit.trainers.mixture import Mixture, mixed_streams, stream_sizes  # which few programs need

        chosen = None if self.samples.chosen is None else self.samples.chosen.texts()
        parts = mixed_streams(streams, stream_sizes(streams, self.samples), self._shards, epoch_size, chosen)
        return Mixture(parts, self.settings, epoch_size=epoch_size, stratified=stratified)

    @property
    def consumer(self) -> Consumer:
        """Rank and world.

        Raises:
            UsageError: they are not valid, or there are more ranks than samples of a batch.
        """
        found = consumer(*self._asked, sent=self._consumer)
        self.settings.check_world(found.world)
        return found

    def __len__(self) -> int:
        """Return the number of batches of an epoch, the same for each rank.

        Raises:
            TypeError: a service deals the batches, so the number is not known.
        """
        if self.service is not None:
            raise TypeError("the shard service decides how many batches this process gets")
        return self.settings.batches(len(self.samples)) if self._plan is None else self._plan.batches

    def skipped_samples(self, epoch: int) -> SkippedSamples:
        """Return an empty list of the samples of an epoch that fail, with its limit."""
        first, end = rank_slots(self.settings.batch, *self.consumer)
        return SkippedSamples(self._limit, epoch, len(self) * (end - first))

    def order(self, epoch: int) -> BatchOrder:
        """Begin or resume an epoch, and return its global batches."""
        self.maker.begin_epoch()
        plan = self._plan
        order = EpochOrder(self.samples.counts, self.settings, epoch) if plan is None else plan.order(epoch)
        self.maker.clock.lap(ORDERING)
        return order

    def fetch_ahead(self, order: BatchOrder, numbers: range) -> Callable[[], None]:
        """Begin to fetch for the batches of these numbers, which are read next; return a stop.

        Only remote shards with a cache are fetched. An earlier call ends.
        """
        if self._ahead is not None:
            self._ahead.stop()
        cache, self._ahead = self.samples.shards.usable_cache, None
        if self._most_ahead and cache is not None and numbers:
            plan = FetchPlan(self.samples, order, numbers, self.consumer, self._most_ahead, cache)
            self._ahead = Ahead(plan, self.ended)
        return (lambda: None) if self._ahead is None else self._ahead.stop

    def ended(self) -> int:
        """Return the number of iterations of loaders that have ended, as far as is known here."""
        return 0

    def end_iteration(self) -> None:
        """Note that an iteration has ended: workers that persist fetch no more for it."""

    def read(self, order: BatchOrder, number: int, worker: int = 0) -> Any:
        """Return the rank's part of a global batch; with an audit, as a delivery of this worker.

        Raises:
            DataError: all samples were left out, or one is damaged.
            StreamError, TemporaryStreamError: a sample cannot be read.
        """
        ahead = self._ahead
        take = None if ahead is None or ahead.order is not order else ahead.take
        batch, evidence = self.maker.make(order, number, self.consumer, take)
        return batch if self.audit is None else Delivery(worker, number, False, batch, evidence)

    def epoch_batches(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch from batch ``first`` on; with an audit, as deliveries."""
        order = self.order(epoch)
        return self._batches(order, range(first, order.batches))

    def _batches(self, order: BatchOrder, numbers: range) -> Iterator[Any]:
        stop = self.fetch_ahead(order, numbers)
        try:
            for number in numbers:
                yield self.read(order, number)
        finally:
            stop()

    @cached_property
    def _shards(self) -> list[tuple[str, int]]:
        """Name and number of samples of each shard, the same for a copy at a different place."""
        return list(zip(map(name_of_shard, self.samples.urls), self.samples.counts, strict=True))

    @cached_property
    def _digest(self) -> str:
        """Digest of the shards with all samples; of streams, with the chosen ones."""
        names = [name for name, _ in self._shards]
        if self.mixture is None:
            return digest_of_shards(names, self.samples.all_counts)
        return digest_of_shards(names, self.samples.counts, self.mixture.sizes)

    @cached_property
    def _subset(self) -> str | None:
        return None if self.samples.chosen is None else self.samples.chosen.digest()

    def audit_log(self) -> AuditLog | None:
        """Return the log of the batches that this process's loop is given."""
        if self.audit is None:
            return None
        streams = None if self.mixture is None else self.mixture.sizes
        return AuditLog(self.audit, self._shards, self._order_fields(), self.samples.chosen, streams)

    def state(self, epoch: int, next_batch: int) -> dict[str, Any]:
        """Return the state of a training before a batch: under 1 kB, the same for each rank.

        Raises:
            UsageError: a service keeps the state.
        """
        self.refuse_service()
        plan = {} if self._plan is None else self._plan.state(epoch)
        return with_checksum({**self._order_fields(), **plan, "epoch": epoch, "next_batch": next_batch})

    def _order_fields(self) -> dict[str, Any]:
        order = {name: getattr(self.settings, name) for name in _SETTINGS}
        shards = {"shards": self._digest} | ({} if self._subset is None else {"subset": self._subset})
        return {"version": ORDER_VERSION, **shards, **order}

    def place_in(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Return the epoch and the next batch of a state; streams go on from there.

        At the start of an epoch, a state may differ in ``batch``, ``lanes`` or ``turns``: the epoch
        uses those of this source. The amounts of streams may differ, too, and streams be new.

        Raises:
            UsageError: the state was changed, is of other shards, settings or another version, or
                its place is not in the epoch; the message says which.
        """
        self.refuse_service()
        mine = self._order_fields()
        epoch, number = check_state(state)
        if self.mixture is None and "streams" in state:
            raise UsageError("the state is of a data set of streams, and this one has none")
        if number and self._plan is None and "weights" in state:
            raise UsageError("the state is of a data set with weights, and this one has none")
        # Those of streams are compared stream by stream.
        shards = ("shards", "subset") if self.mixture is None else ()
        for name in (*shards, *_SETTINGS):
            if state.get(name) != mine.get(name) and (number or name not in _DEALT):
                found = printable(repr(state.get(name)))
                what = _OTHERS.get(name) or f"{name} is {mine[name]!r}, and {found} in the state"
                where = (
                    f", such as set_epoch({epoch + 1})" if self.mixture is None else f": at the end of epoch {epoch}"
                )
                hint = f"; it can change where an epoch begins{where}" * (name in _DEALT)
                raise UsageError(f"the state is of another order: {what}{hint}")
        begin = None if self._plan is None else self._plan.check(state, epoch, is_within=number > 0)
        if number and state.get("shards") != mine["shards"]:  # which has the order of streams; a store may sort names
            hint = f"list them as they were, or use a state from the end of epoch {epoch}"
            raise UsageError(f"the state is of another order: its streams were listed in another order; {hint}")
        # That of a worker that came to its end is behind the end.
        if number >= len(self) + checked_number("workers of the state", state.get("workers", 1), 1):
            raise UsageError(f"next_batch of the state is {number}, and epoch {epoch} has {len(self)} batches")
        if begin is not None:
            begin()
        return epoch, number

    def refuse_service(self) -> None:
        """Refuse a call that has no meaning with a service.

        Raises:
            UsageError: the batches come from a service.
        """
        if self.service is not None:
            raise UsageError("the shard service keeps the state, and goes on where it is; see tarkit serve --state")

    def __getstate__(self) -> dict[str, Any]:
        # A spawned process has no process group to ask.
        return self.__dict__ | {"_consumer": self.consumer, "_ahead": None}


def _opened(
    urls: str | os.PathLike[str] | Iterable[str] | ShardMap | Stream | Sequence[Stream],
    streams: list[Stream] | None,
    *,
    rule: str | KeyRule,
    cache: str | os.PathLike[str] | bool,
    cache_size: int | None,
    run: int,
    subset: SubsetOptions,
) -> ShardMap:
    """Open the data set of a source.

    Raises:
        UsageError: arguments of a ShardMap are given beside it.
    """
    if isinstance(urls, ShardMap):
        if subset or (rule, cache, cache_size) != (first_dot, True, None):
            raise UsageError(f"{', '.join(OF_SHARD_MAP)} are arguments of the ShardMap")
        return copy.copy(urls)
    return ShardMap(
        cast("Iterable[str]", urls) if streams is None else opened_specs(streams),
        rule=rule,
        cache=cache if not isinstance(cache, bool) else default_folder() if cache else None,
        cache_size=cache_size,
        run=run,
        # Content of local shards is kept only in a folder that was named for it.
        keep_unpacked=not isinstance(cache, bool),
        **subset,
    )
