"""Programs whose store is gone (refused, a hole in the network, silent, without an address) end
when they should.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from httpserver import Fault as HttpFault
from httpserver import FaultServer
from installed import program_path
from s3_client import s3_bucket
from s3proxy import Fault, s3_proxy
from times import Times
from waiting import on_this_machine, wait_for

from tarkit.store.http import connection
from tarkit.store.objects import s3
from tarkit.store.retry import DEFAULT_RETRY

Run = Callable[..., Any]
KINDS = ("refused", "hole", "silent", "nameless")
WAYS = {
    "tarproc": ("tarproc", "-c", "true", "a.tar", "-O", "s3://b/out"),
    "put": ("tarkit", "put", "a.tar", "s3://b/k"),
    "ls": ("tarkit", "ls", "s3://b/f/"),
    "get-http": ("tarkit", "get", "http://HOST/k.tar", "out/"),
    "put-webhdfs": ("tarkit", "put", "a.tar", "webhdfs://HOST/k"),
    "cat-hdfs": ("tarkit", "cat", "hdfs://HOST/k.tar", "-o", "out.tar"),
}
RETRY_LINE = re.compile(r"^tar(kit|proc): .*; trying again in \d+\.\d s \(attempt \d of \d\)$")


class Place:
    """Where a store should be.

    Attributes:
        host: host:port.
        asked: how many connections were begun.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.asked = 0
        self._stack = contextlib.ExitStack()
        self._listener = self._stack.enter_context(socket.socket())
        self._listener.bind(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.host = f"no-such-host.invalid:{port}" if kind == "nameless" else f"127.0.0.1:{port}"
        if kind == "silent":
            self._listener.listen(100)
            threading.Thread(target=self._take, daemon=True).start()
        elif kind == "hole":
            # A queue that is full loses what comes, as a firewall does.
            self._listener.listen(0)
            for _ in range(3):
                hog = self._stack.enter_context(socket.socket())
                hog.setblocking(False)
                hog.connect_ex(("127.0.0.1", port))

    def _take(self) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
            while True:
                open_.enter_context(self._listener.accept()[0])
                self.asked += 1

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._stack.close()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("a.txt", "b.txt"):
            archive.add(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return tmp_path


# Signals


def is_waiting(place: Place, lines: list[bytes]) -> bool:
    """Whether the program is at the store: it has said so, or its connection has come."""
    return place.asked > 0 or any(b"trying again" in line for line in lines)


def collect(stream: Iterable[bytes], lines: list[bytes]) -> None:
    for line in stream:
        lines.append(line)


def ended_by(way: str, kind: str, number: signal.Signals, folder: Path) -> str:
    """What is wrong with the end of a program that a signal reaches while it waits for its store.

    "" if nothing is.
    """
    with Place(kind) as place:
        folder.mkdir()
        (folder / "a.tar").write_bytes(Path("a.tar").read_bytes())
        command = [word.replace("HOST", place.host) for word in WAYS[way]]
        process = subprocess.Popen(
            [program_path(command[0]), *command[1:]],
            cwd=folder,
            env={**os.environ, "AWS_ENDPOINT_URL": f"http://{place.host}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        lines: list[bytes] = []
        reader = threading.Thread(target=collect, args=(process.stderr, lines))
        reader.start()
        try:
            wait_for(lambda: is_waiting(place, lines) or process.poll() is not None)
            begin = time.monotonic()
            process.send_signal(number)
            process.wait(60)
            seconds = time.monotonic() - begin
        finally:
            process.kill()
            reader.join()
            process.stderr.close()
    problems = [] if process.returncode == 128 + number else [f"exit code {process.returncode}"]
    problems += [f"{seconds:.1f} s"] if seconds > on_this_machine(5) else []
    problems += [f"left {path.name}" for path in folder.rglob("*") if path.is_file() and path.name != "a.tar"]
    problems += [line.decode() for line in lines[:-1] if not RETRY_LINE.match(line.decode().strip())]
    return f"{way} {kind} {number.name}: {problems}" if problems else ""


def test_a_signal_ends_a_program_whose_store_is_gone_within_5_seconds(bench: Path) -> None:
    # A hole is known only after 10 seconds: one case, that begins first.
    cases = [("get-http", "hole"), ("tarproc", "silent"), ("put", "nameless"), ("ls", "refused")]
    cases += [("put-webhdfs", "refused"), ("cat-hdfs", "silent")]
    numbered = [(*case, (signal.SIGTERM, signal.SIGINT)[at % 3 // 2], bench / str(at)) for at, case in enumerate(cases)]
    with ThreadPoolExecutor(6) as pool:
        assert [said for said in pool.map(lambda case: ended_by(*case), numbered) if said] == []


# The end of patience


@pytest.fixture
def no_waits() -> Iterator[Times]:
    """Waits between attempts take no time."""
    times = Times()
    changed = {"sleep": times.sleep, "clock": times.clock, "random": lambda: 0.5}
    before = {name: getattr(DEFAULT_RETRY, name) for name in changed}
    for name, value in changed.items():
        # It is frozen, and the default of many functions.
        object.__setattr__(DEFAULT_RETRY, name, value)
    yield times
    for name, value in before.items():
        object.__setattr__(DEFAULT_RETRY, name, value)
    theirs = fsspec.get_filesystem_class("s3")
    for kind in (theirs, *theirs.__subclasses__()):
        kind.clear_instance_cache()


@pytest.fixture
def quick(no_waits: Times, monkeypatch: pytest.MonkeyPatch) -> Iterator[Times]:
    """Who is silent is waited for a tenth of a second only."""
    for module, name in ((s3, "_CONNECT_SECONDS"), (s3, "_READ_SECONDS"), (connection, "CONNECT_SECONDS")):
        monkeypatch.setattr(module, name, 0.1)
    before = DEFAULT_RETRY.timeout
    object.__setattr__(DEFAULT_RETRY, "timeout", 0.1)
    yield no_waits
    object.__setattr__(DEFAULT_RETRY, "timeout", before)


def reach(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"endpoint_url": f"http://{place.host}", "key": "x", "secret": "x"}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_gone_ends_a_program_after_8_attempts(
    bench: Path, run: Run, quick: Times, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for way in ("tarproc", "get-http", "put-webhdfs") if kind == "refused" else ("put",):
        with Place(kind) as place:
            reach(place, monkeypatch)
            begin = quick.waited
            result = run(*(word.replace("HOST", place.host) for word in WAYS[way]))
            assert result.code == 75, (way, result.stderr)
            lines = result.stderr.splitlines()
            # The waits were 0.25, 0.5, 1, 2, 4, 8 and 15 s: those that end after 2 s are told.
            assert [bool(RETRY_LINE.match(line)) for line in lines[:5]] == [True] * 4 + [False], result.stderr
            assert "failed after 8 attempts in a row within 31 s" in result.stderr
            assert 30 < quick.waited - begin < 31
            if kind == "silent":
                # The last connection may be counted later.
                wait_for(lambda: place.asked >= 8)
                # One more is aiohttp's, which asks for both addresses of a host, or for a kept
                # connection again.
                assert place.asked <= 16, (way, place.asked)
        assert not Path("out.tar").exists() and not list(Path().glob("out/*"))


def test_the_store_of_many_shards_that_is_gone_is_not_asked_for_each(
    bench: Path, run: Run, quick: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [bench / f"{number:03d}.tar" for number in range(40)]
    for path in inputs:
        path.write_bytes(Path("a.tar").read_bytes())
    with Place("silent") as place:
        reach(place, monkeypatch)
        result = run("tarkit", "put", *inputs, "s3://b/f/")
        assert result.code == 75, result.stderr
        # What is at work together finds it out together.
        assert place.asked <= 16 * 8
    assert result.stderr.count("failed after 8 attempts") <= 16
    assert result.stderr.count("not tried, because its store did not answer before") >= 40 - 16


def test_one_object_that_can_not_be_had_is_no_store_that_is_gone(bench: Path, run: Run, no_waits: Times) -> None:
    with FaultServer() as server:
        urls = [server.put(f"{name}.tar", b"") for name in "abc"]
        server.objects["a.tar"].always = HttpFault("status", status=503)
        result = run("tarkit", "get", *urls, "copies/")
    assert result.code == 75, result.stderr
    assert sorted(path.name for path in Path("copies").iterdir()) == ["b.tar", "c.tar"]


@pytest.mark.parametrize("way", ["tarproc", "put"])
def test_a_shard_that_the_store_lost_is_an_error_without_a_done_record(
    bench: Path, run: Run, no_waits: Times, s3_endpoint: str, way: str
) -> None:
    with s3_proxy(s3_endpoint) as proxy, s3_bucket(s3_endpoint, proxy.endpoint) as s3:
        # It answers, and keeps nothing.
        proxy.faults.append(Fault("put", 200, body=b""))
        command = {
            "tarproc": ("tarproc", "-c", "true", "a.tar", "-O", s3.url("out")),
            "put": ("tarkit", "put", "a.tar", s3.url("k")),
        }[way]
        result = run(*command)
        assert result.code == 75, result.stderr
        assert "accepted the upload, but no object has this name" in result.stderr
        assert s3.names() == []
