"""Read and write Parquet files as rows of named values, with pyarrow.

The mapping of rows to samples: docs/formats/parquet.md.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tarkit.errors import DataError, EncodeError, TarkitError, TooLargeError, UsageError, printable
from tarkit.extras import library
from tarkit.formats.tally import DEFAULT_MEM, LARGER_MEM, Tally
from tarkit.names.url import display_name, local_path, reads_once
from tarkit.store.compression import compression_for_name
from tarkit.store.publish import FileWriter, PublishStream
from tarkit.store.rangedfile import BLOCK, RangedFile

SUFFIXES = (".parquet",)
KEY = "__key__"
"""The column with the key of a row."""

GROUP_BYTES = 32 << 20
"""Size of the values in bytes at which a row group is written."""
_BATCH_BYTES = 8 << 20
_LOCAL_READ = 1 << 18
_ROW_BYTES = 64
_OTHER = "leave it out with --columns, or make it bytes, text, numbers or lists of them first"


def looks_like(head: bytes) -> bool:
    """Return True if a file begins as a Parquet file that is not encrypted."""
    return head.startswith(b"PAR1")


@contextmanager
def parquet_errors(url: str, what: str) -> Iterator[None]:
    """Convert errors of pyarrow, some of which are OSError or ValueError, to DataError."""
    arrow = library("pyarrow", "reading Parquet", "parquet")
    try:
        yield
    except TarkitError:
        raise
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{what}: {printable(' '.join(str(error).split()))}", url=url) from error


def open_parquet(url: str, columns: Sequence[str] | None = None) -> Any:
    """Open a ``pyarrow.parquet.ParquetFile`` that verifies checksums of pages, if it has them.

    Args:
        url: path or URL of the file.
        columns: columns that it must have; ``a.b`` is the field b of the structure a.

    Raises:
        DataError: the file is not a Parquet file, lacks a column, or has two columns of one name.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    parquet = library("pyarrow.parquet", "reading Parquet", "parquet")
    with parquet_errors(url, "is not a Parquet file that can be read"):
        # Pages are read as they are needed; without a buffer, all of a column of a row group is.
        size = _LOCAL_READ if local_path(url) is not None else BLOCK
        reading = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": size}
        file = parquet.ParquetFile(RangedFile(url, least=size), **reading)
        names = file.schema_arrow.names
        paths = [file.schema.column(number).path for number in range(len(file.schema))]
    _refuse_twice(url, names)
    # pyarrow ignores columns that a file does not have.
    for column in columns or ():
        if not any(path == column or path.startswith(f"{column}.") for path in paths):
            raise DataError(f"has no column {printable(column)}; it has {printable(', '.join(names))}", url=url)
    return file


def _refuse_twice(url: str, names: Sequence[str]) -> None:
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        # A row is a dict, which would have only one of the two.
        raise DataError(f"has two columns {printable(twice)}", url=url)


def read_rows(source: str, *, columns: Sequence[str] | None = None, mem: int = DEFAULT_MEM) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file: column -> bytes, text, number, truth value or list.

    Nulls are left out; a column that is a structure becomes a column for each of its fields,
    ``a.b``.

    Args:
        source: path or URL of the file.
        columns: columns to read, besides ``__key__``; None: all.
        mem: largest size of a row group in bytes.

    Raises:
        DataError: the file is damaged, or a column has values of another type.
        TooLargeError: a row group has more than ``mem`` bytes.
        UsageError: the source can be read only once.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    file = _open_rows(source, columns)
    wanted = columns if columns is None or KEY not in file.schema_arrow.names else [*columns, KEY]
    schema = _flat(file.read_row_groups([], columns=wanted)).schema
    _refuse_twice(source, schema.names)
    for column in schema:
        is_bytes = _is(column.type, "binary", "large_binary", "fixed_size_binary", "binary_view")
        if column.name == KEY and not (is_bytes or _is_text(column.type)):
            raise DataError(f"column {KEY} is {printable(str(column.type))}; a key is text", url=source)
        if not (is_bytes or _is_value(column.type)):
            reason = f"column {printable(column.name)} is {printable(str(column.type))}, which a field cannot hold"
            raise DataError(reason, url=source, hint=_OTHER)
    for table in _tables(source, file, wanted, mem):
        for row in _flat(table).to_pylist():
            yield {name: value for name, value in row.items() if value is not None}


def read_sizes(source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str | None, int]]:
    """Yield (key, bytes of the values) of each row, with columns of any type.

    Values that are neither bytes nor text are measured as text.

    Raises:
        DataError: the file is damaged.
        TooLargeError: a row group is too large.
        UsageError: the source can be read only once.
    """
    for table in _tables(source, _open_rows(source, None), None, DEFAULT_MEM):
        with parquet_errors(source, "a value cannot be read"):
            rows = table.to_pylist()
        for row in rows:
            key = row.pop(KEY, None)
            values = (
                value if isinstance(value, bytes) else str(value).encode("utf-8", "replace") for value in row.values()
            )
            yield None if key is None else str(key), sum(map(len, values))


def parquet_columns(source: str) -> list[str]:
    """Return the names of the columns of a file.

    Raises:
        DataError: the file is not a Parquet file, or has two columns of one name.
        UsageError: the source can be read only once.
    """
    names: list[str] = _open_rows(source, None).schema_arrow.names
    return names


def read_values(source: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the columns of each row; structures are dicts, null is None.

    Memory does not depend on the size of a row group.

    Raises:
        DataError: the file is damaged, or lacks a column.
        UsageError: the source can be read only once.
        StreamError: the file cannot be read.
    """
    file = _open_rows(source, columns)
    for table in _tables(source, file, columns, sys.maxsize):
        # By column, which is twice as fast as by row.
        with parquet_errors(source, "a value cannot be read"):
            values = [table.column(name).to_pylist() for name in columns]
        yield from zip(*values, strict=True)


def _open_rows(source: str, columns: Sequence[str] | None) -> Any:
    if reads_once(source):
        raise UsageError(f"{display_name(source)} can be read only once, and Parquet is read from its end; name a file")
    return open_parquet(source, columns)


def _tables(source: str, file: Any, columns: Sequence[str] | None, mem: int) -> Iterator[Any]:
    """Yield the row groups in order, in parts of some rows."""
    arrow = library("pyarrow", "reading Parquet", "parquet")
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        size, count = group.total_byte_size, group.num_rows
        if size > mem:
            reason = f"row group {number} has {size} bytes, and mem allows {mem}"
            raise TooLargeError(reason, url=source, hint=f"read it with {LARGER_MEM}")
        rows = max(1, min(count, 1024, _BATCH_BYTES * count // max(1, size)))
        with parquet_errors(source, f"row group {number} cannot be read"):
            for batch in file.iter_batches(rows, row_groups=[number], columns=columns):
                yield arrow.Table.from_batches([batch])


def _flat(table: Any) -> Any:
    """Return the table with a column for each field of its structures."""
    while any(_is(column.type, "struct") for column in table.schema):
        table = table.flatten()
    return table


def _is(kind: Any, *names: str) -> bool:
    """Return True if an Arrow type is one of the named types; older releases lack some of them."""
    types = library("pyarrow.types", "reading Parquet", "parquet")
    return any(hasattr(types, f"is_{name}") and getattr(types, f"is_{name}")(kind) for name in names)


def _is_text(kind: Any) -> bool:
    return _is(kind, "string", "large_string", "string_view")


def _is_value(kind: Any) -> bool:
    """Return True if a type has text, numbers, truth values, or lists of them as values.

    Structures are allowed only in lists.
    """
    if _is(kind, "dictionary", "list", "large_list", "fixed_size_list"):
        return _is_value(kind.value_type)
    if _is(kind, "struct"):
        return all(_is_value(kind.field(number).type) for number in range(kind.num_fields))
    return _is_text(kind) or _is(kind, "integer", "float32", "float64", "boolean", "null")


class RowWriter(FileWriter):
    """A writer of rows to one Parquet file.

    The same rows give the same bytes, with the same release of pyarrow.

    A context manager: on a clean exit the file is published whole under its name; on an exception
    nothing appears there. Pages are compressed with snappy, and have checksums. The first row group
    determines the columns and their types.

    Args:
        target: a path, URL, ``-`` or ``pipe:COMMAND``.
        columns: columns to write, besides ``__key__``; None: those of the first row group, sorted
            by name.
        metadata: function from the schema of pyarrow to the metadata of the file.

    Raises:
        StreamError: the file cannot be written.
        TemporaryStreamError: the file cannot be written now.
        UsageError: the protocol of the URL is not known, or the name asks for compression.
        MissingExtraError: pyarrow is not installed.
        EncodeError: (from close) no row has one of ``columns``.
    """

    _unit = "row"

    def __init__(
        self, target: str, *, columns: Sequence[str] | None = None,
        metadata: Callable[[Any], Mapping[str, str]] = lambda schema: {},
    ) -> None:  # fmt: skip
        self._metadata = metadata
        self._arrow = library("pyarrow", "writing Parquet", "parquet")
        self._parquet = library("pyarrow.parquet", "writing Parquet", "parquet")
        self._columns = columns if columns is None else tuple(name for name in columns if name != KEY)
        self._takes_any = columns is None
        self._unseen = set(self._columns or ())
        self._rows: list[Mapping[str, Any]] = []
        self._size = 0
        self._writer: Any = None
        if compression_for_name(target) is not None:
            raise UsageError(f"{display_name(target)}: Parquet compresses its pages; let the name end with .parquet")
        super().__init__(target, compression=None)
        self._sink = _Sink(self._out)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one row: column -> bytes, text, number, truth value, list or structure.

        ``__key__`` is text, and a structure is a dict of bytes and text.

        Args:
            row: column -> value; a column that the row lacks is null.

        Raises:
            EncodeError: the row has a column that earlier row groups do not have, or values of
                another type.
        """
        if self._room < 0:
            self._out.write(b"")
        self._unseen -= row.keys()
        if self._takes_any and self._writer is not None and (new := row.keys() - {KEY, *(self._columns or ())}):
            reason = f"column {printable(min(new))} is not in rows before it, whose columns are written already"
            raise EncodeError(reason, url=self.name, key=row.get(KEY), hint="name all columns, with --columns A,B")
        self._rows.append(row)
        self._written.count += 1
        self._size += _ROW_BYTES + sum(map(_size_of, row.values()))
        if self._size >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        rows, self._rows, self._size = self._rows, [], 0
        if self._columns is None:
            self._columns = tuple(sorted({name for row in rows for name in row} - {KEY}))
        schema = None if self._writer is None else self._writer.schema
        arrays = {name: self._array(name, rows, schema and schema.field(name).type) for name in (KEY, *self._columns)}
        table = self._arrow.table(arrays)
        if self._writer is None:
            schema = table.schema.with_metadata(self._metadata(table.schema) or None)
            self._writer = self._parquet.ParquetWriter(self._sink, schema, write_page_checksum=True)
        self._writer.write_table(table, row_group_size=max(1, len(rows)))

    def _array(self, name: str, rows: Sequence[Mapping[str, Any]], kind: Any) -> Any:
        """Make the array of a column.

        Args:
            name: name of the column.
            rows: rows of the group.
            kind: type of the column; None: the type of the values in these rows.
        """
        values = [row.get(name) for row in rows]
        if kind is None and all(value is None for value in values):
            kind = self._arrow.string() if name == KEY else self._arrow.binary()
        try:
            name.encode()
            array = self._arrow.array(values, kind)
            # Values that do not fit the type may be cut to it: 1.5 to 1, an object to the keys of
            # the other objects.
            is_same = all(isinstance(value, (bytes, type(None))) for value in values) or (
                _as_json(array.to_pylist()) == _as_json(values)
            )
            if is_same:
                return array
            what = f"its values are not all {array.type}"
        except (self._arrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            what = printable(str(error))
        keys = f"rows {printable(str(rows[0].get(KEY)))!r} to {printable(str(rows[-1].get(KEY)))!r}"
        hint = "a column has values of one type; write the fields as bytes, without --typed"
        raise EncodeError(f"column {printable(name)}, {keys}: {what}", url=self.name, hint=hint)

    def _write_rest(self) -> None:
        if self._unseen and (self._rows or self._writer is not None):
            raise EncodeError(f"no row has the column {printable(min(self._unseen))}", url=self.name)
        if self._rows or self._writer is None:
            self._write_group()
        self._writer.close()

    def discard(self) -> None:
        super().discard()
        if self._writer is not None and self._writer.is_open:
            # It would write its end when it is garbage-collected.
            self._sink.is_open = False
            with suppress(self._arrow.ArrowException, OSError, ValueError):
                self._writer.close()


def _size_of(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_size_of, value.values()))
    return len(value) if isinstance(value, (bytes, str)) else 0


def _as_json(values: list[Any]) -> str:
    """Return text for comparison, because 1, 1.0 and true are equal in Python.

    Raises:
        ValueError: a value is not finite.
    """
    return json.dumps(values, sort_keys=True, allow_nan=False, default=bytes.hex)


class _Sink(io.RawIOBase):
    """The file object that pyarrow writes to.

    Attributes:
        is_open: if False, all bytes are dropped.
    """

    def __init__(self, out: PublishStream) -> None:
        self._stream = out
        self.is_open = True

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._stream.write(data) if self.is_open else len(data)

    def tell(self) -> int:
        return self._stream.bytes_written
