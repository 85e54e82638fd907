"""Samples of tar shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.names.outputnames import has_index_name, index_url
from tarkit.names.url import display_name
from tarkit.readers.ranged import RangedDataReader, blocks_from
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.read import placed_samples, read_members
from tarkit.samples.sample import Sample, group_by_keys, key_rule
from tarkit.store.entries import exists, identify
from tarkit.store.rangedfile import offsets_from
from tarkit.store.read import open_read, reading

_INDEXES_HELD = 16


class TarDataReader(RangedDataReader):
    """A reader of tar shards; each record is a dict of field -> bytes, ``__key__`` and ``__url__``.

    A shard with an index beside it (``tarkit index``) is counted by its index, and only the bytes
    of a task are read from it.

    Args:
        rule: key rule, ``first-dot``, ``last-dot`` or a regular expression.
        index: use indexes. A stale one is an error (StaleIndexError).
    """

    every = 64
    takes_manifests = True

    def __init__(
        self,
        data_dir: str,
        records_per_task: int | None = None,
        rule: str = "first-dot",
        index: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._rule = key_rule(rule)
        self._use_index = index
        self._indexed: dict[str, IndexedShard] = {}
        """The shards that were read last."""

    def _counts_by_reading(self, url: str) -> bool:
        return not (self._use_index and has_index_name(url) and exists(index_url(url)))

    def count(self, url: str) -> int:
        # What an earlier file of this name had is no longer true.
        self._indexed.pop(url, None)
        self._indexes.pop(url, None)
        shard = self._open_indexed(url)
        return super().count(url) if shard is None else len(shard)

    def read(self, url: str, start: int, end: int) -> Iterator[Any]:
        shard = self._indexed.pop(url, None)
        if shard is not None and shard.identity != identify(url):
            shard = None  # it was touched: had its content changed, it would not be read
        if shard is None and url not in self._indexes:
            shard = self._open_indexed(url)
        if shard is None:
            return super().read(url, start, end)
        self._indexed[url] = shard
        while len(self._indexed) > _INDEXES_HELD:
            del self._indexed[next(iter(self._indexed))]
        return shard.samples(min(start, len(shard)), min(end, len(shard)))

    def _open_indexed(self, url: str) -> IndexedShard | None:
        return open_indexed(url, self._rule) if self._use_index else None

    def offsets(self, url: str) -> Iterator[int]:
        with open_read(url) as stream:
            for begin, _ in placed_samples(stream.read, url=stream.name, rule=self._rule):
                yield begin

    def read_from(self, url: str, offset: int) -> Iterator[Sample]:
        name = display_name(url)
        members = read_members(reading(blocks_from(url, offset)), url=name, rule=self._rule)
        with offsets_from(offset, url):
            yield from group_by_keys(members, url=name, rule=self._rule)
