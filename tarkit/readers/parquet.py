"""Rows of Parquet files, read with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.errors import DataError, library
from tarkit.readers.files import FileDataReader
from tarkit.readers.reader import Metadata
from tarkit.store.rangedfile import RangedFile


class ParquetDataReader(FileDataReader):
    """Rows of Parquet files, each a dict of column -> value. Of a file, only the row groups of a task are read.
    columns: which; None is all. Raises: MissingExtraError: pyarrow is not installed."""

    def __init__(
        self, data_dir: str, records_per_task: int | None = None, columns: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._columns = None if columns is None else list(columns)

    @property
    def metadata(self) -> Metadata:
        """The columns of the first file."""
        for shard in self.create_shards():
            schema = _open(shard.name).schema_arrow
            names = [name for name in schema.names if self._columns is None or name in self._columns]
            return Metadata(names, {name: str(schema.field(name).type) for name in names})
        return Metadata()

    def count(self, url: str) -> int:
        return int(_open(url).metadata.num_rows)

    def read(self, url: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        file = _open(url)
        first = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > start and first < end:
                rows = file.read_row_group(group, columns=self._columns)
                yield from rows.slice(max(0, start - first), end - max(start, first)).to_pylist()
            first += count


def _open(url: str) -> Any:
    arrow = library("pyarrow", "reading Parquet", "parquet")
    parquet = library("pyarrow.parquet", "reading Parquet", "parquet")
    try:
        return parquet.ParquetFile(RangedFile(url))
    except arrow.ArrowInvalid as error:
        raise DataError(f"is not a Parquet file: {error}", url=url) from error
