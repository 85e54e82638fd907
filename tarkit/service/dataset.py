"""A data set: its records, their cut into shards, and the order of the shards in an epoch."""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from math import isqrt
from typing import Any

from tarkit.errors import UsageError, counted, printable, quoted
from tarkit.readers.identity import same_content
from tarkit.readers.reader import Shard, TaskShard, records_twice

_PAIRS = 3
"""Number of pairs of rounds."""
_LEAST = 8
"""Smallest number of rows and columns: in a smaller table some orders are more frequent than
others.
"""
_WORD = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


class Permutation:
    """A one-to-one map of ``range(n)``, n from 1 to 2**62.

    A generalized Feistel network: a number is a row and a column of a table of about √n rows, which
    has room for n or a little more. In each round a hash of the column is added to the row, or the
    reverse. A result that is not below n is mapped again. The keys are blake2b of the names, a
    space between them; a hash is two multiplications of 64-bit numbers. So the order is the same on
    each machine and in each release. Source: Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002.

    >>> order = Permutation(5, 7, 1, "shards")
    >>> [order[position] for position in range(5)]
    [4, 1, 3, 0, 2]

    Args:
        names: values that determine the order, such as a seed and an epoch.
    """

    __slots__ = ("_columns", "_keys", "_n", "_rows")

    def __init__(self, n: int, *names: int | str) -> None:
        self._n = n
        self._rows = max(_LEAST, isqrt(n - 1) + 1)
        self._columns = max(_LEAST, -(-n // self._rows))
        digest = blake2b(" ".join(map(str, names)).encode(), digest_size=16 * _PAIRS).digest()
        self._keys = [(first | 1, second | 1) for first, second in struct.iter_unpack(">QQ", digest)]

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, position: int) -> int:
        """Return the number at a position.

        Raises:
            IndexError: the position is not in ``range(n)``.
        """
        n, rows, columns, number = self._n, self._rows, self._columns, position
        if not 0 <= number < n:
            raise IndexError(number)
        while True:
            row, column = divmod(number, columns)
            for first, second in self._keys:
                mixed = (column + first) * _ODD & _WORD
                row = (row + ((mixed ^ mixed >> 32) * first & _WORD) // 65536) % rows
                mixed = (row + second) * _ODD & _WORD
                column = (column + ((mixed ^ mixed >> 32) * second & _WORD) // 65536) % columns
            number = row * columns + column
            if number < n:
                return number


INT32 = 2**31 - 1
REMAINDERS = ("", "drop", "fill")

MOST_NAME = 1024
"""Largest size of a data set's name in bytes."""

MOST_FILE = 8192
"""Largest size in bytes of a file's name, and of its identity: each lease has both."""

MOST_RECORDS = 2**62


@dataclass(frozen=True)
class DataSet:
    """The declaration of a data set.

    It never changes; the same declaration gives the same shards, in the same order.

    Attributes:
        name: name of at most 1,024 bytes.
        size: number of records.
        files: files of the records, from ``shards_of(reader)``; () is one range of ``size``
            records, whose shards have the data set's name.
        records_per_shard: largest number of records of a shard, which never spans two files.
        epochs: number of epochs; 0 is without an end.
        shuffle_shards: use a different order of shards in each epoch.
        shuffle_records: the shards are slices of a different order of all records in each epoch;
            with files, the order changes within each shard, and that of the shards.
        seed: seed of both orders.
        remainder: treatment of shards shorter than ``records_per_shard``: "" keeps them, "drop"
            leaves them out, "fill" begins them earlier, so that some records are repeated.
        strict_epochs: an epoch begins when the one before is complete.
        task_type: 1 training, 2 evaluation, 3 prediction; other protocols send it with each shard.

    Raises:
        UsageError: a value is not valid; the message names the field.
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
        if not 0 < len(self._encoded(self.name)) <= MOST_NAME:
            raise UsageError(f"a data set's name has 1 to {MOST_NAME} bytes, not {len(self._encoded(self.name))}")
        for field, least, most in (
            ("size", 1, MOST_RECORDS),
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
        for file in self.files:
            if not 0 < (length := len(self._encoded(file.name))) <= MOST_FILE:
                self._refuse(f"the name of file {quoted(file.name)} has {length} bytes; it must have 1 to {MOST_FILE}")
            if len(self._encoded(file.identity)) > MOST_FILE:
                self._refuse(f"the identity of file {quoted(file.name)} has more than {MOST_FILE} bytes")
            if file.start < 0 or file.records < 0:
                self._refuse(f"file {quoted(file.name)} has {file.records} records from {file.start}")
            if file.start + file.records > MOST_RECORDS:
                self._refuse(f"file {quoted(file.name)} has records beyond {MOST_RECORDS}")
        if twice := records_twice(self.files):
            self._refuse(f"its files have records twice, {twice}")
        if self.files and self.size != sum(file.records for file in self.files):
            self._refuse(f"size is {self.size}, but its files have {sum(file.records for file in self.files)} records")
        if self.size * self.epochs > MOST_RECORDS:
            self._refuse(f"{self.epochs} epochs of {self.size} records are more than {MOST_RECORDS} records")
        if not self.shards:
            self._refuse(f"no file has {counted(self.records_per_shard, 'record')}, and remainder is 'drop'")

    def _refuse(self, reason: str) -> None:
        raise UsageError(f"data set {printable(self.name)!r}: {reason}")

    @staticmethod
    def _encoded(name: str) -> bytes:
        """Return the bytes of a name; protobuf accepts only UTF-8."""
        try:
            return name.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the name {quoted(name)} of a data set or file is not valid UTF-8") from error

    @classmethod
    def of_files(cls, name: str, files: Sequence[Shard], records_per_shard: int, **others: Any) -> DataSet:
        """Make a data set of the files that a reader's ``create_shards()`` names.

        Files without a record are left out.
        """
        full = tuple(Shard(*file, getattr(file, "identity", "")) for file in files if file[2])
        return cls(name, sum(file.records for file in full), records_per_shard, files=full, **others)

    @cached_property
    def _ends(self) -> list[int]:
        """Number of shards in all files up to each file."""
        return list(accumulate(self._cuts(file.records) for file in self._all_files))

    @cached_property
    def _all_files(self) -> Sequence[Shard]:
        return self.files or (Shard(self.name, 0, self.size),)

    def _cuts(self, records: int) -> int:
        """Return the number of shards of a file."""
        whole, rest = divmod(records, self.records_per_shard)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def shards(self) -> int:
        """Number of shards in an epoch."""
        return self._ends[-1]

    def shard(self, epoch: int, position: int) -> TaskShard:
        """Return the shard at a position, from 0, of the order of an epoch, from 1.

        ``indices`` has the numbers of its records in the requested order, if records are shuffled;
        else it is (), and the records are those from ``start`` up to, not including, ``end``.
        """
        shard = self.bounds(epoch, position)
        if not self.shuffle_records:
            return shard
        if self.files:
            order = Permutation(shard.end - shard.start, self.seed, epoch, "records", self._number(epoch, position))
            indices = [shard.start + order[each] for each in range(len(order))]
        else:
            order = _order(self.size, self.seed, epoch, "records")
            indices = [order[each] for each in range(shard.start, shard.end)]
        return replace(shard, indices=tuple(indices))

    def bounds(self, epoch: int, position: int) -> TaskShard:
        """Return the shard at a position, without its ``indices``, which take time to compute."""
        number = self._number(epoch, position)
        at = bisect_right(self._ends, number)
        file = self._all_files[at]
        name, first, records = file
        start = (number - (self._ends[at - 1] if at else 0)) * self.records_per_shard
        end = min(start + self.records_per_shard, records)
        if self.remainder == "fill":
            start = max(0, end - self.records_per_shard)
        return TaskShard(name, first + start, first + end, identity=file.identity)

    def _number(self, epoch: int, position: int) -> int:
        if self.shuffle_shards or (self.shuffle_records and self.files):
            return _order(self.shards, self.seed, epoch, "shards")[position]
        return position

    def to_json(self) -> str:
        """Return the declaration as one line of JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["files"] = [(*file, file.identity) if file.identity else file for file in self.files]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DataSet:
        """Make a data set from the text that ``to_json`` wrote."""
        values = json.loads(text)
        return cls(**values | {"files": tuple(Shard(*file) for file in values["files"])})

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the declaration, equal for equal shards in the same order.

        It does not cover ``task_type`` and the identities of files. It has 32 characters.
        """
        plain = replace(self, task_type=1, files=tuple(Shard(*file) for file in self.files))
        return blake2b(plain.to_json().encode(), digest_size=16).hexdigest()

    def differences(self, other: DataSet) -> str:
        """Describe the fields in which another declaration differs, "" if there are none.

        For example: ``size 150, not 149; seed 1, not 2``. Replaced files are a difference, too.
        """
        parts = [
            f"{field.name} {printable(repr(mine))}, not {printable(repr(theirs))}"
            for field in fields(self)
            if field.name != "files" and (mine := getattr(self, field.name)) != (theirs := getattr(other, field.name))
        ]
        return "; ".join(parts + [text for text in [_files_differ(self.files, other.files)] if text])


def _files_differ(mine: Sequence[Shard], theirs: Sequence[Shard]) -> str:
    """Describe the difference of two lists of files: their number, and the first that differs."""
    if mine == theirs and [file.identity for file in mine] == [file.identity for file in theirs]:
        return ""  # at once, as there may be millions
    text = f"{counted(len(mine), 'file')}, not {len(theirs)}" if len(mine) != len(theirs) else ""
    for number, (one, other) in enumerate(zip(mine, theirs), 1):  # noqa: B905 (up to the shorter one)
        if one != other:
            return f"{text}{', ' if text else ''}file {number} is {tuple(one)}, not {tuple(other)}"
        if not same_content(one.identity, other.identity):
            return f"file {number} ({quoted(one.name)}) was replaced since its records were counted"
    return text


_order = lru_cache(maxsize=64)(Permutation)
"""Cache of the current epochs' orders, of all data sets."""
