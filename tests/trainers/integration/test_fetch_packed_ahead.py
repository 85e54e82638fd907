"""Compressed remote shards are fetched and decoded before their samples are read."""

from __future__ import annotations

import gzip
import importlib.util
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import Fault, FaultServer
from trainshards import write_shards

import tarkit
from tarkit.errors import CompressionError
from tarkit.names.outputnames import index_url
from tarkit.samples import cachedshard
from tarkit.samples.indexing import ensure_index
from tarkit.store.packedfile import open_packed
from tarkit.store.pins import pins_of

SHARDS, COUNT, SIZE = 3, 40, 100_000
CONTENT = 101_888 * COUNT
"""Bytes of the samples of a shard: two headers and a class beside each content."""
OPTIONS: dict[str, Any] = {"batch": 8, "fields": "__key__ bin", "decode": None, "seed": 3, "run": 10, "block": 40}
needs_gzip = pytest.mark.skipif(
    importlib.util.find_spec("indexed_gzip") is None, reason="NO indexed_gzip, NO .tar.gz IS READ BY NUMBER"
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    def fields(shard: int, number: int) -> dict[str, bytes]:
        return {"bin": random.Random(f"{shard} {number}").randbytes(SIZE), "cls": b"1"}

    return write_shards(tmp_path_factory.mktemp("plain"), [COUNT] * SHARDS, fields, encoder=False)


@pytest.fixture(scope="module", params=["zst", pytest.param("gz", marks=needs_gzip)])
def packed(request: pytest.FixtureRequest, plain: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the compressed shards with their indexes."""
    folder = tmp_path_factory.mktemp(request.param)
    for number in range(SHARDS):
        data = Path(plain).parent.joinpath(f"s-{number}.tar").read_bytes()
        path = folder / f"s-{number}.tar.{request.param}"
        if request.param == "gz":
            path.write_bytes(gzip.compress(data, 1))
        else:
            with tarkit.TarWriter(str(path), index=True) as writer:
                writer.write_all(tarkit.read_samples(str(Path(plain).parent / f"s-{number}.tar")))
        ensure_index(str(path))
    return folder


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(keeps=True) as server:
        yield server


def put(server: FaultServer, folder: Path) -> str:
    for path in folder.iterdir():
        server.put(path.name, path.read_bytes())
    suffix = next(path.suffix for path in folder.iterdir() if path.suffix in (".zst", ".gz"))
    return f"http://{server.host}/s-{{0..{SHARDS - 1}}}.tar{suffix}"


def loader(shards: str, **options: Any) -> Any:
    return tarkit.batches(shards, collate=list, **{**OPTIONS, **options})


def ranges(server: FaultServer, *ends: str) -> list[tuple[str, int, int]]:
    """Path, begin and end of each range that was asked for, but for the first byte alone."""
    with server.lock:
        asked = [(path, headers.get("Range", "bytes=0-0")) for path, headers in server.requests if path.endswith(ends)]
    pairs = [
        (path, *map(int, wanted.removeprefix("bytes=").split("-"))) for path, wanted in asked if wanted[-2:] != "-0"
    ]
    return [(path, begin, end + 1) for path, begin, end in pairs]


def bytes_asked(server: FaultServer) -> Counter[str]:
    found = Counter[str]()
    for path, begin, end in ranges(server, ".zst", ".gz"):
        found[path] += end - begin
    return found


def wait_until_quiet(folder: Path) -> None:
    """Wait until no thread fetches; nothing is pinned then."""
    end = time.monotonic() + 30
    while any(each.name.startswith("tarkit-ahead") for each in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.005)
    assert not any(each.name.startswith("tarkit-ahead") for each in threading.enumerate())
    assert not pins_of(str(folder))._counts


def wait_for_parts(folder: Path, count: int) -> None:
    """Wait until the cache has this number of parts of content."""
    end = time.monotonic() + 30
    while (found := sum(path.stat().st_size > 1 << 19 for path in folder.glob("*.part"))) < count:
        assert time.monotonic() < end, f"{found} parts"
        time.sleep(0.005)


@pytest.mark.parametrize(("ahead", "shuffle"), [(0, True), (1, True), (2 << 20, False), (None, True), (None, False)])
def test_any_size_gives_the_same_batches_and_asks_once(
    server: FaultServer, packed: Path, plain: str, tmp_path: Path, ahead: int | None, shuffle: bool
) -> None:
    remote, expected = put(server, packed), list(loader(plain, shuffle=shuffle))
    found = loader(remote, shuffle=shuffle, ahead=ahead, cache=tmp_path)
    assert list(found) == expected
    asked = bytes_asked(server)
    for path in packed.glob("s-?.tar.*z*"):
        if path.suffix in (".zst", ".gz"):
            # Beside its bytes: its end with the table, the frames that are compared with the index,
            # and bytes in which two blocks of gzip meet.
            assert path.stat().st_size * 0.99 < asked[path.name] < path.stat().st_size + (2 << 20) + (1 << 17)
    found.set_epoch(0)
    assert list(found) == expected
    again = loader(remote, shuffle=shuffle, ahead=ahead, cache=tmp_path)
    before = len(server.requests)
    assert list(again) == expected
    assert bytes_asked(server) == asked, "no content is fetched again"
    count = len(server.requests) - before
    kinds = 2 if remote.endswith("zst") else 3
    assert count == SHARDS * kinds, "a byte each of shard, index and points, which identifies them"
    wait_until_quiet(tmp_path)


def test_content_is_fetched_before_its_batch_by_few_requests(server: FaultServer, packed: Path, tmp_path: Path) -> None:
    """After the first batch, all of it; frames that follow each other by one request."""
    remote = put(server, packed)
    running = iter(loader(remote, shuffle=False, lanes=1, cache=tmp_path, cache_size=1 << 30))
    first = next(running)
    wait_for_parts(tmp_path, 12)
    asked = ranges(server, ".zst", ".gz")
    rest = [key for batch in running for key, _ in batch]
    assert ranges(server, ".zst", ".gz") == asked, "nothing was left to fetch for the other batches"
    assert len(first) + len(rest) == SHARDS * COUNT
    # The end of each shard, its frames that are compared with the index, and content: the first
    # part alone where it was waited for.
    assert len(asked) <= SHARDS * 4
    wait_until_quiet(tmp_path)


def test_an_early_end_stops_the_threads(server: FaultServer, packed: Path, tmp_path: Path) -> None:
    remote = put(server, packed)
    for path in packed.glob("s-?.tar.*"):
        server.objects[path.name].always = Fault("drip", 1000)
    running = iter(loader(remote, cache=tmp_path))
    next(running)
    running.close()
    wait_until_quiet(tmp_path)
    sent = server.sent
    time.sleep(0.2)
    assert server.sent == sent


@pytest.mark.parametrize(("least", "frame"), [(1 << 20, 1), (3 << 20, 1), (1 << 20, 3)])
def test_damage_costs_the_samples_of_its_frame_only(
    server: FaultServer, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, frame: int
) -> None:
    """Whether parts have one frame or three, and are fetched ahead or not; also of the last one."""
    monkeypatch.setattr(cachedshard, "_LEAST_CONTENT", least)
    remote = put(server, packed)
    name = remote.rpartition("/")[2].replace("{0..2}", "1")
    shutil.copy(packed / name, tmp_path)
    for extra in (index_url(name), f"{name}.seek"):
        if (packed / extra).exists():
            shutil.copy(packed / extra, tmp_path)
    table = open_packed(str(tmp_path / name)).frames.table
    damaged = bytearray(server.objects[name].content)
    damaged[(table.packed[frame] + table.packed[frame + 1]) // 2] ^= 16
    server.put(name, bytes(damaged))
    found = []
    for folder, ahead in (("a", 0), ("b", None)):
        before = bytes_asked(server)[name]
        counting = loader(remote, ahead=ahead, cache=tmp_path / folder, on_error="count")
        keys = [key for batch in counting for key, _ in batch]
        wait_until_quiet(tmp_path / folder)
        # A frame for each sample of the damaged one; its part is not tried again by each batch.
        assert bytes_asked(server)[name] - before < 8 * len(damaged)
        found.append((keys, counting.counts["failed"], [each[1:] for each in counting.skipped]))
    assert found[0] == found[1]
    _, failed, skipped = found[0]
    lost = range(table.unpacked[frame] // 101_888, min(COUNT, table.unpacked[frame + 1] // 101_888 + 1))
    assert sorted(key for key, _ in skipped) == sorted(f"1-{number}" for number in lost) and failed == len(lost)
    assert all("its compressed content at " in reason and "is damaged" in reason for _, reason in skipped)
    with pytest.raises(CompressionError, match=rf"{name}, key '1-{lost[0]}': its compressed content at \d+ to \d+ "):
        list(loader(remote, shuffle=False, lanes=1, cache=tmp_path / "c"))
    wait_until_quiet(tmp_path / "c")
    running = iter(loader(remote, shuffle=False, lanes=1, cache=tmp_path / "d", cache_size=1 << 30))
    next(running)
    wait_for_parts(tmp_path / "d", 11 if least == 1 << 20 else 5)  # all but that one, also neighbours requested with it
    running.close()
    wait_until_quiet(tmp_path / "d")


def test_shards_that_cannot_be_identified_are_read_without_the_cache(
    server: FaultServer, packed: Path, plain: str, tmp_path: Path
) -> None:
    remote = put(server, packed)
    for each in server.objects.values():
        each.etag = ""
    batch, other = next(iter(loader(remote, cache=tmp_path))), next(iter(loader(plain)))
    assert batch == other and not list(tmp_path.glob("*.part"))
