"""Open a shard whose content, index and table of frames a cache of this machine keeps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from tarkit.errors import CompressionError, MissingInputError, StreamError
from tarkit.names.outputnames import index_url, is_packed_name
from tarkit.names.url import display_name, local_path
from tarkit.samples.index import ShardIndex, decode_index
from tarkit.samples.indexedshard import IndexedShard, check_end, is_last_damaged, open_indexed
from tarkit.samples.sample import KeyRule, first_dot
from tarkit.store.cache import PartCache, range_part
from tarkit.store.cachedparts import CachedParts, EpochParts
from tarkit.store.frames import DecodedFrames
from tarkit.store.packedfile import open_packed
from tarkit.store.rangedfile import RangedFile
from tarkit.store.ranges import Ranges

_MOST = 16 << 20
_LEAST_CONTENT = 1 << 20
_END = 1 << 18
"""Size in bytes of the request for the end of a shard, unless its last member is longer."""


def open_cached(
    url: str, rule: KeyRule, run: int, cache: PartCache, epoch: EpochParts, decoded: DecodedFrames
) -> IndexedShard | None:
    """Open a shard with the index beside it, and keep parts of it.

    A part has the samples of a run, or fewer if they have more than about 16 MiB. Of a compressed
    shard it has the content of whole frames, at least 1 MiB. Copies of a remote shard's index and
    table of frames are kept, too.

    Like :func:`open_indexed`, it returns None if there is no index. A shard without a version or
    time is read without the cache, because a replaced one could not be detected.

    Args:
        url: path or URL of the shard.
        rule: key rule.
        run: number of samples of a run.
        cache: cache that keeps the parts and the index.
        epoch: notes on the parts that this process has read.
        decoded: frames of compressed shards that were decoded before.
    """
    is_remote = local_path(url) is None
    uncached = partial(open_indexed, url, rule, check=False, unpack=partial(open_packed, decoded=decoded))
    beside = None
    try:
        beside = Ranges(index_url(url))
        packed = open_packed(url, decoded, cache if is_remote else None) if is_packed_name(url) else None
        shard = Ranges(url) if packed is None else packed.ranges
    except MissingInputError:
        if beside is None:
            return None
        raise
    except StreamError:
        return uncached()
    if None in (*shard.identity, *beside.identity):
        return uncached()
    part = range_part(url, shard.identity, 0, beside.identity.size or 0, "index", beside.identity.tag)
    found: list[ShardIndex] = []

    def fetch() -> bytes:
        text = beside.read(0, part.size)
        found.append(decode_index(text, display_name(beside.url), rule))
        check_end(packed or RangedFile(shard, least=_END), found[0], rule)
        return text

    # The end of a shard is compared with its index before the index is kept; the key rule decides
    # which members belong to samples.
    try:
        text = cache.get(part, fetch) if is_remote and rule is first_dot else fetch()
        index = found[0] if found else decode_index(text, display_name(beside.url), rule)
    except CompressionError:
        index = found[0]
        if packed is None or not is_last_damaged(packed, index):
            raise
    if packed is None:
        parts = CachedParts(cache, shard, _bounds_of_runs(index, run), shard.read, epoch)
    else:
        bounds = _bounds_of_frames(packed.frames.table.unpacked)
        parts = CachedParts(cache, shard, bounds, packed.bytes_between, epoch, "content")
    return IndexedShard(url, index, shard.identity, rule, packed, parts)


def _bounds_of_runs(index: ShardIndex, run: int) -> list[int]:
    mean = index.span(0, len(index))[1] // max(1, len(index))
    length = max(1, min(run, _MOST // max(1, mean)))
    runs = [range(begin, min(begin + run, len(index)), length) for begin in range(0, len(index), run)]
    return [index.span(0, first)[1] for first in (*chain(*runs), len(index))]


def _bounds_of_frames(unpacked: Sequence[int]) -> list[int]:
    bounds = [0]
    for offset in unpacked[1:-1]:
        if offset >= bounds[-1] + _LEAST_CONTENT:
            bounds.append(offset)
    return [*bounds, unpacked[-1]]
