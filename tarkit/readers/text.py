"""Rows of CSV and other text files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.errors import DataError
from tarkit.formats.textrows import text_rows
from tarkit.readers.ranged import RangedDataReader, blocks_from
from tarkit.readers.reader import Metadata


class TextDataReader(RangedDataReader):
    """Rows of CSV files (RFC 4180), each a str as it is in the file, without its line end.

    A row goes on over line breaks in quotes. Empty lines are not rows.

    Args:
        filename: a file, folder or shard spec.
        header: whether the first row of each file has the names of the columns; it is not a record then.
    """

    def __init__(self, filename: str, records_per_task: int | None = None, header: bool = False, **kwargs: Any) -> None:
        super().__init__(filename, records_per_task, **kwargs)
        self._header = header

    @property
    def metadata(self) -> Metadata:
        """The names of the columns, of the first file with rows, if it has a header."""
        if self._header:
            for shard in self.create_shards():
                row = next(text_rows(blocks_from(shard.name, 0), shard.name))[1]
                return Metadata(next(csv.reader([row.decode()])))
        return Metadata()

    def offsets(self, url: str) -> Iterator[int]:
        return (offset for offset, _ in self._records(url, 0))

    def read_from(self, url: str, offset: int) -> Iterator[tuple[int, bytes]]:
        return self._records(url, offset)

    def read(self, url: str, start: int, end: int) -> Iterator[str]:
        for _, row in super().read(url, start, end):
            try:
                yield row.decode()
            except UnicodeDecodeError as error:
                raise DataError(f"a row is not UTF-8: {error}", url=url) from error

    def _records(self, url: str, offset: int) -> Iterator[tuple[int, bytes]]:
        rows = text_rows(blocks_from(url, offset), url, offset)
        return islice(rows, 1, None) if self._header and not offset else rows
