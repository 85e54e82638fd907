"""Lists of keys, of any length, in bounded memory."""

from __future__ import annotations

import csv
import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any

from tarkit.errors import DataError, TarkitError, UsageError, counted, printable, quoted
from tarkit.formats.parquet import read_rows
from tarkit.formats.textrows import text_lines, text_rows
from tarkit.names.url import display_name
from tarkit.store.fieldfile import FieldFile
from tarkit.store.read import open_read

IN_MEMORY = 200_000
"""Number of keys that stay in memory; digests of the others are sorted on disk."""
_RUN = 500_000
_DIGEST = 16
_LONGEST = 1 << 20
_TABLE = re.compile(r"(?P<url>.+\.(?P<kind>csv|tsv|jsonl|parquet)(?:\.(?:gz|zst|bz2|xz|lz4))?)(?::(?P<column>[^/]+))?")


class KeyList:
    """The keys in a file, which remembers those that were asked for.

    Args:
        source: path or URL of a list, with a key on each line; or of a table, and its column:
            ``data.csv:id``, with ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``.

    Raises:
        UsageError: a table is named without its column.
        DataError: the file is not such a list or table.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read, or there is no room for its keys on the disk.
    """

    def __init__(self, source: str) -> None:
        self._first: dict[str, bool] = {}
        self._others: _SortedDigests | None = None
        for key in _keys_in(source):
            if len(self._first) < IN_MEMORY:
                self._first[key] = False
            elif key not in self._first:
                self._others = self._others or _SortedDigests()
                self._others.add(_digest(key))
        if self._others is not None:
            self._others.sort()

    def __contains__(self, key: str) -> bool:
        if key in self._first:
            self._first[key] = True
            return True
        return self._others is not None and self._others.find(_digest(key))

    def not_found(self) -> tuple[int, list[str]]:
        """Return the number of keys that no sample had, and a few of them."""
        missing = [key for key, found in self._first.items() if not found]
        return len(missing) + (0 if self._others is None else self._others.not_found()), missing[:3]


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


class _SortedDigests:
    """Digests in files without names: runs, of which sort() makes one sorted file."""

    def __init__(self) -> None:
        self._held: set[bytes] = set()
        self._parts: list[list[FieldFile]] = [[] for _ in range(256)]  # of the runs, by the first byte
        self._last: FieldFile | None = None
        self._begins = [0]  # number of digests whose first byte is below 0, 1, …

    def add(self, digest: bytes) -> None:
        self._held.add(digest)
        if len(self._held) >= _RUN:
            self._write_run()

    def _write_run(self) -> None:
        for first, digests in groupby(sorted(self._held), itemgetter(0)):
            self._last = FieldFile.keep([b"".join(digests)], after=self._last)
            self._parts[first].append(self._last)
        self._held.clear()

    def sort(self) -> None:
        """Merge the runs; after it, digests are found."""
        self._write_run()
        self._map = FieldFile.keep(self._merged()).mapped()
        self._parts.clear()
        self._seen = bytearray(self._begins[-1] // 8 + 1)

    def _merged(self) -> Iterator[bytes]:
        for parts in self._parts:
            data = b"".join(part.read() for part in parts)
            found = {data[at : at + _DIGEST] for at in range(0, len(data), _DIGEST)}
            self._begins.append(self._begins[-1] + len(found))
            yield b"".join(sorted(found))

    def _at(self, number: int) -> bytes:
        return self._map[number * _DIGEST : (number + 1) * _DIGEST]

    def find(self, digest: bytes) -> bool:
        begin, end = self._begins[digest[0] : digest[0] + 2]
        number = begin + bisect_left(range(begin, end), digest, key=self._at)
        if number == end or self._at(number) != digest:
            return False
        self._seen[number >> 3] |= 1 << (number & 7)
        return True

    def not_found(self) -> int:
        return self._begins[-1] - sum(map(int.bit_count, self._seen))


def _keys_in(source: str) -> Iterator[str]:
    """Yield the keys of a list, or of a column of a table."""
    table = _TABLE.fullmatch(source)
    if table is not None and table["column"] is None:
        raise UsageError(f"{quoted(source)} is a table; name the column of its keys: {quoted(source + ':COLUMN')}")
    url, row = source if table is None else table["url"], 0
    try:
        for value in _lines(url) if table is None else _column(url, *table.group(2, 3)):
            key = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
            if key is not None and (not isinstance(key, str) or len(key) > _LONGEST or "\0" in key):
                raise ValueError("it is not a key")
            if key:
                yield key
            row += 1
    except TarkitError:
        raise
    except (ValueError, TypeError, csv.Error) as error:
        raise DataError(f"row {row + 1}: {printable(str(error))}", url=display_name(url)) from None


def _lines(url: str, kind: str = "") -> Iterator[bytes]:
    """Yield the lines of a text, or the rows of CSV, without their ends."""
    with open_read(url) as stream:
        blocks = iter(lambda: stream.read(1 << 20), b"")
        for line in (row for _, row in text_rows(blocks, stream.name)) if kind == "csv" else text_lines(blocks):
            yield line.rstrip(b"\r\n")


def _column(url: str, kind: str, column: str) -> Iterator[Any]:
    """Yield the values of a column; the rows of text files are counted from 1, with the header."""
    if kind == "parquet":
        yield from (row.get(column) for row in read_rows(url, columns=[column]))
        return
    at: Any = None
    for line in _lines(url, kind):
        text = line.decode("utf-8-sig")
        row: Any = json.loads(text) if kind == "jsonl" else text.split("\t")
        if kind == "csv":
            row = next(csv.reader([text]))
        if (kind == "jsonl" or at is None) and column not in row:
            raise DataError(
                f"has no column {printable(column)}; it has {printable(', '.join(map(str, row)))}",
                url=display_name(url),
            )
        if kind == "jsonl":
            yield row[column]
        elif at is None:
            at = row.index(column)
            yield None
        elif at >= len(row):
            raise ValueError(f"it has {counted(len(row), 'column')}")
        else:
            yield row[at]
