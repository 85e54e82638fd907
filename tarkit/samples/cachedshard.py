"""Read samples of a remote shard through a local cache of its parts."""

from __future__ import annotations

from functools import partial

from tarkit.errors import MissingInputError, StreamError
from tarkit.names.outputnames import index_url
from tarkit.names.url import display_name
from tarkit.samples.index import ShardIndex, decode_index
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.store.cache import Part, PartCache, range_part
from tarkit.store.entries import Identity, check_same, identify
from tarkit.store.read import read_range

_MOST = 16 << 20


class CachedShard(IndexedShard):
    """A remote shard with a local cache of parts, each some consecutive samples.

    A part has the samples of a run, or fewer if they have more than about 16 MiB.

    Args:
        url: URL of the shard.
        index: its index.
        identity: size and tag of the shard.
        rule: key rule.
        run: number of samples of a run.
        cache: cache that keeps the parts.
    """

    def __init__(
        self, url: str, index: ShardIndex, identity: Identity, rule: KeyRule, run: int, cache: PartCache
    ) -> None:
        super().__init__(url, index, identity, rule)
        self._run, self._cache = run, cache
        mean = index.span(0, len(index))[1] // max(1, len(index))
        self._length = max(1, min(run, _MOST // max(1, mean)))

    def first_of_part(self, number: int) -> int:
        """Return the number of the first sample in the part that has sample ``number``.

        A part does not extend over the end of a run.
        """
        inside = number % self._run
        return number - inside % self._length

    def fetch(self, first: int) -> None:
        """Fetch and keep the part that begins with sample ``first``.

        Raises:
            StreamError: the part cannot be read, or the shard was replaced.
        """
        part = self._part(first)
        self._cache.keep(part, partial(self._fetched, part))

    def kept(self, number: int) -> Sample | None:
        """Return a sample from its part in the cache; None if the part is not there.

        Raises:
            IndexError: the shard has no sample of this number.
            StaleIndexError: the sample differs from the index.
            DataError: the shard is damaged.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        data = self._cache.read(self._part(self.first_of_part(number)), *self.index.span(number, number + 1))
        if data is None:
            return None
        self.reads.bytes += len(data)
        return self.sample_of(data, number)

    def bytes_of_part(self, first: int) -> int:
        """Return the size in bytes of the part that begins with sample ``first``."""
        return self._part(first).size

    def _part(self, first: int) -> Part:
        end = min(first + self._length, first - first % self._run + self._run, len(self))
        return range_part(self.url, self.identity, *self.index.span(first, end))

    def _fetched(self, part: Part) -> bytes:
        size = self.identity.size or 0
        data = read_range(self.url, part.start, part.start + part.size, size=size)
        check_same(self.url, self.identity)
        return data


def open_cached(url: str, rule: KeyRule, run: int, cache: PartCache) -> IndexedShard | None:
    """Open a remote shard with the index beside it, and keep a copy of that index.

    Like :func:`open_indexed`, it returns None if there is no index. A shard without a version or
    time is read without the cache, because a replaced one could not be detected.

    Args:
        url: URL of the shard.
        rule: key rule.
        run: number of samples of a run.
        cache: cache that keeps the parts and the index.
    """
    index = index_url(url)
    try:
        before = identify(url), identify(index)
    except (MissingInputError, StreamError):
        return open_indexed(url, rule)
    if None in (*before[0], *before[1]):
        return open_indexed(url, rule)
    # The end of a shard is compared with its index before the index is kept; the key rule decides
    # which members belong to samples.
    part = range_part(url, before[0], 0, before[1].size or 0, "index", before[1].tag)
    text = cache.read(part, 0, part.size) if rule is first_dot else None
    if text is not None:
        return CachedShard(url, decode_index(text, display_name(index), rule), before[0], rule, run, cache)
    shard = open_indexed(url, rule)
    if shard is None or shard.identity != before[0]:
        return shard
    text = shard.index.encode()
    if rule is first_dot and len(text) == part.size and identify(index) == before[1]:
        cache.keep(part, partial(bytes, text))
    return CachedShard(url, shard.index, shard.identity, rule, run, cache)
