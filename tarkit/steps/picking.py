"""Pick samples by their keys: find them in indexes or headers, and read only these."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from tarkit.errors import MissingInputError, RepeatedKeyError, printable
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.names.url import display_name
from tarkit.samples.indexedshard import IndexedShard
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.steps.lookup import fresh_indexed, indexed_by_headers, samples_at
from tarkit.store.waits import Workers


def pick_samples(
    keys: Iterable[str], urls: Iterable[str], *, rule: KeyRule = first_dot, parallel: int = 1,
    tally: Tally | None = None, stale: list[str] | None = None,
    unindexed: Callable[[str, bool], object] = lambda name, whole: None,
) -> Iterator[Sample]:  # fmt: skip
    """Yield the samples with these keys, in the order of the shards; each must be there once.

    All keys are looked up before the first sample is read, but for those that only a compressed
    shard or a stream may have.

    Args:
        urls: paths and URLs of shards.
        parallel: number of shards to look into, or of reads of a remote shard, at once.
        tally: filled with counts of the shards that are read.
        stale: filled with the names of indexes that were not used, since they are stale.
        unindexed: called with the name of each shard without a fresh index, and True if all of it
            is read, not only its headers.

    Raises:
        MissingInputError: no shard has a key, or a shard does not exist.
        RepeatedKeyError: two samples have a key.
        DataError: a shard is damaged.
        StreamError, TemporaryStreamError: a shard cannot be read.
    """
    wanted: dict[str, str | None] = dict.fromkeys(keys)
    tally = Tally() if tally is None else tally
    found: list[_Found] = []
    with Workers(parallel, "tarkit-pick") as pool:
        for each in pool.ahead(partial(_find, frozenset(wanted), rule), urls, 2 * parallel):
            tally.add(each.tally)
            if stale is not None:
                stale += each.stale
            if not each.has_index:
                unindexed(display_name(each.url), each.shard is None)
            for key in each.keys:
                _note(wanted, key, each.url)
            found += [each] if each.keys or each.shard is None else []
    if all(each.shard is not None for each in found):
        _check_all(wanted)
    for each in found:
        if each.shard is not None:
            yield from samples_at(each.shard, each.keys.values(), parallel=parallel)
            continue
        for sample in read_samples([each.url], literal=True, split=True, rule=rule, tally=tally, large=KeepInFiles()):
            if sample["__key__"] in wanted:
                _note(wanted, sample["__key__"], each.url)
                yield sample
    _check_all(wanted)


@dataclass
class _Found:
    """The wanted keys of a shard -> their numbers; without ``shard``, it must be read."""

    url: str
    shard: IndexedShard | None
    has_index: bool
    keys: dict[str, int]
    stale: list[str]
    tally: Tally


def _find(wanted: Container[str], rule: KeyRule, url: str) -> _Found:
    stale, tally = list[str](), Tally()
    shard = fresh_indexed(url, rule, stale)
    has_index = shard is not None
    if shard is None:
        shard = indexed_by_headers(url, rule, tally)
    keys = {key: number for number, key in enumerate(shard.keys() if shard is not None else ()) if key in wanted}
    if shard is not None:
        shard = IndexedShard(url, shard.index.only(keys.values()), shard.identity, rule)
    return _Found(url, shard, has_index, keys, stale, tally)


def _note(wanted: dict[str, str | None], key: str, url: str) -> None:
    """Note where a key is.

    Raises:
        RepeatedKeyError: it is in two places.
    """
    if (before := wanted[key]) is not None:
        reason = f"the key is in {display_name(before)} too, so it does not name one sample"
        raise RepeatedKeyError(reason, url=display_name(url), key=key, hint="name only the shard that is meant")
    wanted[key] = url


def _check_all(wanted: dict[str, str | None]) -> None:
    missing = [key for key, url in wanted.items() if url is None]
    if missing:
        more = f" and {len(missing) - 1} more keys" if len(missing) > 1 else ""
        raise MissingInputError(f"no shard has the key {printable(repr(missing[0]))}{more}")
