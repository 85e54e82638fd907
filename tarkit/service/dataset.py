"""What is handed out: the records of a data set, and how they are cut into shards for each epoch."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from tarkit.errors import UsageError, counted, printable
from tarkit.readers.reader import Shard, TaskShard
from tarkit.service.permutation import Permutation

INT32 = 2**31 - 1
REMAINDERS = ("", "drop", "fill")
TASK_TYPES = {"training": 1, "evaluation": 2, "prediction": 3}
"""Words for the numbers that ElasticDL's protocol gives to them."""

MOST_NAME = 1024
"""Bytes of a data set's name."""


@dataclass(frozen=True)
class DataSet:
    """A data set as it is declared. It never changes; the same declaration gives the same shards, in the same order.

    name: up to 1,024 bytes. size: number of records. files: where the records are, (name, first record, number of
    records) each, as ``AbstractDataReader.create_shards()`` gives them; () is one range of ``size`` records, whose
    shards are called as the data set. records_per_shard: a shard never spans two files. epochs: 0 is without an end.
    shuffle_shards: another order of shards in each epoch. shuffle_records: the shards are slices of another order of
    all records in each epoch; with files, another order within each shard, and of shards. seed: of both orders.
    remainder: of shards shorter than ``records_per_shard``: "" keeps them, "drop" leaves them out, "fill" begins them
    earlier, so that some records come twice. strict_epochs: an epoch begins when the one before is complete.
    task_type: a value of ``TASK_TYPES``, which ElasticDL's clients get back with each shard.

    Raises:
        UsageError: a value that cannot be; the message names the field.
    """

    name: str
    size: int
    records_per_shard: int
    epochs: int = 1
    files: tuple[Shard, ...] = ()
    shuffle_shards: bool = False
    shuffle_records: bool = False
    seed: int = 0
    remainder: str = ""
    strict_epochs: bool = False
    task_type: int = 1

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode("utf-8", "surrogatepass")) <= MOST_NAME:
            raise UsageError(f"a data set's name has 1 to {MOST_NAME} bytes, not {len(self.name)}")
        for field, least, most in (
            ("size", 1, 2**62),
            ("records_per_shard", 1, INT32),
            ("epochs", 0, INT32),
            ("seed", -(2**63), 2**63 - 1),
            ("task_type", 1, 3),
        ):
            value = getattr(self, field)
            if not least <= value <= most:
                self._refuse(f"{field} is {value}; it must be {least} to {most}")
        if self.remainder not in REMAINDERS:
            self._refuse(f"remainder is {self.remainder!r}; it must be '' (keep), 'drop' or 'fill'")
        if self.files and self.size != sum(file.records for file in self.files):
            self._refuse(f"size is {self.size}, but its files have {sum(file.records for file in self.files)} records")
        if not self.shards:
            self._refuse(f"no shard has {counted(self.records_per_shard, 'record')}, and remainder is 'drop'")

    def _refuse(self, reason: str) -> None:
        raise UsageError(f"data set {printable(self.name)!r}: {reason}")

    @classmethod
    def of_files(cls, name: str, files: Sequence[Shard], records_per_shard: int, **others: Any) -> DataSet:
        """A data set of what a reader's ``create_shards()`` names; files without a record are left out."""
        full = tuple(Shard(*file) for file in files if file[2])
        return cls(name, sum(file.records for file in full), records_per_shard, files=full, **others)

    @cached_property
    def _ends(self) -> list[int]:
        """Of each file, the number of shards in all files up to it."""
        return list(accumulate(self._cuts(file.records) for file in self._all_files))

    @property
    def _all_files(self) -> Sequence[Shard]:
        return self.files or (Shard(self.name, 0, self.size),)

    def _cuts(self, records: int) -> int:
        """Number of shards of a file."""
        whole, rest = divmod(records, self.records_per_shard)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def shards(self) -> int:
        """Number of shards in an epoch."""
        return self._ends[-1]

    def shard(self, epoch: int, place: int) -> TaskShard:
        """The shard at a place of an epoch's order. epoch: from 1. place: from 0.

        ``indices`` has the numbers of its records, in the order in which they are wanted, if records are shuffled; else
        it is (), and the records are those from ``start`` to before ``end``.
        """
        number = self._order(epoch)[place] if self._reordered else place
        at = bisect_right(self._ends, number)
        name, first, records = self._all_files[at]
        start = (number - (self._ends[at - 1] if at else 0)) * self.records_per_shard
        end = min(start + self.records_per_shard, records)
        if self.remainder == "fill":
            start = max(0, end - self.records_per_shard)
        indices: tuple[int, ...] = ()
        if self.shuffle_records:
            span = (end - start, first + start) if self.files else (self.size, 0)
            order = Permutation(span[0], self.seed, epoch, "records", *([number] if self.files else []))
            places = range(end - start) if self.files else range(start, end)
            indices = tuple(span[1] + order[each] for each in places)
        return TaskShard(name, first + start, first + end, indices)

    @property
    def _reordered(self) -> bool:
        return self.shuffle_shards or (self.shuffle_records and bool(self.files))

    def _order(self, epoch: int) -> Permutation:
        return Permutation(self.shards, self.seed, epoch, "shards")

    def place_of(self, epoch: int, name: str, start: int) -> int | None:
        """The place, in an epoch's order, of the shard that begins at a record of a file; None: none begins there."""
        for at in self._at.get(name, ()):
            first, size = self._all_files[at].start, self.records_per_shard
            number = (self._ends[at - 1] if at else 0) + (start - first + size - 1) // size
            if start >= first and number < self._ends[at]:
                place = self._order(epoch).place(number) if self._reordered else number
                found = self.shard(epoch, place)
                if (found.name, found.start) == (name, start):
                    return place
        return None

    @cached_property
    def _at(self) -> dict[str, list[int]]:
        """Name of a file -> where it is among the files."""
        places: dict[str, list[int]] = {}
        for at, file in enumerate(self._all_files):
            places.setdefault(file.name, []).append(at)
        return places

    def to_json(self) -> str:
        """The declaration as JSON, one line."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DataSet:
        """What ``to_json`` wrote."""
        values = json.loads(text)
        return cls(**values | {"files": tuple(Shard(*file) for file in values["files"])})

    def fingerprint(self) -> str:
        """The same for the same shards in the same order; what it does not cover is ``task_type``."""
        return blake2b(replace(self, task_type=1).to_json().encode(), digest_size=16).hexdigest()

    def differences(self, other: DataSet) -> str:
        """The fields in which another declaration differs: ``size 150, not 149; seed 1, not 2``."""
        return "; ".join(
            f"{field.name} {_short(mine)}, not {_short(theirs)}"
            for field in fields(self)
            if (mine := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        )


def _short(value: object) -> str:
    return f"{counted(len(value), 'file')}" if isinstance(value, tuple) else printable(repr(value))
