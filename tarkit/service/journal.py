"""Ledgers in a file: SQLite in WAL mode, each batch of events one transaction that is on the disk when it returns.

Rows of one table, by data set, epoch and position, each a JSON value. Epoch -1: the declaration, which may be long.
Epoch 0: the counts. From epoch 1: a shard that was handed out and is not done. What is done leaves no row, so the file
stays small. A row that is lost or changed on the disk would be a shard that is lost in silence, so each has a checksum.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from zlib import crc32

from tarkit.errors import DataError, StreamError, TarkitError, UsageError, printable, quoted
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules, Outstanding
from tarkit.service.ledger import Ledger

VERSION = 3
APPLICATION = 0x7461726B
"""SQLite's application id: "tark"."""
_SCHEMA = """
CREATE TABLE state (dataset TEXT NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL, value TEXT NOT NULL,
    sum INTEGER NOT NULL, PRIMARY KEY (dataset, epoch, position)) WITHOUT ROWID
"""
_DECLARATION, _COUNTS = (-1, 0), (0, 0)
_ROW = "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)"
_GONE = "DELETE FROM state WHERE dataset = ? AND epoch = ? AND position = ?"
SKIPPED_TOKENS = 1 << 20
"""At each start. Where the file is a copy of before, workers may have tokens of leases that are not in it; given again,
they would say of another shard that it is done."""
_WAL = 4 << 20
"""Bytes of the write-ahead log, beyond which it is cut when it has been copied into the file."""
_BEGIN_ANEW = "move it and its -wal file away to begin anew, and restore a checkpoint if there is one"


@dataclass(frozen=True)
class Change:
    """What is new in a ledger: rows that replace those of the same key, and keys of rows that go."""

    rows: list[tuple[Any, ...]]
    gone: list[tuple[str, int, int]]


def change_of(ledger: Ledger) -> Change:
    """What changed in a ledger since the last call."""
    name = ledger.dataset.name
    changed, gone = ledger.take_changes()
    counts = [ledger.epoch, ledger.handed_out, ledger.records, ledger.last_token, ledger.longest, len(ledger.entries)]
    rows = [_row(name, _COUNTS, counts)]
    for each in changed:
        value = [each.token, each.worker, [*each.lost], each.errors, each.losses, each.ranges, each.ended]
        rows.append(_row(name, each.key, value))
    return Change(rows, [(name, *key) for key in gone])


def declaration_of(dataset: DataSet) -> Change:
    """A data set that is new; the first change of its ledger is written with it."""
    return Change([_row(dataset.name, _DECLARATION, dataset.to_json())], [])


def _row(name: str, key: tuple[int, int], value: Any) -> tuple[Any, ...]:
    """A row with its checksum, a CRC-32."""
    row = (name, *key, json.dumps(value))
    return (*row, crc32(json.dumps(row).encode()))


def _read(row: tuple[Any, ...]) -> tuple[tuple[int, int], Any]:
    """Key and value of a row. ValueError: its checksum is wrong."""
    if crc32(json.dumps(row[:4]).encode()) != row[4]:
        raise ValueError(f"the checksum of a row of data set {row[0]!r} is wrong")
    return row[1:3], json.loads(row[3])


class Journal:
    """The file of a service; one process has it at a time.

    Raises:
        UsageError: another process has it, another version of tarkit wrote it, or it is of another program.
        DataError: it is damaged, or not a database.
        StreamError: it cannot be opened or written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[str, os.stat_result] = {}
        """The file and its log, as they were first seen."""
        if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
            reason = "is a folder" if os.path.isdir(path) else "is in a folder that does not exist"
            raise UsageError(f"{quoted(path)} {reason}; the state of a service needs the name of a file")
        with suppress(OSError):
            real = os.path.realpath(path)
            # SQLite takes an empty file for a new one, and removes the log, in which the whole state may be.
            if not os.path.getsize(real) and os.path.getsize(f"{real}-wal"):
                raise DataError("the state is damaged: it is empty, but its log is not", url=path, hint=_BEGIN_ANEW)
        try:
            with ExitStack() as refused:
                # Threads write, one after the other.
                self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
                refused.callback(self._database.close)
                self._open()
                refused.pop_all()
        except (sqlite3.Error, UnicodeError) as error:  # UnicodeError: SQLite's message has bytes of a damaged file
            raise _refusal(error, path) from error

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        # What it checks first: another program's file is not changed.
        version, application = (run(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
        tables = run("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if (tables or version or application) and application != APPLICATION:
            raise UsageError(f"{quoted(self.path)} is a database of another program; give another name for the state")
        if application == APPLICATION and version != VERSION:
            raise UsageError(
                f"{quoted(self.path)} has version {version} of the state, and this tarkit needs version {VERSION}; "
                f"{'a newer' if version > VERSION else 'an older'} tarkit wrote it: go on with that one, or save a "
                "checkpoint with it, and restore it in another state"
            )
        mode = run("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode not in ("wal", "memory"):
            raise StreamError(
                "the file system does not allow a write-ahead log", url=self.path, hint="use a local disk"
            )
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA journal_size_limit = {_WAL}")
        run("BEGIN IMMEDIATE")
        if application != APPLICATION:
            run(_SCHEMA)
            run(f"PRAGMA user_version = {VERSION}")
            run(f"PRAGMA application_id = {APPLICATION}")
        run("COMMIT")
        self._file: str = run("PRAGMA database_list").fetchone()[2]
        found = run("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise DataError(f"the state is damaged: {printable(found)}", url=self.path, hint=_BEGIN_ANEW)

    def load(self, rules: LeaseRules, now: float) -> list[Ledger]:
        """The ledgers as they were: what was leased is leased from now on, under the same tokens.

        Raises:
            DataError: what is in the file cannot be.
        """
        ledgers = []
        try:
            rows = self._database.execute("SELECT * FROM state ORDER BY dataset, epoch, position")
            for name, of_dataset in groupby(rows, itemgetter(0)):
                (declared, declaration), (at, counts), *entries = map(_read, of_dataset)
                if (declared, at) != (_DECLARATION, _COUNTS):
                    raise ValueError(f"rows of data set {name!r} are missing")
                ledger = Ledger(DataSet.from_json(declaration), rules)
                _fill(ledger, counts, [_entry(*key, *value) for key, value in entries], now)
                ledgers.append(ledger)
        except (sqlite3.Error, ValueError, TypeError, KeyError, IndexError) as error:
            raise DataError(
                f"the state is damaged: {printable(str(error))}", url=self.path, hint=_BEGIN_ANEW
            ) from error
        return ledgers

    def write(self, changes: Iterable[Change]) -> None:
        """All of it, or none; on the disk when it returns. It may be called in a thread.

        Raises:
            StreamError: it could not be written: the disk is full, or gone. What is written again is the same.
        """
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            for change in changes:
                database.executemany(_ROW, change.rows)
                database.executemany(_GONE, change.gone)
            database.execute("COMMIT")
            self._check_place()
        except (sqlite3.Error, UnicodeError, OSError) as error:
            with suppress(sqlite3.Error):  # the first error says more
                if database.in_transaction:
                    database.execute("ROLLBACK")
            raise StreamError(f"the state cannot be written: {printable(str(error))}", url=self.path) from error

    def _check_place(self) -> None:
        """A file that was removed is written without an error, and gone with this process. OSError: so it is."""
        for path in (self._file, f"{self._file}-wal") if self._file else ():
            try:
                found = os.stat(path)
                same = os.path.samestat(found, self._known.setdefault(path, found))
            except FileNotFoundError:
                same = False
            if not same:
                raise OSError(
                    f"{printable(path)} was removed, moved or replaced while it is used; put it back, as the state is "
                    "lost when the service ends"
                )

    def close(self) -> None:
        """Make the file free for other processes."""
        self._database.close()


def _refusal(error: Exception, path: str) -> TarkitError:
    text = printable(str(error))
    if "locked" in text:
        return UsageError(f"{quoted(path)}: another process uses this state; stop it, or give another file")
    if isinstance(error, sqlite3.OperationalError):
        return StreamError(f"the state cannot be opened: {text}", url=path, hint="the service must be able to write it")
    return DataError(f"this is not the state of a shard service: {text}", url=path, hint=_BEGIN_ANEW)


def _fill(ledger: Ledger, counts: Sequence[Any], entries: list[Outstanding], now: float) -> None:
    """Give a ledger the state of a file. ValueError: its rows are of several times."""
    name, dataset = ledger.dataset.name, ledger.dataset
    epoch, handed_out, records, last_token, longest, outstanding = counts
    if len(entries) != outstanding:
        raise ValueError(f"data set {name!r} has {len(entries)} shards outstanding, not {outstanding}")
    for entry in entries:
        known = handed_out if entry.epoch == epoch else dataset.shards
        if not (1 <= entry.epoch <= epoch and 0 <= entry.position < known):
            raise ValueError(f"data set {name!r} has position {entry.position} of epoch {entry.epoch}")
    tokens = [token for entry in entries for token in (entry.token, *entry.lost) if token]
    if len(set(tokens)) < len(tokens) or max(tokens, default=0) > last_token:
        raise ValueError(f"data set {name!r} has tokens that were not given, or twice")
    ledger.last_token = last_token + SKIPPED_TOKENS
    if longest:
        ledger.learn(longest)
    ledger.resume(epoch, handed_out, records, entries, now)
    ledger.take_changes()


def _entry(
    epoch: int, position: int, token: int, worker: str, lost: list[int], errors: int, losses: int,
    ranges: list[list[int]], ended: str,
) -> Outstanding:  # fmt: skip
    done = [(first, end) for first, end in ranges]
    return Outstanding(epoch, position, token, worker, None, dict.fromkeys(lost), errors, losses, done, ended)
