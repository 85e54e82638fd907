"""Keyword arguments of readers of batches, and which of them go together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tarkit.errors import UsageError
from tarkit.samples.sample import KeyRule
from tarkit.service.client import ShardClient
from tarkit.trainers.choice import SubsetOptions
from tarkit.trainers.sharednumbers import checked_number
from tarkit.trainers.streams import Stream

_AHEAD = 1 << 30
"""Default of ``ahead`` in bytes."""
OF_SHARD_MAP = "rule", "cache", "cache_size", *SubsetOptions.__annotations__
"""Arguments that are those of the ShardMap, if one is given."""
_ORDER_OPTIONS = "shuffle, seed, lanes, turns, run, block, equalize, rank and world"


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
            batch fetches its own. It is an error with ``service``, or without a cache. Default: 1
            GiB.
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
    ahead: int | None


class SourceOptions(EpochOptions, total=False):
    """Keyword arguments of readers of batches that learn which batches the loop has used.

    Attributes:
        service: ``"HOST:PORT"`` of a shard service, or a
            :class:`~tarkit.service.client.ShardClient`: ranges of samples come from there, and
            ``batch`` is the number of samples of a batch of this process. The service decides on
            the order and the number of epochs; options of the order, ``rank`` and ``world`` are
            errors. Default: none.
        audit: folder of this training, where each process writes which samples its loop was given;
            ``tarkit audit`` proves from it that each was used once. Default: none.
        log_every: seconds between two lines of the logger ``tarkit.trainers``, of level INFO: how
            fast the samples come, for which share of its time the loop waits, and what limits it.
            Default: 0, no lines.
    """

    service: str | ShardClient | None
    audit: str | os.PathLike[str] | None
    log_every: float | None


def checked_ahead(ahead: int | None, has_cache: bool, has_service: bool) -> int:
    """Return the number of bytes to fetch ahead.

    Raises:
        UsageError: it is not a number, or has no effect with the other arguments.
    """
    if ahead is None:
        return _AHEAD
    checked = checked_number("ahead", ahead)
    if checked and has_service:
        raise UsageError("ahead= is not for service=: the parts of a batch are fetched when the service names it")
    if checked and not has_cache:
        raise UsageError("ahead= fetches into a cache, and there is none: pass cache=, or to a ShardMap its own cache=")
    return checked


def check_epoch_options(
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


def check_service_options(
    streams: list[Stream] | None, weights: object, on_error: str, has_order: bool, audit: object
) -> None:
    """Check that no argument is given that has no meaning with a service.

    Args:
        has_order: an argument of the order, ``rank`` or ``world`` is given.

    Raises:
        UsageError: an argument has no meaning with a service.
    """
    if streams is not None or weights is not None:
        raise UsageError("streams and weights are not for service=: the service decides on the samples")
    if on_error != "raise":
        raise UsageError("on_error='count' is not for service=: the service lists the shards that fail")
    if has_order:
        raise UsageError(f"{_ORDER_OPTIONS} are not for service=: tarkit serve --shuffle has its order")
    if audit is not None:
        raise UsageError("audit= is not for service=: the service's own counts show what was acknowledged")
