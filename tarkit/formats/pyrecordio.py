"""The classes of two Python packages for RecordIO that can no longer be installed, over :mod:`tarkit.formats.recordio`.

``Writer``, ``Index`` and ``Scanner`` are those of the module ``recordio`` over Go's library (pyrecordio from 0.0.5 on);
``File`` is that of pyrecordio up to 0.0.4. Paths may be URLs of any place of the store, and both dialects are read.

    from tarkit.formats import pyrecordio as recordio
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tarkit.errors import DataError, TarkitError
from tarkit.formats.recordio import RecordIndex, RecordWriter, read_index, read_records
from tarkit.formats.recordio.chunk import PYRECORDIO


class RecordIOError(TarkitError, RuntimeError, ValueError):
    """A file cannot be read. It is what the original classes raise: a RuntimeError, or of File also a ValueError.
    The error of tarkit, with its URL and offset, is the ``__cause__``."""

    def __init__(self, error: TarkitError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code


@contextmanager
def _as_runtime_error(kind: type[TarkitError]) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise RecordIOError(error) from error


class Writer(RecordWriter):
    """Writes a file of Go's dialect. The file appears when it is closed.

    Raises:
        UsageError, StreamError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)


class Index:
    """Which records are in which chunk of a file.

    Raises:
        RuntimeError: it is missing, cannot be read, or is damaged.
    """

    def __init__(self, path: str) -> None:
        with _as_runtime_error(TarkitError):
            self.index: RecordIndex = read_index(path)

    def num_records(self) -> int:
        """How many records the file has."""
        return self.index.records

    def close(self) -> None:
        """Nothing: an index keeps no file open."""


class Scanner:
    """Reads the records of a file one by one.

    Args:
        path: of the file.
        start: number of the first record; below 0: the first one.
        len: how many records; below 0: all up to the end.
        index: of this file; with it only the chunks that are needed are read.

    Raises:
        RuntimeError: the file is missing or cannot be read.
    """

    def __init__(self, path: str, start: int = 0, len: int = -1, index: Index | None = None) -> None:
        start = max(start, 0)
        with _as_runtime_error(TarkitError):
            self._records = read_records(
                path, start=start, stop=start + len if len >= 0 else None, index=(index or Index(path)).index
            )

    def record(self) -> bytes | None:
        """The next record, ``b""`` if it is empty; None at the end, or when the scanner is closed.

        Raises:
            RuntimeError: the file is damaged. The original returned None, as at the end.
        """
        with _as_runtime_error(TarkitError):
            return next(self._records, None)

    def close(self) -> None:
        """End the scan. Again: nothing."""
        self._records = iter(())


class File:
    """A file of pyrecordio's dialect, to be read or written. Files of Go's dialect are read too.

    What is written appears when the file is closed; after an exception in a ``with`` block, it does not.

    Args:
        file_path: a path, or a URL of any place of the store.
        mode: ``r`` or ``read``, ``w`` or ``write``.
        max_chunk_size: bytes of records in a chunk. A record that is larger is a chunk of its own.
        compressor: snappy, none or gzip. The original wrote snappy, whatever it was given.
        encoder: makes bytes of what ``write`` is given. decoder: makes of bytes what is read.

    Raises:
        ValueError: another mode; the file is damaged. FileNotFoundError: no such file.
    """

    def __init__(
        self,
        file_path: str,
        mode: str,
        *,
        max_chunk_size: int = 1024,
        compressor: str = "snappy",
        encoder: Callable[[Any], bytes] | None = None,
        decoder: Callable[[bytes], Any] | None = None,
    ) -> None:
        if mode not in ("r", "read", "w", "write"):
            raise ValueError(f"the mode is 'r', 'read', 'w' or 'write', not {mode!r}")
        self._path = file_path
        self._encoder = encoder
        self._decoder = decoder
        self._index: RecordIndex | None = None
        self._output: RecordWriter | None = None
        if mode.startswith("w"):
            self._output = RecordWriter(
                file_path, compression=compressor, max_chunk_size=max_chunk_size, dialect=PYRECORDIO
            )
        else:
            with _as_runtime_error(DataError):
                self._index = read_index(file_path)

    def write(self, record: Any) -> None:
        """Add a record, through the encoder.

        Raises:
            ValueError: it is not bytes. RuntimeError: the file was opened to be read.
        """
        if self._output is None:
            raise RuntimeError("the file is not open for writing")
        self._output.write(self._encoder(record) if self._encoder else record)

    def get(self, index: int) -> Any:
        """A record by its number from 0, through the decoder.

        Raises:
            IndexError: no such record. RuntimeError: the file is damaged, or was opened to be written.
        """
        for record in self.get_reader(index, index + 1):
            return record
        raise IndexError(f"no record {index}; the file has {self.count()}")

    def get_reader(self, start: int = 0, end: int | None = None) -> Iterator[Any]:
        """The records from ``start`` up to, not including, ``end``, through the decoder.

        Raises:
            RuntimeError: the file is damaged, or was opened to be written.
        """
        count = self.count()
        end = count if end is None else min(end, count)
        records = self._read(start, end) if 0 <= start < end else iter(())
        return map(self._decoder, records) if self._decoder else records

    def count(self) -> int:
        """How many records the file has.

        Raises:
            RuntimeError: it was opened to be written.
        """
        if self._index is None:
            raise RuntimeError("the file is not open for reading")
        return self._index.records

    def close(self) -> None:
        """End reading; publish what was written. Again: nothing."""
        self._index = None
        if self._output is not None:
            self._output.close()

    def __iter__(self) -> Iterator[Any]:
        return self.get_reader()

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._output is not None:
            self._output.discard()
        else:
            self.close()

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        with _as_runtime_error(DataError):
            yield from read_records(self._path, start=start, stop=end, index=self._index)
