"""The interface of a source of records in ranges, as ElasticDL's trainers use it.

A reader lists its shards and the number of records in each; a task is a range of one shard's
records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tarkit.errors import UsageError, quoted

ANEW = "create the shards anew"
"""Advice about a source whose content changed since its records were counted."""


IDENTITY = "identity"
"""Key of ``extended_config`` of ElasticDL's tasks, whose shards have no field for it."""


@dataclass
class Metadata:
    """The columns of a table.

    Attributes:
        column_dtypes: name -> type, in the notation of the source.
    """

    column_names: Sequence[str] = ()
    column_dtypes: Mapping[str, str] = field(default_factory=dict)


class AbstractDataReader(ABC):
    """A source of records; the base class of readers.

    Keyword arguments come from ``--custom_data_reader_params``.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: B027 (derived classes call it with their own arguments)
        pass

    @abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Yield the records of a task.

        Args:
            task: object with ``shard.name``, ``shard.start``, ``shard.end`` and ``shard.indices``,
                and, in the older spelling, ``shard_name``, ``start`` and ``end``.
        """

    @abstractmethod
    def create_shards(self) -> Any:
        """Return all shards.

        The result is a list of (name, first record, number of records), or a dict of name -> (first
        record, number of records) or name -> number of records.
        """

    def content_identity(self, name: str) -> str:
        """Return the identity of a shard's content, as text, such as a version.

        It is called when the records were counted, and before a task is read. Equal texts mean
        equal content. "": not known, so nothing is compared.
        """
        return ""

    @property
    def records_output_types(self) -> Any:
        """Return the type of a record for ``tf.data.Dataset.from_generator``.

        None if it is not known.
        """
        return None

    @property
    def metadata(self) -> Metadata:
        """Columns of a table; none if records have no columns."""
        return Metadata()


class _Range(NamedTuple):
    name: str
    start: int
    records: int


class Shard(_Range):
    """A range of records.

    Attributes:
        identity: identifies the content that the source had when it was counted; "": not known. It
            is not one of the three values, so shards that differ only in it are equal.
    """

    identity: str = ""

    def __new__(cls, name: str, start: int, records: int, identity: str = "") -> Shard:
        self = super().__new__(cls, name, start, records)
        if identity:
            self.identity = identity
        return self


def shards_of(reader: AbstractDataReader) -> list[Shard]:
    """Return the shards of a reader, whichever of three shapes ``create_shards`` returns.

    Raises:
        UsageError: the return value has another shape, or has ranges that overlap; the message
            names the reader and the entry.
    """
    made = reader.create_shards()
    if isinstance(made, Mapping):
        entries: Iterable[Any] = (
            (name, *(value if isinstance(value, (tuple, list)) else (0, value))) for name, value in made.items()
        )
    else:
        entries = made
    shards = []
    for entry in entries:
        if not isinstance(entry, (tuple, list)) or len(entry) != 3 or not _is_shard(*entry):
            raise UsageError(
                f"{type(reader).__name__}.create_shards() gave {entry!r}; "
                "a shard is (name, first record, number of records)"
            )
        name, first, records = entry
        shards.append(Shard(name, first, records, reader.content_identity(name)))
    if twice := records_twice(shards):
        raise UsageError(f"{type(reader).__name__}.create_shards() gave records twice, {twice}")
    return shards


def records_twice(shards: Iterable[Shard]) -> str:
    """Return a message about two ranges of one name that overlap, or ""."""
    ordered = sorted(shard for shard in shards if shard.records)
    for one, other in pairwise(ordered):
        end = one.start + one.records
        if one.name == other.name and other.start < end:
            both = f"records {one.start} to {end} and {other.start} to {other.start + other.records}"
            return f"{quoted(one.name)}: {both}"
    return ""


def _is_shard(name: object, start: object, count: object) -> bool:
    numbers = [each for each in (start, count) if isinstance(each, int) and not isinstance(each, bool) and each >= 0]
    return isinstance(name, str) and len(numbers) == 2


@dataclass(frozen=True)
class TaskShard:
    """The range of a task.

    Attributes:
        end: number of the record after the last.
        indices: numbers of the records in the requested order; () is all of them in file order.
        identity: identifies the content that the source must have; "": not known.
    """

    name: str
    start: int
    end: int
    indices: Sequence[int] = ()
    identity: str = ""


@dataclass(frozen=True)
class Task:
    """A task, with both spellings: ``task.shard.name`` and ``task.shard_name``."""

    shard: TaskShard
    type: Any = None
    task_id: int = 0
    model_version: int = -1
    extended_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def shard_name(self) -> str:
        """Name of the shard, ``shard.name``."""
        return self.shard.name

    @property
    def start(self) -> int:
        """Number of the first record, ``shard.start``."""
        return self.shard.start

    @property
    def end(self) -> int:
        """Number of the record after the last, ``shard.end``."""
        return self.shard.end


def check_arguments(reader: AbstractDataReader, records_per_task: int | None, others: Mapping[str, Any]) -> None:
    """Check a reader's arguments.

    Raises:
        UsageError: the readers of tarkit do not have an argument, or ranges would have no record.
    """
    if others:
        raise UsageError(f"{type(reader).__name__} has no parameter {', '.join(sorted(others))}")
    if records_per_task is not None and records_per_task < 1:
        raise UsageError(f"records_per_task is {records_per_task}; it must be at least 1")


def task_shard(task: Any) -> TaskShard:
    """Return the range of a task of this module, of ElasticDL's messages, or of either spelling."""
    shard = getattr(task, "shard", None)
    if shard is None:
        return TaskShard(task.shard_name, task.start, task.end)
    indices = tuple(getattr(shard, "indices", ()) or ())
    identity = getattr(shard, "identity", "") or (getattr(task, "extended_config", None) or {}).get(IDENTITY, "")
    return TaskShard(shard.name, shard.start, shard.end, indices, identity)


def ranges(name: str, count: int, records_per_task: int | None) -> list[Shard]:
    """Cut the records of a shard into ranges of at most ``records_per_task``; None: one range."""
    size = records_per_task or max(1, count)
    return [Shard(name, start, min(size, count - start)) for start in range(0, count, size)]


def column_names(columns: Sequence[str] | None) -> list[str] | None:
    """Return the requested columns of a table; None is all.

    Raises:
        UsageError: the value is a text, which would be one column for each character, or is empty.
    """
    if isinstance(columns, str) or (columns is not None and not columns):
        raise UsageError(f"columns is {columns!r}; it must be a list of names, or None for all")
    return None if columns is None else list(columns)


def in_task_order(shard: TaskShard, records: Iterator[Any]) -> Iterator[Any]:
    """Yield the records of a range in the order of ``indices``; they are held in memory then.

    Raises:
        UsageError: an index is outside of the range.
    """
    if not shard.indices:
        yield from records
        return
    held = list(records)
    for index in shard.indices:
        if not shard.start <= index < shard.end:
            raise UsageError(f"record {index} is not in the range {shard.start} to {shard.end} of {shard.name}")
        yield held[index - shard.start]
