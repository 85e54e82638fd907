"""``tarkit serve`` in a process of its own, and plain gRPC callers of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tarkit.service.messages import protocol

SERVICES = {"shards": "tarkit.shards.v1.ShardService", "elasticdl": "proto.Master"}


class Service:
    """A process of ``tarkit serve``. address, http: HOST:PORT, once it listens."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ready = folder / "ready"
        self._ready.unlink(missing_ok=True)  # of one that was killed
        command = [sys.executable, "-m", "tarkit.cli.tarkit", "serve", "--ready-file", str(self._ready), *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )
        self.address, self.http, *_ = f"{self._listening()}\n".split("\n")

    def _listening(self) -> str:
        until = time.monotonic() + 30
        while not self._ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError(f"the service does not listen: {self.process.communicate()}")
            time.sleep(0.02)
        return self._ready.read_text().strip()

    def end(self, seconds: float = 20) -> tuple[int, list[str], list[str]]:
        """Wait for its end; its exit code, and the lines of standard output and of stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.splitlines(), err.splitlines()


@contextmanager
def service(folder: Path, *arguments: str) -> Iterator[Service]:
    """A service, which is killed at the end if it still runs."""
    running = Service(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


class Caller:
    """Calls of a service by name: ``caller("Exchange", worker="a", want=1)``. A context manager."""

    def __init__(self, address: str, name: str = "shards", channel: Any = None) -> None:
        import grpc

        self.protocol = protocol(name)
        self.channel = channel or grpc.insecure_channel(address)
        self._stubs = {
            call.name: (
                call.request,
                (self.channel.unary_stream if call.stream else self.channel.unary_unary)(
                    f"/{SERVICES[name]}/{call.name}", call.request.SerializeToString, call.reply.FromString
                ),
            )
            for call in self.protocol.calls
        }

    def __call__(self, method: str, /, timeout: float = 10, **fields: Any) -> Any:
        request, stub = self._stubs[method]
        return stub(request(**fields), timeout=timeout)

    def future(self, method: str, /, **fields: Any) -> Any:
        """A call that goes on."""
        request, stub = self._stubs[method]
        return stub.future(request(**fields))

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
