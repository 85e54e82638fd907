"""Batches of samples that a shard service hands out: what is acknowledged was used by the loop, and
all is.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shardservice import Service
from shardthread import InThread
from trainshards import copy_shard, every_key, wait_for_full_batches, write_shards
from waiting import wait_for

import tarkit
from tarkit.errors import CorruptHeaderError, DataError, ReplacedError, ServiceLostError, UsageError
from tarkit.readers.create import create_data_reader
from tarkit.readers.reader import Shard, shards_of
from tarkit.service.client import ShardClient
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules
from tarkit.trainers.delivery import UseCounts
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.served import ServedBatches, wait_until_settled
from tarkit.trainers.source import BatchSource

pytest.importorskip("grpc", reason="the shard service needs grpcio")
pytest.importorskip("numpy", reason="arrays need NumPy")

COUNTS = (11, 0, 13)
EVERY = sorted(every_key(COUNTS))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


def declared(shards: str, epochs: int = 1, **options: Any) -> DataSet:
    files = [Shard(shards.replace("{0..2}", str(shard)), 0, count) for shard, count in enumerate(COUNTS)]
    return DataSet.of_files("data", files, 5, epochs=epochs, **options)


@pytest.fixture
def service(shards: str, tmp_path: Path) -> Iterator[InThread]:
    with InThread(tmp_path / "state") as running:
        with ShardClient(running.address, declared(shards, 2, shuffle_records=True)) as client:
            client.connect()
        yield running


@pytest.fixture
def full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_full_batches(monkeypatch)


def loader(shards: str, service: Any, **options: Any) -> EpochLoader:
    return tarkit.batches(shards, **{"batch": 4, "fields": "__key__", "service": service, **options})


def done(service: InThread) -> int:
    with ShardClient(service.address) as client:
        return client.progress().records


@pytest.mark.usefixtures("full_batches")
def test_each_sample_comes_once_an_epoch_and_all_are_acknowledged(shards: str, service: InThread) -> None:
    found = loader(shards, service.address)
    batches = [names for (names,) in found]
    assert sorted(sum(batches, [])) == sorted(EVERY * 2)
    assert [len(batch) for batch in batches] == [4] * 12
    assert done(service) == 48
    with pytest.raises(UsageError, match=r"^the data set of the shard service has ended; how many epochs it has is an"):
        list(found)
    assert list(loader(shards, service.address)) == [], "a process that comes late"


@pytest.mark.usefixtures("full_batches")
def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(shards: str, service: InThread) -> None:
    found = loader(shards, service.address)
    running = iter(found)
    first, second = next(running)[0], next(running)[0]
    found.flush()
    assert done(service) == 4
    found.used()
    found.used()
    found.flush()
    assert done(service) == 8
    third = next(running)[0]
    running.close()  # type: ignore[attr-defined]
    assert done(service) == 8, "a loop that is left has not used the batch in its hands"
    rest = [names for (names,) in loader(shards, service.address)]
    assert sorted(first + second + sum(rest, [])) == sorted(EVERY * 2)
    assert set(third) <= set(sum(rest, []))


@pytest.mark.usefixtures("full_batches")
def test_batches_that_were_made_ahead_and_not_used_come_again(shards: str, service: InThread) -> None:
    """As a worker of a DataLoader makes them."""
    source, counts = BatchSource(shards, batch=4, service=service.address), UseCounts()
    counts.begin()
    running = iter(ServedBatches(source, counts))
    made = [[sample["__key__"] for sample in next(running).value] for _ in range(5)]
    counts.used[0] = 3
    assert wait_until_settled(counts, 120)
    counts.begin()
    counts.used[0] = 5  # of the next iteration
    running.close()  # type: ignore[attr-defined]
    assert done(service) == 12
    rest = [names for (names,) in loader(shards, service.address)]
    assert sorted(sum(made[:3], []) + sum(rest, [])) == sorted(EVERY * 2)


def test_what_a_loop_held_that_is_gone_counts_as_a_loss(shards: str, service: InThread) -> None:
    """A sample may be why its process was killed."""
    source, counts = BatchSource(shards, batch=4, service=service.address), UseCounts()
    counts.begin()
    batches = ServedBatches(source, counts)
    running = iter(batches)
    next(running)
    batches._loop_process = 1  # of a DataLoader's worker: its parent was another process
    ledger = service.dispatcher.ledgers["data"]
    wait_for(lambda: ledger.tasks and not ledger.leased)
    assert sum(each.losses for each in ledger.in_order()) == 1
    with pytest.raises(UsageError, match="closed"):
        list(running)


@pytest.mark.usefixtures("full_batches")
def test_what_a_worker_reports_late_does_not_count_for_the_next_iteration(
    shards: str, service: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its service was slow, and the loop has begun anew meanwhile, as workers that
    persist see it.
    """
    begun, release, flush = threading.Event(), threading.Event(), ShardClient.flush

    def flushed(client: ShardClient) -> None:
        begun.set()
        assert release.wait(120)
        flush(client)

    source, counts = BatchSource(shards, batch=4, service=service.address), UseCounts()
    counts.begin()
    running = iter(ServedBatches(source, counts))
    next(running), next(running)
    monkeypatch.setattr(ShardClient, "flush", flushed)
    counts.used[0] = 1
    assert begun.wait(120)
    counts.begin()
    release.set()
    running.close()  # type: ignore[attr-defined]
    assert wait_until_settled(counts, 0), "nothing was used"
    counts.used[0] = 1
    assert not wait_until_settled(counts, 0), "nothing was acknowledged"


def test_where_no_shard_is_left_batches_are_short_and_nothing_waits_for_ever(shards: str, service: InThread) -> None:
    """Two loops take turns in one thread: each holds samples for which the other would wait."""
    running = [loader(shards, service.address, batch=7)._deliveries() for _ in range(2)]
    iterators, found = [iter(each) for each in running], []
    for number in range(2000):
        delivery = next(iterators[number % 2], None)
        if delivery is None:
            break
        if not delivery.empty:
            found += delivery.value[0]
            running[number % 2]._counts.used[0] = delivery.number + 1  # type: ignore[attr-defined]
    assert sorted(found) == sorted(EVERY * 2)
    assert all(next(each, None) is None for each in iterators)


def test_a_lost_service_is_an_error_and_never_the_end(shards: str, tmp_path: Path) -> None:
    with Service(tmp_path) as running:
        with ShardClient(running.address, declared(shards)) as client:
            client.connect()
        found = loader(shards, ShardClient(running.address, patience=0.5))
        with pytest.raises(ServiceLostError):
            for _ in found:
                running.kill()
        with pytest.raises(ServiceLostError, match=r"^the last batches that were used are not acknowledged; they may"):
            found.used()
            found.flush(0.1)


@pytest.mark.usefixtures("full_batches")
def test_a_shard_that_is_damaged_is_reported_and_an_error(shards: str, tmp_path: Path) -> None:
    for shard in range(3):
        copy_shard(shards.replace("{0..2}", str(shard)), tmp_path, 7 * 1024 if shard == 2 else None)
    copy = f"{tmp_path}/s-{{0..2}}.tar"
    with InThread(tmp_path / "state") as service:
        with ShardClient(service.address, declared(copy)) as client:
            client.connect()
        used: list[str] = []
        for _ in range(3):
            with pytest.raises(CorruptHeaderError, match=r"s-2\.tar, offset 7168"):
                for (names,) in loader(copy, service.address, batch=5):
                    used += names
        with ShardClient(service.address) as client:
            progress = client.progress()
        # Not used: the damaged sample, and three in a batch with it. None came twice: of the shard
        # that failed, too, what was used before is acknowledged.
        assert (progress.dead, progress.records, len(used)) == (1, 20, 20)
        assert sorted(used) == sorted(set(EVERY) - {"2-6", "2-7", "2-8", "2-9"})


@pytest.mark.usefixtures("full_batches")
def test_a_shard_that_was_replaced_since_the_service_counted_it_is_refused(tmp_path: Path) -> None:
    """By another shard with its index, of the same size and number of samples.

    One that was touched goes on.
    """
    spec = write_shards(tmp_path, (6, 6))
    dataset = DataSet.of_files("data", shards_of(create_data_reader(spec)), 3)
    with InThread(tmp_path / "state", LeaseRules(errors=2)) as service:
        with ShardClient(service.address, dataset) as client:
            client.connect()
        write_shards(tmp_path, (6,), lambda _, number: {"cls": 9 - number})
        for name in ("s-0.tar", "s-1.tar"):
            os.utime(tmp_path / name, (7, 7))
        used: list[str] = []
        for _ in range(2 * 2):
            with pytest.raises(ReplacedError, match=r"s-0\.tar: was replaced since its records were counted: its cont"):
                for (names,) in loader(spec, service.address, batch=3):
                    used += names
        for (names,) in loader(spec, service.address, batch=3):
            used += names
        with ShardClient(service.address) as client:
            progress = client.progress()
    assert (progress.dead, progress.records) == (2, 6)
    assert sorted(used) == [f"1-{number}" for number in range(6)]
    assert all("was replaced since" in dead.reason for dead in progress.dead_shards)


def test_what_the_service_hands_out_must_be_of_the_data_set(shards: str, service: InThread) -> None:
    with pytest.raises(UsageError, match=r"the service hands out .*s-2\.tar', which is not a shard of this data set"):
        list(loader(shards.replace("{0..2}", "0"), service.address))


def test_a_service_that_counts_more_samples_than_there_are(shards: str, tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service:
        name = shards.replace("{0..2}", "0")
        with ShardClient(service.address, DataSet.of_files("data", [Shard(name, 0, 12)], 12)) as client:
            client.connect()
        with pytest.raises(DataError, match=r"s-0\.tar: the service hands out samples 0 to 12, and it has 11 by its i"):
            list(loader(shards, service.address))


@pytest.mark.parametrize(
    "option",
    [{"shuffle": False}, {"seed": 1}, {"lanes": 1}, {"equalize": "pad"}, {"rank": 0, "world": 2}, {"block": 10}],
)
def test_options_that_have_no_effect_are_refused(shards: str, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"rank and world are not for service=: tarkit serve --shuffle has its order$"):
        loader(shards, "127.0.0.1:1", **option)


def test_the_state_is_the_services(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "9")
    found = loader(shards, "127.0.0.1:1", batch=1000)
    assert found.source.consumer == (0, 1)
    for call in (found.state_dict, lambda: found.load_state_dict({}), lambda: found.set_epoch(1)):
        with pytest.raises(
            UsageError, match=r"^the shard service keeps the state, and goes on where it is; see tarkit"
        ):
            call()
    with pytest.raises(TypeError, match="the shard service decides how many"):
        len(found)
    assert isinstance(pickle.loads(pickle.dumps(found.source)).service, ShardClient)
    with pytest.raises(UsageError, match=re.escape("the data set has no service=")):
        ServedBatches(BatchSource(shards, batch=9), UseCounts())
