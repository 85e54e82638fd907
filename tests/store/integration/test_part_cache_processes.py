"""Parts of remote files that several processes share."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest

from tarkit.store.cache import Part, PartCache, range_part
from tarkit.store.entries import Identity

URL, IDENTITY = "s3://bucket/a.tar", Identity(10_000, "tag")


def part(number: int, size: int = 1000) -> Part:
    return range_part(URL, IDENTITY, number * 10_000, number * 10_000 + size)


def content(found: Part) -> bytes:
    return random.Random(found.name).randbytes(found.size)


def kept(cache: PartCache, found: Part) -> bytes | None:
    cache.keep(found, lambda: content(found))
    return cache.read(found, found.start, found.start + found.size)


def held(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.iterdir() if not entry.name.startswith((".lock-", ".sum")))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith((".lock-", ".sum")))


def _read_all(folder: str, log: str, seed: int) -> None:
    cache, draw = PartCache(folder, 40_000), random.Random(seed)
    for _ in range(60):
        found = part(draw.randrange(30))

        def fetch(found: Part = found) -> bytes:
            with open(log, "a") as out:
                out.write(f"{found.name}\n")
            return content(found)

        cache.keep(found, fetch)
        if cache.read(found, found.start, found.start + found.size) != content(found):
            os._exit(1)


def test_several_processes_fetch_a_part_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    (tmp_path / "cache").mkdir()
    arguments = [(str(tmp_path / "cache"), str(tmp_path / "log"), seed) for seed in range(6)]
    processes = [context.Process(target=_read_all, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * 6
    fetched = (tmp_path / "log").read_text().splitlines()
    assert len(fetched) == len(set(fetched)) == len(names(tmp_path / "cache")) == 30


def _is_killed(folder: str, ready: str, at: str) -> None:
    cache = PartCache(folder, 3000)

    def fetch() -> bytes:
        if at == "fetch":
            Path(ready).touch()
            time.sleep(60)
        return content(part(0))

    if at == "write":
        os.fsync = lambda fd: (Path(ready).touch(), time.sleep(60))  # type: ignore[assignment]
    cache.keep(part(0), fetch)


@pytest.mark.parametrize("at", ["fetch", "write"])
def test_a_process_that_is_killed_leaves_nothing_that_is_believed(tmp_path: Path, at: str) -> None:
    folder, ready = tmp_path / "cache", tmp_path / "ready"
    process = multiprocessing.get_context("fork").Process(target=_is_killed, args=(str(folder), str(ready), at))
    process.start()
    end = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.01)
    cache = PartCache(folder, 3000)
    assert not cache.has(part(0)) and len(names(folder)) == 1
    kept(cache, part(5))
    process.kill()
    process.join()
    assert not cache.has(part(0)) and cache.read(part(0), 0, 1) is None
    assert kept(cache, part(0)) == content(part(0)), "its locks have gone with it"
    for number in range(6, 9):
        kept(cache, part(number))
    assert all(name.endswith(".part") for name in names(folder)) and held(folder) <= 3000


def test_a_child_that_is_forked_meanwhile_does_not_keep_a_lock(tmp_path: Path) -> None:
    cache = PartCache(tmp_path, 10_000)
    children = []

    def fetch() -> bytes:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        children.append(child)
        return content(part(0))

    cache.keep(part(0), fetch)
    try:
        os.unlink(tmp_path / part(0).name)
        assert kept(PartCache(tmp_path, 10_000), part(0)) == content(part(0))
    finally:
        children[0].kill()
        children[0].join()


def _pins(folder: str, ready: str) -> None:
    cache = PartCache(folder, 2000)
    cache.unpin(part(7))  # that of the parent, which has no meaning here
    cache.pin(part(0))
    Path(ready).touch()
    time.sleep(60)


def test_a_process_that_is_killed_pins_nothing(tmp_path: Path) -> None:
    folder, ready = tmp_path / "cache", tmp_path / "ready"
    cache = PartCache(folder, 2000)
    cache.pin(part(7))
    assert kept(cache, part(0)) is not None
    process = multiprocessing.get_context("fork").Process(target=_pins, args=(str(folder), str(ready)))
    process.start()
    end = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < end:
        time.sleep(0.01)
    kept(cache, part(7))
    assert kept(cache, part(1)) is None and cache.has(part(0)) and cache.has(part(7))
    process.kill()
    process.join()
    assert kept(cache, part(1)) is not None and cache.has(part(7)) and not cache.has(part(0))
