"""Calls that wait for a shard or the end, oldest first."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tarkit.errors import counted, quoted
from tarkit.service.ledger import Ledger
from tarkit.service.presence import Presence
from tarkit.service.requests import StoppingError, TooManyError

_log = logging.getLogger(__name__)
_BLOCKED = 1.0
"""Seconds after which workers that can do nothing before they are answered are told to finish what they hold."""


@dataclass(frozen=True, eq=False)
class _Held:
    """A call that waits. drains: it may be answered with DRAIN. woken: with True, that is the answer."""

    worker: str
    drains: bool
    woken: asyncio.Future[bool]


class HeldCalls:
    """standstill: seconds after which workers that hold all that is left, and all wait, are told one by one to finish
    what they hold. most: calls. clock: seconds that never go back."""

    def __init__(self, presence: Presence, standstill: float, most: int, clock: Callable[[], float]) -> None:
        self.number = 0
        self._presence, self._standstill, self._most, self._clock = presence, standstill, most, clock
        self._waiting: dict[str, OrderedDict[_Held, None]] = {}
        self._for_declaration: set[asyncio.Future[None]] = set()
        self._moved: dict[str, float] = {}
        """Data set -> when a shard of it was last handed out or reported."""

    async def hold(self, ledger: Ledger, worker: str, until: float | None, *, bound: bool, drains: bool) -> bool:
        """Wait until there may be a shard or the end; whether the worker is to finish what it holds first.

        Raises:
            TooManyError: too many calls are held.
            StoppingError: the service stops.
        """
        waiting = self._waiting.setdefault(ledger.dataset.name, OrderedDict())
        held = _Held(worker, drains, asyncio.get_running_loop().create_future())
        timeout = None if until is None else max(0.0, until - self._clock())
        with self._counted():
            waiting[held] = None
            try:
                with self._presence.during(worker, bound=bound):
                    await asyncio.wait({held.woken}, timeout=timeout)
            except asyncio.CancelledError:
                if held.woken.done():
                    self.wake(ledger)  # what woke it is for another one
                raise
            finally:
                waiting.pop(held, None)
        self._go_on()
        return held.woken.done() and held.woken.result()

    async def hold_for_declaration(self, seconds: float) -> None:
        """Wait until a data set is declared; it raises what ``hold`` does."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._counted():
            self._for_declaration.add(future)
            try:
                await asyncio.wait({future}, timeout=seconds)
            finally:
                self._for_declaration.discard(future)
        self._go_on()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._go_on()
        if self.number >= self._most:
            raise TooManyError(
                f"{counted(self.number, 'call')} are held, which is the service's limit; ask again later"
            )
        self.number += 1
        try:
            yield
        finally:
            self.number -= 1

    def _go_on(self) -> None:
        if self._presence.closing:
            raise StoppingError

    def declared(self) -> None:
        """A data set was declared."""
        for future in self._for_declaration:
            if not future.done():
                future.set_result(None)

    def wake(self, ledger: Ledger) -> None:
        """As many calls as there are shards; all of them at the end, and where no more are handed out."""
        waiting = self._waiting.get(ledger.dataset.name)
        if waiting:
            for _ in range(len(waiting) if ledger.ended or ledger.aborted else min(len(waiting), ledger.available)):
                held, _ = waiting.popitem(last=False)
                if not held.woken.done():
                    held.woken.set_result(False)

    def stop(self) -> None:
        """End all calls with StoppingError, now that ``closing`` is set."""
        for waiting in self._waiting.values():
            for held in waiting:
                if not held.woken.done():
                    held.woken.set_result(False)
        self.declared()

    def moves(self, ledger: Ledger, worker: str) -> None:
        """A worker was handed a shard, or reported one."""
        self._moved[ledger.dataset.name] = self._clock()
        self._presence.blocked.discard(worker)

    def end_standstill(self, ledger: Ledger, now: float) -> None:
        """Where all workers wait who hold what is left, answer one of them with DRAIN."""
        waiting = self._waiting.get(ledger.dataset.name)
        if not waiting or ledger.available:
            return
        still = now - self._moved.setdefault(ledger.dataset.name, now)
        if still < _BLOCKED:
            return
        holders = ledger.workers().keys()
        if (
            not holders
            or (still < self._standstill and not holders <= self._presence.blocked)
            or not holders <= {held.worker for held in waiting}
        ):
            return
        for held in waiting:
            if held.worker in holders and (held.drains or ledger.last_epoch):
                del waiting[held]
                held.woken.set_result(True)
                self.moves(ledger, held.worker)
                return
        self._moved[ledger.dataset.name] = now
        _log.warning(
            "data set %s: each worker waits for the end of epoch %d, and holds shards of it; "
            "end batches with a shard, or let epochs overlap",
            quoted(ledger.dataset.name),
            ledger.epoch,
        )
