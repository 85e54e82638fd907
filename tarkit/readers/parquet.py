"""Rows of Parquet files, read with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.formats.parquet import open_parquet, parquet_errors
from tarkit.readers.files import FileDataReader
from tarkit.readers.reader import Metadata, column_names


class ParquetDataReader(FileDataReader):
    """A reader of Parquet files; each record is a dict of column -> value.

    Only the row groups of a task are read from a file. Checksums of pages are verified if the file
    has them.

    Args:
        columns: names of the columns to read; None is all; ``a.b`` is the field b of the structure
            a.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UsageError: the reader does not have an argument.
        DataError: (from the methods) a file is damaged, lacks a named column, or has two columns of
            one name.
    """

    def __init__(
        self, data_dir: str, records_per_task: int | None = None, columns: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._columns = column_names(columns)

    @property
    def metadata(self) -> Metadata:
        """The columns of the first file."""
        for url in self.files():
            file = open_parquet(url, self._columns)
            with parquet_errors(url, "its columns cannot be read"):
                # Of a structure whose fields are named, the rows have these alone.
                schema = file.read_row_groups([], columns=self._columns).schema
            return Metadata(schema.names, {column.name: str(column.type) for column in schema})
        return Metadata()

    def count(self, url: str) -> int:
        return int(open_parquet(url, self._columns).metadata.num_rows)

    def read(self, url: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        file = open_parquet(url, self._columns)
        first = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > start and first < end:
                begin, stop = max(0, start - first), min(count, end - first)
                with parquet_errors(url, f"row group {group} cannot be read"):
                    rows = file.read_row_group(group, columns=self._columns).slice(begin, stop - begin).to_pylist()
                yield from rows
            first += count
