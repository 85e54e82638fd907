"""Pending calls: those that wait for a shard or the end, oldest first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tarkit.errors import counted, quoted
from tarkit.service.heartbeats import Heartbeats
from tarkit.service.leases import StoppingError
from tarkit.service.ledger import Ledger

_log = logging.getLogger(__name__)
_STANDSTILL = 5.0
"""Seconds of standstill: no shard was handed out or reported, and all workers that hold one wait.
Then the next of strict epochs begins; in the last epoch, the workers are asked one by one to finish
the shards that they hold.
"""
_NO_DRAIN = 4
"""Factor of that time for a worker that does not know DRAIN, and takes it for the end."""


@dataclass(frozen=True, eq=False)
class _Held:
    """A call that waits.

    Attributes:
        bound: the worker is its connection, and takes DRAIN for the end.
        woken: a future; its result is True if the answer is DRAIN.
    """

    worker: str
    bound: bool
    woken: asyncio.Future[bool]


class PendingCalls:
    """The pending calls of all data sets.

    Args:
        clock: function that returns seconds and never goes back.
    """

    def __init__(self, heartbeats: Heartbeats, clock: Callable[[], float]) -> None:
        self._heartbeats, self._clock = heartbeats, clock
        self._waiting: dict[str, dict[_Held, None]] = {}
        self._moved: dict[str, float] = {}
        """Data set -> when a shard of it was last handed out or reported."""

    @property
    def number(self) -> int:
        """Number of calls that wait."""
        return sum(map(len, self._waiting.values()))

    def workers(self, ledger: Ledger) -> set[str]:
        """Return the workers whose calls wait for a data set."""
        return {held.worker for held in self._waiting.get(ledger.dataset.name, {})}

    async def hold(self, ledger: Ledger, worker: str, until: float | None, *, bound: bool) -> bool:
        """Wait until there may be a shard or the end.

        Return True if the worker must first finish the shards that it holds.

        Raises:
            StoppingError: the service stops.
        """
        waiting = self._waiting.setdefault(ledger.dataset.name, {})
        held = _Held(worker, bound, asyncio.get_running_loop().create_future())
        waiting[held] = None
        try:
            with self._heartbeats.during(worker, bound=bound):
                await asyncio.wait({held.woken}, timeout=None if until is None else max(0.0, until - self._clock()))
        finally:
            waiting.pop(held, None)
        if self._heartbeats.closing:
            raise StoppingError
        return held.woken.done() and held.woken.result()

    def wake(self, ledger: Ledger) -> None:
        """Wake the waiting calls if a shard is available or the data set has ended."""
        waiting = self._waiting.get(ledger.dataset.name)
        if waiting and (ledger.available or ledger.ended):
            _answer(waiting)

    def stop(self) -> None:
        """End all calls with StoppingError, now that ``closing`` is set."""
        for waiting in self._waiting.values():
            _answer(waiting)

    def moves(self, ledger: Ledger) -> None:
        """Note that a shard was handed out or reported."""
        self._moved[ledger.dataset.name] = self._clock()

    def end_standstill(self, ledger: Ledger, now: float) -> None:
        """End a standstill, in which all workers that hold a shard wait.

        With strict epochs, the next epoch begins. In the last one, one of the workers gets the
        answer DRAIN. A batch across two epochs cannot be finished before, and most loops take DRAIN
        for the end.
        """
        waiting, still = self._waiting.get(ledger.dataset.name), now - self._moved.setdefault(ledger.dataset.name, now)
        if not waiting or ledger.available or still < _STANDSTILL:
            return
        holders, long = ledger.workers().keys(), still >= _STANDSTILL * _NO_DRAIN
        if not holders or not holders <= {held.worker for held in waiting}:
            return
        if ledger.begin_next_epoch():
            _log.warning(
                "data set %s: epoch %d begins before epoch %d is complete: %s of it %s with workers that wait for the "
                "next one; batches that end with a shard keep epochs apart",
                quoted(ledger.dataset.name), ledger.epoch, ledger.epoch - 1, counted(ledger.leased, "shard"),
                "is" if ledger.leased == 1 else "are",
            )  # fmt: skip
            self.moves(ledger)
            self.wake(ledger)
            return
        for held in waiting:
            if held.worker in holders and (not held.bound or (long and ledger.last_epoch)):
                del waiting[held]
                held.woken.set_result(True)
                self.moves(ledger)
                return
        if long:
            self.moves(ledger)
            _log.warning(
                "data set %s: each worker waits for a shard, and holds some that it does not report",
                quoted(ledger.dataset.name),
            )


def _answer(waiting: dict[_Held, None]) -> None:
    for held in waiting:
        held.woken.set_result(False)
    waiting.clear()
