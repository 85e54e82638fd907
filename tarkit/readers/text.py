"""Rows of CSV and other text files."""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from tarkit.errors import DataError
from tarkit.formats.textrows import text_rows
from tarkit.readers.ranged import RangedDataReader, blocks_from
from tarkit.readers.reader import Metadata


class TextDataReader(RangedDataReader):
    """A reader of CSV files (RFC 4180); each row is the str in the file, without its line end.

    A row continues over line breaks in quotes. Empty lines are not rows, and a UTF-8 byte order
    mark at the beginning of a file is skipped.

    Args:
        filename: a file, folder or shard spec.
        header: the first row of each file has the names of the columns, and is not a record.
    """

    def __init__(self, filename: str, records_per_task: int | None = None, header: bool = False, **kwargs: Any) -> None:
        super().__init__(filename, records_per_task, **kwargs)
        self._header = header

    @property
    def metadata(self) -> Metadata:
        """Names of the columns, if the files have a header: those of the first file with content.

        Raises:
            DataError: the first row is not CSV in UTF-8.
        """
        for url in self.files() if self._header else ():
            with closing(_rows(url, 0)) as rows:
                for _, row in rows:
                    try:
                        return Metadata(next(csv.reader([row.decode()])))
                    except (UnicodeDecodeError, csv.Error) as error:
                        raise DataError(f"the names of its columns cannot be read: {error}", url=url) from error
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
        rows = _rows(url, offset)
        return islice(rows, 1, None) if self._header and not offset else rows


def _rows(url: str, offset: int) -> Generator[tuple[int, bytes], None, None]:
    yield from text_rows(blocks_from(url, offset), url, offset)
