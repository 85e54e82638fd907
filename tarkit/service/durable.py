"""What changed in ledgers, in the journal before a caller hears of it.

What is written survives the end of the process; what changes at about the same time is written at once.
That it survives the end of the machine costs a wait for the disk: in a thread, once for all who wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from queue import SimpleQueue

from tarkit.errors import StreamError
from tarkit.service.dataset import DataSet
from tarkit.service.journal import Change, Journal, change_of
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
        self._changes: list[Change | DataSet] = []
        """Taken from the ledgers, and not written yet."""
        self._for_write: Waiting = []
        self._for_sync: Waiting = []
        self._flushing = self._unsynced = self._syncing = self._retrying = False
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._sync_all, name="tarkit-journal", daemon=True)

    def start(self) -> None:
        """Within the event loop that uses it."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Write what is left, if that is possible; a caller that still waits is cancelled."""
        if self.trouble is None:
            await self.synced()
        self._queue.put(None)
        for future in (*self._for_write, *self._for_sync):
            future.cancel()
        await asyncio.to_thread(self._thread.join, _STALLED)

    def add(self, dataset: DataSet) -> None:
        """Write a new data set, soon."""
        self._changes.append(dataset)
        self._begin_flush()

    def changed(self, ledger: Ledger) -> None:
        """Write what changed in a ledger, soon."""
        if ledger.dirty:
            self._changed[ledger.dataset.name] = ledger
            self._begin_flush()

    async def written(self) -> None:
        """Return when all that has changed until now is in the file."""
        if self._flushing or self.trouble is not None:
            await self._done(self._for_write)

    async def synced(self) -> None:
        """Return when all that has changed until now is on the disk."""
        if self._flushing or self._unsynced or self._syncing or self.trouble is not None:
            await self._done(self._for_sync)

    def _done(self, waiting: Waiting) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        waiting.append(future)
        self.begin_sync()
        return future

    def begin_sync(self) -> None:
        """Have on the disk soon what is in the file."""
        if self._unsynced and not self._syncing and not self._flushing and self.trouble is None:
            self._begin_sync()

    def _begin_flush(self) -> None:
        if not self._flushing:
            self._flushing = True
            if self.trouble is None:
                self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._changes += (change_of(ledger) for ledger in self._changed.values())
        self._changed.clear()
        try:
            self._journal.write(self._changes)
        except StreamError as error:
            self._failed(error)
            return
        except Exception as error:  # else who waits would wait for ever, in silence
            self._failed(StreamError(f"the state cannot be written: unexpected {type(error).__name__}: {error}"))
            return
        self._changes = []
        self._flushing, self._unsynced = False, True
        if self.trouble is None:
            _resolve(self._for_write)
            if self._for_sync:
                self.begin_sync()

    def _begin_sync(self) -> None:
        waiting, self._for_sync = self._for_sync, []
        self._unsynced, self._syncing = False, True
        self._queue.put(waiting)

    def _sync_all(self) -> None:
        """The thread."""
        while (waiting := self._queue.get()) is not None:
            error = None
            try:
                self._journal.sync()
            except StreamError as reason:
                error = reason
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._synced, waiting, error)

    def _synced(self, waiting: Waiting, error: StreamError | None) -> None:
        self._syncing = False
        if error is not None:
            self._unsynced = True
            self._for_sync += waiting
            self._failed(error)
            return
        _resolve(waiting)
        if self.trouble is not None:
            if self._flushing:
                return  # it is tried again
            if self._unsynced:
                self._begin_sync()
                return
            _log.warning("the state is written again")
            self.trouble = None
            _resolve(self._for_write)
        if self._flushing or self._unsynced:
            if self._for_sync:
                self.begin_sync()
        else:
            _resolve(self._for_sync)  # what they wait for was in the file when this began

    def _failed(self, error: StreamError) -> None:
        if self.trouble is None:
            _log.error("%s; no shard is handed out until it can be", error)
        self.trouble = error
        if not self._retrying:
            self._retrying = True
            self._loop.call_later(_RETRY, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self._flush()
        if not self._retrying and not self._syncing:
            self._begin_sync()


def _resolve(waiting: Waiting) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
