"""Look up samples of a shard by number, through its index or an index made of its headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from tarkit.errors import DataError, TooLargeError
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.formats.tar.unread import open_headers
from tarkit.names.outputnames import has_index_name, index_url
from tarkit.names.url import display_name, local_path, reads_once
from tarkit.samples.index import index_of_headers
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.indexing import is_older
from tarkit.samples.sample import KeyRule, Sample
from tarkit.store.entries import check_same
from tarkit.store.read import read_range
from tarkit.store.waits import Workers


def fresh_indexed(url: str, rule: KeyRule, stale: list[str]) -> IndexedShard | None:
    """Open a shard with the index beside it; None if it has no fresh index.

    Args:
        url: path or URL of the shard.
        stale: the name of an index that does not fit its shard, or is older, is added to it.

    Raises:
        MissingInputError: the shard does not exist.
        StreamError: the shard cannot be read.
        TemporaryStreamError: the shard cannot be read now.
    """
    if reads_once(url) or not has_index_name(url):
        return None
    try:
        shard = open_indexed(url, rule)
        if shard is None or not is_older(index_url(url), url):
            return shard
    except DataError:
        # What is wrong with the shard itself is found when it is read.
        pass
    stale.append(display_name(index_url(url)))
    return None


def indexed_by_headers(url: str, rule: KeyRule, tally: Tally) -> IndexedShard | None:
    """Read the headers of a shard for an index in memory; None for a stream or a compressed shard.

    Args:
        url: path or URL of the shard.
        tally: filled with counts of skipped members.

    Raises:
        DataError: the shard is damaged, or has repeated keys or fields.
        MissingInputError: the shard does not exist.
        StreamError: the shard cannot be read.
        TemporaryStreamError: the shard cannot be read now.
    """
    if reads_once(url):
        return None
    with open_headers(url) as shard:
        if shard.identity is None:
            return None
        index = index_of_headers(shard, rule, tally)
    return IndexedShard(url, index, shard.identity, rule)


def samples_at(shard: IndexedShard, numbers: Iterable[int], *, parallel: int = 1) -> Iterator[Sample]:
    """Yield samples of a shard in the given order, with one read of a range for each.

    Args:
        numbers: numbers of samples, from 0.
        parallel: number of reads of a remote shard at once.

    Raises:
        TooLargeError: a sample has more than 1 GiB.
        StaleIndexError: a sample differs from the index.
        DataError: the shard is damaged, or was replaced.
        StreamError: the shard cannot be read.
        TemporaryStreamError: the shard cannot be read now.
    """
    if local_path(shard.url) is not None:
        yield from map(shard.sample, _checked(shard, numbers))
        shard.release()
        return
    with Workers(parallel, "tarkit-lookup") as pool:
        yield from pool.ahead(partial(_sample_at, shard), _checked(shard, numbers), 2 * parallel)
    check_same(shard.url, shard.identity)


def _sample_at(shard: IndexedShard, number: int) -> Sample:
    if shard.packed is not None:
        return shard.sample(number)
    data = read_range(shard.url, *shard.index.span(number, number + 1), size=shard.identity.size or 0)
    return shard.sample_of(data, number)


def _checked(shard: IndexedShard, numbers: Iterable[int]) -> Iterator[int]:
    for number in numbers:
        begin, end = shard.index.span(number, number + 1)
        if end - begin > DEFAULT_MEM:
            reason = f"this sample has {end - begin} bytes, more than one in memory may have ({DEFAULT_MEM})"
            member = shard.index[number][0].name
            raise TooLargeError(reason, url=display_name(shard.url), member=member, hint="extract it with tar")
        yield number
