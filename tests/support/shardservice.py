"""``tarkit serve`` in a process of its own, and plain gRPC callers of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from object_servers import free_ports

from tarkit.elasticdl.mastercalls import master_protocol
from tarkit.service.messages import shard_protocol


class Service:
    """A process of ``tarkit serve``, as a context manager.

    One that still runs at the end is killed.

    Attributes:
        address, http: HOST:PORT, once it listens; they stay when it is started again.
    """

    process: subprocess.Popen[str]
    address = http = ""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder, self._arguments, self._ready = folder, arguments, folder / "ready"
        self.start()

    def start(self) -> None:
        """Start it, and return when it listens."""
        self._ready.unlink(missing_ok=True)  # of one that was killed
        command = [sys.executable, "-m", "tarkit.cli.tarkit", "serve", "--ready-file", str(self._ready)]
        command += self._arguments
        if self.address or "--listen" not in self._arguments:
            # Where it is killed, no other program is given its port before it is started again.
            command += ["--listen", self.address or f"127.0.0.1:{free_ports(1)[0]}"]
        self.process = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.address, self.http, *_ = f"{self._listening()}\n".split("\n")

    def _listening(self) -> str:
        until = time.monotonic() + 120
        while not self._ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError(f"the service does not listen: {self.process.communicate()}")
            time.sleep(0.02)
        return self._ready.read_text().strip()

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def end(self, seconds: float = 120) -> tuple[int, list[str], list[str]]:
        """Wait for its end; its exit code, and the lines of standard output and of stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out.splitlines(), err.splitlines()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Caller:
    """Calls of a service by name: ``caller("Exchange", worker="a", want=1)``.

    A context manager. On a channel of ``grpc.aio``, what a call gives is awaited.

    Args:
        elasticdl: they are those of its protocol.
    """

    def __init__(self, address: str, *, elasticdl: bool = False, channel: Any = None) -> None:
        import grpc

        self.channel = channel or grpc.insecure_channel(address)
        protocol = master_protocol() if elasticdl else shard_protocol()
        self.stubs = {call.name: (call.request, call.stub(self.channel)) for call in protocol.calls}

    def __call__(self, method: str, /, timeout: float | None = 120, **fields: Any) -> Any:
        request, stub = self.stubs[method]
        return stub(request(**fields), timeout=timeout)

    def future(self, method: str, /, **fields: Any) -> Any:
        """A call that goes on."""
        request, stub = self.stubs[method]
        return stub.future(request(**fields))

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
