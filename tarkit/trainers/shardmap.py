"""Samples of a data set of shards by their number and by their key, through the indexes beside the shards."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from tarkit.errors import DataError, UsageError, counted
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.specs.outputnames import index_url
from tarkit.specs.shardspec import expand
from tarkit.store.url import display_name


class ShardMap:
    """A map-style data set: ``len(it)`` samples, ``it[number]`` and ``it[key]``. Only the bytes of a sample are read.

    It can be passed to other processes; each opens shards for itself.

    Args:
        urls: a path, URL or shard spec, or several; each shard has an index beside it (``tarkit index``).
        rule: key rule of the samples.
        held: shards that are kept open, with their indexes in memory.

    Raises:
        UsageError: a shard has no index, or there is no shard.
        StaleIndexError, DataError: an index is of another shard, or is damaged.

    >>> ShardMap("train-{0000..0147}.tar")[31_000]["jpg"]  # doctest: +SKIP
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        rule: str | KeyRule = first_dot,
        held: int = 256,
    ) -> None:
        self.urls = list(expand(urls))
        self._rule = key_rule(rule)
        self._held = held
        self._open: OrderedDict[int, IndexedShard] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self.counts = [len(self._shard(number)) for number in range(len(self.urls))]
        """Samples of each shard."""
        self._ends = list(accumulate(self.counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, wanted: int | str) -> Sample:
        """One sample.

        Raises:
            IndexError: there are not so many. KeyError: no sample has this key.
            DataError: several samples have this key; or what reading them raises.
        """
        number = self._number(wanted) if isinstance(wanted, str) else wanted
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {wanted} of {counted(len(self), 'sample')}")
        shard = bisect_right(self._ends, number)
        return self.sample(shard, number - self._ends[shard] + self.counts[shard])

    def sample(self, shard: int, number: int) -> Sample:
        """A sample by the number of its shard and its number in it; see :meth:`IndexedShard.sample`."""
        return self._shard(shard).sample(number)

    def _shard(self, number: int) -> IndexedShard:
        found = self._open.get(number)
        if found is None:
            url = self.urls[number]
            found = open_indexed(url, self._rule)
            if found is None:
                make = f"tarkit index {display_name(url)}"
                raise UsageError(f"{display_name(url)} has no index {display_name(index_url(url))}: make it by {make}")
            self._open[number] = found
            while len(self._open) > self._held:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(number)
        return found

    def _number(self, key: str) -> int:
        if not self._numbers:
            for shard in range(len(self.urls)):
                begin = self._ends[shard] - self.counts[shard]
                for number, found in enumerate(self._shard(shard).keys(), begin):
                    if found in self._numbers:
                        self._numbers.clear()
                        url = display_name(self.urls[shard])
                        raise DataError("another shard has this key, too", url=url, key=found, hint="ask by number")
                    self._numbers[found] = number
        return self._numbers[key]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict(), "_numbers": {}}
