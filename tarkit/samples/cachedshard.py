"""A remote shard whose samples come from parts that are kept on this machine."""

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
    """A shard that is read by parts of some consecutive samples: those of a run, or fewer, of about
    16 MiB at most.

    Args:
        run: samples of a run.
        cache: where parts are kept.
    """

    def __init__(
        self, url: str, index: ShardIndex, identity: Identity, rule: KeyRule, run: int, cache: PartCache
    ) -> None:
        super().__init__(url, index, identity, rule)
        self._run, self._cache = run, cache
        mean = index.span(0, len(index))[1] // max(1, len(index))
        self._length = max(1, min(run, _MOST // max(1, mean)))

    def first_of_part(self, number: int) -> int:
        """The first sample of the part that has a sample.

        Runs begin a part.
        """
        inside = number % self._run
        return number - inside % self._length

    def fetch(self, first: int) -> None:
        """Keep the part that begins with a sample.

        Raises:
            StreamError: it cannot be read, or was replaced.
        """
        part = self._part(first)
        self._cache.keep(part, partial(self._fetched, part))

    def kept(self, number: int) -> Sample | None:
        """One sample, out of its part; None: that is not here.

        Raises: IndexError.

        Raises:
            StaleIndexError, DataError: as of an :class:`IndexedShard`.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        data = self._cache.read(self._part(self.first_of_part(number)), *self.index.span(number, number + 1))
        return None if data is None else self.sample_of(data, number)

    def bytes_of_part(self, first: int) -> int:
        """Length of the part that begins with a sample."""
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
    """A remote shard with the index that is beside it, of which a copy is kept, too.

    See :func:`open_indexed`.

    What has no version or time is read without the cache: it could not be known that it was
    replaced.
    """
    index = index_url(url)
    try:
        before = identify(url), identify(index)
    except (MissingInputError, StreamError):
        return open_indexed(url, rule)
    if None in (*before[0], *before[1]):
        return open_indexed(url, rule)
    # A shard's end is held against its index before that is kept; which members are samples depends
    # on the rule.
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
