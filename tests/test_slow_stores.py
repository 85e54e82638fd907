"""Stores that are slow, but not gone: what takes long is not cut, and what fails late is tried again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from faults.times import Times, fast
from fsspec.implementations.memory import MemoryFileSystem

from tarkit.errors import GivenUpError
from tarkit.specs.shardspec import expand
from tarkit.store.entries import entries, remove, stat
from tarkit.store.objects import sink
from tarkit.store.objects.sink import Found, ObjectSink, ObjectStore
from tarkit.store.publish import open_publish
from tarkit.store.retry import Dropped, Patience

PART = 64 << 10


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """A store on which one request may take 50 ms, and each call takes 200 ms."""

    def slow(name: str) -> Any:
        method = getattr(MemoryFileSystem, name)

        def slower(*arguments: Any, **options: Any) -> Any:
            time.sleep(0.2)
            return method(*arguments, **options)

        return slower

    files = fsspec.filesystem("memory")
    files.pipe({"/slow/a.tar": b"a", "/slow/d/b.tar": b"b"})
    for name in ("put_file", "mv", "ls", "find", "glob", "rm"):
        monkeypatch.setattr(MemoryFileSystem, name, slow(name))
    monkeypatch.setattr(Patience, "left", lambda self: 0.05)
    yield files
    monkeypatch.undo()
    files.rm("/slow", recursive=True)


def test_uploads_listings_and_removals_are_not_cut(memory: MemoryFileSystem) -> None:
    with open_publish("memory://slow/new/c.tar") as out:
        out.write(b"c" * 100)
    assert sorted(expand("memory://slow/*.tar")) == ["memory://slow/a.tar"]
    assert [entry.name for entry in entries("memory://slow") if not entry.is_folder] == ["a.tar"]
    assert sorted(entry.name for entry in entries("memory://slow", recursive=True)) == ["a.tar", "d/b.tar", "new/c.tar"]
    remove("memory://slow/d", recursive=True)
    assert not memory.exists("/slow/d/b.tar")


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


class SharedLine(ObjectStore):
    """An object store to which any number of parts that are sent together take a second."""

    def __init__(self) -> None:
        self.token = "ours"
        self.path = "b/x"
        self.fs = fsspec.filesystem("memory")
        self.sent: list[int] = []
        self.size = 0

    async def put(self, data: bytes) -> None:
        await self.send(1, data, True)

    async def send(self, number: int, data: bytes, final: bool) -> None:
        self.sent.append(number)
        await asyncio.sleep(1.0)
        self.size += len(data)

    async def finish(self) -> None: ...

    async def look(self) -> Found | None:
        return Found(self.size, self.token) if self.size else None


@pytest.mark.parametrize("count", [1, 5], ids=["put whole", "in parts"])
def test_uploads_that_share_a_slow_line_do_not_time_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part alone could be late after 0.3 s; all of them together need a second."""
    monkeypatch.setattr(sink, "part_size", lambda number: PART)
    monkeypatch.setattr(sink, "_SENDING_SECONDS", 0.0)
    monkeypatch.setattr(sink, "_SLOWEST", PART / 0.3)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        stores = [SharedLine() for _ in range(32)]
        sinks = [ObjectSink(store, loop, "s3://b/x", "s3://b/x", False, fast()) for store in stores]
        for each in sinks:
            each.write(bytes(PART * count))
        committing = [threading.Thread(target=each.commit) for each in sinks]
        for each in committing:
            each.start()
        for each in committing:
            each.join()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert [store.sent for store in stores] == [list(range(1, count + 1))] * 32
    assert not sink.UNDER_WAY
