"""What changed in ledgers, on the disk before a caller hears of it.

It is written in a thread, while more changes: what changes during a write goes into the next one,
for all who wait. Where many call, a write begins when no more of them come, a few milliseconds
later: each write and each answer wakes threads, which costs more than the answer itself, and
answers that go out together bring calls that come in together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tarkit.errors import StreamError
from tarkit.service.dataset import DataSet
from tarkit.service.journal import Change, Journal, change_of, declaration_of
from tarkit.service.ledger import Ledger

_log = logging.getLogger(__name__)
_FEW = 4
"""Callers who waited for the last write, up to whom the next one begins at once."""
_GATHER, _TIMES = 0.002, 10
"""Seconds in which no more callers come before a write begins; waited for so often at most."""
_RETRY = 1.0
_STALLED = 5.0
"""Seconds that the last write to a disk may take."""


class Durable:
    """A journal and those who wait for it.

    Used from one event loop; ``start`` and ``stop`` are its lifetime.

    Args:
        sleep: lets so many seconds pass.
    """

    def __init__(self, journal: Journal, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.trouble: StreamError | None = None
        """Why the journal cannot be written now."""
        self._journal, self._sleep = journal, sleep
        self._thread = ThreadPoolExecutor(1, "tarkit state")
        self._declared: list[DataSet] = []
        self._changed: dict[str, Ledger] = {}
        self._changes: list[Change] = []
        """Taken from the ledgers, and not written yet."""
        self._to_write = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Those who wait for a write that is not begun."""
        self._writing: list[asyncio.Future[None]] = []
        """Those who wait for ``_changes``."""
        self._many = False
        """Whether more than a few waited for the last write."""

    def start(self) -> None:
        """Within the event loop that uses it."""
        self._task = asyncio.create_task(self._write_all())

    async def stop(self) -> None:
        """Write what is left, if that is possible; a caller that still waits is cancelled."""
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
        """Write what changed in a ledger, soon."""
        self._changed[ledger.dataset.name] = ledger
        self._to_write.set()

    async def written(self) -> None:
        """Return when all that has changed until now is on the disk."""
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
        """Where many call, let callers come for as long as more do."""
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
