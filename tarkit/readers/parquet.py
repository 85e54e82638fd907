"""Rows of Parquet files, read with pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tarkit.errors import DataError, TarkitError, library, printable
from tarkit.readers.files import FileDataReader
from tarkit.readers.reader import Metadata, column_names
from tarkit.store.rangedfile import RangedFile


class ParquetDataReader(FileDataReader):
    """Rows of Parquet files, each a dict of column -> value. Of a file, only the row groups of a task are read.
    Checksums of pages are verified, where the file has them.
    columns: which; None is all; ``a.b`` is the field b of the structure a.
    Raises: MissingExtraError: pyarrow is not installed. UsageError: an argument that this reader does not have.
    DataError (by its methods): a file is damaged, has none of a column that is named, or two columns of one name."""

    def __init__(
        self, data_dir: str, records_per_task: int | None = None, columns: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._columns = column_names(columns)

    @property
    def metadata(self) -> Metadata:
        """The columns of the first file."""
        for url in self.files():
            file = self._open(url)
            with _data_errors(url, "its columns cannot be read"):
                # Of a structure whose fields are named, the rows have these alone.
                schema = file.read_row_groups([], columns=self._columns).schema
            return Metadata(schema.names, {column.name: str(column.type) for column in schema})
        return Metadata()

    def count(self, url: str) -> int:
        return int(self._open(url).metadata.num_rows)

    def read(self, url: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        file = self._open(url)
        first = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > start and first < end:
                begin, stop = max(0, start - first), min(count, end - first)
                with _data_errors(url, f"row group {group} cannot be read"):
                    rows = file.read_row_group(group, columns=self._columns).slice(begin, stop - begin).to_pylist()
                yield from rows
            first += count

    def _open(self, url: str) -> Any:
        parquet = library("pyarrow.parquet", "reading Parquet", "parquet")
        with _data_errors(url, "is not a Parquet file that can be read"):
            file = parquet.ParquetFile(RangedFile(url), page_checksum_verification=True)
            names = file.schema_arrow.names
            paths = [file.schema.column(number).path for number in range(len(file.schema))]
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            # A row is a dict, which would have one of the two.
            raise DataError(f"has two columns {printable(twice)}", url=url)
        # pyarrow leaves out what a file does not have.
        for column in self._columns or ():
            if not any(path == column or path.startswith(f"{column}.") for path in paths):
                raise DataError(f"has no column {printable(column)}; it has {printable(', '.join(names))}", url=url)
        return file


@contextmanager
def _data_errors(url: str, what: str) -> Iterator[None]:
    """Errors of pyarrow, some of which are the system's classes, as those of damaged data."""
    arrow = library("pyarrow", "reading Parquet", "parquet")
    try:
        yield
    except TarkitError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{what}: {printable(' '.join(str(error).split()))}", url=url) from error
