"""Which content a file had when its records were counted: what goes on, and what is refused."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import DataError, ReplacedError, UsageError
from tarkit.formats import tfrecord
from tarkit.formats.recordio import RecordWriter
from tarkit.readers import identity
from tarkit.readers.create import create_data_reader
from tarkit.readers.identity import same_content
from tarkit.readers.reader import AbstractDataReader, Shard, Task, TaskShard, shards_of
from tarkit.readers.text import TextDataReader


def touch(path: Path) -> None:
    """As ``touch`` does, whatever the resolution of the file system's clock is."""
    os.utime(path, ns=(7_000_000_000, path.stat().st_mtime_ns + 5_000_000_000))


def numbers(first: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + 200)]


def write_csv(path: Path, first: int) -> None:
    path.write_bytes(b"".join(record + b"\n" for record in numbers(first)))


def write_recordio(path: Path, first: int) -> None:
    with RecordWriter(str(path), compression="none") as writer:
        for record in numbers(first):
            writer.write(record)


def write_tfrecord(path: Path, first: int) -> None:
    with tfrecord.RecordWriter(str(path)) as writer:
        for record in numbers(first):
            writer.write(record)


def write_tar(path: Path, first: int, index: bool = False) -> None:
    path.with_suffix(".idx").unlink(missing_ok=True)
    with tarkit.TarWriter(str(path), index=index) as writer:
        for record in numbers(first):
            writer.write({"__key__": record.decode(), "txt": record})


def write_indexed(path: Path, first: int) -> None:
    write_tar(path, first, index=True)


KINDS: list[tuple[str, Callable[[Path, int], None]]] = [
    ("a.csv", write_csv),
    ("a.recordio", write_recordio),
    ("a.tfrecord", write_tfrecord),
    ("a.tar", write_tar),
    ("i.tar", write_indexed),
]
each_kind = pytest.mark.parametrize(("name", "write"), KINDS, ids=["csv", "recordio", "tfrecord", "tar", "indexed"])


def texts(records: Iterator[Any]) -> list[str]:
    found = [each["txt"] if isinstance(each, dict) else each for each in records]
    return [each if isinstance(each, str) else each.decode() for each in found]


def task_of(shard: Shard, first: int = 0) -> Task:
    return Task(TaskShard(shard.name, shard.start + first, shard.start + shard.records, identity=shard.identity))


@each_kind
def test_a_file_that_was_only_touched_goes_on(name: str, write: Callable[[Path, int], None], tmp_path: Path) -> None:
    path = tmp_path / name
    write(path, 0)
    reader = create_data_reader(str(path))
    (shard,) = shards_of(reader)
    expected = [each.decode() for each in numbers(0)]
    assert texts(reader.read_records(task_of(shard))) == expected
    touch(path)
    assert texts(reader.read_records(task_of(shard, 100))) == expected[100:]
    records = reader.read_records(task_of(shard))
    begun = [next(records) for _ in range(3)]
    touch(path)  # in the middle of a task
    assert texts(iter([*begun, *records])) == expected
    # Another process: one whose copy of the file has a time of its own.
    other = create_data_reader(str(path))
    touch(path)
    assert texts(other.read_records(task_of(shard, 150))) == expected[150:]


def test_a_file_that_is_touched_while_it_is_read_in_parts_goes_on(tmp_path: Path) -> None:
    """After each part it is compared with what it was; one that was replaced is an error there."""
    path = tmp_path / "a.tfrecord"

    def write(last: int) -> None:
        with tfrecord.RecordWriter(str(path)) as writer:
            for number in [*range(2999), last]:
                writer.write(b"%04096d" % number)

    write(2999)
    reader = create_data_reader(str(path))
    (shard,) = shards_of(reader)
    records = reader.read_records(task_of(shard, 1100))
    read = [int(next(records)) for _ in range(3)]
    touch(path)
    assert [*read, *(int(record) for record in records)] == [*range(1100, 3000)]
    records = reader.read_records(task_of(shard, 1100))
    next(records)
    write(3999)
    touch(path)
    with pytest.raises(ReplacedError, match="was replaced while it was read: its content differs"):
        list(records)


@each_kind
def test_another_file_of_the_same_size_is_refused(
    name: str, write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path, 0)
    reader = create_data_reader(str(path))
    (shard,) = shards_of(reader)
    size = path.stat().st_size
    write(path, 1000)
    assert path.stat().st_size == size
    touch(path)
    own = Task(TaskShard(shard.name, 0, 10))
    with pytest.raises(
        ReplacedError, match=r"was replaced since this reader first used it: .*; create the shards anew"
    ):
        list(reader.read_records(own))
    # A reader of another process, which has never seen the first one.
    with pytest.raises(ReplacedError, match="was replaced since its records were counted: its content differs") as c:
        list(create_data_reader(str(path)).read_records(task_of(shard)))
    assert (c.value.exit_code, isinstance(c.value, DataError)) == (65, True)


def test_another_size_is_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1\n2\n")
    (shard,) = shards_of(TextDataReader(str(path)))
    path.write_text("1\n2\n3\n")
    with pytest.raises(ReplacedError, match=r"a\.csv: was replaced since its records were counted: it has 6 bytes, no"):
        list(TextDataReader(str(path)).read_records(task_of(shard)))


def test_of_a_reader_that_counted_another_file_than_the_task_is_of(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1\n2\n")
    (shard,) = shards_of(TextDataReader(str(path)))
    path.write_text("10\n20\n")
    reader = TextDataReader(str(path))
    reader.create_shards()
    with pytest.raises(ReplacedError, match="was replaced since its records were counted"):
        list(reader.read_records(task_of(shard)))


@pytest.mark.parametrize(("name", "write"), [KINDS[0], KINDS[2], KINDS[3]], ids=["csv", "tfrecord", "tar"])
def test_of_a_large_file_that_is_counted_by_reading_it_all_of_it_is_compared(
    name: str, write: Callable[[Path, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "WHOLE", 64)
    monkeypatch.setattr(identity, "SAMPLE", 64)
    monkeypatch.setattr(identity, "_BLOCK", 16)
    path = tmp_path / name
    write(path, 0)
    (shard,) = shards_of(create_data_reader(str(path)))
    touch(path)
    assert len(list(create_data_reader(str(path)).read_records(task_of(shard)))) == 200
    with path.open("r+b") as file:  # a byte of one record, in its place
        file.seek(path.read_bytes().index(b"000041"))
        file.write(b"7")
    touch(path)
    with pytest.raises(ReplacedError, match="its content differs"):
        list(create_data_reader(str(path)).read_records(task_of(shard)))


def test_of_a_large_file_that_is_counted_by_its_index_a_sample_is_compared_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "WHOLE", 64 * 16)
    monkeypatch.setattr(identity, "SAMPLE", 64 * 16)
    monkeypatch.setattr(identity, "_BLOCK", 16)
    path = tmp_path / "a.tar"
    write_indexed(path, 0)
    reader = create_data_reader(str(path))
    (shard,) = shards_of(reader)
    touch(path)
    for _ in range(3):
        assert len(list(reader.read_records(task_of(shard)))) == 200
    (record,) = caplog.records
    assert "a.tar" in record.getMessage() and "a sample of 1024 bytes" in record.getMessage()
    write_indexed(path, 1000)
    with pytest.raises(ReplacedError, match="was replaced since its records were counted: its content differs; "):
        list(reader.read_records(task_of(shard)))


def test_what_two_identities_prove() -> None:
    def text(size: int | None, tag: str | None, digest: str | None = None) -> str:
        return str(identity.Content(size, tag, digest))

    cases = [
        (text(1, "a"), text(1, "a"), True),
        (text(1, "a"), text(2, "a"), False),
        (text(1, "a"), text(1, "b"), False),
        (text(1, "a", "x"), text(1, "b", "x"), True),
        (text(1, "a", "x"), text(1, "b", "y"), False),
        (text(1, "a", "x"), text(1, "b"), False),
        # A server that gives neither version nor time: the size is all that is known.
        (text(1, None), text(1, "a"), True),
        (text(None, "a"), text(1, "a"), True),
        # Those of a reader of the user's own.
        ("version 7", "version 7", True),
        ("version 7", "version 8", False),
        ("[1]", "[2]", False),
        ('["table", "v1", 3]', '["table", "v1", 4]', False),
        ('[7, "v1", 3]', '[7, "v1", 4]', False),
        ('{"a": 1, "b": 2, "c": 3}', '{"a": 9, "b": 2, "c": 3}', False),
        ("", "version 8", True),
    ]
    for one, other, same in cases:
        assert same_content(one, other) is same_content(other, one) is same, (one, other)


def test_a_shard_with_an_identity_is_three_values() -> None:
    """Programs take it apart, and compare it."""
    shard = Shard("a", 0, 3, "version 7")
    name, start, records = shard
    assert (name, start, records) == ("a", 0, 3) == shard == Shard("a", 0, 3)
    assert pickle.loads(pickle.dumps(shard)).identity == "version 7"
    assert (repr(shard), Shard("a", 0, 3).identity) == ("Shard(name='a', start=0, records=3)", "")


class Ranges(AbstractDataReader):
    def __init__(self, *made: Any) -> None:
        super().__init__()
        self.made = made

    def create_shards(self) -> Any:
        return list(self.made)

    def read_records(self, task: Any) -> Iterator[Any]:
        yield from ()

    def content_identity(self, name: str) -> str:
        return f"version of {name}"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([("a", 0, 5), ("a", 0, 5)], "'a': records 0 to 5 and 0 to 5"),
        ([("a", 0, 5), ("b", 0, 5), ("a", 4, 5)], "'a': records 0 to 5 and 4 to 9"),
        ([("a", 8, 2), ("a", 0, 100)], "'a': records 0 to 100 and 8 to 10"),
    ],
)
def test_ranges_that_overlap_are_refused(made: list[Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"Ranges.create_shards.. gave records twice, {reason}"):
        shards_of(Ranges(*made))


def test_ranges_that_do_not_overlap_are_taken_with_their_identities() -> None:
    found = shards_of(Ranges(("a", 5, 5), ("b", 0, 5), ("a", 0, 5), ("a", 3, 0), ("a", 3, 0)))
    assert found == [("a", 5, 5), ("b", 0, 5), ("a", 0, 5), ("a", 3, 0), ("a", 3, 0)]
    assert [each.identity for each in found[:2]] == ["version of a", "version of b"]


def test_a_file_that_a_spec_names_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    reader = TextDataReader(f"{tmp_path}/{{a,a}}.csv")
    with pytest.raises(UsageError, match=r"gave records twice, '.*a\.csv': records 0 to 2 and 0 to 2"):
        shards_of(reader)


@each_kind
def test_how_many_records_a_file_has_is_said_of_a_task_behind_its_end(
    name: str, write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path, 0)
    for reader in (create_data_reader(str(path)), create_data_reader(str(path))):
        with pytest.raises(DataError, match="has 200 records, and records 1000 to 1009 were asked for"):
            list(reader.read_records(Task(TaskShard(str(path), 1000, 1010))))
        reader.create_shards()  # type: ignore[attr-defined]
