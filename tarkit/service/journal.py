"""Ledgers in a file: SQLite in WAL mode, each batch of events one transaction that is on the disk when it returns.

Two tables. ``dataset``: a row for each data set, with its declaration and how much was handed out. ``entry``: a row
for each shard that was handed out and is not done. What is done leaves no row, so the file stays small.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tarkit.errors import DataError, StreamError, UsageError
from tarkit.service.dataset import DataSet
from tarkit.service.ledger import LeaseRules, Ledger, Outstanding

VERSION = 1
_SCHEMA = """
CREATE TABLE dataset (name TEXT PRIMARY KEY, declaration TEXT NOT NULL, epoch INTEGER NOT NULL, place INTEGER NOT NULL,
    last_token INTEGER NOT NULL, records INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entry (dataset TEXT NOT NULL, epoch INTEGER NOT NULL, place INTEGER NOT NULL, tokens TEXT NOT NULL,
    worker TEXT, errors INTEGER NOT NULL, losses INTEGER NOT NULL, ended TEXT NOT NULL, ranges TEXT NOT NULL,
    PRIMARY KEY (dataset, epoch, place)) WITHOUT ROWID;
"""
_DATASET = "INSERT OR REPLACE INTO dataset VALUES (?, ?, 0, 0, 0, 0)"
_COUNTS = "UPDATE dataset SET epoch = ?, place = ?, last_token = ?, records = ? WHERE name = ?"
_ENTRY = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GONE = "DELETE FROM entry WHERE dataset = ? AND epoch = ? AND place = ?"


@dataclass(frozen=True)
class Change:
    """What is new in a ledger: rows that replace those of the same key, and keys of rows that go."""

    counts: tuple[Any, ...]
    entries: list[tuple[Any, ...]]
    gone: list[tuple[str, int, int]]


def change_of(ledger: Ledger) -> Change:
    """What changed in a ledger since the last call."""
    name = ledger.dataset.name
    rows, gone = [], []
    for key in ledger.changed:
        entry = ledger.entries.get(key)
        if entry is None:
            gone.append((name, *key))
        else:
            tokens, ranges = json.dumps(entry.tokens), json.dumps(entry.ranges)
            rows.append((name, *key, tokens, entry.worker, entry.errors, entry.losses, entry.ended, ranges))
    ledger.changed.clear()
    return Change((ledger.epoch, ledger.place, ledger.last_token, ledger.records, name), rows, gone)


class Journal:
    """The file of a service; one process has it at a time.

    Raises:
        UsageError: another process has it, or a newer tarkit wrote it.
        DataError: it is not a journal, or damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._log = -1
        """Descriptor of the write-ahead log."""
        self._torn = False
        """Whether ``sync`` failed."""
        # The server closes it, and checks it after an error, in other threads than that which writes.
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._database.close()
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise UsageError(f"{path}: another process has this state; stop it, or take another --state") from error
            raise DataError(f"this is not the state of a shard service: {error}", url=path) from error

    def _open(self) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        # What is committed survives the end of the process; ``sync`` is for the end of the machine.
        run("PRAGMA synchronous = NORMAL")
        run("BEGIN IMMEDIATE")
        version = run("PRAGMA user_version").fetchone()[0]
        if not version and not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            run("ROLLBACK")
            self._database.close()
            raise UsageError(f"{self.path}: state of version {version}; this tarkit has version {VERSION}")
        run("COMMIT")

    def load(self, rules: LeaseRules, now: float) -> list[Ledger]:
        """The ledgers as they were: what was leased is leased from now on, under the same tokens."""
        ledgers = []
        run = self._database.execute
        for name, declaration, epoch, place, last_token, records in run("SELECT * FROM dataset ORDER BY name"):
            ledger = Ledger(DataSet.from_json(declaration), rules)
            rows = run("SELECT * FROM entry WHERE dataset = ? ORDER BY epoch, place", (name,))
            ledger.resume(epoch, place, (_entry(*row[1:]) for row in rows), now)
            ledger.last_token, ledger.records = last_token, records
            ledger.changed.clear()
            ledgers.append(ledger)
        return ledgers

    def write(self, changes: Iterable[Change | DataSet]) -> None:
        """All of it, or none; in the file when it returns. A data set is one that is new.

        Raises:
            StreamError: it could not be written: the disk is full, or gone.
        """
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            for change in changes:
                if isinstance(change, DataSet):
                    database.execute(_DATASET, (change.name, change.to_json()))
                    continue
                database.execute(_COUNTS, change.counts)
                database.executemany(_ENTRY, change.entries)
                database.executemany(_GONE, change.gone)
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise StreamError(f"the state cannot be written: {error}", url=self.path) from error

    def sync(self) -> None:
        """Have on the disk what was written before; it may be called in a thread.

        Raises:
            StreamError: the disk is full, or gone. The next call writes it anew.
        """
        try:
            if self._torn:
                # The system may have dropped what it failed to write: into the file with it, from SQLite's own view.
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            elif self._log < 0 and (file := self._database.execute("PRAGMA database_list").fetchone()[2]):
                self._log = os.open(f"{file}-wal", os.O_RDONLY)
            if self._log >= 0:
                os.fsync(self._log)
            self._torn = False
        except (OSError, sqlite3.Error) as error:
            self._torn = True
            raise StreamError(f"the state cannot be written: {error}", url=self.path) from error

    def close(self) -> None:
        """Give the file free."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._database.close()


def _entry(
    epoch: int, place: int, tokens: str, worker: str | None, errors: int, losses: int, ended: str, ranges: str
) -> Outstanding:
    done = [(first, end) for first, end in json.loads(ranges)]
    return Outstanding(epoch, place, json.loads(tokens), worker, 0.0, 0.0, errors, losses, ended, done)
