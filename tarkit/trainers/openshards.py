"""The shards that a process has open, and the parts of remote ones that it has in the cache."""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from tarkit.errors import TarkitError
from tarkit.names.outputnames import is_packed_name
from tarkit.names.url import is_stream, local_path
from tarkit.samples.cachedshard import open_cached
from tarkit.samples.indexedshard import IndexedShard, ReadCounts, open_indexed
from tarkit.samples.sample import KeyRule, Sample
from tarkit.specs.manifest import ManifestShard
from tarkit.store.cache import PartCache
from tarkit.store.cachedparts import CachedParts, EpochParts
from tarkit.store.frames import DecodedFrames
from tarkit.store.packedfile import open_packed
from tarkit.store.waits import Workers
from tarkit.trainers.shardlist import AT_A_TIME, check_listed, without_index

_T = TypeVar("_T")
_SAMPLES_HELD = 2_000_000
_LEAST_HELD, _MOST_HELD = 256, 4096


class OpenShards:
    """The shards of a data set, each opened when the first of its samples is read.

    A sample is given as the number of its shard, and its number among all samples of the shard.

    Args:
        listed: the shards, see :func:`tarkit.trainers.shardlist.listed_shards`.
        rule, held, run, keep_unpacked: see :class:`tarkit.trainers.shardmap.ShardMap`.
        cache: cache for parts of remote shards; None: none.

    Attributes:
        cache: see above.
        remote: numbers of the shards that are read over a network.
        most_held: number of shards whose indexes are kept in memory.
        most_at_once: number of shards to open at a time, so that indexes do not fill the memory.
        reads: counts of this process's reads.
    """

    def __init__(
        self,
        listed: list[tuple[ManifestShard, str]],
        rule: KeyRule,
        *,
        held: int | None,
        cache: PartCache | None,
        run: int,
        keep_unpacked: bool,
    ) -> None:
        self._listed, self._rule, self._run, self._keep_unpacked = listed, rule, run, keep_unpacked
        self.cache = cache
        urls = [shard.url for shard, _ in listed]
        self.remote = {number for number, url in enumerate(urls) if local_path(url) is None and not is_stream(url)}
        mean = max(1, sum(shard.nsamples for shard, _ in listed) // max(1, len(listed)))
        self.most_held = held or min(max(_LEAST_HELD, _SAMPLES_HELD // mean), _MOST_HELD)
        self.most_at_once = max(1, min(AT_A_TIME, _SAMPLES_HELD // mean))
        self.reads = ReadCounts()
        self._open: OrderedDict[int, IndexedShard] = OrderedDict()
        self._files: OrderedDict[int, IndexedShard] = OrderedDict()
        """Shards that may have an open descriptor, the last used one at the end."""
        self._decoded = DecodedFrames()
        self._epoch = EpochParts()

    @property
    def usable_cache(self) -> PartCache | None:
        """Cache for the parts of remote shards; None if there is none, or no remote shard."""
        return self.cache if self.remote and self.cache is not None and not self.cache.closed else None

    def held(self, number: int) -> IndexedShard | None:
        """Return a shard that is open, or None."""
        return self._open.get(number)

    def get(self, number: int) -> IndexedShard:
        """Return a shard, which is opened if it is not; see :meth:`open`."""
        found = self._open.get(number)
        if found is None:
            opened = self.reads.fetched(self.open, number) if number in self.remote else self.open(number)
            found = self.hold(number, opened)
        else:
            self._open.move_to_end(number)
        self._files[number] = found
        self._files.move_to_end(number)
        if len(self._files) > _most_files():
            self._files.popitem(last=False)[1].release()
        return found

    def hold(self, number: int, shard: IndexedShard) -> IndexedShard:
        """Keep a shard open, which :meth:`open` returned."""
        self._open[number] = shard
        shard.reads = self.reads
        while len(self._open) > self.most_held:
            self._files.pop(self._open.popitem(last=False)[0], None)
        return shard

    def open(self, number: int) -> IndexedShard:
        """Open a shard; any thread may call it.

        Raises:
            UsageError: the shard has no index.
            DataError: it has other samples or bytes than were listed or counted.
            StreamError: it cannot be read.
        """
        url = self._listed[number][0].url
        keeps = number in self.remote or (self._keep_unpacked and is_packed_name(url))
        if keeps and self.cache is not None:
            found = open_cached(url, self._rule, self._run, self.cache, self._epoch, self._decoded)
        else:
            unpack = partial(open_packed, decoded=self._decoded)
            found = open_indexed(url, self._rule, check=False, unpack=unpack)
        if found is None:
            raise without_index(url)
        check_listed(found, *self._listed[number])
        return found

    def sample(self, shard: int, number: int) -> Sample:
        """Return a sample; see :meth:`IndexedShard.sample`."""
        found = self.get(shard)
        is_request = found.parts is None and shard in self.remote
        return self.reads.fetched(found.sample, number) if is_request else found.sample(number)

    def take(self, places: Sequence[tuple[int, int]]) -> list[Sample]:
        """Return samples; those of a local or cached shard are read together."""
        of_shard: dict[int, list[int]] = {}
        for at, (shard, _) in enumerate(places):
            of_shard.setdefault(shard, []).append(at)
        found: list[Sample] = [{}] * len(places)
        for shard, some in of_shard.items():
            if shard in self.remote and self.get(shard).parts is None:
                taken = [self.sample(*places[at]) for at in some]
            else:
                taken = self.get(shard).take([places[at][1] for at in some])
            for at, sample in zip(some, taken, strict=True):
                found[at] = sample
        return found

    def begin_epoch(self) -> None:
        """Allow each part to be fetched once more; see :meth:`EpochParts.begin`."""
        self._epoch.begin()

    def fetch(self, samples: Sequence[tuple[int, int]]) -> None:
        """Fetch the parts of samples in remote shards into the cache, some at a time.

        Errors are ignored here: the reading of the sample tries again, and raises them.
        """
        self.reads.fetched(self._fetch_parts, samples)

    def _fetch_parts(self, samples: Sequence[tuple[int, int]]) -> None:
        closed = {shard for shard, _ in samples if shard not in self._open}
        for number, shard in _attempted(self.open, [(number,) for number in closed]):
            self.hold(number[0], shard)
        missing = {
            (found.parts, part): None
            for shard, number in samples
            if (found := self._open.get(shard)) is not None and found.parts is not None
            for part in found.parts.missing(*found.index.span(number, number + 1))
        }
        _attempted(CachedParts.keep, list(missing))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_open": OrderedDict(),
            "_files": OrderedDict(),
            "_epoch": EpochParts(),
            "_decoded": DecodedFrames(),
        }


@cache
def _most_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if soft == resource.RLIM_INFINITY else min(1024, max(1, soft // 4))


def _attempted(call: Callable[..., _T], arguments: list[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], _T]]:
    """Yield the results of the calls that raise no error of tarkit, with their arguments.

    Several calls run at a time.
    """

    def attempt(each: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], _T]]:
        with suppress(TarkitError):
            return [(each, call(*each))]
        return []

    if len(arguments) < 2:
        return [found for each in arguments for found in attempt(each)]
    with Workers(min(AT_A_TIME, len(arguments)), "tarkit-fetch") as pool:
        return [found for each in pool.map(attempt, arguments) for found in each]
