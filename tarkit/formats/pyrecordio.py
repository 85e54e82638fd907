"""The classes of the former package pyrecordio, over :mod:`tarkit.formats.recordio`.

They are those of the module ``recordio`` over Go's library (pyrecordio from 0.0.5 on), which can no
longer be installed. Paths may be URLs of any place of the store, and files of both dialects are
read.

    from tarkit.formats import pyrecordio as recordio
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import TarkitError
from tarkit.formats.recordio import RecordIndex, RecordWriter, read_index, read_records


class RecordIOError(TarkitError, RuntimeError):
    """A file cannot be read: the RuntimeError that the original classes raise.

    The error of tarkit, with its URL and offset, is the ``__cause__``.
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
    """A writer of one file in Go's dialect, which appears when the writer is closed.

    Args:
        path: path or URL of the file.

    Raises:
        UsageError: the path cannot be written to.
        StreamError: the file cannot be written.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)


class Index:
    """The index of a file: its chunks and their records.

    Args:
        path: path or URL of the file.

    Raises:
        RuntimeError: the file is missing, cannot be read, or is damaged.
    """

    def __init__(self, path: str) -> None:
        with _as_runtime_error():
            self.index: RecordIndex = read_index(path)

    def num_records(self) -> int:
        """Return the number of records in the file."""
        return self.index.records

    def close(self) -> None:
        """Do nothing: an index keeps no file open."""


class Scanner:
    """A reader of the records of a file, one by one.

    Args:
        path: path or URL of the file.
        start: number of the first record, from 0; a negative number is 0.
        len: number of records; a negative number: all up to the end.
        index: index of this file; with it only the chunks that are needed are read.

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
        """Return the next record; None at the end, or when the scanner is closed.

        An empty record is ``b""``.

        Raises:
            RuntimeError: the file is damaged. The original returned None, as at the end.
        """
        with _as_runtime_error():
            return next(self._records, None)

    def close(self) -> None:
        """End the scan. A second call does nothing."""
        self._records = iter(())
