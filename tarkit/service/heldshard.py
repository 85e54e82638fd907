"""A shard in the hands of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tarkit.readers.reader import Task, TaskShard


@dataclass(frozen=True)
class HeldShard:
    """A shard that this process is to read. It has the fields of the published clients' shards.

    name: of its file, or of the data set. start, end: the records from ``start`` to before ``end``. indices: the
    records in the order in which they are wanted, if they are shuffled; else (). epoch: from 1. token: of its lease.
    ranges: what is to be done of it, [first, end) in the order of its records: all of it, unless another worker
    reported a part before it was lost. worker: the word of the session that holds it.
    """

    name: str
    start: int
    end: int
    indices: tuple[int, ...] = ()
    epoch: int = 1
    token: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    worker: str = ""

    @property
    def task(self) -> Task:
        """What a reader's ``read_records`` takes."""
        return Task(TaskShard(self.name, self.start, self.end, self.indices), task_id=self.token)

    @property
    def records(self) -> Iterator[int]:
        """Numbers of the records that are to be done, in their order."""
        order = self.indices or range(self.start, self.end)
        return (order[at] for first, end in self.ranges for at in range(first, end))
