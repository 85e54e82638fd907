"""The mixture of a data set's streams: the orders of its epochs, and its part of a state."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import ceil, floor
from typing import Any

from tarkit.errors import UsageError, counted, printable
from tarkit.trainers.mixedorder import MixtureOrder, ShuffledOrder, StratifiedOrder, StreamPart
from tarkit.trainers.order import OrderSettings
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.sharednumbers import SharedNumbers, checked_number
from tarkit.trainers.shares import Quotas
from tarkit.trainers.streams import Stream, epoch_amounts, shown, stream_names

_log = logging.getLogger(__name__)
_SHORT = {"proportion": "p", "repeat": "r", "choose": "c"}
_LONG = {short: kind for kind, short in _SHORT.items()}
_AMOUNT = re.compile(r"[prc](\d+/\d+|\d+(\.\d+)?(e-?\d{1,3})?)", re.ASCII)
StreamStates = dict[str, tuple[str, str, int]]
"""Streams of a state by name: digest of the shards, amount, and number of used samples."""


@dataclass(frozen=True)
class MixedStream:
    """A stream of a mixture.

    Attributes:
        name: name of the stream.
        amount: number of samples in an epoch, not rounded.
        text: the amount as it is given, such as ``p0.7``.
        shard: number of its first shard in the data set.
        counts: number of samples of each of its shards.
        digest: digest of its shards; empty if the stream is not opened.
    """

    name: str
    amount: Fraction
    text: str
    shard: int
    counts: tuple[int, ...]
    digest: str


def stream_sizes(streams: Sequence[Stream], samples: ShardMap) -> list[int]:
    """Return the number of shards of each stream.

    Args:
        samples: data set of :func:`tarkit.trainers.streams.opened_specs`.
    """
    sizes = iter(samples.sizes)
    return [sum(next(sizes) for _ in stream.specs) if stream.amount else 0 for stream in streams]


def mixed_streams(
    streams: Sequence[Stream], sizes: Sequence[int], shards: Sequence[tuple[str, int]], size: int | str | None,
    chosen: Sequence[str] | None = None,
) -> list[MixedStream]:  # fmt: skip
    """Return the streams of a mixture.

    Args:
        sizes: number of shards of each stream, 0 for one that is not opened.
        shards: name without folder, and number of samples, of each shard of all streams.
        size: see :func:`tarkit.trainers.streams.epoch_amounts`.
        chosen: of a subset, the chosen samples of each shard as text.

    Raises:
        UsageError: see :func:`tarkit.trainers.streams.epoch_amounts`.
    """
    names = stream_names(streams)
    bounds = list(pairwise(accumulate(sizes, initial=0)))
    counts = [tuple(count for _, count in shards[first:end]) for first, end in bounds]
    amounts = epoch_amounts(streams, names, list(map(sum, counts)), size)
    found = []
    for stream, name, amount, part, (first, end) in zip(streams, names, amounts, counts, bounds, strict=True):
        text = json.dumps(shards[first:end] if chosen is None else [shards[first:end], chosen[first:end]])
        digest = blake2b(text.encode(), digest_size=4).hexdigest() if end > first else ""
        given = _SHORT[stream.kind] + stream.text.partition("=")[2]
        found.append(MixedStream(name, amount, given, first, part, digest))
    return found


def mixture_of_state(
    state: Mapping[str, Any], sizes: Mapping[str, int], shards: Sequence[tuple[str, int]], settings: OrderSettings
) -> Mixture:
    """Return the mixture of which a state is, with its position.

    Args:
        sizes: number of shards of each stream.
        shards: see :func:`mixed_streams`.
        settings: settings of the state.

    Raises:
        UsageError: the state has other streams, or its values have no meaning.
    """
    streams = parsed_streams(state["streams"])
    given = []
    for name, (_, text, _) in streams.items():
        amount = Fraction(text[1:])
        if list(sizes) != list(streams) or bool(amount) != bool(sizes[name]):
            raise UsageError(f"the shards are not those of stream {_named(name)}, which has {_long(text)}")
        given.append(Stream(name, name=name, **{_LONG[text[0]]: int(amount) if text[0] == "c" else amount}))  # type: ignore[arg-type]
    size = state.get("epoch_size")
    parts = mixed_streams(given, list(sizes.values()), shards, size)
    found = Mixture(parts, settings, epoch_size=size, stratified=state.get("stratified", True))
    found.resume(streams, state["epoch"])
    return found


class Mixture:
    """Streams of a data set with their amounts: the order of each epoch.

    ``str`` of it has the length of an epoch and the samples of each stream.

    Args:
        streams: the streams.
        settings: settings of the order.
        epoch_size: as it is given; it is only kept in states.
        stratified: each batch has its share of each stream; False: each epoch.

    Raises:
        UsageError: the epoch has no batch.
    """

    def __init__(
        self, streams: Sequence[MixedStream], settings: OrderSettings, *, epoch_size: int | str | None, stratified: bool
    ) -> None:
        if not isinstance(stratified, bool):
            raise UsageError(f"stratified is {printable(repr(stratified))}; it must be True or False")
        self._all, self._settings, self._stratified = list(streams), settings, stratified
        self._size = int(epoch_size) if epoch_size is not None and not isinstance(epoch_size, str) else epoch_size
        self._streams = [stream for stream in streams if stream.amount]
        total = sum((stream.amount for stream in self._streams), Fraction())
        self.batches = settings.batches((floor if settings.equalize == "drop" else ceil)(total))
        """Number of batches of each epoch."""
        self.samples = self.batches * settings.batch
        """Number of samples of each epoch."""
        self._shares = [stream.amount / total for stream in self._streams]
        self.begun = SharedNumbers([0] * (1 + len(self._all)))
        """An epoch, and the number of samples of each stream that were used before it."""
        self._closed = {stream.name: stream.digest for stream in self._all}
        """Digests of streams, also of those that are not opened now, from a state."""
        self.sizes = {stream.name: len(stream.counts) for stream in self._all}
        """Number of shards of each stream; 0 for one that is not opened."""
        _log.info("%s", self)
        for stream, share in zip(self._streams, self._shares, strict=True):
            settings.check_runs(sum(stream.counts))
            if share * settings.batch > sum(stream.counts):
                text = "stream %r has %s, and %s places in a batch of %d: its samples repeat within the batch"
                places = shown(share * settings.batch)
                _log.warning(text, stream.name, counted(sum(stream.counts), "sample"), places, settings.batch)

    def __str__(self) -> str:
        parts = []
        for stream, share in zip(self._streams, self._shares, strict=True):
            count, amount = sum(stream.counts), share * self.samples
            parts.append(f"{printable(stream.name)} {shown(amount)} of {count} ({float(100 * share):.4g}%)")
        head = f"epoch of {self.batches} batches of {self._settings.batch}, {self.samples} samples"
        return f"{head}: {', '.join(parts)}"

    def order(self, epoch: int) -> MixtureOrder:
        """Return the global batches of an epoch.

        Raises:
            UsageError: the epoch is before the one of a state that was loaded.
        """
        quotas = self._quotas()
        used = self._used(epoch)
        parts = [
            StreamPart(stream.name, stream.shard, stream.counts, used[stream.name], quota)
            for stream, quota in zip(self._streams, quotas.of(epoch), strict=True)
        ]
        if self._stratified:
            return StratifiedOrder(parts, self._settings, epoch, quotas.bounds(epoch))
        return ShuffledOrder(parts, self._settings, epoch)

    def _quotas(self) -> Quotas:
        epoch, *used = self.begun[:]
        begun = [count for count, stream in zip(used, self._all, strict=True) if stream.amount]
        return Quotas(self._shares, self.samples, epoch=epoch, used=begun)

    def _used(self, epoch: int) -> dict[str, int]:
        """Return the number of samples of each stream that were used before an epoch.

        Raises:
            UsageError: it is not known.
        """
        begun, *used = self.begun[:]
        if epoch < begun:
            hint = "load a state of that time, or make the data set anew"
            raise UsageError(f"epoch {epoch} is before epoch {begun}, with which these amounts began: {hint}")
        found = {stream.name: count for stream, count in zip(self._all, used, strict=True)}
        counts = self._quotas().used(epoch)
        return found | {stream.name: count for stream, count in zip(self._streams, counts, strict=True)}

    def state(self, epoch: int) -> dict[str, Any]:
        """Return the mixture's part of a state in an epoch."""
        used = self._used(epoch)
        streams = {stream.name: [self._closed[stream.name], stream.text, used[stream.name]] for stream in self._all}
        size = {} if self._size is None else {"epoch_size": self._size}
        return {"streams": streams, **size, **({} if self._stratified else {"stratified": False})}

    def check(self, state: Mapping[str, Any], epoch: int, is_within: bool) -> Callable[[], None]:
        """Check that an epoch can resume from a state, and return a function that begins it.

        Where an epoch begins, amounts may be others, and there may be more streams.

        Args:
            is_within: the state is within the epoch.

        Raises:
            UsageError: the state is of other streams, or of others in this epoch.
        """
        streams = parsed_streams(state.get("streams"))
        for stream in self._all:
            digest = streams[stream.name][0] if stream.name in streams else ""
            if stream.digest and digest and digest != stream.digest:
                what = f"the shards of stream {_named(stream.name)}, or the samples chosen of them, are others"
                raise UsageError(f"the state is of another order: {what}")
        if gone := [name for name in streams if name not in self._closed]:
            hint = "a stream that is not used any more has proportion=0, or choose=0"
            raise UsageError(f"the state has stream {_named(gone[0])}, and the data set does not: {hint}")
        if is_within and (change := self._change(streams, state)):
            hint = f"streams and amounts can change where an epoch begins: use a state from the end of epoch {epoch}"
            raise UsageError(f"the state is of another order: {change}; {hint}")
        return partial(self.resume, streams, epoch)

    def resume(self, streams: StreamStates, epoch: int) -> None:
        """Resume in an epoch: each stream continues after the samples that were used of it.

        Args:
            streams: streams of a state.
        """
        used = [streams[stream.name][2] if stream.name in streams else 0 for stream in self._all]
        if epoch < self.begun[0] or used != [*self._used(epoch).values()]:
            self.begun[:] = [epoch, *used]
        self._closed.update({name: digest for name, (digest, _, _) in streams.items() if digest})

    def _change(self, streams: StreamStates, state: Mapping[str, Any]) -> str | None:
        """Return what is different from a state, or None."""
        for stream in self._all:
            if stream.name not in streams:
                return f"stream {_named(stream.name)} is new"
            if (found := streams[stream.name][1]) != stream.text:
                return f"stream {_named(stream.name)} has {_long(stream.text)}, and had {_long(found)}"
        for name, value, default in (("epoch_size", self._size, None), ("stratified", self._stratified, True)):
            if (found := state.get(name, default)) != value:
                return f"{name} is {value!r}, and was {printable(repr(found))}"
        return None


def _named(name: str) -> str:
    return repr(printable(name))


def _long(text: str) -> str:
    """Return the amount of a state as it is given, such as ``proportion=0.7``."""
    return printable(f"{_LONG[text[0]]}={text[1:]}" if text[:1] in _LONG else repr(text))


def parsed_streams(streams: object) -> StreamStates:
    """Return the streams of a state: digest, amount and number of used samples, by name.

    Raises:
        UsageError: these are not the streams of a mixture.
    """
    if not isinstance(streams, Mapping):
        raise UsageError("the state is of a data set without streams, and this one has streams")
    found = {}
    for name, each in streams.items():
        is_stream = isinstance(name, str) and isinstance(each, (list, tuple)) and len(each) == 3
        if not is_stream or not _AMOUNT.fullmatch(str(each[1])):
            raise UsageError(f"stream {printable(repr(name))} of the state is {printable(repr(each))}")
        found[name] = str(each[0]), str(each[1]), checked_number(f"samples of stream {_named(name)}", each[2])
    return found
