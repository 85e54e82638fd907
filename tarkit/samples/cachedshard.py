"""Read samples of a remote shard through a local cache of its parts."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import MissingInputError, StreamError
from tarkit.names.outputnames import index_url
from tarkit.names.url import display_name
from tarkit.samples.index import ShardIndex, decode_index
from tarkit.samples.indexedshard import IndexedShard, check_end, open_indexed
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.store.cache import Part, PartCache, range_part
from tarkit.store.rangedfile import RangedFile
from tarkit.store.ranges import Ranges

_MOST = 16 << 20
_END = 1 << 18
"""Size in bytes of the request for the end of a shard, unless its last member is longer."""


class CachedShard(IndexedShard):
    """A remote shard with a local cache of parts, each some consecutive samples.

    A part has the samples of a run, or fewer if they have more than about 16 MiB.

    Args:
        ranges: the shard, read by ranges.
        index: its index.
        rule: key rule.
        run: number of samples of a run.
        cache: cache that keeps the parts.
    """

    def __init__(self, ranges: Ranges, index: ShardIndex, rule: KeyRule, run: int, cache: PartCache) -> None:
        super().__init__(ranges.url, index, ranges.identity, rule)
        self._ranges, self._run, self._cache = ranges, run, cache
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
        part = self.part(first)
        self._cache.keep(part, lambda: self._ranges.read(part.start, part.start + part.size))

    def fetch_now(self, parts: Sequence[Part]) -> int | None:
        """Fetch and keep neighbouring parts by one request, and wait for no other process.

        It returns what :meth:`tarkit.store.cache.PartCache.keep_now` returns.

        Raises:
            StreamError: the parts cannot be read, or the shard was replaced.
        """
        return self._cache.keep_now(parts, self._ranges.read)

    def kept(self, number: int) -> Sample | None:
        """Return a sample from its part in the cache; None if the part is not there.

        Raises:
            IndexError: the shard has no sample of this number.
            StaleIndexError: the sample differs from the index.
            DataError: the shard is damaged.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        data = self._cache.read(self.part(self.first_of_part(number)), *self.index.span(number, number + 1))
        if data is None:
            return None
        self.reads.bytes += len(data)
        return self.sample_of(data, number)

    def part(self, first: int) -> Part:
        """Return the part that begins with sample ``first``."""
        return range_part(self.url, self.identity, *self.index.span(first, self.end_of_part(first)))

    def end_of_part(self, first: int) -> int:
        """Return the number of the sample after the part that begins with sample ``first``."""
        return min(first + self._length, first - first % self._run + self._run, len(self))


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
    try:
        shard, beside = Ranges(url), Ranges(index_url(url))
    except (MissingInputError, StreamError):
        return open_indexed(url, rule)
    if None in (*shard.identity, *beside.identity):
        return open_indexed(url, rule)
    part = range_part(url, shard.identity, 0, beside.identity.size or 0, "index", beside.identity.tag)
    compared: list[ShardIndex] = []

    def fetch() -> bytes:
        text = beside.read(0, part.size)
        compared.append(decode_index(text, display_name(beside.url), rule))
        check_end(RangedFile(url, ranges=shard, least=_END), compared[0], rule)
        return text

    text = None
    if rule is first_dot:
        # The end of a shard is compared with its index before the index is kept; the key rule
        # decides which members belong to samples.
        text = cache.read(part, 0, part.size)
        if text is None:
            cache.keep(part, fetch)
            text = None if compared else cache.read(part, 0, part.size)
    if text is not None:
        compared.append(decode_index(text, display_name(beside.url), rule))
    elif not compared:
        fetch()
    return CachedShard(shard, compared[0], rule, run, cache)
