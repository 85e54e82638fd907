"""Numbers of a loop with workers, remote shards or a shard service; and a test of a data set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from httpserver import FaultServer
from shardthread import InThread
from trainshards import copy_shard, needs_torch, wait_for_full_batches, write_shards

from tarkit.errors import CorruptHeaderError, TarkitError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.readers.reader import Shard
from tarkit.trainers import feedtest, loopnumbers, stageclock
from tarkit.trainers.feedtest import FeedReport, feed_test
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.stageclock import STAGES

COUNTS = (30, 0, 33)
BATCH = 4
BATCHES = sum(COUNTS) // BATCH
SIZE = 1024
"""Bytes of a sample in its shard."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.mark.parametrize("is_cached", [True, False])
def test_remote_samples_are_fetched_and_local_ones_are_not(
    shards: str, server: FaultServer, tmp_path: Path, is_cached: bool
) -> None:
    for path in Path(shards).parent.iterdir():
        server.put(path.name, path.read_bytes())
    url = f"{server.scheme}://{server.host}/{Path(shards).name}"
    cases = {url: tmp_path / "cache" if is_cached else False, shards: False}
    for urls, cache in cases.items():
        found = EpochLoader(BatchSource(urls, batch=BATCH, cache=cache))
        assert len(list(found)) == BATCHES
        (worker,) = found.numbers()["workers"]
        assert worker["bytes"] == found.numbers()["bytes"] == BATCHES * BATCH * SIZE
        assert (worker["fetching"] > 0) == (urls == url) and worker["reading"] >= 0


def test_batches_of_a_service_are_counted(shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc", reason="the shard service needs grpcio")
    from tarkit.service.client import ShardClient
    from tarkit.service.dataset import DataSet

    wait_for_full_batches(monkeypatch)
    files = [Shard(shards.replace("{0..2}", str(shard)), 0, count) for shard, count in enumerate(COUNTS)]
    with InThread(tmp_path / "state") as running:
        with ShardClient(running.address, DataSet.of_files("data", files, 5, epochs=1)) as client:
            client.connect()
        found = EpochLoader(BatchSource(shards, batch=BATCH, service=running.address))
        given = [len(batch) for batch in found]
    numbers = found.numbers()
    assert numbers["epoch"] is None and sum(given) == sum(COUNTS)
    assert (numbers["batches"], numbers["samples"], numbers["bytes"]) == (len(given), sum(COUNTS), sum(COUNTS) * SIZE)
    assert numbers["read_ahead"] == 0


def read_ahead(loader: Any, batches: int | None) -> int:
    """How many samples the workers have read ahead after an iteration that is left early, or not;
    the sums are those of the loop.
    """
    given = 0
    for number, batch in enumerate(loader, 1):
        given += len(batch)
        if number == batches:
            break
    numbers = loader.numbers()
    assert (numbers["samples"], numbers["bytes"]) == (given, given * SIZE)
    assert numbers["batches"] == (batches or BATCHES)
    made = [worker["samples"] for worker in numbers["workers"]]
    assert all(made) and sum(made) == given + numbers["read_ahead"]
    assert all(worker["reading"] > 0 and 0 <= worker["idle_share"] <= 1 for worker in numbers["workers"])
    assert numbers["waits"] is not None and 0 <= numbers["waits"] <= 1
    ahead = numbers["read_ahead"]
    assert isinstance(ahead, int)
    return ahead


@needs_torch
@pytest.mark.parametrize(
    "options", [{}, {"persistent_workers": True}, {"multiprocessing_context": "spawn", "persistent_workers": True}]
)
def test_workers_write_their_numbers(shards: str, options: dict[str, Any]) -> None:
    from tarkit.trainers.torch import ShardDataset

    loader = ShardDataset(shards, batch=BATCH).loader(1 if "multiprocessing_context" in options else 2, **options)
    assert read_ahead(loader, None) == 0
    assert 0 <= read_ahead(loader, 5) <= (1 + 2 + 4 + 8) * 2 * BATCH
    assert read_ahead(loader, None) == 0
    total = loader.numbers()["total"]
    assert total["batches"] == 2 * BATCHES + 5 and total["samples"] == BATCH * total["batches"]
    assert total["seconds"] > 0 and total["limit"] is not None


@needs_torch
def test_a_loader_without_workers(shards: str) -> None:
    from tarkit.trainers.torch import ShardDataset

    loader = ShardDataset(shards, batch=BATCH).loader()
    assert read_ahead(loader, 5) == read_ahead(loader, None) == 0


@needs_torch
def test_two_loaders_of_a_data_set_have_numbers_of_their_own(shards: str) -> None:
    from tarkit.trainers.torch import ShardDataset

    dataset = ShardDataset(shards, batch=BATCH)
    first, second = dataset.loader(1), dataset.loader(1)
    for loader in (second, first, second):
        assert read_ahead(loader, None) == 0
    assert [each.numbers()["total"]["batches"] for each in (first, second)] == [BATCHES, 2 * BATCHES]


def complete(report: FeedReport) -> None:
    """Check a report that has rates."""
    assert report.samples == BATCH * report.batches and report.bytes == SIZE * report.samples
    assert report.limit in ("ordering", "reading", "decoding", "collating", "pipe", "network")
    assert sum(stage.share for stage in report.stages.values()) == pytest.approx(1)
    assert [*report.stages] == [stage for stage in STAGES if report.workers or stage != "idle"]
    assert report.stages["reading"].samples_per_second and report.samples_per_second and report.seconds > 0
    assert report.machine_processors >= 1 and asdict(report)


def test_a_data_set_is_read_for_some_batches_or_some_time(shards: str) -> None:
    pytest.importorskip("numpy", reason="arrays need NumPy")
    report = feed_test(shards, batch=BATCH, fields="__key__ cls", decode="rgb8", batches=2 * BATCHES + 3)
    complete(report)
    assert report.batches == 2 * BATCHES + 3 and report.stages["decoding"].share > 0
    assert (report.processors is None) == (report.processors_wanted is None)
    report = feed_test(shards, batch=BATCH, seconds=0.05)
    complete(report)
    assert report.seconds <= 300
    alone = feed_test(shards, batch=BATCH, batches=1)
    assert (alone.batches, alone.samples_per_second, alone.limit, alone.processors) == (1, None, None, None)


def test_a_loop_that_works_long_is_the_limit(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves in the loop only."""
    now = [0]
    for module in (loopnumbers, stageclock):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(feedtest.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + round(seconds * 1e9)))
    report = feed_test(shards, batch=BATCH, batches=6, step=0.25)
    assert (report.limit, report.waits, report.seconds, report.samples_per_second) == ("loop", 0.0, 1.25, 16.0)


@needs_torch
def test_a_data_set_is_read_by_workers(shards: str) -> None:
    report = feed_test(shards, workers=2, batch=BATCH, fields="cls", decode="rgb8", batches=2 * BATCHES)
    complete(report)
    assert (report.workers, report.batches) == (2, 2 * BATCHES)


@needs_torch
def test_an_error_of_a_worker_is_one_line(shards: str, tmp_path: Path) -> None:
    damaged = copy_shard(shards.replace("{0..2}", "0"), tmp_path, damage=5 * 1024)
    for workers in (0, 2):
        with pytest.raises(CorruptHeaderError, match=r"^\S+s-0.tar, offset 5120: damaged header: [^\n]*$"):
            feed_test(damaged, workers=workers, batch=BATCH, batches=30)


@needs_torch
def test_a_worker_that_is_killed(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedtest, "_leave_signals", _end)
    with pytest.raises(TarkitError, match=r"^a worker process failed: DataLoader worker \(pid\(s\) \d+\) exited unexp"):
        feed_test(shards, workers=1, batch=BATCH, batches=30)


def _end(worker: int) -> None:
    os._exit(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers is -1; it must be a whole number from 0"),
        ({"batches": 0}, "batches is 0; it must be a whole number from 1"),
        ({"seconds": float("nan")}, "seconds is nan; it must be a number of seconds from 0 on"),
        ({"step": -1}, "step is -1; it must be a number of seconds from 0 on"),
        ({"batch": 64}, "63 samples do not fill a batch of 64"),
    ],
)
def test_arguments_that_cannot_be(shards: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        feed_test(shards, **{"batch": BATCH, **options})


@pytest.mark.parametrize(
    ("module", "options", "extra"),
    [("torch", {"workers": 1}, "torch"), ("numpy", {"fields": "cls"}, "images")],
)
def test_libraries_that_are_not_installed(
    shards: str, monkeypatch: pytest.MonkeyPatch, module: str, options: dict[str, Any], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"^a test with .* tarkit with its extra '{extra}'"):
        feed_test(shards, **options)
