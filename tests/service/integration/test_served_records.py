"""Records from files to a trainer: shards of the service, read by readers, acknowledged when they
were used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shardthread import InThread

from tarkit.formats.recordio import RecordWriter
from tarkit.readers.create import create_data_reader
from tarkit.readers.reader import AbstractDataReader, shards_of
from tarkit.samples.tarwriter import TarWriter
from tarkit.service import pendingcalls
from tarkit.service.client import NoShard, ServedRecord, ShardClient, acknowledge, read_shards, served_records
from tarkit.service.dataset import DataSet

pytest.importorskip("grpc", reason="the shard service needs grpcio")


def tar(folder: Path) -> str:
    for shard in range(2):
        with TarWriter(str(folder / f"iris-{shard}.tar")) as writer:
            for number in range(11):
                writer.write({"__key__": f"{shard}-{number:02}", "txt": f"{shard * 11 + number}"})
    return str(folder / "iris-{0..1}.tar")


def recordio(folder: Path) -> str:
    for shard in range(2):
        with RecordWriter(str(folder / f"iris-{shard}.recordio")) as writer:
            for number in range(11):
                writer.write(f"{shard * 11 + number}".encode())
    return str(folder)


def csv(folder: Path) -> str:
    (folder / "iris.csv").write_text("".join(f"{number}\n" for number in range(22)))
    return str(folder / "iris.csv")


def number_of(record: Any) -> int:
    """Of a sample, of bytes, or of a row."""
    if isinstance(record, dict):
        record = record["txt"]
    return int(record[0] if isinstance(record, (list, tuple)) else record)


@pytest.mark.parametrize(("make", "shuffle"), [(tar, True), (recordio, False), (csv, True)])
def test_each_record_of_files_is_used_once(make: Any, shuffle: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    options = {"header": False} if make is csv else {}
    reader = create_data_reader(make(tmp_path / "data"), **options)
    dataset = DataSet.of_files("iris", shards_of(reader), 4, epochs=2, shuffle_shards=shuffle, shuffle_records=shuffle)
    with InThread(tmp_path / "state") as service, ShardClient(service.address, dataset) as client:
        read = [number_of(record) for record in read_shards(client, reader)]
        client.flush()
        assert client.progress().records == 44 and client.ended
    assert sorted(read) == sorted([*range(22)] * 2)
    assert (read == [*range(22)] * 2) is not shuffle


class Numbers(AbstractDataReader):
    """A source of the user's own: the squares of numbers."""

    def __init__(self, count: int, broken: tuple[int, ...] = (), short: bool = False) -> None:
        super().__init__()
        self._count, self._broken, self._short = count, broken, short

    def create_shards(self) -> dict[str, int]:
        return {"squares": self._count}

    def read_records(self, task: Any) -> Iterator[int]:
        for number in range(task.start, task.end - self._short):
            if number in self._broken:
                raise ValueError(f"record {number} cannot be decoded")
            yield number * number


def squares(count: int, epochs: int = 1) -> DataSet:
    return DataSet.of_files("squares", shards_of(Numbers(count)), 8, epochs=epochs)


def test_a_shuffle_buffer_loses_nothing_when_its_worker_dies(tmp_path: Path) -> None:
    """What was drawn from the buffer is done.

    What is still in it is handed out again, and nothing else.
    """
    with InThread(tmp_path / "state") as service:
        used: list[int] = []
        buffer: list[ServedRecord] = []
        draw = random.Random(7)
        client = ShardClient(service.address, squares(80), prefetch=0)
        for record in served_records(client, Numbers(80)):
            buffer.append(record)
            if len(buffer) == 20:
                drawn = buffer.pop(draw.randrange(20))
                used.append(drawn.value)
                acknowledge(client, [drawn])
            if len(used) == 30:
                break
        client.close()
        with ShardClient(service.address, "squares") as other:
            rest = list(read_shards(other, Numbers(80)))
    assert len(used) == 30
    assert sorted(used + rest) == [number * number for number in range(80)]


def test_a_buffer_that_waits_for_the_end_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.2)
    with InThread(tmp_path / "state") as service, ShardClient(service.address, squares(22, 2)) as client:
        used: list[int] = []
        while not client.ended:
            batch: list[ServedRecord] = []
            for record in served_records(client, Numbers(22)):
                batch.append(record)
                if len(batch) == 5:
                    used += [each.value for each in batch]
                    acknowledge(client, batch)
                    batch = []
            used += [each.value for each in batch]
            acknowledge(client, batch)
            client.fetch(0) if client._opened().in_hand == 0 else None
            client.flush()
        assert sorted(used) == sorted([number * number for number in range(22)] * 2)


def test_a_shard_that_cannot_be_read_is_reported_with_its_reason(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, squares(32)) as client:
        read = list(read_shards(client, Numbers(32, broken=(13,))))
        # Of the shard, what comes before the record is done; the rest was tried three times.
        assert sorted(read) == [number * number for number in range(32) if not 13 <= number < 16]
        progress = client.progress()
        assert (progress.done, progress.dead, progress.records) == (3, 1, 29)


def test_a_reader_that_reads_nothing_is_not_tried_for_ever(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, squares(8 * 40)) as client:
        with pytest.raises(ValueError, match="cannot be decoded"):
            list(read_shards(client, Numbers(8 * 40, broken=tuple(range(8 * 40)))))
        assert client.progress().dead <= 10


def test_records_that_a_reader_leaves_out_are_missed(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, squares(8)) as client:
        assert list(read_shards(client, Numbers(8, short=True))) == [number * number for number in range(7)]
        client.flush()
        assert client.progress().dead == 1 and client.fetch() is NoShard.END
