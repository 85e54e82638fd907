"""The identity of files on its way from who counts records to who reads them.

Ranges and readers that are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shardservice import Caller
from shardthread import InThread

from tarkit.errors import ReplacedError, UsageError
from tarkit.readers.create import create_data_reader
from tarkit.readers.reader import AbstractDataReader, Shard, shards_of
from tarkit.service.client import DataSet, ServedRecord, ShardClient, acknowledge, read_shards, served_records
from tarkit.service.journal import Journal, declaration_of
from tarkit.service.leases import LeaseRules

grpc = pytest.importorskip("grpc", reason="the shard service needs grpcio")


def rows(path: Path, first: int, count: int = 20) -> str:
    path.write_text("".join(f"{number:04}\n" for number in range(first, first + count)))
    return str(path)


def touch(path: Path) -> None:
    os.utime(path, ns=(7_000_000_000, path.stat().st_mtime_ns + 5_000_000_000))


def declared(path: Path, **options: Any) -> DataSet:
    return DataSet.of_files("rows", shards_of(create_data_reader(str(path))), 8, **options)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_file_that_was_replaced_after_it_was_counted_is_refused(tmp_path: Path, shuffle: bool) -> None:
    """Each worker that is given a task of it ends with the error of corrupt input.

    No record counts as done.
    """
    rows(tmp_path / "a.csv", 0)
    dataset = declared(tmp_path / "a.csv", shuffle_records=shuffle)
    with InThread(tmp_path / "state") as service:
        ShardClient(service.address, dataset).connect()
        rows(tmp_path / "a.csv", 50)
        touch(tmp_path / "a.csv")
        for _ in range(2):
            with (
                pytest.raises(ReplacedError, match=r"a\.csv: was replaced since its records were counted") as caught,
                ShardClient(service.address, "rows") as client,
            ):
                list(read_shards(client, create_data_reader(str(tmp_path / "a.csv"))))
            assert caught.value.exit_code == 65
        with ShardClient(service.address, "rows") as client:
            progress = client.progress()
        assert (progress.done, progress.records, progress.dead) == (0, 0, 0)


def test_the_reason_of_a_replaced_file_is_with_its_dead_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "a.csv", 0)
    dataset = declared(Path("a.csv"))
    with (
        InThread(tmp_path / "state", LeaseRules(errors=1)) as service,
        ShardClient(service.address, dataset, prefetch=0) as client,
    ):
        rows(tmp_path / "a.csv", 50, 30)
        with pytest.raises(ReplacedError):
            list(read_shards(client, create_data_reader("a.csv")))
        (dead,) = client.progress().dead_shards
    assert "a.csv: was replaced since its records were counted: it has 150 bytes, not 100; count its" in dead.reason


def test_a_task_of_elasticdls_protocol_has_it_where_its_clients_ignore_it(tmp_path: Path) -> None:
    rows(tmp_path / "a.csv", 0)
    with InThread(tmp_path / "state") as service, Caller(service.address, elasticdl=True) as call:
        ShardClient(service.address, declared(tmp_path / "a.csv")).connect()
        task = call("get_dataset_task", worker_id=0, dataset_name="rows")
        reader = create_data_reader(str(tmp_path / "a.csv"))
        assert [int(row) for row in reader.read_records(task)] == [*range(task.shard.end)]
        rows(tmp_path / "a.csv", 50, 30)
        with pytest.raises(ReplacedError, match="was replaced since its records were counted: it has 150 bytes, not"):
            list(create_data_reader(str(tmp_path / "a.csv")).read_records(task))
        call("report_dataset_shard_params", batch_size=2, num_epochs=1, dataset_size=8, dataset_name="numbers")
        assert not call("get_dataset_task", worker_id=0, dataset_name="numbers").extended_config


def test_a_file_that_was_only_touched_is_read(tmp_path: Path) -> None:
    rows(tmp_path / "a.csv", 0)
    dataset = declared(tmp_path / "a.csv")
    touch(tmp_path / "a.csv")
    with InThread(tmp_path / "state") as service, ShardClient(service.address, dataset) as client:
        read = []
        for row in read_shards(client, create_data_reader(str(tmp_path / "a.csv"))):
            read.append(int(row))
            touch(tmp_path / "a.csv")
    assert read == [*range(20)]


def test_another_process_declares_the_same_only_with_the_same_files(tmp_path: Path) -> None:
    rows(tmp_path / "a.csv", 0)
    first = declared(tmp_path / "a.csv")
    touch(tmp_path / "a.csv")
    touched = declared(tmp_path / "a.csv")
    rows(tmp_path / "a.csv", 50)
    other = declared(tmp_path / "a.csv")
    without = DataSet.of_files("rows", [Shard(*file) for file in first.files], 8)
    for _ in range(2):  # a new one, and with the state of before
        with InThread(tmp_path / "state") as service:
            for dataset in (first, touched, without):
                with ShardClient(service.address, dataset):
                    pass
            with pytest.raises(UsageError, match=r"file 1 \('.*a\.csv'\) was replaced since its records were counted"):
                ShardClient(service.address, other).connect()
    assert first == touched == other == without, "what is handed out is the same"
    assert first.fingerprint == other.fingerprint == without.fingerprint, "so a checkpoint of one is one of the others"


def test_the_state_has_the_identity(tmp_path: Path) -> None:
    rows(tmp_path / "a.csv", 0)
    dataset = declared(tmp_path / "a.csv")
    read = DataSet.from_json(dataset.to_json())
    assert read == dataset and read.files[0].identity == dataset.files[0].identity != ""
    with InThread(tmp_path / "state") as service:
        ShardClient(service.address, dataset).connect()
    with InThread(tmp_path / "state") as service, Caller(service.address) as call:
        (lease,) = call("Exchange", worker="a", want=1).leases
    assert lease.identity == dataset.files[0].identity


def test_a_declaration_of_before_identities_is_read() -> None:
    text = DataSet("rows", 8, 4, files=(Shard("a", 0, 8),)).to_json()
    assert '"files":[["a",0,8]]' in text and DataSet.from_json(text).files[0].identity == ""


def test_computed_shards_cost_no_byte_more(tmp_path: Path) -> None:
    dataset = DataSet("numbers", 2_000_000, 1)
    assert sum(map(len, declaration_of(dataset).values())) < 300
    with InThread(tmp_path / "state") as service, Caller(service.address) as call:
        call("Declare", name="numbers", size=2_000_000, records_per_shard=1, epochs=1)
        (lease,) = call("Exchange", worker="a", want=1).leases
        assert not lease.identity and lease.ByteSize() < 40
    journal = Journal(str(tmp_path / "state"))
    (ledger,) = journal.load(LeaseRules(), 0.0)
    journal.close()
    assert ledger.dataset == dataset


class Own(AbstractDataReader):
    """A source of the user's own, which has versions.

    Args:
        extra: how many records it gives too many.
    """

    def __init__(self, version: str = "", extra: int = 0) -> None:
        super().__init__()
        self.version, self.extra = version, extra
        self.given = 0

    def create_shards(self) -> dict[str, int]:
        return {"numbers": 60}

    def content_identity(self, name: str) -> str:
        return self.version

    def read_records(self, task: Any) -> Iterator[int]:
        for number in range(task.start, task.end + self.extra):
            self.given += 1
            yield number


def test_a_source_of_ones_own_that_has_another_version_is_refused(tmp_path: Path) -> None:
    dataset = DataSet.of_files("numbers", shards_of(Own("version 7")), 20)
    with InThread(tmp_path / "state") as service:
        for version in ("version 7", ""):
            with ShardClient(service.address, dataset) as client:
                assert next(read_shards(client, Own(version))) == 0
        with ShardClient(service.address, "numbers") as client:
            with pytest.raises(
                ReplacedError, match="numbers: was replaced since its records were counted: it is 'vers"
            ):
                next(read_shards(client, Own("version 8")))
            assert client.progress().records == 0


@pytest.mark.parametrize("extra", [1, 940])
@pytest.mark.parametrize("batches", [False, True])
def test_a_reader_that_gives_too_many_records_fails_the_shard(tmp_path: Path, extra: int, batches: bool) -> None:
    """What is left of it is not acknowledged, whatever the loop has used of it."""
    dataset = DataSet.of_files("numbers", shards_of(Own()), 60)
    reader = Own(extra=extra)
    with InThread(tmp_path / "state", LeaseRules(errors=2)) as service:
        with ShardClient(service.address, dataset) as client:
            if batches:
                kept: list[ServedRecord] = list(served_records(client, reader))
                acknowledge(client, kept)
            else:
                list(read_shards(client, reader))
            client.flush()
            progress = client.progress()
        (dead,) = progress.dead_shards
        assert (progress.done, dead.errors) == (0, 2)
        assert dead.reason == "DataError: numbers: the task has 60 records, and the reader gave more"
    assert reader.given == 2 * 61, "no more are read than show it"


OVERLAPS = [
    ((("a", 0, 5), ("a", 0, 5)), 10),
    ((("a", 0, 5), ("b", 0, 5), ("a", 4, 5)), 15),
]


@pytest.mark.parametrize(("files", "size"), OVERLAPS)
def test_ranges_that_overlap_are_refused(tmp_path: Path, files: Any, size: int) -> None:
    with pytest.raises(UsageError, match="data set 'd': its files have records twice, 'a': records 0 to 5 and "):
        DataSet("d", size, 2, files=tuple(Shard(*file) for file in files))
    messages = [{"name": name, "start": start, "records": records} for name, start, records in files]
    with InThread(tmp_path / "state") as service, Caller(service.address) as call:
        with pytest.raises(grpc.RpcError) as caught:
            call("Declare", name="d", records_per_shard=2, files=messages)
        assert caught.value.code().name == "INVALID_ARGUMENT"
        assert "its files have records twice, 'a': records 0 to 5 and" in caught.value.details()
        with pytest.raises(UsageError, match=r"no data set|were declared"):
            ShardClient(service.address).connect()
