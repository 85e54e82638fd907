"""Samples of tar shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.readers.ranged import RangedDataReader, blocks_from, offsets_from
from tarkit.samples.read import placed_samples, read_members
from tarkit.samples.sample import Sample, group_by_keys, key_rule
from tarkit.store.read import open_read, reading


class TarDataReader(RangedDataReader):
    """Samples of tar shards, each a dict of field -> bytes with ``__key__`` and ``__url__``.
    rule: key rule, ``first-dot``, ``last-dot`` or a regular expression."""

    every = 64

    def __init__(
        self, data_dir: str, records_per_task: int | None = None, rule: str = "first-dot", **kwargs: Any
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._rule = key_rule(rule)

    def offsets(self, url: str) -> Iterator[int]:
        with open_read(url) as stream:
            for begin, _ in placed_samples(stream.read, url=stream.name, rule=self._rule):
                yield begin

    def read_from(self, url: str, offset: int) -> Iterator[Sample]:
        members = read_members(reading(blocks_from(url, offset)), url=url, rule=self._rule)
        with offsets_from(offset, url):
            yield from group_by_keys(members, url=url, rule=self._rule)
