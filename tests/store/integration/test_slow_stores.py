"""Stores that are slow, but not gone: what takes long is not cut, and what fails late is tried
again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from times import Times, fast

from tarkit.errors import GivenUpError
from tarkit.specs.shardspec import expand
from tarkit.store import waits
from tarkit.store.entries import entries, remove, stat
from tarkit.store.objects import sink
from tarkit.store.objects.sink import Found, ObjectSink, ObjectStore
from tarkit.store.publish import open_publish
from tarkit.store.retry import Dropped, Patience

PART = 64 << 10


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """A store on which one request may take 50 ms."""
    files = fsspec.filesystem("memory")
    files.pipe({"/slow/a.tar": b"a", "/slow/d/b.tar": b"b"})
    monkeypatch.setattr(Patience, "left", lambda self: 0.05)
    yield files
    monkeypatch.undo()
    files.rm("/slow", recursive=True)


def test_uploads_listings_and_removals_are_not_cut(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes 200 ms, of a time that nothing else takes any of."""
    times, cut = Times(), []

    def slow(name: str) -> Any:
        method = getattr(MemoryFileSystem, name)

        def slower(*arguments: Any, **options: Any) -> Any:
            times.sleep(0.2)
            return method(*arguments, **options)

        return slower

    def call(function: Any, *arguments: Any, seconds: float = 1e6) -> Any:
        began = times.clock()
        result = function(*arguments)
        if times.clock() - began > seconds:
            cut.append(function)
            raise waits.Late(seconds)
        return result

    for name in ("put_file", "mv", "ls", "find", "glob", "rm"):
        monkeypatch.setattr(MemoryFileSystem, name, slow(name))
    monkeypatch.setattr(waits, "call", call)
    with open_publish("memory://slow/new/c.tar") as out:
        out.write(b"c" * 100)
    assert sorted(expand("memory://slow/*.tar")) == ["memory://slow/a.tar"]
    assert [entry.name for entry in entries("memory://slow") if not entry.is_folder] == ["a.tar"]
    assert sorted(entry.name for entry in entries("memory://slow", recursive=True)) == ["a.tar", "d/b.tar", "new/c.tar"]
    remove("memory://slow/d", recursive=True)
    assert not memory.exists("/slow/d/b.tar")
    assert times.waited > 1 and cut == []


def test_a_single_request_is_cut(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(memory, "info", lambda path, **options: release.wait(100))
    monkeypatch.setattr(Patience, "failed", lambda self, drop, *more: (_ for _ in ()).throw(GivenUpError(drop.reason)))
    with pytest.raises(GivenUpError, match="no answer within 0 s"):
        stat("memory://slow/a.tar")
    release.set()


def test_an_attempt_that_fails_late_is_tried_again() -> None:
    """Of a listing of a million objects, say, whose last request is answered with 503."""
    times, calls = Times(), []

    def attempt(seconds: float) -> int:
        calls.append(seconds)
        if len(calls) < 3:
            times.sleep(400 if len(calls) == 1 else 100)
            raise Dropped("busy")
        return 5

    assert Patience(fast(times), "s3://b/x").run(attempt) == 5
    assert len(calls) == 3


class Line:
    """A line on which any number of parts that are sent together take a second, and no other time
    passes.

    Attributes:
        seconds: how many have passed. A second begins when all stores have sent their part of one
            number.
    """

    def __init__(self, stores: int) -> None:
        self.stores = stores
        self.seconds = 0.0
        self.begun: Counter[int] = Counter()
        self.arrived: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.moving: list[asyncio.Task[None]] = []

    async def carry(self, number: int) -> None:
        self.begun[number] += 1
        if self.begun[number] == self.stores:
            # A task of its own, since the one that sends may be cancelled.
            self.moving.append(asyncio.create_task(self.move(number)))
        await self.arrived[number].wait()

    async def move(self, number: int) -> None:
        for _ in range(10):
            await asyncio.sleep(0.02)
            self.seconds += 0.1
        self.arrived[number].set()


class SharedLine(ObjectStore):
    """An object store behind such a line."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.token = "ours"
        self.path = "b/x"
        self.fs = fsspec.filesystem("memory")
        self.sent: list[int] = []
        self.size = 0

    async def put(self, data: bytes) -> None:
        await self.send(1, data, True)

    async def send(self, number: int, data: bytes, final: bool) -> None:
        self.sent.append(number)
        await self.line.carry(number)
        self.size += len(data)

    async def finish(self) -> None: ...

    async def look(self) -> Found | None:
        return Found(self.size, self.token) if self.size else None


@pytest.mark.parametrize("count", [1, 5], ids=["put whole", "in parts"])
def test_uploads_that_share_a_slow_line_do_not_time_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part alone could be late after 0.3 s; all of them together need a second."""
    line = Line(32)
    monkeypatch.setattr(sink, "part_size", lambda number: PART)
    monkeypatch.setattr(sink, "_SENDING_SECONDS", 0.0)
    monkeypatch.setattr(sink, "_SLOWEST", PART / 0.3)
    monkeypatch.setattr(sink, "time", SimpleNamespace(monotonic=lambda: line.seconds))
    end = time.monotonic() + 60

    def look_again(futures: Any, until: float) -> None:
        # A wait by the system's clock would have no end that means anything here. But a store that
        # has failed sends no later part, and then the line's clock stands still.
        assert time.monotonic() < end, "a part has not arrived in 60 s"
        time.sleep(0.005)

    monkeypatch.setattr(sink, "waits", SimpleNamespace(**{**vars(waits), "first_of": look_again}))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        stores = [SharedLine(line) for _ in range(line.stores)]
        sinks = [ObjectSink(store, loop, "s3://b/x", "s3://b/x", False, fast()) for store in stores]
        for each in sinks:
            each.write(bytes(PART * count))
        with ThreadPoolExecutor(line.stores) as pool:
            committing = [pool.submit(each.commit) for each in sinks]
        for each in committing:
            each.result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert [store.sent for store in stores] == [list(range(1, count + 1))] * line.stores
    assert not sink.UNDER_WAY
