"""A shard service in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tarkit.elasticdl.mastercalls import ElasticDLCalls
from tarkit.service.connection import Security
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules
from tarkit.service.server import ShardCalls, serving


class InThread:
    """A service in a thread; ``dispatcher`` is of its loop: look, and change nothing."""

    dispatcher: Dispatcher

    def __init__(
        self, state: Path, rules: LeaseRules | None = None, port: int = 0, security: Security | None = None
    ) -> None:
        self._state, self._rules, self._security = state, rules, security
        self.port = port
        self._ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> InThread:
        self._thread.start()
        assert self._ready.wait(120), "the service did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(120)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the loop of the service, and return when it has run."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(120)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        journal = Journal(str(self._state))
        async with Dispatcher(journal, self._rules, grace=0.5) as self.dispatcher:
            listen = f"127.0.0.1:{self.port}"
            protocols = (ShardCalls, ElasticDLCalls)
            async with serving(self.dispatcher, listen, protocols=protocols, security=self._security) as self.port:
                self._ready.set()
                await self._end.wait()
        journal.close()


def held_back(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[float, partial[None]]]:
    """Calls of a function that an event loop is to make after so many seconds; the test makes
    them."""
    call_later: Callable[..., Any] = loop.call_later
    found: list[tuple[float, partial[None]]] = []

    def call(seconds: float, called: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if called != function:
            return call_later(seconds, called, *arguments, **options)
        return found.append((seconds, partial(called, *arguments)))

    monkeypatch.setattr(loop, "call_later", call)
    return found
