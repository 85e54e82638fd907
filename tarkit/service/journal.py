"""Ledgers in a file: SQLite in WAL mode, each batch of events one transaction that is on the disk when it returns.

Three tables. ``dataset``: the declaration of each data set, which may be long. ``counts``: how much of it was handed
out. ``outstanding``: a row for each shard that was handed out and is not done. What is done leaves no row, so the file
stays small. A row that is lost or changed on the disk would be a shard that is lost in silence, so each has a checksum.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tarkit.errors import DataError, StreamError, TarkitError, UsageError, printable, quoted
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules, Outstanding
from tarkit.service.ledger import Ledger
from tarkit.service.ranges import merged_ranges

VERSION = 1
APPLICATION = 0x7461726B
"""SQLite's application id: "tark"."""
_SCHEMA = """
CREATE TABLE dataset (name TEXT PRIMARY KEY, declaration TEXT NOT NULL, sum INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE counts (dataset TEXT PRIMARY KEY, epoch INTEGER NOT NULL, handed_out INTEGER NOT NULL,
    last_token INTEGER NOT NULL, longest REAL NOT NULL, outstanding INTEGER NOT NULL, sum INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE outstanding (dataset TEXT NOT NULL, epoch INTEGER NOT NULL, position INTEGER NOT NULL,
    token INTEGER NOT NULL, worker TEXT NOT NULL, lost TEXT NOT NULL, errors INTEGER NOT NULL, losses INTEGER NOT NULL,
    ranges TEXT NOT NULL, ended TEXT NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (dataset, epoch, position))
    WITHOUT ROWID;
"""
_DATASET = "INSERT INTO dataset VALUES (?, ?, ?)"
_COUNTS = "INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?, ?, ?, ?)"
_ENTRY = "INSERT OR REPLACE INTO outstanding VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GONE = "DELETE FROM outstanding WHERE dataset = ? AND epoch = ? AND position = ?"
SKIPPED_TOKENS = 1 << 20
"""At each start. Where a machine ended, workers on others may have tokens of leases that were not on its disk yet;
given again, they would say of another shard that it is done."""
_WAL = 4 << 20
"""Bytes of the write-ahead log, beyond which it is cut when it has been copied into the file."""
_BEGIN_ANEW = "move it and its -wal file away to begin anew, and restore a checkpoint if there is one"


@dataclass(frozen=True)
class Change:
    """What is new in a ledger: rows that replace those of the same key, and keys of rows that go."""

    counts: tuple[Any, ...]
    entries: list[tuple[Any, ...]]
    gone: list[tuple[str, int, int]]


def change_of(ledger: Ledger) -> Change:
    """What changed in a ledger since the last call."""
    name = ledger.dataset.name
    changed, gone = ledger.take_changes()
    rows = [
        _summed(
            *(name, each.epoch, each.position, each.token, each.worker, json.dumps([*each.lost])),
            *(each.errors, each.losses, json.dumps(each.ranges), each.ended),
        )
        for each in changed
    ]
    counts = (name, ledger.epoch, ledger.handed_out, ledger.last_token, float(ledger.longest), len(ledger.entries))
    return Change(_summed(*counts), rows, [(name, *key) for key in gone])


def _summed(*row: Any) -> tuple[Any, ...]:
    """A row with its checksum, a CRC-32."""
    return (*row, crc32(json.dumps(row).encode()))


def _checked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row without its checksum. ValueError: it is another one."""
    if _summed(*row[:-1]) != row:
        raise ValueError(f"the checksum of a row of data set {row[0]!r} is wrong")
    return row[:-1]


class Journal:
    """The file of a service; one process has it at a time.

    Raises:
        UsageError: another process has it, another version of tarkit wrote it, or it is of another program.
        DataError: it is damaged, or not a database.
        StreamError: it cannot be opened or written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._log = -1
        """Descriptor of the write-ahead log."""
        self._torn = False
        """Whether ``sync`` failed."""
        if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
            reason = "is a folder" if os.path.isdir(path) else "is in a folder that does not exist"
            raise UsageError(f"{quoted(path)} {reason}; the state of a service needs the name of a file")
        try:
            # The server closes it, and checks it after an error, in other threads than that which writes.
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        except sqlite3.Error as error:
            raise StreamError(f"the state cannot be opened: {error}", url=path) from error
        try:
            self._open()
        except TarkitError:
            self._database.close()
            raise
        except (sqlite3.Error, ValueError) as error:  # a ValueError: SQLite's message has bytes of a damaged file
            self._database.close()
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
        # What is committed survives the end of the process; ``sync`` is for the end of the machine.
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {_WAL}")
        run("BEGIN IMMEDIATE")
        if not tables:
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA user_version = {VERSION}")
            run(f"PRAGMA application_id = {APPLICATION}")
        run("COMMIT")
        self._file: str = run("PRAGMA database_list").fetchone()[2]
        self._known = os.stat(self._file or os.curdir)
        found = run("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise DataError(f"the state is damaged: {printable(found)}", url=self.path, hint=_BEGIN_ANEW)

    def load(self, rules: LeaseRules, now: float) -> list[Ledger]:
        """The ledgers as they were: what was leased is leased from now on, under the same tokens.

        Raises:
            DataError: what is in the file cannot be.
        """
        ledgers = []
        run = self._database.execute
        try:
            for name, declaration in map(_checked, run("SELECT * FROM dataset ORDER BY name")):
                ledger = Ledger(DataSet.from_json(declaration), rules)
                (counts,) = map(_checked, run("SELECT * FROM counts WHERE dataset = ?", (name,)))
                rows = run("SELECT * FROM outstanding WHERE dataset = ? ORDER BY epoch, position", (name,))
                _fill(ledger, counts, [_entry(*row[1:]) for row in map(_checked, rows)], now)
                ledgers.append(ledger)
            if run("SELECT count(*) FROM counts").fetchone()[0] != len(ledgers):
                raise ValueError("a data set is missing")
        except (sqlite3.Error, ValueError, TypeError, KeyError, IndexError) as error:
            raise DataError(
                f"the state is damaged: {printable(str(error))}", url=self.path, hint=_BEGIN_ANEW
            ) from error
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
                    database.execute(_DATASET, _summed(change.name, change.to_json()))
                    database.execute(_COUNTS, _summed(change.name, 0, 0, 0, 0.0, 0))
                    continue
                database.execute(_COUNTS, change.counts)
                database.executemany(_ENTRY, change.entries)
                database.executemany(_GONE, change.gone)
            database.execute("COMMIT")
        except (sqlite3.Error, UnicodeError) as error:
            with suppress(sqlite3.Error):  # the first error says more
                if database.in_transaction:
                    database.execute("ROLLBACK")
            raise StreamError(f"the state cannot be written: {printable(str(error))}", url=self.path) from error

    def sync(self) -> None:
        """Have on the disk what was written before; it may be called in a thread.

        Raises:
            StreamError: the disk is full, or gone. The next call writes it anew.
        """
        try:
            if self._torn:
                # The system may have dropped what it failed to write: into the file with it, from SQLite's own view.
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            elif self._log < 0 and self._file:
                self._log = os.open(f"{self._file}-wal", os.O_RDONLY)
            if self._log >= 0:
                os.fsync(self._log)
                self._check_place()
            self._torn = False
        except (OSError, sqlite3.Error) as error:
            self._torn = True
            raise StreamError(f"the state cannot be written: {error}", url=self.path) from error

    def _check_place(self) -> None:
        """A file that was removed is written without an error, and gone with this process. OSError: so it is."""
        for path, known in ((self._file, self._known), (f"{self._file}-wal", os.fstat(self._log))):
            try:
                same = os.path.samestat(os.stat(path), known)
            except FileNotFoundError:
                same = False
            if not same:
                raise OSError(
                    f"{printable(path)} was removed, moved or replaced while it is used; put it back, as the state is "
                    "lost when the service ends"
                )

    def close(self) -> None:
        """Make the file free for other processes."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._database.close()


def _refusal(error: Exception, path: str) -> TarkitError:
    text = printable(str(error))
    if "locked" in text:
        return UsageError(f"{quoted(path)}: another process uses this state; stop it, or give another file")
    if isinstance(error, sqlite3.OperationalError):
        return StreamError(f"the state cannot be opened: {text}", url=path, hint="the service must be able to write it")
    return DataError(f"this is not the state of a shard service: {text}", url=path, hint=_BEGIN_ANEW)


def _fill(ledger: Ledger, counts: Sequence[Any], entries: list[Outstanding], now: float) -> None:
    """Give a ledger the state of a file. ValueError: it cannot be."""
    name, epoch, handed_out, last_token, longest, outstanding = counts
    dataset = ledger.dataset
    if len(entries) != outstanding:
        raise ValueError(f"data set {name!r} has {len(entries)} shards outstanding, not {outstanding}")
    if dataset.name != name or not 0 <= handed_out <= dataset.shards or not 0 <= longest < float("inf"):
        raise ValueError(f"data set {name!r} has {handed_out} of {dataset.shards} shards")
    if epoch < 0 or (dataset.epochs and epoch > dataset.epochs) or (handed_out and not epoch):
        raise ValueError(f"data set {name!r} is in epoch {epoch} of {dataset.epochs}")
    tokens: list[int] = []
    for entry in entries:
        known = handed_out if entry.epoch == epoch else dataset.shards
        if not (1 <= entry.epoch <= epoch and 0 <= entry.position < known):
            raise ValueError(f"data set {name!r} has position {entry.position} of epoch {entry.epoch}")
        shard = dataset.bounds(*entry.key)
        if entry.ranges != merged_ranges((), entry.ranges, shard.end - shard.start):
            raise ValueError(f"data set {name!r} has records {entry.ranges} of a shard as done")
        if entry.errors < 0 or entry.losses < 0:
            raise ValueError(f"data set {name!r} has a shard with {entry.errors} errors and {entry.losses} losses")
        tokens += [token for token in (entry.token, *entry.lost) if token]
    if len(set(tokens)) < len(tokens) or not all(0 < token <= last_token for token in tokens):
        raise ValueError(f"data set {name!r} has tokens that were not given, or twice")
    ledger.last_token = last_token + SKIPPED_TOKENS
    if longest:
        ledger.learn(longest)
    ledger.resume(epoch, handed_out, entries, now)
    ledger.take_changes()


def _entry(
    epoch: int, position: int, token: int, worker: str, lost: str, errors: int, losses: int, ranges: str, ended: str
) -> Outstanding:
    done = [(first, end) for first, end in json.loads(ranges)]
    return Outstanding(
        epoch, position, token, worker, None, dict.fromkeys(json.loads(lost)), errors, losses, done, ended
    )
