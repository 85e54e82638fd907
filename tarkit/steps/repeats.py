"""Find what is repeated among many items: keys, or digests of contents; memory is bounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from tarkit.store.database import TemporaryDatabase

_IN_MEMORY = 500_000
"""Number of items that are held in memory, about 100 MB of keys."""
_TABLE = "CREATE TABLE items (item BLOB, shard INTEGER, offset INTEGER, key BLOB)"
_REPEATED = """
SELECT item, shard, offset, key FROM items
WHERE item IN (SELECT item FROM items GROUP BY item HAVING count(*) > 1) ORDER BY item, shard
"""


class ItemPlace(NamedTuple):
    """The place of an item: number of its shard, offset of its first header, key of its sample."""

    shard: int
    offset: int
    key: str


class Repeats:
    """The places of items, to find those that occur in several places.

    Above a number of items they are in a temporary database.

    Args:
        most: number of items that are held in memory.
    """

    def __init__(self, most: int = _IN_MEMORY) -> None:
        self._most = most
        self._held: list[tuple[int, Mapping[Any, Any]]] = []
        self._number = 0
        self._database: TemporaryDatabase | None = None

    def add(self, shard: int, places: Mapping[Any, Any]) -> None:
        """Add the items of a shard, each of which occurs once there.

        Args:
            shard: number of the shard.
            places: item -> offset, if the item is a key; else (offset, key).
        """
        self._held.append((shard, places))
        self._number += len(places)
        if self._number > self._most:
            self._spill()

    def __iter__(self) -> Iterator[tuple[ItemPlace, ItemPlace]]:
        """Yield (first place, other place) of the items that occur again."""
        if self._database is None and len(set().union(*(places for _, places in self._held))) == self._number:
            return
        for _, same in itertools.groupby(self._spill().rows(_REPEATED), itemgetter(0)):
            first, *others = map(_place, same)
            yield from ((first, other) for other in others)

    def _spill(self) -> TemporaryDatabase:
        self._database = self._database or TemporaryDatabase(_TABLE)
        for shard, places in self._held:
            self._database.add("INSERT INTO items VALUES (?, ?, ?, ?)", _rows(shard, places))
        self._held, self._number = [], 0
        return self._database


def _rows(shard: int, places: Mapping[Any, Any]) -> Iterator[tuple[bytes, int, int, bytes]]:
    for item, place in places.items():
        if isinstance(item, str):
            key = item.encode("utf-8", "surrogateescape")
            yield key, shard, place, key
        else:
            yield item, shard, place[0], place[1].encode("utf-8", "surrogateescape")


def _place(row: tuple[bytes, int, int, bytes]) -> ItemPlace:
    return ItemPlace(row[1], row[2], row[3].decode("utf-8", "surrogateescape"))
