"""The service objects of ElasticDL's clients: against a service, and in a process without one."""

from __future__ import annotations

import logging
import multiprocessing
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shardthread import InThread

from tarkit.elasticdl import DataShardService, RecordIndexService, build_data_shard_service, recordindices
from tarkit.errors import UsageError
from tarkit.service import pendingcalls
from tarkit.service.client import HeldShard, NoShard, ShardClient
from tarkit.service.dataset import DataSet

pytest.importorskip("grpc", reason="the shard service needs grpcio")

Build = Callable[..., DataShardService]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """``build_data_shard_service``, with a service behind it that waits shortly before
    it drains.
    """
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.2)
    made: list[DataShardService] = []

    def made_by(function: Callable[..., DataShardService] = build_data_shard_service, **arguments: Any) -> Any:
        made.append(function(**arguments))
        return made[-1]

    with InThread(tmp_path / "state") as service:
        monkeypatch.setenv("DLROVER_MASTER_ADDR", service.address)
        yield made_by
        for each in made:
            each.close()


def test_seed_loop_reads_each_record_once_an_epoch(build: Build) -> None:
    service = build(batch_size=4, num_epochs=2, dataset_size=22, num_minibatches_per_shard=2, dataset_name="iris")
    shards = []
    while shard := service.fetch_shard():
        shards.append((shard.name, shard.start, shard.end))
        for first in range(shard.start, shard.end, 4):
            service.report_batch_done(min(4, shard.end - first))
    assert shards == [("iris", 0, 8), ("iris", 8, 16), ("iris", 16, 22)] * 2
    assert service.get_current_epoch() == 2 and service.ended
    assert service.get_minibatch_count_per_epoch() == 5
    service.flush()
    assert service.counts["accepted"] == 6


def test_a_generator_cut_into_batches_across_shards_ends_and_reports_all(build: Build) -> None:
    service = build(batch_size=4, num_epochs=2, dataset_size=21, num_minibatches_per_shard=2)

    def records() -> Iterator[int]:
        while shard := service.fetch_shard():
            yield from range(shard.start, shard.end)

    read: list[int] = []
    batch: list[int] = []
    for record in records():
        batch.append(record)
        if len(batch) == 4:
            read += batch
            service.report_batch_done()
            batch = []
    read += batch
    service.report_batch_done(len(batch))
    assert len(batch) == 2
    assert sorted(read) == sorted([*range(21)] * 2)
    assert service.fetch_shard() is None and service.ended
    service.flush()
    assert service.counts["accepted"] == 6


def batches_of(records: Iterator[int], size: int, used: Callable[[int], object]) -> list[int]:
    """Train with batches that go on across shards, as tf.data makes them.

    The records that were used.
    """
    read: list[int] = []
    while batch := list(islice(records, size)):
        read += batch
        used(len(batch))
    return read


def records_of_shards(service: DataShardService) -> Iterator[int]:
    while shard := service.fetch_shard():
        yield from range(shard.start, shard.end)


STRICT = DataSet("iris", 21, 8, 3, strict_epochs=True)


@pytest.mark.parametrize("declared", [{}, {"num_epochs": 3, "dataset_size": 21, "num_minibatches_per_shard": 2}])
def test_strict_epochs_go_on_where_a_batch_needs_records_of_two(
    build: Build, declared: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with ShardClient(os.environ["DLROVER_MASTER_ADDR"], STRICT) as client:
        client.connect()
        service = build(batch_size=4, dataset_name="iris", **declared)
        with caplog.at_level(logging.WARNING):
            assert batches_of(records_of_shards(service), 4, service.report_batch_done) == [*range(21)] * 3
        assert service.fetch_shard() is None and service.ended
        service.flush()
        assert service.counts["accepted"] == 9
        assert client.progress().done == 9
    for epoch in (1, 2):
        assert f"'iris': epoch {epoch + 1} begins before epoch {epoch} is complete: 1 shard of it" in caplog.text


def test_numbers_of_strict_epochs_go_on_where_a_batch_needs_records_of_two(build: Build) -> None:
    with ShardClient(os.environ["DLROVER_MASTER_ADDR"], STRICT) as client:
        client.connect()
        service = build(RecordIndexService, batch_size=4, dataset_name="iris")
        assert isinstance(service, RecordIndexService)
        read = batches_of(service.record_index_gen(), 4, service.report_batch_done)
        assert sorted(read) == sorted([*range(21)] * 3)
        service.flush()
        assert client.progress().done == 9


def test_a_strict_epoch_waits_for_a_worker_that_works(build: Build) -> None:
    address = os.environ["DLROVER_MASTER_ADDR"]
    with (
        ShardClient(address, STRICT, prefetch=0) as works,
        ShardClient(address, "iris", prefetch=0) as waits,
    ):
        shards = [works.fetch(), waits.fetch(), waits.fetch()]
        assert waits.fetch(0.6) is NoShard.WAIT
        works.done(shards[0])  # type: ignore[arg-type]
        # Now all that is left is with one that waits.
        found = waits.fetch(120)
        assert isinstance(found, HeldShard) and found.epoch == 2


def test_a_program_that_comes_when_the_data_set_has_ended_is_told(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"batch_size": 4, "num_epochs": 1, "dataset_size": 6, "num_minibatches_per_shard": 1}
    first = build(**arguments)
    late = build(**arguments)
    assert batches_of(records_of_shards(first), 4, first.report_batch_done) == [*range(6)]
    assert late.fetch_shard() is None  # it came before the end
    assert not first.ended_before and not late.ended_before and "had ended before" not in caplog.text
    second = build(**arguments)
    assert second.ended_before and second.fetch_shard() is None
    warning = "data set '_EDL_DEFAULT_TRAINING_DATA' had ended before this worker came, which gets no record of it"
    assert [each.name for each in caplog.records if warning in each.getMessage()] == ["tarkit.service.worker"]
    second.reset_dataset()
    assert not second.ended_before
    assert batches_of(records_of_shards(second), 4, second.report_batch_done) == [*range(6)]


def test_a_failed_batch_is_not_forgotten(build: Build) -> None:
    service = build(batch_size=4, num_epochs=1, dataset_size=8, num_minibatches_per_shard=2)
    first = service.fetch_shard()
    assert first is not None
    assert not service.report_batch_done(err_msg="loss is NaN")
    assert service.report_batch_done()
    again = service.fetch_shard()
    assert again is not None and (again.start, again.end) == (0, 8)
    service.report_batch_done(8)
    assert service.fetch_shard() is None and service.ended


def test_more_records_than_are_held_are_not_counted_and_reported(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    service = build(batch_size=4, num_epochs=1, dataset_size=6, num_minibatches_per_shard=2)
    service.fetch_shard()
    with caplog.at_level(logging.WARNING):
        assert service.report_batch_done(8)
        assert not service.report_batch_done(1, task_ids=[77])
    assert "2 records of a batch are not of a shard" in caplog.text and "[77]" in caplog.text


def test_tasks_have_numbers(build: Build) -> None:
    service = build(batch_size=4, num_epochs=1, dataset_size=16, num_minibatches_per_shard=1)
    tasks = [service.get_task() for _ in range(3)]
    assert len({task.task_id for task in tasks}) == 3 and all(task.type == 1 for task in tasks)
    oldest = service.get_current_task()
    assert oldest == tasks[0]
    assert service.report_batch_done(8, task_ids=[tasks[2].task_id, tasks[1].task_id])
    service.report_all_task_error("gradients exploded")
    assert service.get_current_task() is None
    seen = []
    while (task := service.get_task()).type:
        seen.append(task.start)
        service.report_batch_done()
    assert sorted(seen) == [0, 12] and task.start == task.end


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"num_minibatches_per_shard": -1}, {"dataset_size": -5}])
def test_parameters_that_cannot_be(build: Build, wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        build(**{"batch_size": 4, "num_epochs": 1, "dataset_size": 8} | wrong)


def test_what_the_service_shows_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InThread(tmp_path / "state") as service:
        monkeypatch.delenv("DLROVER_MASTER_ADDR", raising=False)
        monkeypatch.setenv("MASTER_ADDR", service.address)
        monkeypatch.setenv("WORKER_ID", "3")
        monkeypatch.setenv("WORKER_TYPE", "chief")
        with build_data_shard_service(4, 1, 8) as shards:
            shards.fetch_shard()
            assert str(shards._source.worker).startswith("chief-3-")


@pytest.mark.parametrize("address", ["node-0", "node-0:", ":50001", "http://node-0"])
def test_a_wrong_address_is_an_error_and_not_a_run_without_a_service(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLROVER_MASTER_ADDR", address)
    with pytest.raises(UsageError, match="is not HOST:PORT of a shard service"):
        build_data_shard_service(4, 1, 8)


def test_without_an_address_no_record_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each worker of a job that forgot it would read all records."""
    monkeypatch.delenv("DLROVER_MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UsageError, match=r"DLROVER_MASTER_ADDR is not set: .* tarkit serve starts one"):
        build_data_shard_service(4, 1, 8)
    monkeypatch.setenv("MASTER_ADDR", "node-0")  # of another rendezvous, such as PyTorch's
    with pytest.raises(UsageError, match="'node-0' is not HOST:PORT of a shard service"):
        build_data_shard_service(4, 1, 8)


# Numbers of records.


@pytest.mark.parametrize("shuffle", [False, True])
def test_numbers_of_records(build: Build, shuffle: bool) -> None:
    service = build(
        RecordIndexService, batch_size=4, num_epochs=2, dataset_size=21, num_minibatches_per_shard=2, shuffle=shuffle
    )
    assert isinstance(service, RecordIndexService)
    numbers: list[int] = []
    for number in service.record_index_gen():
        numbers.append(number)
        if len(numbers) % 4 == 0:
            service.report_batch_done()
    service.report_batch_done(len(numbers) % 4)
    assert sorted(numbers) == sorted([*range(21)] * 2)
    assert (numbers == [*range(21)] * 2) is not shuffle
    with pytest.raises(StopIteration):
        service.fetch_record_index()
    service.flush()
    assert service.counts["accepted"] == 6 and service.get_current_epoch() == 2


def test_numbers_after_a_reset_and_after_a_checkpoint(build: Build) -> None:
    service = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=40, num_minibatches_per_shard=1)
    assert isinstance(service, RecordIndexService)
    assert [service.fetch_record_index() for _ in range(4)] == [0, 1, 2, 3]
    service.report_batch_done()
    saved = service.get_shard_checkpoint()
    service.fetch_record_index()
    assert service.restore_shard_from_checkpoint(saved)
    assert sorted(_all_reported(service)) == [*range(4, 40)]
    service.reset_dataset()
    assert sorted(_all_reported(service)) == [*range(40)]


def test_numbers_come_after_a_reset_that_failed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    service: Any = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=8, num_minibatches_per_shard=1)

    def numbers() -> list[int]:
        """Of all records.

        Fetched in a thread, so that a queue without an end does not stop the tests.
        """
        found: list[list[int]] = []
        thread = threading.Thread(target=lambda: found.append(list(service.record_index_gen())), daemon=True)
        thread.start()
        thread.join(120)
        assert found, "no end after 120 s"
        return sorted(found[0])

    assert numbers() == [*range(8)]
    reset = service._source.reset
    monkeypatch.setattr(service._source, "reset", lambda: [reset(), 1 / 0])
    with pytest.raises(ZeroDivisionError):
        service.reset_dataset()
    assert numbers() == [*range(8)]


def test_numbers_that_come_back_come_to_a_trainer_that_was_slow(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are held while nothing is reported, as where a model is compiled at first."""
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.1)
    drained, fetch = threading.Event(), ShardClient.fetch

    def fetched(client: ShardClient, timeout: float | None = None) -> Any:
        found = fetch(client, timeout)
        if found is NoShard.DRAIN:
            drained.set()
        return found

    monkeypatch.setattr(ShardClient, "fetch", fetched)
    numbers = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=8, num_minibatches_per_shard=1)
    assert isinstance(numbers, RecordIndexService) and drained.wait(120)
    found = []
    for number in numbers.record_index_gen():
        found.append(number)
        # The last batch takes so long that the end of the loop is in the queue before its report.
        while len(found) == 8 and numbers._queue.empty():
            time.sleep(0.01)
        numbers.report_batch_done(1, "loss is NaN" if len(found) == 8 else "")
    assert found == [*range(8), *range(4, 8)]
    assert numbers.ended


def test_numbers_do_not_end_between_the_next_shard_and_its_numbers(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=8, num_minibatches_per_shard=1)
    assert isinstance(service, RecordIndexService)
    held = threading.Event()
    fetch = service._fetch

    def fetch_late(stopped: threading.Event | None) -> Any:
        if found := fetch(stopped):
            held.set()
            time.sleep(0.3)
        return found

    found: list[int] = []
    for number in service.record_index_gen():
        found.append(number)
        while len(found) == 8 and service._queue.empty():
            time.sleep(0.01)
        monkeypatch.setattr(service, "_fetch", fetch_late)
        service.report_batch_done(1, "loss is NaN" if len(found) == 8 else "")
        # The loop goes on when the shard that failed is held again, and none of its numbers is
        # there.
        assert len(found) != 8 or held.wait(120)
    assert found == [*range(8), *range(4, 8)] and service.ended


def test_a_checkpoint_that_is_refused_takes_no_number_away(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordindices, "_MOST_AHEAD", 10)
    service: Any = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=40, num_minibatches_per_shard=1)
    first = [service.fetch_record_index() for _ in range(3)]
    assert not service.restore_shard_from_checkpoint("{}")
    service.report_batch_done(3)
    assert first + list(_all_reported(service)) == [*range(40)]
    service.flush()
    assert service.ended and service.counts["accepted"] == 10


def test_a_fetch_ends_when_it_is_closed(build: Build) -> None:
    service: Any = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=4)
    errors: list[Exception] = []

    def fetch() -> None:
        try:
            while True:
                service.fetch_record_index()
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    service.close()
    thread.join(120)
    assert [str(error) for error in errors] == ["the RecordIndexService is closed, and gives no numbers any more"]


def test_a_process_that_was_killed_while_it_waited_stops_no_other(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 60)
    service: Any = build(RecordIndexService, batch_size=4, num_epochs=1, dataset_size=8, num_minibatches_per_shard=1)
    assert [service.fetch_record_index() for _ in range(8)] == [*range(8)]
    waits, waiting = os.pipe()
    reader = service._queue._reader

    def poll(*timeout: float | None) -> bool:
        if timeout == (None,):
            os.write(waiting, b"x")
        return bool(reader.poll(*timeout))

    monkeypatch.setattr(service._queue, "_reader", SimpleNamespace(poll=poll, recv=reader.recv))
    child = multiprocessing.get_context("fork").Process(target=service.fetch_record_index, daemon=True)
    child.start()
    # The parent holds the other end as well, so the child's death is no end of the pipe.
    assert select.select([waits], [], [], 120)[0], "the child does not wait for a number"
    assert os.read(waits, 1) == b"x"
    child.kill()
    child.join()
    monkeypatch.setattr(service._queue, "_reader", reader)
    os.close(waits)
    os.close(waiting)
    service.report_batch_done(8)
    rest: list[list[int]] = []
    thread = threading.Thread(target=lambda: rest.append(list(_all_reported(service))), daemon=True)
    thread.start()
    thread.join(120)
    assert rest == [[]] and service.ended


def _all_reported(service: RecordIndexService) -> Iterator[int]:
    for number in service.record_index_gen():
        yield number
        service.report_batch_done(1)


def _fetch_in_child(service: RecordIndexService, results: Any) -> None:
    results.put(list(service.record_index_gen()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_processes_of_a_loader_share_the_numbers(build: Build, method: str) -> None:
    service = build(
        RecordIndexService,
        batch_size=4,
        num_epochs=1,
        dataset_size=40,
        num_minibatches_per_shard=1,
        start_method=method,
    )
    assert isinstance(service, RecordIndexService)
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    children = [context.Process(target=_fetch_in_child, args=(service, results), daemon=True) for _ in range(2)]
    for child in children:
        child.start()
    # Until batches are reported, the end cannot come; they hold all that is left, and are told so.
    parts = [results.get(timeout=120) for _ in children]
    assert sorted(parts[0] + parts[1]) == [*range(40)]
    for _ in range(10):
        service.report_batch_done()
    for child in children:
        child.join(120)
    service.flush()
    assert service.counts["accepted"] == 10


def test_a_lost_service_is_an_error_in_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InThread(tmp_path / "state") as service:
        numbers = RecordIndexService(
            4, 1, 40, num_minibatches_per_shard=1, dataset_name="x", address=service.address, patience=0.3
        )
        numbers.fetch_record_index()
        numbers._source.flush()
    with pytest.raises(Exception, match="has not answered") as caught:
        for _ in range(100):
            numbers.fetch_record_index()
    assert getattr(caught.value, "exit_code", 0) == 75
    with pytest.raises(Exception, match="has not answered"):
        numbers.fetch_record_index()
    numbers.close()
