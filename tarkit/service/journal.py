"""The journal: ledgers in a file, on the disk before a change is acknowledged.

FILE has lines ``DIGEST TEXT``. The digest of a line is that of the digest before it and of its
text, so it proves all lines before. The first text is a title, with the digest that the file
continues; the second one has all rows at the time when the file was written; each other one has the
rows that changed at one time. FILE-ack has the digest of the last line that was acknowledged. A
file without that digest has lost acknowledged work, for whatever reason, and is refused. Lines
after it were never acknowledged, and may be cut anywhere.

A row is a key, a JSON list of data set, epoch and position, and a value: JSON, or "" if the row was
removed. A tab separates key and value. Epoch -1: the declaration, which may be long. Epoch 0: the
counts. From epoch 1: a shard that was handed out and is not done. A shard that is done leaves no
row, so a file is small when it is rewritten.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import groupby, pairwise
from pathlib import Path

from tarkit.errors import DataError, StreamError, UsageError, printable, quoted
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules, OpenTask
from tarkit.service.ledger import Ledger
from tarkit.store.publish import open_publish
from tarkit.store.sinks import write_all

VERSION = 4
_TITLE = "state of a tarkit shard service, version {}, after {}"
_BEGINNING = "0" * 32
"""Digest of the last acknowledged line, if there was none."""
_SQLITE = re.compile(rb"SQLite format 3\0.{44}(.{4}).{4}tark", re.DOTALL)
"""The first bytes of a file of a version before 4."""
SKIPPED_TOKENS = 1 << 20
"""Number of tokens that are skipped at each start. If the files are older copies, workers may have
tokens of leases that are not in them; if these were used again, they would report another shard as
done.
"""
_CHANGES = 4 << 20
"""Smallest size in bytes of the changes after which a file is rewritten."""
_log = logging.getLogger(__name__)
_FEW = 4
"""Largest number of callers of the last write for which the next one begins at once."""
_GATHER, _TIMES = 0.002, 10
"""Seconds without new callers before a write begins, and the largest number of such waits."""
_RETRY = 1.0
_STALLED = 5.0
"""Seconds that the last write to a disk may take."""


Change = dict[str, str]
"""Rows that are new, changed or removed: key -> value."""


def change_of(ledger: Ledger) -> Change:
    """Return the rows of a ledger that changed since the last call."""
    name = ledger.dataset.name
    changed, gone = ledger.take_changes()
    counts = [ledger.epoch, ledger.handed_out, ledger.records, ledger.last_token, ledger.longest, ledger.run]
    change = {_key(name, 0, 0): json.dumps(counts)}
    for each in changed:
        value = [each.token, each.worker, [*each.lost], each.errors, each.losses, each.ranges, each.ended]
        change[_key(name, *each.key)] = json.dumps(value)
    return change | {_key(name, *key): "" for key in gone}


def declaration_of(dataset: DataSet) -> Change:
    """Make the row of a new data set, which is written with the first change of its ledger."""
    return {_key(dataset.name, -1, 0): json.dumps(dataset.to_json())}


def _key(name: str, epoch: int, position: int) -> str:
    return json.dumps([name, epoch, position])


def _text(rows: Iterable[tuple[str, str]]) -> str:
    return "\t".join(f"{key}\t{value}" for key, value in rows)


def _line(before: str, text: str) -> tuple[str, bytes]:
    """Make a line, and return its digest and the line."""
    digest = blake2b(f"{before} {text}".encode(), digest_size=16).hexdigest()
    return digest, f"{digest} {text}\n".encode()


class Journal:
    """The state of a service, in FILE and FILE-ack; one process has it at a time.

    ":memory:" is in no file.

    Raises:
        UsageError: another process uses the journal, or another version of tarkit wrote it.
        DataError: the journal lacks acknowledged changes, or is of another program. No file was
            changed.
        StreamError: the journal cannot be opened or written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._rows: Change = {}
        self._digest = _BEGINNING
        self._size = self._most = 0
        """Current size of the file in bytes, and the size at which it is rewritten."""
        self._file = self._ack = -1
        if path == ":memory:":
            return
        if not os.path.isdir(os.path.dirname(path) or ".") or (os.path.exists(path) and not os.path.isfile(path)):
            reason = "is not a file" if os.path.exists(path) else "is in a folder that does not exist"
            raise UsageError(f"{quoted(path)} {reason}; the state of a service needs the name of a file")
        self._place = Path(os.path.realpath(path))
        self._ack_place = Path(f"{self._place}-ack")
        self._ack_name = printable(self._ack_place.name)
        try:
            self._open()
        except OSError as error:
            self.close()
            reason = f"the state cannot be opened: {printable(error.strerror or str(error))}"
            raise StreamError(reason, url=path, hint="the service must be able to write it") from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        flags = os.O_RDWR if self._content() else os.O_RDWR | os.O_CREAT
        try:
            self._ack = os.open(self._ack_place, flags, 0o666)
            fcntl.flock(self._ack, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            raise self._damage(f"the state is damaged: {self._ack_name} is missing, the proof of it") from None
        except BlockingIOError:
            text = f"{quoted(self.path)}: another process uses this state; stop it, or give another file"
            raise UsageError(text) from None
        acknowledged = os.pread(self._ack, 100, 0).decode("ascii", "replace").removesuffix("\n")
        if content := self._content():
            self._take(content.decode("ascii", "replace").split("\n"), acknowledged)
            self._file = os.open(self._place, os.O_RDWR)
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            self._acknowledge()
        elif acknowledged in ("", _BEGINNING):
            self._acknowledge()
            self._write_anew()
        else:
            raise self._damage(f"the state is damaged: this file is missing or empty, but {self._ack_name} is not")

    def _damage(self, reason: str, offset: int | None = None) -> DataError:
        hint = (
            f"put it and {self._ack_name} back as they were, or move both away to begin anew, and restore a checkpoint"
        )
        return DataError(reason, url=self.path, offset=offset, hint=hint)

    def _content(self) -> bytes:
        """Read the file; b"" if it does not exist.

        A file of another version is refused.
        """
        try:
            content = self._place.read_bytes()
        except FileNotFoundError:
            return b""
        digest, _, title = content.partition(b"\n")[0].decode("ascii", "replace").partition(" ")
        old, match = _SQLITE.match(content), re.fullmatch(_TITLE.format(r"(\d{1,9})", "[0-9a-f]{32}"), title)
        if content and not old and not (match and _line("", title)[0] == digest):
            raise self._damage("this is not the state of a shard service, or its first line is damaged")
        version = int.from_bytes(old[1], "big", signed=True) if old else int(match[1]) if match else VERSION
        if version != VERSION:
            raise UsageError(
                f"{quoted(self.path)} has version {version} of the state, and this tarkit needs version {VERSION}; "
                f"{'a newer' if version > VERSION else 'an older'} tarkit wrote it: go on with that one, or save a "
                "checkpoint with it, and restore it in another state"
            )
        return content

    def _take(self, lines: list[str], acknowledged: str) -> None:
        """Read the rows of a file, up to a line that was not written completely."""
        self._digest = lines[0][:32]
        known, good = {_BEGINNING, lines[0][-32:]}, 1
        for line in lines[1:-1]:
            digest = _line(self._digest, line[33:])[0]
            if line[:32] != digest:
                break
            self._apply(line[33:])
            self._digest = digest
            known.add(digest)
            good += 1
        self._size = sum(map(len, lines[:good])) + good
        # A line is written when the one before is on the disk.
        follows = any(_line(one[:32], two[33:])[0] == two[:32] for one, two in pairwise(lines[good:]))
        if good < 2 or acknowledged not in known or follows:
            raise self._damage(
                "the state is damaged: after this offset acknowledged work is missing, or "
                f"{self._ack_name} belongs to a different state",
                self._size,
            )
        self._most = 2 * len(lines[1]) + _CHANGES

    def _apply(self, text: str) -> None:
        parts = text.split("\t") if text else []
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if value:
                self._rows[key] = value
            else:
                self._rows.pop(key, None)

    def load(self, rules: LeaseRules, now: float) -> list[Ledger]:
        """Make the ledgers of the state; its leases begin now, with the same tokens."""
        rows = sorted((json.loads(key), json.loads(value)) for key, value in self._rows.items())
        ledgers = []
        for _, of_dataset in groupby(rows, lambda row: row[0][0]):
            (_, declaration), (_, counts), *entries = of_dataset
            ledger = Ledger(DataSet.from_json(declaration), rules)
            epoch, handed_out, records, last_token, longest, ledger.run = counts
            ledger.last_token = last_token + SKIPPED_TOKENS
            if longest:
                ledger.learn(longest)
            ledger.resume(epoch, handed_out, records, [_entry(*key[1:], *value) for key, value in entries], now)
            ledger.take_changes()
            ledgers.append(ledger)
        return ledgers

    def write(self, changes: Iterable[Change]) -> None:
        """Write all changes or none; they are on the disk when it returns.

        It may be called in a thread.

        Raises:
            StreamError: the changes could not be written: the disk is full or was removed. The next
                call must repeat them.
        """
        text = _text(row for change in changes for row in change.items())
        try:
            if self._file >= 0:
                self._append(text)
                self._check_place()
                self._acknowledge()
        except OSError as error:
            reason = printable(error.strerror or str(error))
            raise StreamError(f"the state cannot be written: {reason}", url=self.path) from error
        self._apply(text)
        if self._size > self._most:
            self._most += _CHANGES
            with suppress(StreamError, OSError):  # the file is longer, no more; a full disk fails the next write
                self._write_anew()

    def _append(self, text: str) -> None:
        digest, line = _line(self._digest, text)
        try:
            os.lseek(self._file, self._size, os.SEEK_SET)
            write_all(self._file, line)
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):  # the next write begins at the same place
                os.ftruncate(self._file, self._size)
            raise
        self._digest, self._size = digest, self._size + len(line)

    def _acknowledge(self) -> None:
        """Write the digest of the last line, without waiting for the disk.

        After a loss of power the file may have the digest of an earlier line, which is not damage.
        """
        os.pwrite(self._ack, f"{self._digest}\n".encode(), 0)

    def _write_anew(self) -> None:
        """Replace the file by one that has only the current state."""
        os.fsync(self._ack)  # else a loss of power may leave a digest that the new file does not name
        first, title = _line("", _TITLE.format(VERSION, self._digest))
        digest, line = _line(first, _text(self._rows.items()))
        with open_publish(self._place, compression=None) as file:
            file.write(title + line)
        before, self._file = self._file, os.open(self._place, os.O_RDWR)
        if before >= 0:
            os.close(before)
        self._digest, self._size = digest, len(title + line)
        self._most = 2 * len(line) + _CHANGES

    def _check_place(self) -> None:
        """Check that the files were not removed, which no write would report.

        Raises:
            OSError: one of them was removed, moved or replaced.
        """
        for place, file in ((self._place, self._file), (self._ack_place, self._ack)):
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(place), os.fstat(file)):
                    continue
            raise OSError(
                f"{printable(str(place))} was removed, moved or replaced while it is used; put it back, as the state "
                "is lost when the service ends"
            )

    def close(self) -> None:
        """Release the files for other processes."""
        if self._ack >= 0:
            fcntl.flock(self._ack, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open
        for file in (self._file, self._ack):
            if file >= 0:
                os.close(file)
        self._file = self._ack = -1


def _entry(
    epoch: int, position: int, token: int, worker: str, lost: list[int], errors: int, losses: int,
    ranges: list[list[int]], ended: str,
) -> OpenTask:  # fmt: skip
    done = [(first, end) for first, end in ranges]
    return OpenTask(epoch, position, token, worker, None, dict.fromkeys(lost), errors, losses, done, ended)


class GroupCommit:
    """A writer of a journal, in which one write serves all waiting callers.

    It writes in a thread, while more changes are collected for the next write. If there are many
    callers, a write begins when no more of them arrive, a few milliseconds later: each write and
    each answer wakes threads, which costs more than the answer itself, and answers that are sent
    together bring calls that arrive together.

    Used from one event loop, between ``start`` and ``stop``.

    Args:
        sleep: coroutine that waits for seconds.
    """

    def __init__(self, journal: Journal, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.trouble: StreamError | None = None
        """The error because of which the journal cannot be written now, or None."""
        self._journal, self._sleep = journal, sleep
        self._thread = ThreadPoolExecutor(1, "tarkit state")
        self._declared: list[DataSet] = []
        self._changed: dict[str, Ledger] = {}
        self._changes: list[Change] = []
        """Changes that were taken from the ledgers, and not written yet."""
        self._to_write = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Callers that wait for a write that has not begun."""
        self._writing: list[asyncio.Future[None]] = []
        """Callers that wait for ``_changes``."""
        self._many = False
        """True if more than a few callers waited for the last write."""

    def start(self) -> None:
        """Begin to write, within the event loop that uses it."""
        self._task = asyncio.create_task(self._write_all())

    async def stop(self) -> None:
        """Write the remaining changes if possible; callers that still wait are cancelled."""
        if self.trouble is None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.written(), _STALLED)
        self._task.cancel()
        for future in (*self._waiting, *self._writing):
            future.cancel()
        await asyncio.wait([self._task], timeout=_STALLED)
        self._thread.shutdown(wait=False)

    def add(self, dataset: DataSet) -> None:
        """Write a new data set, with the first change of its ledger."""
        self._declared.append(dataset)

    def changed(self, ledger: Ledger) -> None:
        """Schedule a write of the changes in a ledger."""
        self._changed[ledger.dataset.name] = ledger
        self._to_write.set()

    async def written(self) -> None:
        """Return when all changes until now are on the disk."""
        if not self._changed and not self._changes:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting if self._changed else self._writing).append(future)
        await future

    async def _write_all(self) -> None:
        while True:
            await self._to_write.wait()
            await self._gather()
            self._to_write.clear()
            new = [*map(declaration_of, self._declared), *map(change_of, self._changed.values())]
            self._changes = [*self._changes, *new]
            self._writing += self._waiting
            for taken in (self._declared, self._changed, self._waiting):
                taken.clear()
            self._many = len(self._writing) > _FEW
            write = asyncio.get_running_loop().run_in_executor(self._thread, self._journal.write, self._changes)
            try:
                await asyncio.shield(write)
            except asyncio.CancelledError:
                await asyncio.wait([write])
                raise
            except Exception as error:  # of any kind: else who waits would wait for ever, in silence
                self._failed(error)
                await asyncio.sleep(_RETRY)
                self._to_write.set()
                continue
            self._changes = []
            if self.trouble is not None:
                _log.warning("the state is written again")
                self.trouble = None
            for future in self._writing:
                if not future.done():
                    future.set_result(None)
            self._writing.clear()

    async def _gather(self) -> None:
        """If there are many callers, wait for as long as more of them arrive."""
        for _ in range(_TIMES if self._many else 0):
            come = len(self._waiting)
            await self._sleep(_GATHER)
            if len(self._waiting) == come:
                return

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, StreamError):
            error = StreamError(f"the state cannot be written: unexpected {type(error).__name__}: {error}")
        if self.trouble is None:
            _log.error("%s; no shard is handed out until it can be", error)
        self.trouble = error
