"""What changed in ledgers, in the journal before a caller hears of it.

What is written survives the end of the process; what changes at about the same time is written at once.
That it survives the end of the machine costs a wait for the disk: in a thread, once for all who wait.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from tarkit.errors import StreamError
from tarkit.service.dataset import DataSet
from tarkit.service.journal import Change, Journal, change_of, declaration_of
from tarkit.service.ledger import Ledger

_log = logging.getLogger(__name__)
_RETRY = 1.0
_STALLED = 5.0
"""Seconds that the last write to a disk may take."""

Waiting = list[asyncio.Future[None]]


class Durable:
    """A journal and those who wait for it. Used from one event loop; ``start`` and ``stop`` are its lifetime."""

    def __init__(self, journal: Journal) -> None:
        self.trouble: StreamError | None = None
        """Why the journal cannot be written now."""
        self._journal = journal
        self._changed: dict[str, Ledger] = {}
        self._changes: list[Change] = []
        """Taken from the ledgers, and not written yet."""
        self._to_write, self._to_sync = asyncio.Event(), asyncio.Event()
        self._unsynced = False
        """Whether something was written since the last sync began."""
        self._for_write: Waiting = []
        self._for_sync: Waiting = []
        self._syncing: Waiting | None = None
        """Those who wait for the sync that goes on; None: none does."""

    def start(self) -> None:
        """Within the event loop that uses it."""
        self._tasks = [asyncio.create_task(self._write_all()), asyncio.create_task(self._sync_all())]

    async def stop(self) -> None:
        """Write what is left, if that is possible; a caller that still waits is cancelled."""
        if self.trouble is None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.synced(), _STALLED)
        for task in self._tasks:
            task.cancel()
        for future in (*self._for_write, *self._for_sync, *(self._syncing or ())):
            future.cancel()
        await asyncio.wait(self._tasks, timeout=_STALLED)

    def add(self, dataset: DataSet) -> None:
        """Write a new data set, with the first change of its ledger."""
        self._changes.append(declaration_of(dataset))

    def changed(self, ledger: Ledger) -> None:
        """Write what changed in a ledger, soon."""
        self._changed[ledger.dataset.name] = ledger
        self._to_write.set()

    async def written(self) -> None:
        """Return when all that has changed until now is in the file."""
        if self._to_write.is_set() or self.trouble is not None:
            await _added(self._for_write)

    async def synced(self) -> None:
        """Return when all that has changed until now is on the disk."""
        await self.written()
        if self._unsynced:
            self._to_sync.set()
            await _added(self._for_sync)
        elif self._syncing is not None:
            await _added(self._syncing)

    def begin_sync(self) -> None:
        """Have on the disk soon what is in the file."""
        if self._unsynced:
            self._to_sync.set()

    async def _write_all(self) -> None:
        while True:
            await self._to_write.wait()
            self._changes += map(change_of, self._changed.values())
            self._changed.clear()
            try:
                self._journal.write(self._changes)
            except Exception as error:  # of any kind: else who waits would wait for ever, in silence
                self._failed(error)
                await asyncio.sleep(_RETRY)
                continue
            self._changes = []
            self._to_write.clear()
            self._unsynced = True
            if self.trouble is None:
                _resolve(self._for_write)
            else:
                self._to_sync.set()

    async def _sync_all(self) -> None:
        while True:
            await self._to_sync.wait()
            self._to_sync.clear()
            self._unsynced, self._syncing, self._for_sync = False, self._for_sync, []
            thread = asyncio.create_task(asyncio.to_thread(self._journal.sync))
            try:
                await asyncio.shield(thread)
            except asyncio.CancelledError:
                await asyncio.wait([thread])
                raise
            except Exception as error:  # as above
                self._unsynced, self._for_sync = True, self._syncing + self._for_sync
                self._syncing = None
                self._failed(error)
                await asyncio.sleep(_RETRY)
                self._to_sync.set()
                continue
            _resolve(self._syncing)
            self._syncing = None
            if self.trouble is not None and not self._to_write.is_set():
                _log.warning("the state is written again")
                self.trouble = None
                _resolve(self._for_write)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, StreamError):
            error = StreamError(f"the state cannot be written: unexpected {type(error).__name__}: {error}")
        if self.trouble is None:
            _log.error("%s; no shard is handed out until it can be", error)
        self.trouble = error


def _added(waiting: Waiting) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append(future)
    return future


def _resolve(waiting: Waiting) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
