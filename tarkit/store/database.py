"""A temporary database, to sort and to find what may be too much for memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tarkit.errors import StreamError

_SETTINGS = """
PRAGMA cache_size = -65536;  -- KiB
PRAGMA journal_mode = OFF;
"""


class TemporaryDatabase:
    """A database of SQLite in a file without a name; a small one is only in memory.

    Args:
        tables: SQL that makes its tables.

    Raises:
        StreamError: (also from the methods) there is no room for it on the disk.
    """

    def __init__(self, tables: str) -> None:
        with _reported():
            self._connection = sqlite3.connect("")
            self._connection.executescript(_SETTINGS + tables)

    def add(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement for each of several rows of values."""
        with _reported():
            self._connection.executemany(statement, rows)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with _reported():
            yield from self._connection.execute(query)

    def change(self, statement: str, *values: Any) -> int:
        """Run a statement, and return the number of rows that it changed."""
        with _reported():
            return self._connection.execute(statement, values).rowcount

    def close(self) -> None:
        """Remove the database."""
        self._connection.close()


@contextmanager
def _reported() -> Iterator[None]:
    """Convert errors of SQLite within the context."""
    try:
        yield
    except sqlite3.Error as error:
        hint = "set TMPDIR to a folder on a disk with room"
        raise StreamError(f"a temporary database cannot be written: {error}", hint=hint) from error
