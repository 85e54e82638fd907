"""Epochs in which samples come as often as their weights say, with or without replacement.

``docs/mixing.md`` describes both orders.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import frexp, inf, ldexp
from random import Random
from typing import Any

from tarkit.errors import DataError, TransformError, UsageError, printable
from tarkit.formats.tablefile import KINDS, table_kind, table_rows
from tarkit.names.url import display_name
from tarkit.trainers.order import BatchOrder, EpochOrder, OrderSettings, Place, hash_of
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.sharednumbers import checked_number
from tarkit.trainers.shares import golden_part

Weights = Callable[[str], float] | Mapping[str, float] | str | os.PathLike[str]
"""A function of a key, a mapping from keys, or a table with the columns ``key`` and ``weight``."""
_BITS = 40
"""Number of bits of the largest weight as a whole number."""
_DRAWN = 53
"""Number of bits of a random number."""


class SampleWeights:
    """Weights of all samples as whole numbers, in 8 bytes each, and sums of them.

    Args:
        samples: data set; the keys of all its indexes are read.
        weights: see :data:`Weights`.

    Raises:
        UsageError: a weight is missing, negative, infinite or not a number, or all are 0.
        DataError: the table is damaged, or has a key twice.
        TransformError: the function raised an exception.
    """

    def __init__(self, samples: ShardMap, weights: Weights) -> None:
        weigh = _function_of(weights)
        found = [
            array("d", [_weight(weigh, key, url) for key in samples.keys_of(shard)])
            for shard, url in enumerate(samples.urls)
        ]
        largest = max((max(each) for each in found if each), default=0.0)
        if not largest:
            raise UsageError("the weights of all samples are 0; one must be more")
        shift = _BITS - frexp(largest)[1]
        self._sums = [
            array("Q", accumulate(int(ldexp(weight, shift)) or int(weight > 0) for weight in each)) for each in found
        ]
        """For each shard, sums of the weights up to each of its samples."""
        self.bounds = list(accumulate((sums[-1] if sums else 0 for sums in self._sums), initial=0))
        """Sum of the weights of the shards before each, and of all."""

    @property
    def digest(self) -> str:
        """Digest of all weights."""
        found = blake2b(digest_size=4)
        for sums in self._sums:
            for total in sums:
                found.update(total.to_bytes(8, "big"))
        return found.hexdigest()

    def first_from(self, shard: int, total: int) -> int:
        """Return the first sample of a shard up to which the weights of all sum to ``total``."""
        return bisect_left(self._sums[shard], total - self.bounds[shard])

    def place(self, at: int) -> Place:
        """Return the sample that has a place in the sum of all weights."""
        shard = bisect_right(self.bounds, at) - 1
        return Place(shard, bisect_right(self._sums[shard], at - self.bounds[shard]))


class ShareOrder(EpochOrder):
    """The global batches of an epoch in which each sample comes by its share, rounded down or up.

    Args:
        weights: weights of the samples.
        samples: number of samples of the epoch.
    """

    def __init__(self, weights: SampleWeights, settings: OrderSettings, epoch: int, samples: int) -> None:
        self._weights, self._part = weights, golden_part(epoch)
        total = weights.bounds[-1]
        self._bounds = [((bound * samples << 32) // total + self._part) >> 32 for bound in weights.bounds]
        super().__init__([end - begin for begin, end in pairwise(self._bounds)], settings, epoch)

    def _place(self, position: int) -> Place:
        shard, number, filler = super()._place(position)
        wanted = ((self._bounds[shard] + number + 1) << 32) - self._part
        total = -(-wanted * self._weights.bounds[-1] // (self.samples << 32))
        return Place(shard, self._weights.first_from(shard, total), filler)


class DrawOrder(BatchOrder):
    """The global batches of an epoch of samples that are drawn one by one, with replacement.

    Args:
        weights, samples: see :class:`ShareOrder`.
    """

    def __init__(self, weights: SampleWeights, settings: OrderSettings, epoch: int, samples: int) -> None:
        self._weights, self.settings, self.epoch, self.samples = weights, settings, epoch, samples
        self.batches = samples // settings.batch

    def _slots(self, number: int, first: int, end: int) -> list[Place]:
        draw = Random(hash_of(self.settings.seed, self.epoch, "draw", number)).random
        drawn = [int(ldexp(draw(), _DRAWN)) for _ in range(end)]
        return [self._weights.place(each * self._weights.bounds[-1] >> _DRAWN) for each in drawn[first:]]


class Weighting:
    """The weighted epochs of a data set.

    Args:
        samples: data set.
        weights: see :data:`Weights`.
        replacement: samples are drawn one by one; False: each comes by its share.
        epoch_size: number of samples of an epoch; None: as many as the data set has.

    Raises:
        UsageError: an argument is not valid.
        DataError: the table of weights is damaged.
    """

    def __init__(
        self,
        samples: ShardMap,
        settings: OrderSettings,
        weights: Weights,
        *,
        replacement: bool,
        epoch_size: int | str | None,
    ) -> None:
        if replacement and settings.seed is None:
            raise UsageError("replacement=True draws the samples by chance, which shuffle=False does not")
        self._settings = settings
        self._order = DrawOrder if replacement else ShareOrder
        self.batches = settings.batches(
            len(samples) if epoch_size is None else checked_number("epoch_size", epoch_size, 1)
        )
        """Number of batches of each epoch."""
        self._weights = SampleWeights(samples, weights)
        self._text = f"{self._weights.digest} {self.batches * settings.batch}{' replacement' * replacement}"

    def order(self, epoch: int) -> BatchOrder:
        """Return the global batches of an epoch."""
        return self._order(self._weights, self._settings, epoch, self.batches * self._settings.batch)

    def state(self, epoch: int) -> dict[str, Any]:
        """Return its part of a state: a digest of the weights, and the number of samples."""
        return {"weights": self._text}

    def check(self, state: Mapping[str, Any], epoch: int, is_within: bool) -> Callable[[], None]:
        """Check that an epoch can resume from a state, and return a function that begins it.

        Raises:
            UsageError: the state is within the epoch, and has other weights or another number.
        """
        if is_within and state.get("weights") != self._text:
            hint = f"they can change where an epoch begins: use a state from the end of epoch {epoch}"
            raise UsageError(f"the state is of another order: weights, replacement or epoch_size are others; {hint}")
        return lambda: None


def _function_of(weights: Weights) -> Callable[[str], Any]:
    if isinstance(weights, (str, os.PathLike)):
        weights = _of_table(os.fspath(weights))
    if isinstance(weights, Mapping):
        return weights.get
    if not callable(weights):
        raise UsageError(f"weights is {printable(repr(weights))}; it must be a function, a mapping or a table")
    return weights


def _weight(weigh: Callable[[str], Any], key: str, url: str) -> float:
    try:
        weight = weigh(key)
    except Exception as error:
        raise TransformError(f"weights raised {printable(repr(error))}", url=url, key=key) from error
    try:
        found = float(weight)
        if isinstance(weight, (str, bytes)) or not 0 <= found < inf:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        text = f"weight of key {printable(key)!r} is {printable(repr(weight))}; it must be a number from 0 on"
        raise UsageError(f"{display_name(url)}: {text}") from None
    return found


def _of_table(url: str) -> dict[str, float]:
    """Return the weights of a table by key.

    Raises:
        UsageError: it is not a table.
        DataError: a column is missing, a key is repeated, or a weight is not a number.
    """
    kind = table_kind(url)
    if kind is None:
        raise UsageError(
            f"weights is {display_name(url)}; a table is a file named {', '.join(f'*{end}' for end in KINDS)}"
        )
    return dict(_rows(url, kind))


def _rows(url: str, kind: str) -> Iterator[tuple[str, float]]:
    def check(names: Iterable[str]) -> None:
        if missing := next((name for name in ("key", "weight") if name not in names), None):
            raise DataError(f"has no column {missing!r}; it has {printable(', '.join(names))}", url=display_name(url))

    seen: set[str] = set()
    for number, row in table_rows(url, kind, ["key", "weight"], check=check):
        key = str(row["key"])
        try:
            weight = float(row["weight"])
        except (TypeError, ValueError):
            found = printable(repr(row["weight"]))
            raise DataError(
                f"row {number}: weight is {found}; it must be a number", url=display_name(url), key=key
            ) from None
        if key in seen:
            raise DataError(f"row {number}: its key is that of an earlier row", url=display_name(url), key=key)
        seen.add(key)
        yield key, weight
