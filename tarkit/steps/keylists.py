"""Lists of keys, of any length, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from tarkit.errors import DataError, UsageError, printable, quoted
from tarkit.formats.tablefile import table_kind, table_rows
from tarkit.formats.textrows import text_lines
from tarkit.names.url import display_name
from tarkit.store.database import TemporaryDatabase
from tarkit.store.read import open_read

IN_MEMORY = 200_000
"""Number of keys that stay in memory; digests of the others are sorted on disk."""
_TABLES = """
CREATE TABLE listed (digest BLOB);
CREATE TABLE keys (digest BLOB PRIMARY KEY, found INTEGER) WITHOUT ROWID;
"""
_LONGEST = 1 << 20


class KeyList:
    """The keys in a file, which remembers those that were asked for.

    Args:
        source: path or URL of a list, with a key on each line; or of a table, and its column:
            ``data.csv:id``, with ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``. Or the keys
            themselves.

    Attributes:
        url: path or URL of the file; "" without one.

    Raises:
        UsageError: a table is named without its column, or a key is not a text.
        DataError: the file is not such a list or table.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read, or there is no room for its keys on the disk.
    """

    def __init__(self, source: str | Iterable[str]) -> None:
        self.url = file_of_keys(source) if isinstance(source, str) else ""
        keys = _keys_in(source) if isinstance(source, str) else map(_checked_key, source)
        self._first: dict[str, bool] = {}
        for key in keys:
            self._first[key] = False
            if len(self._first) == IN_MEMORY:
                break
        self._others = TemporaryDatabase(_TABLES)
        others = ((_digest(key),) for key in keys if key not in self._first)
        self._others.add("INSERT INTO listed VALUES (?)", others)
        self._number = self._others.change("INSERT OR IGNORE INTO keys SELECT digest, 0 FROM listed ORDER BY digest")

    def __contains__(self, key: str) -> bool:
        if key in self._first:
            self._first[key] = True
            return True
        found = "UPDATE keys SET found = 1 WHERE digest = ?"
        return self._number > 0 and self._others.change(found, _digest(key)) > 0

    def not_found(self) -> tuple[int, list[str]]:
        """Return the number of keys that no sample had, and a few of them."""
        missing = [key for key, found in self._first.items() if not found]
        ((others,),) = self._others.rows("SELECT count(*) FROM keys WHERE NOT found")
        return len(missing) + others, missing[:3]


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"{printable(repr(key))} is not a key, which is a text")
    return key


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def listed_keys(words: Iterable[str]) -> Iterator[str]:
    """Yield keys; a word ``@FILE`` stands for the keys in that file, as :class:`KeyList` has it.

    Raises:
        DataError: the file is not a list of keys.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
    """
    for word in words:
        yield from _keys_in(word[1:]) if word.startswith("@") else [word]


def file_of_keys(source: str) -> str:
    """Return the path or URL of a list of keys, without the column of a table."""
    colons = (at for at, character in enumerate(source) if character == ":" and table_kind(source[:at]) is not None)
    return source[: next(colons, None)]


def _keys_in(source: str) -> Iterator[str]:
    """Yield the keys of a list, or of a column of a table."""
    url = file_of_keys(source)
    kind = table_kind(url)
    if kind is not None and url == source:
        raise UsageError(f"{quoted(source)} is a table; name the column of its keys: {quoted(source + ':COLUMN')}")
    try:
        for row, value in enumerate(_lines(url), 1) if kind is None else _column(url, kind, source[len(url) + 1 :]):
            key = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            key = str(key) if type(key) is int else key
            if key is not None and (not isinstance(key, str) or len(key) > _LONGEST or "\0" in key):
                raise DataError(f"row {row}: it is not a key", url=display_name(url))
            if key:
                yield key
    except DataError as error:
        if kind is not None:
            error.hint = None  # it would name options for the table of tarkit create
        raise


def _lines(url: str) -> Iterator[bytes]:
    """Yield the lines of a text without their ends, and without a byte order mark."""
    with open_read(url) as stream:
        mark = b"\xef\xbb\xbf"
        for line in text_lines(iter(lambda: stream.read(1 << 20), b"")):
            yield line.removeprefix(mark).rstrip(b"\r\n")
            mark = b""


def _column(url: str, kind: str, column: str) -> Iterator[tuple[int, Any]]:
    """Yield (number of the row, value of a column)."""

    def check(names: Iterable[str]) -> None:
        if column not in names:
            reason = f"has no column {printable(column)}; it has {printable(', '.join(names))}"
            raise DataError(reason, url=display_name(url))

    for number, row in table_rows(url, kind, [column], check=check):
        yield number, row[column]
