"""Samples of tar shards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.readers.files import FileDataReader
from tarkit.readers.ranged import blocks_from, is_compressed, offsets_from
from tarkit.samples.read import placed_samples, read_members
from tarkit.samples.sample import Sample, group_by_keys, key_rule
from tarkit.store.read import open_read, reading

_EVERY = 64
"""Samples between two offsets that are remembered."""


class TarDataReader(FileDataReader):
    """Samples of tar shards, each a dict of field -> bytes with ``__key__`` and ``__url__``.

    Args:
        rule: key rule, ``first-dot``, ``last-dot`` or a regular expression.
    """

    def __init__(
        self, data_dir: str, records_per_task: int | None = None, rule: str = "first-dot", **kwargs: Any
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._rule = key_rule(rule)
        self._offsets: dict[str, list[int]] = {}
        """Of each shard that is not compressed: where every 64th sample begins."""

    def count(self, url: str) -> int:
        offsets, number = [], 0
        with open_read(url) as stream:
            found = placed_samples(stream.read, url=stream.name, rule=self._rule)
            for number, (begin, _) in enumerate(found, 1):
                if number % _EVERY == 1:
                    offsets.append(begin)
        if not is_compressed(url):
            self._offsets[url] = offsets
        return number

    def read(self, url: str, start: int, end: int) -> Iterator[Sample]:
        offsets = self._offsets.get(url, [])
        known = max(0, min(start // _EVERY, len(offsets) - 1))
        base = offsets[known] if known else 0
        members = read_members(reading(blocks_from(url, base)), url=url, rule=self._rule)
        with offsets_from(base, url):
            samples = group_by_keys(members, url=url, rule=self._rule)
            yield from islice(samples, start - known * _EVERY, None)
