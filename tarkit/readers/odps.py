"""Rows of ODPS (MaxCompute) tables, read with pyodps over the table tunnel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tarkit.errors import DataError, MissingInputError, ReplacedError, StreamError, printable
from tarkit.extras import library
from tarkit.readers.reader import (
    ANEW,
    AbstractDataReader,
    Metadata,
    Shard,
    check_arguments,
    column_names,
    in_task_order,
    ranges,
    task_shard,
)
from tarkit.store.faults import is_temporary
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry

T = TypeVar("T")


class ODPSDataReader(AbstractDataReader):
    """A reader of one table; each row is a list of text, with None for NULL.

    A read that is interrupted resumes at its row; a task never gets fewer rows than it asks for,
    nor one twice.

    Args:
        table: name of the table, in ``project`` or as PROJECT.TABLE.
        access_id, access_key: credentials of the account.
        endpoint, tunnel_endpoint: URLs; None is the service's own.
        partition: partition such as ``day=20200101``; None for a table without partitions.
        columns: names of the columns; None is all.
        retry: policy for retries of a request.

    Raises:
        MissingExtraError: pyodps is not installed.
        UsageError: an argument is unknown to this reader.
    """

    def __init__(
        self,
        table: str,
        records_per_task: int | None = None,
        *,
        project: str,
        access_id: str,
        access_key: str,
        endpoint: str | None = None,
        tunnel_endpoint: str | None = None,
        partition: str | None = None,
        columns: Sequence[str] | None = None,
        retry: Retry = DEFAULT_RETRY,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(self, records_per_task, kwargs)
        odps = library("odps", "reading ODPS tables", "odps")
        # Of its own retries, those of a busy tunnel cannot be switched off.
        odps.options.retry_times = 0
        self._errors = library("odps.errors", "reading ODPS tables", "odps")
        self._own_project, _, self._table_name = table.rpartition(".")
        self._odps = odps.ODPS(access_id, access_key, project, endpoint=endpoint, tunnel_endpoint=tunnel_endpoint)
        self._name = f"odps://{self._own_project or project}/{self._table_name}"
        self._partition, self._columns = partition, column_names(columns)
        self._counted: int | None = None
        """Number of rows when the shards were created."""
        self._records_per_task, self._retry, self.table = records_per_task, retry, table

    @property
    def metadata(self) -> Metadata:
        """The table's columns, or the requested ones.

        Raises:
            DataError: the table does not have a requested column.
            MissingInputError: the table or partition does not exist.
            StreamError: the service rejected the request.
            TemporaryStreamError: the last attempt failed.
        """
        columns = Patience(self._retry, self._name).run(self._attempt(lambda: list(self._table().table_schema.columns)))
        known = {str(column.name): str(column.type).lower() for column in columns}
        names = list(known) if self._columns is None else self._columns
        if missing := next((name for name in names if name not in known), None):
            has = printable(", ".join(known))
            raise DataError(f"has no column {printable(missing)}; it has {has}", url=self._name)
        return Metadata(names, {name: known[name] for name in names})

    def create_shards(self) -> list[Shard]:
        """Return ranges of the rows; the name of each range is that of the table."""

        def count() -> int:
            with self._table().open_reader(partition=self._partition, reopen=True) as reader:
                return int(reader.count)

        self._counted = Patience(self._retry, self._name).run(self._attempt(count))
        return ranges(self.table, self._counted, self._records_per_task)

    def read_records(self, task: Any) -> Iterator[list[str | None]]:
        """Yield the rows of a task.

        Raises:
            DataError: the table has fewer rows than the task wants, or its number of rows has
                changed since the shards were created or this read began.
            MissingInputError: the table or partition does not exist.
            StreamError: the service rejected the request.
            TemporaryStreamError: the last attempt failed.
        """
        shard = task_shard(task)
        return in_task_order(shard, self._rows(shard.start, shard.end, _rows_in(shard.identity)))

    def content_identity(self, name: str) -> str:
        """Return the number of rows once the shards were created; other changes are not visible."""
        return "" if self._counted is None else f"{self._counted} rows"

    def _rows(self, start: int, end: int, counted: int | None) -> Iterator[list[str | None]]:
        patience = Patience(self._retry, self._name)
        rows: Iterator[Any] = iter(())
        counted = self._counted if counted is None else counted

        def first() -> list[Any]:
            nonlocal rows, counted
            reader = self._table().open_reader(partition=self._partition, reopen=True)
            if counted is not None and reader.count != counted:
                # A session has the rows of the time when it was opened, and their numbers.
                reason = f"has {reader.count} rows, and had {counted} when they were counted"
                raise ReplacedError(reason, url=self._name, hint=ANEW)
            if reader.count < end:
                raise DataError(
                    f"has {reader.count} rows, and rows {start} to {end - 1} were asked for", url=self._name, hint=ANEW
                )
            counted = reader.count
            rows = iter(reader.read(start=start, count=end - start, columns=self._columns))
            return list(itertools.islice(rows, 1))

        while start < end:
            ahead = patience.run(self._attempt(first))
            try:
                for row in itertools.chain(ahead, rows):
                    yield [None if value is None else str(value) for value in row.values]
                    start += 1
                    patience.progress()
                if start < end:
                    raise Dropped(f"the table tunnel ended {end - start} rows early, at row {start}")
            except Dropped as drop:
                patience.failed(drop, None)
            except Exception as error:
                patience.failed(self._dropped(error), None)

    def _table(self) -> Any:
        return self._odps.get_table(self._table_name, project=self._own_project or None)

    def _attempt(self, ask: Callable[[], T]) -> Callable[[float], T]:
        def attempt(seconds: float) -> T:
            try:
                return ask()
            except DataError:
                raise
            except Exception as error:
                raise self._dropped(error) from error

        return attempt

    def _dropped(self, error: Exception) -> Dropped:
        """Return the errors after which a read is tried again.

        Raises:
            MissingInputError, StreamError: another try would fail, too.
        """
        why = printable(" ".join(str(error).split()))
        if isinstance(error, self._errors.NoSuchObject):
            raise MissingInputError(f"no such table or partition: {why}", url=self._name) from error
        if is_temporary(error) or isinstance(
            error, (self._errors.InternalServerError, self._errors.RequestTimeTooSkewed)
        ):
            return Dropped(why)
        if isinstance(error, (self._errors.BaseODPSError, OSError)):
            raise StreamError(f"cannot be read: {why}", url=self._name) from error
        raise error


def _rows_in(identity: str) -> int | None:
    """Return the number of rows in an identity; None if this reader did not make it."""
    number = identity.removesuffix(" rows")
    return int(number) if number.isdecimal() else None
