"""Parts of remote shards are fetched before they are needed: once, in order, within a bound, and
never wrong bytes.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import KINDS, Fault, FaultServer
from trainshards import needs_torch, write_shards

import tarkit
from tarkit.errors import DataError, StreamError, TarkitError, UsageError
from tarkit.trainers.order import EpochOrder, OrderSettings
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.streams import Stream

SHARDS, COUNT, RUN = 6, 40, 10
PART = RUN * 4608
"""Bytes of a run of samples of 3,000 bytes and a class."""
OPTIONS: dict[str, Any] = {"batch": 8, "fields": "__key__ bin", "decode": None, "seed": 3, "run": RUN, "block": 40}


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(keeps=True) as server:
        yield server


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    def fields(shard: int, number: int) -> dict[str, bytes]:
        return {"bin": random.Random(f"{shard} {number}").randbytes(3000), "cls": b"1"}

    return write_shards(tmp_path_factory.mktemp("shards"), [COUNT] * SHARDS, fields, encoder=False)


@pytest.fixture
def remote(server: FaultServer, local: str) -> str:
    return put(server, local)


def put(server: FaultServer, local: str) -> str:
    for path in Path(local).parent.iterdir():
        server.put(path.name, path.read_bytes())
    return f"http://{server.host}/s-{{0..{SHARDS - 1}}}.tar"


def loader(shards: str, **options: Any) -> Any:
    return tarkit.batches(shards, collate=list, **{**OPTIONS, **options})


def runs(server: FaultServer) -> Counter[tuple[str, int]]:
    """How often each run was asked for."""
    found = Counter[tuple[str, int]]()
    for path, headers in server.requests:
        begin, end = map(int, headers.get("Range", "bytes=0-0").removeprefix("bytes=").split("-"))
        if path.endswith(".tar") and end - begin > PART // 2:  # not the first byte, nor the end of the shard
            found.update((path, at // PART) for at in range(begin, end + 1, PART))
    return found


def fetching() -> int:
    """Number of threads that fetch ahead."""
    return sum(thread.name.startswith("tarkit-ahead") for thread in threading.enumerate())


def wait_until_quiet() -> None:
    end = time.monotonic() + 30
    while fetching() and time.monotonic() < end:
        time.sleep(0.005)
    assert not fetching()


EVERY = {(f"s-{shard}.tar", run): 1 for shard in range(SHARDS) for run in range(COUNT // RUN)}


@pytest.mark.parametrize(
    ("ahead", "shuffle"), [(0, True), (1, True), (1, False), (3 * PART, False), (1 << 30, True), (1 << 30, False)]
)
def test_any_size_gives_the_same_batches_and_asks_once(
    server: FaultServer, remote: str, local: str, tmp_path: Path, ahead: int, shuffle: bool
) -> None:
    expected = loader(local, shuffle=shuffle)
    found = loader(remote, shuffle=shuffle, ahead=ahead, cache=tmp_path)
    for _ in range(2):
        assert list(found) == list(expected)
        assert runs(server) == EVERY
    wait_until_quiet()


def test_a_subset_and_streams(server: FaultServer, remote: str, local: str, tmp_path: Path) -> None:
    """Only the parts of chosen samples are fetched, and those of the streams' samples."""
    numbers = range(5, SHARDS * COUNT, 2 * RUN)
    some = [ShardMap(shards, cache=tmp_path, run=RUN).subset(numbers) for shards in (remote, local)]
    found, expected = (list(tarkit.batches(each, collate=list, **OPTIONS)) for each in some)  # type: ignore[arg-type]
    assert found == expected and len(found) == 1
    assert {run % 2 for _, run in runs(server)} == {0}
    for first in (remote, local):
        streams = [Stream(first.replace("{0..5}", each), repeat=2) for each in ("{0..2}", "{3..5}")]
        keys = Counter(key for batch in loader(streams, cache=tmp_path) for key, _ in batch)  # type: ignore[arg-type]
        assert len(keys) == SHARDS * COUNT and set(keys.values()) == {2}
    assert runs(server) == EVERY
    wait_until_quiet()


def test_neighbours_come_by_one_request(server: FaultServer, remote: str, tmp_path: Path) -> None:
    """Whole shards without a shuffle; beside each, its first byte and its end."""
    assert len(list(loader(remote, shuffle=False, lanes=1, cache=tmp_path, batch=40))) == SHARDS
    assert runs(server) == EVERY
    asked = Counter(path for path, _ in server.requests)
    assert sum(asked[f"s-{shard}.tar"] for shard in range(SHARDS)) <= 4 * SHARDS


def test_no_more_is_fetched_than_the_bound(server: FaultServer, remote: str, tmp_path: Path) -> None:
    """Beside what the batches that were read need."""
    running = iter(loader(remote, shuffle=False, lanes=1, ahead=3 * PART, cache=tmp_path))
    used = set()
    for _ in range(12):
        used |= {(f"s-{key.split('-')[0]}.tar", int(key.split("-")[1]) // RUN) for key, _ in next(running)}
        time.sleep(0.02)
        assert len(runs(server)) <= len(used) + 3
    end = time.monotonic() + 30
    while len(runs(server)) < len(used) + 3 and time.monotonic() < end:
        time.sleep(0.005)
    assert len(runs(server)) == len(used) + 3
    running.close()


@pytest.mark.parametrize("size", [9 * PART, 5 * PART, PART // 2])
def test_a_cache_smaller_than_what_is_fetched_ahead(
    server: FaultServer, remote: str, local: str, tmp_path: Path, size: int
) -> None:
    """Nothing that waits for its use is removed, and fetched again."""
    expected = list(loader(local, shuffle=False, lanes=2))
    found = list(loader(remote, shuffle=False, lanes=2, cache=tmp_path, cache_size=size))
    assert found == expected
    asked = runs(server)
    assert asked == (EVERY if size > PART else {})
    assert sum(path.stat().st_size for path in tmp_path.glob("*.part")) <= size


def test_an_early_end_stops_the_threads(server: FaultServer, remote: str, tmp_path: Path) -> None:
    for each in server.objects.values():
        each.always = Fault("drip", 1000)
    running = iter(loader(remote, cache=tmp_path))
    next(running)
    running.close()
    wait_until_quiet()
    sent = server.sent
    time.sleep(0.3)
    assert server.sent == sent
    found = loader(remote, cache=tmp_path)
    for batch in found:
        assert len(batch) == 8
        break
    del batch
    gc.collect()
    wait_until_quiet()
    for first, _ in zip(found, found, strict=False):  # a second iteration ends the first one
        assert len(first) == 8
        break
    gc.collect()
    wait_until_quiet()


def test_an_error_is_raised_where_the_sample_is_read(server: FaultServer, remote: str, tmp_path: Path) -> None:
    """And by the reading, which tries again: errors that are over by then are none."""
    found = loader(remote, shuffle=False, lanes=1, cache=tmp_path)
    server.objects["s-3.tar"].faults = [Fault("status", status=403)]
    gone, opening = server.objects["s-4.tar"], [Fault(), Fault()]
    gone.faults, gone.always = opening[:], Fault("status", status=403)
    keys: list[str] = []
    with pytest.raises(StreamError, match=r"s-4\.tar.* 403 Forbidden"):
        keys.extend(key for batch in found for key, _ in batch)
    assert keys == [f"{shard}-{number}" for shard in range(4) for number in range(COUNT)]
    wait_until_quiet()
    gone.faults = opening[:]
    counting = loader(remote, cache=tmp_path / "other", on_error="count")
    assert sum(map(len, counting)) == (SHARDS - 1) * COUNT and counting.counts["failed"] == COUNT
    wait_until_quiet()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("stall", "drip")])
def test_faults_of_the_server_change_no_byte(
    server: FaultServer, remote: str, local: str, tmp_path: Path, kind: str
) -> None:
    expected = list(loader(local))
    found = loader(remote, cache=tmp_path)
    draw = random.Random(kind)
    for shard in range(SHARDS):
        server.objects[f"s-{shard}.tar"].faults = [Fault()] * draw.randrange(2, 5) + [Fault(kind, 5000)]
    read: list[Any] = []
    try:
        read.extend(found)
    except TarkitError as error:
        assert kind == "replace" and "was replaced while it was read" in str(error)
    assert read == expected[: len(read)] and (kind == "replace" or len(read) == len(expected))
    wait_until_quiet()


def test_a_cache_that_cannot_be_used(server: FaultServer, remote: str, local: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(loader(remote, cache=tmp_path / "file")) == list(loader(local))
    wait_until_quiet()
    with pytest.raises(UsageError, match="ahead is -1; it must be a whole number from 0"):
        loader(remote, ahead=-1)


def test_shards_that_cannot_be_identified_are_read_without_the_cache(
    server: FaultServer, remote: str, local: str, tmp_path: Path
) -> None:
    for each in server.objects.values():
        each.etag = ""
    batch, other = next(iter(loader(remote, cache=tmp_path))), next(iter(loader(local)))
    assert batch == other


def _rank(shards: str, folder: str, rank: int, result: Any) -> None:
    result.put([key for batch in loader(shards, cache=folder, rank=rank, world=2, lanes=1) for key, _ in batch])


def test_ranks_of_one_machine_fetch_a_part_once(server: FaultServer, remote: str, local: str, tmp_path: Path) -> None:
    """With one lane, both need all parts."""
    context = multiprocessing.get_context("fork")
    results = [context.Queue() for _ in range(2)]
    ranks = [context.Process(target=_rank, args=(remote, str(tmp_path), rank, results[rank])) for rank in range(2)]
    for process in ranks:
        process.start()
    keys = [key for result in results for key in result.get(timeout=60)]
    for process in ranks:
        process.join()
    assert sorted(keys) == sorted(key for batch in loader(local) for key, _ in batch)
    assert runs(server) == EVERY


def test_a_rank_that_is_killed_stops_no_other(server: FaultServer, remote: str, local: str, tmp_path: Path) -> None:
    for shard in range(SHARDS):
        server.objects[f"s-{shard}.tar"].always = Fault("drip", 1000)
    context = multiprocessing.get_context("fork")
    killed = context.Process(target=_rank, args=(remote, str(tmp_path), 0, context.Queue()))
    killed.start()
    end = time.monotonic() + 30
    while not runs(server) and time.monotonic() < end:
        time.sleep(0.002)
    os.kill(killed.pid or 0, signal.SIGKILL)
    killed.join()
    before = runs(server)
    options = {"cache": tmp_path, "cache_size": 30 * PART, "lanes": 1}
    assert list(loader(remote, **options)) == list(loader(local, lanes=1))
    asked = runs(server)
    assert asked.keys() == EVERY.keys() and all(count == 1 or before[run] for run, count in asked.items())


def test_a_plan_that_fails_stops_no_loop(
    remote: str, local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planned")

    monkeypatch.setattr("tarkit.trainers.fetchplan.FetchPlan.next_job", fail)
    assert list(loader(remote, cache=tmp_path)) == list(loader(local))
    expected = "shards are not fetched ahead any more in this epoch: KeyError('planned')"
    assert caplog.messages and set(caplog.messages) == {expected}


def test_the_shortest_epochs(server: FaultServer, local: str, tmp_path: Path) -> None:
    remote = put(server, local)
    found = loader(remote, cache=tmp_path, batch=SHARDS * COUNT)
    assert sum(map(len, found)) == SHARDS * COUNT
    found.load_state_dict(found.source.state(0, 1))
    assert list(found) == []
    assert loader(remote, cache=tmp_path, ahead=1)
    wait_until_quiet()


def test_a_damaged_part_is_an_error_with_its_place(server: FaultServer, remote: str, tmp_path: Path) -> None:
    content = bytearray(server.objects["s-0.tar"].content)
    content[25 * 4608] ^= 1
    server.put("s-0.tar", bytes(content))
    keys: list[str] = []
    with pytest.raises(DataError, match=r"s-0\.tar, offset 115200: .*is stale"):
        keys.extend(key for batch in loader(remote, shuffle=False, lanes=1, cache=tmp_path) for key, _ in batch)
    assert len(keys) == 24


def test_the_bytes_that_one_batch_needs_first_are_few() -> None:
    """After the first batch: the lanes do not all begin a block in the same one."""
    settings = OrderSettings(256, seed=1, lanes=8, run=100, block=1000)
    order, known, most = EpochOrder([1000] * 40, settings, 0), set[tuple[int, int]](), 0
    for number in range(order.batches):
        parts = {(place.shard, place.sample // 100) for place in order.batch(number)}
        most = max(most, len(parts - known) if number > 3 else 0)
        known |= parts
    assert len(known) == 400 and most <= 12


@needs_torch
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_pytorch_fetch_for_themselves(
    server: FaultServer, remote: str, local: str, tmp_path: Path, start: str
) -> None:
    from tarkit.trainers.torch import ShardDataset

    def rows(batches: Any) -> list[list[tuple[Any, ...]]]:
        return [[tuple(row) for row in batch] for batch in batches]

    expected = list(loader(local))
    dataset = ShardDataset(remote, cache=tmp_path, collate=list, **OPTIONS)
    assert rows(dataset.loader(0)) == expected
    wait_until_quiet()
    assert runs(server) == EVERY
    for path in tmp_path.glob("*.part"):
        path.unlink()
    server.requests.clear()
    later = loader(local)
    later.set_epoch(1)
    assert rows(dataset.loader(2, multiprocessing_context=start)) == list(later)
    assert runs(server) == EVERY and not fetching()


@needs_torch
def test_workers_that_persist_stop_at_an_early_end(remote: str, tmp_path: Path) -> None:
    from tarkit.trainers.torch import ShardDataset

    dataset = ShardDataset(remote, cache=tmp_path, collate=list, **OPTIONS)
    for batch in dataset.loader(1, persistent_workers=True):
        assert len(batch) == 8
        break
    assert dataset.ended() == 1
    reading = dataset.read_epoch()  # as a worker does
    next(reading)
    assert fetching()
    dataset.end_iteration()
    wait_until_quiet()
    assert len(next(reading)) == 8
