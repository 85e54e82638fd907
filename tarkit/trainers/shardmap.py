"""Samples of a data set of shards by their number and by their key, through the indexes beside the shards."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from tarkit.errors import DataError, MissingInputError, StreamError, TemporaryStreamError, UsageError, counted
from tarkit.samples.index import count_of_index
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.manifest import ManifestShard, is_manifest, read_manifest
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.specs.outputnames import index_url
from tarkit.specs.shardspec import expand
from tarkit.store.url import display_name
from tarkit.store.waits import Workers

_AT_A_TIME = 8


class ShardMap:
    """A map-style data set: ``len(it)`` samples, ``it[number]`` and ``it[key]``. Only the bytes of a sample are read.

    It can be passed to other processes; each opens shards for itself, when it reads the first sample of them.

    Args:
        urls: a path, URL or shard spec, or several; each shard has an index beside it (``tarkit index``). A name that
            ends in ``.json`` is that of a manifest (``tarkit index --manifest``), which lists shards and their samples:
            then nothing else is read to open the data set; without one, the first line of each index is.
        rule: key rule of the samples.
        held: shards that are kept open, with their indexes in memory.

    Raises:
        UsageError: a shard has no index, or none is named.
        DataError: a manifest, or an index, is damaged. What reading them raises.

    The first sample that is read of a shard raises UsageError if the shard has no index, StaleIndexError if that is of
    another shard, DataError if it is damaged, or if the shard has other samples or bytes than were listed or counted.

    >>> ShardMap("train-{0000..0147}.tar")[31_000]["jpg"]  # doctest: +SKIP
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        rule: str | KeyRule = first_dot,
        held: int = 256,
    ) -> None:
        self._rule = key_rule(rule)
        self._held = held
        self._open: OrderedDict[int, IndexedShard] = OrderedDict()
        self._numbers: dict[str, int] = {}
        named = list(_listed(urls))
        with Workers(_AT_A_TIME, "tarkit-counts") as pool:
            self._listed = list(pool.map(_counted, named))
        self.urls = [shard.url for shard, _ in self._listed]
        self.counts = [shard.nsamples for shard, _ in self._listed]
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
                raise _without_index(url)
            _check(found, *self._listed[number])
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


def _listed(urls: str | os.PathLike[str] | Iterable[str]) -> Iterator[tuple[ManifestShard | str, str]]:
    """The shards, those of a manifest as it lists them, each with what its number of samples is taken from."""
    for spec in [urls] if isinstance(urls, (str, os.PathLike)) else urls:
        name = os.fspath(spec)
        if is_manifest(name):
            yield from ((shard, display_name(name)) for shard in read_manifest(name))
        else:
            yield from ((url, "the index that was there when the data set was opened") for url in expand(name))


def _counted(named: tuple[ManifestShard | str, str]) -> tuple[ManifestShard, str]:
    shard, source = named
    if isinstance(shard, str):
        try:
            return ManifestShard(shard, count_of_index(shard)), source
        except TemporaryStreamError:
            raise
        except (MissingInputError, StreamError):
            # Stores that do not report what is missing refuse access to it.
            raise _without_index(shard) from None
    return shard, source


def _without_index(url: str) -> UsageError:
    make = f"tarkit index {display_name(url)}"
    return UsageError(f"{display_name(url)} has no index {display_name(index_url(url))}: make it by {make}")


def _check(shard: IndexedShard, listed: ManifestShard, source: str) -> None:
    """Raises: DataError: a shard is not as it was listed."""
    index = display_name(index_url(shard.url))
    for what, found, wanted in (
        (f"samples by {index}", len(shard), listed.nsamples),
        ("bytes", shard.identity.size, listed.filesize),
    ):
        if wanted not in (None, found):
            hint = "make index and manifest anew: tarkit index --manifest; then open the data set again"
            raise DataError(f"it has {found} {what}, and {wanted} by {source}", url=shard.url, hint=hint)
