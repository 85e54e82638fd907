"""Shard services for tests: in a thread of this process, or in a process of their own that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tarkit.service.credentials import Security
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules
from tarkit.service.server import serving

_PROGRAM = """
import asyncio, json, sys
from tarkit.service.credentials import Security
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules
from tarkit.service.server import serving

async def main():
    rules = LeaseRules(**json.loads(sys.argv[3]))
    async with Dispatcher(Journal(sys.argv[2]), rules) as dispatcher:
        async with serving(dispatcher, f"127.0.0.1:{sys.argv[1]}"):
            print("ready", flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class InThread:
    """A service in a thread; ``dispatcher`` is of its loop: look, and change nothing."""

    dispatcher: Dispatcher

    def __init__(
        self, state: Path, rules: LeaseRules | None = None, port: int = 0, security: Security | None = None
    ) -> None:
        self._state, self._rules, self._security = state, rules, security
        self.port = port
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> InThread:
        self._thread.start()
        assert self._ready.wait(20), "the service did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the loop of the service, and return when it has run."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        journal = Journal(str(self._state))
        async with Dispatcher(journal, self._rules, grace=0.5) as self.dispatcher:
            listen = f"127.0.0.1:{self.port}"
            async with serving(self.dispatcher, listen, security=self._security) as self.port:
                self._ready.set()
                await self._end.wait()
        journal.close()


class Process:
    """A service in a process of its own, on a port that stays. rules: of its leases, fields of ``LeaseRules``."""

    def __init__(self, state: Path, **rules: float) -> None:
        self._state, self._rules = state, rules
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return when it listens."""
        words = [sys.executable, "-c", _PROGRAM, str(self.port), str(self._state), json.dumps(self._rules)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the service did not start"

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
