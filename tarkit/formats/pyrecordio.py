"""The classes of a Python package for RecordIO that can no longer be installed, over
:mod:`tarkit.formats.recordio`.

They are those of the module ``recordio`` over Go's library (pyrecordio from 0.0.5 on). Paths may be
URLs of any place of the store, and files of both dialects are read.

    from tarkit.formats import pyrecordio as recordio
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import TarkitError
from tarkit.formats.recordio import RecordIndex, RecordWriter, read_index, read_records


class RecordIOError(TarkitError, RuntimeError):
    """A file cannot be read.

    It is what the original classes raise: a RuntimeError. The error of tarkit, with its URL and
    offset, is the ``__cause__``.
    """

    def __init__(self, error: TarkitError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code


@contextmanager
def _as_runtime_error() -> Iterator[None]:
    try:
        yield
    except TarkitError as error:
        raise RecordIOError(error) from error


class Writer(RecordWriter):
    """Writes a file of Go's dialect.

    The file appears when it is closed.

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
        with _as_runtime_error():
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
        with _as_runtime_error():
            self._records = read_records(
                path, start=start, stop=start + len if len >= 0 else None, index=(index or Index(path)).index
            )

    def record(self) -> bytes | None:
        """The next record, ``b""`` if it is empty; None at the end, or when the scanner is closed.

        Raises:
            RuntimeError: the file is damaged. The original returned None, as at the end.
        """
        with _as_runtime_error():
            return next(self._records, None)

    def close(self) -> None:
        """End the scan.

        Again: nothing.
        """
        self._records = iter(())
