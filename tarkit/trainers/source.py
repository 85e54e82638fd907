"""Read samples of shards as batches of an epoch, for any number of processes.

It does not depend on a trainer's library.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
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
from tarkit.trainers.choice import SubsetOptions
from tarkit.trainers.delivery import Delivery
from tarkit.trainers.order import ORDER_VERSION, BatchOrder, EpochOrder, OrderSettings, rank_slots
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.sharednumbers import checked_number, checked_seconds
from tarkit.trainers.skipped import SkippedSamples
from tarkit.trainers.stageclock import ORDERING
from tarkit.trainers.streams import Stream, opened_specs, streams_of
from tarkit.world import Consumer, consumer

if TYPE_CHECKING:
    from tarkit.trainers.mixture import Mixture
    from tarkit.trainers.weighting import Weighting

AHEAD = 1 << 30
"""Default of ``ahead`` in bytes."""
_LANES = 8
_ORDER_OPTIONS = "shuffle, seed, lanes, turns, run, block, equalize, rank and world"
_SETTINGS = ("batch", "seed", "lanes", "turns", "run", "block", "equalize")
_DEALT = ("version", "batch", "lanes", "turns")
"""Version and settings that may change from one epoch to the next."""
OF_SHARD_MAP = "rule", "cache", "cache_size", *SubsetOptions.__annotations__
"""Arguments that are those of the ShardMap, if one is given."""
_OTHERS = {
    "shards": "the shards are others",
    "subset": "other samples are chosen (keys=, where=, split=, subset())",
}


class EpochOptions(SubsetOptions, total=False):
    """Keyword arguments of every reader of batches: which samples come, and in which order.

    Attributes:
        keys, on_missing_key, where, split, split_by: see
            :class:`tarkit.trainers.choice.SubsetOptions`.
        transform: called with each sample, or tuple of fields; it returns the replacement, or None
            to drop the sample. Its exception becomes a TransformError with shard and key. Default:
            none.
        shuffle: use a different order in each epoch; False: the order of the shards. Default: True.
        seed: whole number from which the order of every epoch follows. Default: 0.
        lanes: number of parts of a batch that are read side by side, a divisor of ``batch``; best a
            multiple of the number of ranks. Default: the largest power of two up to 8 that divides
            it.
        turns: number of consecutive batches that are read side by side, too; best a multiple of the
            number of workers of a rank. Default: 1.
        run: number of samples of a shard that stay together when shards are shuffled. Default: 100.
        block: number of samples of a lane that are shuffled among each other. Default: 10,000.
        equalize: treatment of the samples at the end that fill no batch: ``drop`` leaves them out;
            ``pad`` and ``repeat`` fill the last batch with other samples of the epoch. With ``pad``
            each sample has ``__pad__``, which is True for a filler. Default: ``drop``.
        epoch_size: of streams with ``proportion``, and with ``weights``, the number of samples of
            an epoch; of streams also ``shortest`` or ``longest``, for where the first or the last
            stream ends. Default: as many samples as there are.
        stratified: of streams: each batch has its share of each stream; False: each epoch has it,
            and all samples are shuffled together. Default: True.
        weights: a function from the key of a sample to its weight; a mapping; or a table with the
            columns ``key`` and ``weight``. A sample comes in an epoch as often as its share of
            ``epoch_size`` samples, rounded down or up. Default: each sample comes once.
        replacement: with ``weights``, samples are drawn one by one. Default: False.
        rank: number of this process, from 0, given together with ``world``. Default: see
            :func:`tarkit.world.consumer`.
        world: number of processes that share each batch. Default: see ``rank``.
        rule: key rule: ``first-dot``, ``last-dot``, a regular expression with two groups, or a
            function. Default: ``first-dot``.
        on_error: ``raise``; or ``count``: samples that cannot be read, decoded or transformed are
            left out and counted, see :attr:`tarkit.trainers.loader.EpochLoader.counts`. Default:
            ``raise``.
        max_errors: with ``on_error="count"``, largest number of samples that may fail in an epoch,
            in the batches of a rank: a number, or a percentage of its samples such as ``"1%"``. The
            batch that exceeds it is an error. Default: 100.
        cache: folder of this machine where parts of remote shards, and the content of compressed
            ones, are kept for all processes and later runs; True: ``tarkit/shards`` in the user's
            folder for caches, for remote shards only; False: none, and each sample is a request.
            Default: True.
        cache_size: largest size of this folder in bytes. Default: 16 GiB, or half of the free space
            of its disk, if that is less.
        ahead: number of bytes of remote shards that each process that reads fetches into the cache
            before the first of their samples is needed, at most a fourth of the cache; 0: each
            batch fetches its own. Default: 1 GiB.
    """

    transform: Callable[[Any], Any] | None
    shuffle: bool
    seed: int
    lanes: int | None
    turns: int
    run: int
    block: int
    equalize: str
    epoch_size: int | str | None
    stratified: bool
    weights: Callable[[str], float] | Mapping[str, float] | str | os.PathLike[str] | None
    replacement: bool
    rank: int | None
    world: int | None
    rule: str | KeyRule
    on_error: str
    max_errors: int | str
    cache: str | os.PathLike[str] | bool
    cache_size: int | None
    ahead: int


class SourceOptions(EpochOptions, total=False):
    """Keyword arguments of readers of batches that learn which batches the loop has used.

    Attributes:
        service: ``"HOST:PORT"`` of a shard service, or a
            :class:`~tarkit.service.client.ShardClient`: ranges of samples come from there, and
            ``batch`` is the number of samples of a batch of this process. The service decides on
            the order and the number of epochs; options of the order, ``rank`` and ``world`` are
            errors. Default: none.
        audit: folder where each process writes which samples its loop was given; ``tarkit audit``
            proves from it that each was used once. Default: none.
        log_every: seconds between two lines of the logger ``tarkit.trainers``, of level INFO: how
            fast the samples come, for which share of its time the loop waits, and what limits it.
            Default: 0, no lines.
    """

    service: str | ShardClient | None
    audit: str | os.PathLike[str] | None
    log_every: float | None


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
        transform, shuffle, seed, lanes, turns, run, block: see :class:`EpochOptions`.
        equalize, epoch_size, stratified, weights, replacement: see :class:`EpochOptions`.
        rank, world, rule, on_error, max_errors: see :class:`EpochOptions`.
        cache, cache_size, ahead: see :class:`EpochOptions`.
        service, audit, log_every: see :class:`SourceOptions`.
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
        ahead: int = AHEAD,
        audit: str | os.PathLike[str] | None = None,
        log_every: float | None = 0,
        **subset: Unpack[SubsetOptions],
    ) -> None:
        if shuffle and seed is None:
            raise UsageError("seed is None; every epoch's order follows from it. shuffle=False is that of the shards")
        check_policy("on_error", on_error, ("raise", "count"))
        streams = streams_of(urls)
        _check_plan(streams, weights, epoch_size, stratified, replacement, audit)
        self._limit = Limit.parse(str(max_errors))
        if on_error == "raise" and max_errors != 100:
            raise UsageError("max_errors= goes with on_error='count': without it, the first error ends the epoch")
        if service is not None:
            if streams is not None or weights is not None:
                raise UsageError("streams and weights are not for service=: the service decides on the samples")
            given = OrderSettings(batch, seed, lanes or 1, turns, run, block, equalize)
            if on_error != "raise":
                raise UsageError("on_error='count' is not for service=: the service lists the shards that fail")
            if not shuffle or lanes is not None or given != OrderSettings(batch) or (rank, world) != (None, None):
                raise UsageError(f"{_ORDER_OPTIONS} are not for service=: tarkit serve --shuffle has its order")
            if audit is not None:
                raise UsageError("audit= is not for service=: the service's own counts show what was acknowledged")
            rank, world = 0, 1
        self.audit = audit
        self.log_every = checked_seconds("log_every", log_every)
        self.service = ShardClient(service) if isinstance(service, str) else service
        lanes = math.gcd(checked_number("batch", batch, 1), _LANES) if lanes is None else lanes
        self.settings = OrderSettings(batch, seed if shuffle else None, lanes, turns, run, block, equalize)
        place = cache if not isinstance(cache, bool) else default_folder() if cache else None
        if isinstance(urls, ShardMap):
            if subset or (rule, cache, cache_size) != (first_dot, True, None):
                raise UsageError(f"{', '.join(OF_SHARD_MAP)} are arguments of the ShardMap")
            self.samples = copy.copy(urls)
        else:
            shards = cast("Iterable[str]", urls) if streams is None else opened_specs(streams)
            self.samples = ShardMap(
                shards,
                rule=rule,
                cache=place,
                cache_size=cache_size,
                run=run,
                # Content of local shards is kept only in a folder that was named for it.
                keep_unpacked=not isinstance(cache, bool),
                **subset,
            )
        chooses = self.samples.chosen is not None or any(value is not None for value in subset.values())
        if self.service is not None and chooses:
            raise UsageError("the shard service hands out all samples of its shards: a subset is not for service=")
        self.mixture: Mixture | None = None
        """Mixture of the streams, whose text has the samples of each; None: of no streams."""
        self._plan: Mixture | Weighting | None = None
        """Plan of epochs that do not have each sample once; None: they do."""
        # Few programs need these modules.
        if streams is not None:
            from tarkit.trainers.mixture import Mixture, mixed_streams, stream_sizes

            chosen = None if self.samples.chosen is None else self.samples.chosen.texts()
            parts = mixed_streams(streams, stream_sizes(streams, self.samples), self._shards, epoch_size, chosen)
            self._plan = self.mixture = Mixture(parts, self.settings, epoch_size=epoch_size, stratified=stratified)
        if weights is not None:
            from tarkit.trainers.weighting import Weighting

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
        self.counts_errors = on_error == "count"
        """True if samples that fail are counted, and batches may come with a list of them."""
        self._most_ahead = checked_number("ahead", ahead)
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
        cache, self._ahead = self.samples.cache, None
        if self._most_ahead and self.samples.remote and cache is not None and not cache.closed and numbers:
            self._ahead = Ahead(self.samples, order, numbers, self.consumer, self._most_ahead, cache, self.ended)
        self.samples.fetched_elsewhere = self._ahead is not None
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
        """Return a digest of the shards, and of the streams that have them."""
        if self.mixture is None:
            return self.samples.digest
        shards = [[name for name, _ in self._shards], self.samples.counts, self.mixture.sizes]
        return blake2b(json.dumps(shards).encode(), digest_size=8).hexdigest()

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
        return {**self._order_fields(), **plan, "epoch": epoch, "next_batch": next_batch}

    def _order_fields(self) -> dict[str, Any]:
        order = {name: getattr(self.settings, name) for name in _SETTINGS}
        shards = {"shards": self._digest} | ({} if self._subset is None else {"subset": self._subset})
        return {"version": ORDER_VERSION, **shards, **order}

    def place_in(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Return the epoch and the next batch of a state; streams go on from there.

        At the start of an epoch, a state may differ in ``batch``, ``lanes`` or ``turns``: the epoch
        uses those of this source. The amounts of streams may differ, too, and streams be new.

        Raises:
            UsageError: the state is of other shards, settings or another version, or its place is
                not in the epoch; the message says which.
        """
        self.refuse_service()
        mine = self._order_fields()
        if not isinstance(state, Mapping):
            raise UsageError(f"this is not the state of a data set of shards, but a {type(state).__name__}")
        epoch, number = (checked_number(f"{name} of the state", state.get(name)) for name in ("epoch", "next_batch"))
        if (version := state.get("version")) not in range(1, ORDER_VERSION + 1):
            raise UsageError(f"version of the state is {printable(repr(version))}, and here it is {ORDER_VERSION}")
        if self.mixture is None and "streams" in state:
            raise UsageError("the state is of a data set of streams, and this one has none")
        if number and self._plan is None and "weights" in state:
            raise UsageError("the state is of a data set with weights, and this one has none")
        # Those of streams are compared stream by stream.
        shards = ("shards", "subset") if self.mixture is None else ()
        for name in ("version", *shards, *_SETTINGS):
            if state.get(name) != mine.get(name) and (number or name not in _DEALT):
                found = printable(repr(state.get(name)))
                what = _OTHERS.get(name) or f"{name} is {mine[name]!r}, and it has {found}"
                where = (
                    f", such as set_epoch({epoch + 1})" if self.mixture is None else f": at the end of epoch {epoch}"
                )
                hint = f"; it can change where an epoch begins{where}" * (name in _DEALT)
                raise UsageError(f"the state is of another order: {what}{hint}")
        begin = None if self._plan is None else self._plan.check(state, epoch, is_within=number > 0)
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


def _check_plan(
    streams: list[Stream] | None, weights: object, epoch_size: object, stratified: object, replacement: object,
    audit: object,
) -> None:  # fmt: skip
    """Check that arguments of streams and of weights come with those.

    Raises:
        UsageError: an argument has no meaning with the others.
    """
    if streams is not None and weights is not None:
        raise UsageError("weights= is for one data set, and not for streams, which have amounts")
    if streams is None and stratified is not True:
        raise UsageError("stratified= is of streams: name Stream objects")
    if streams is None and weights is None and epoch_size is not None:
        raise UsageError("epoch_size= is of streams and weights=: without them, each sample comes once an epoch")
    if weights is None and replacement is not False:
        raise UsageError("replacement= is of weights=")
    if weights is not None and audit is not None:
        raise UsageError("audit= is not for weights=: it proves that each sample comes once")
