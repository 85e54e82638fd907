"""Sources of records that are handed out in ranges: the interface, and the readers of files."""

from __future__ import annotations

import csv
import gzip
import io
import os
import random
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tarkit
from tarkit.errors import DataError, StreamError, UsageError
from tarkit.formats import recordio, tfrecord
from tarkit.formats.har import HarWriter
from tarkit.formats.sequencefile import PairWriter
from tarkit.formats.textrows import text_rows
from tarkit.readers.create import READERS, create_data_reader, custom_data_reader
from tarkit.readers.files import FileDataReader
from tarkit.readers.parameters import parse_reader_params
from tarkit.readers.parquet import ParquetDataReader
from tarkit.readers.reader import AbstractDataReader, Shard, Task, TaskShard, shards_of, task_shard
from tarkit.readers.tar import TarDataReader
from tarkit.readers.text import TextDataReader
from tarkit.store import waits
from tarkit.store.entries import Identity
from tarkit.store.rangedfile import RangedFile


def task(name: str, start: int, end: int, indices: tuple[int, ...] = ()) -> Task:
    return Task(TaskShard(name, start, end, indices))


def all_records(reader: AbstractDataReader) -> list[Any]:
    """As a trainer draws them: shard by shard."""
    return [
        record
        for shard in shards_of(reader)
        for record in reader.read_records(task(shard.name, shard.start, shard.start + shard.records))
    ]


def flip(path: Path, at: int) -> None:
    """Damage a byte, as a disk does: the time of change stays."""
    content, status = bytearray(path.read_bytes()), path.stat()
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


class Own(AbstractDataReader):
    """A reader of a user's own; it gives what it was made with."""

    def __init__(self, data_origin: str = "", shards: Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_origin, self.shards, self.kwargs = data_origin, shards, kwargs

    def read_records(self, task: Any) -> Iterator[int]:
        yield from range(task.start, task.end)

    def create_shards(self) -> Any:
        return self.shards


@pytest.mark.parametrize(
    "shards",
    [
        [("a", 0, 3), ("b", 5, 2)],
        (["a", 0, 3], ["b", 5, 2]),
        {"a": 3, "b": (5, 2)},
        iter([("a", 0, 3), ("b", 5, 2)]),
    ],
)
def test_the_shapes_of_create_shards(shards: Any) -> None:
    assert shards_of(Own(shards=shards)) == [Shard("a", 0, 3), Shard("b", 5, 2)]


@pytest.mark.parametrize(
    "shards", [["a"], [("a", 3)], {"a": None}, {"a": (0, -1)}, [("a", 0, True)], [(1, 0, 3)], [("a", 0, 1.5)]]
)
def test_another_shape_is_refused_by_the_readers_name(shards: Any) -> None:
    with pytest.raises(UsageError, match=r"Own.create_shards\(\) gave .*; a shard is \(name, first record, "):
        shards_of(Own(shards=shards))


def test_both_spellings_of_a_task() -> None:
    made = task("a", 2, 5, (4, 2))
    assert (made.shard_name, made.start, made.end, made.shard.name) == ("a", 2, 5, "a")
    assert task_shard(made) == TaskShard("a", 2, 5, (4, 2))
    assert task_shard(SimpleNamespace(shard_name="a", start=2, end=5)) == TaskShard("a", 2, 5)
    message = SimpleNamespace(shard=SimpleNamespace(name="a", start=2, end=5, indices=[3]))
    assert task_shard(message) == TaskShard("a", 2, 5, (3,))


def test_what_a_reader_has_unless_it_says_otherwise() -> None:
    reader = Own()
    assert reader.records_output_types is None
    assert list(reader.metadata.column_names) == [] and reader.metadata.column_dtypes == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1; b=x y;", {"a": 1, "b": "x y"}),
        ("columns=['a;b', \"c\"]; n=None", {"columns": ["a;b", "c"], "n": None}),
        ("url=s3://b/x?y=z", {"url": "s3://b/x?y=z"}),
        ("name=don't; b=2", {"name": "don't", "b": 2}),
        ("evil=__import__('os').system('true')", {"evil": "__import__('os').system('true')"}),
        ("empty=", {"empty": ""}),
        (r"name='it\'s; here'; b=2", {"name": "it's; here", "b": 2}),
        ("unhashable={[]: 1}", {"unhashable": "{[]: 1}"}),
    ],
)
def test_parameters(text: str, expected: dict[str, Any]) -> None:
    assert parse_reader_params(text) == expected


@pytest.mark.parametrize(
    ("text", "message"), [("a", "not NAME=VALUE"), ("1a=2", "not NAME=VALUE"), ("a=1;a=2", "given twice")]
)
def test_parameters_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_reader_params(text)


@given(st.text(max_size=60))
def test_parameters_of_any_text_are_taken_or_refused(text: str) -> None:
    try:
        assert all(name.isidentifier() for name in parse_reader_params(text))
    except UsageError:
        return


def test_a_reader_of_ones_own(tmp_path: Path) -> None:
    made = custom_data_reader(f"{__file__}:Own", "x", "shards=[('a', 0, 2)]; more=3")
    assert (made.data_origin, made.kwargs) == ("x", {"more": 3})  # type: ignore[attr-defined]
    assert all_records(made) == [0, 1]
    (tmp_path / "model.py").write_text("def reader(data_origin, **params): return [data_origin]\ndef other(x): 1\n")
    with pytest.raises(UsageError, match="the parameter data_origin is the source, which is named on its own"):
        custom_data_reader(f"{__file__}:Own", "x", "data_origin='y'")
    with pytest.raises(UsageError, match="py:other cannot be called with data_origin, a: missing a required argument"):
        custom_data_reader(f"{tmp_path}/model.py:other", "x", "a=1")
    (tmp_path / "db.py").write_text("from sqlite3 import connect\n")
    with pytest.raises(UsageError, match="py:connect cannot be called with data_origin"):
        custom_data_reader(f"{tmp_path}/db.py:connect", "x")
    with pytest.raises(UsageError, match=r"gave list; it must give a reader derived from .*AbstractDataReader"):
        custom_data_reader(f"{tmp_path}/model.py:reader", "x")


@pytest.mark.parametrize(
    ("origin", "more", "kind"),
    [
        ("rows.csv", {}, "TextDataReader"),
        ("x", {"reader_type": "CSV"}, "TextDataReader"),
        ("s3://b/train-{0..9}.tar", {}, "TarDataReader"),
        ("t.parquet", {}, "ParquetDataReader"),
        ("folder", {}, "RecordIODataReader"),
        ("x.tfrecord", {}, "TFRecordDataReader"),
        ("x.seq", {}, "SequenceFileDataReader"),
        ("x.sequencefile", {}, "SequenceFileDataReader"),
    ],
)
def test_the_reader_of_a_source(origin: str, more: dict[str, Any], kind: str) -> None:
    assert type(create_data_reader(origin, environ={}, **more)).__name__ == kind


def test_the_reader_of_a_folder_or_of_a_name_that_shows_nothing_is_that_of_the_first_file(tmp_path: Path) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:bz2") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    with tfrecord.RecordWriter(tmp_path / "t") as records:
        records.write(b"x")
    with PairWriter(tmp_path / "s", "Text", "Text") as pairs:
        pairs.write("a", "b")
    contents = {
        "Tar": ("a.tar.bz2", tar.getvalue()),
        "TFRecord": ("part-0", (tmp_path / "t").read_bytes()),
        "SequenceFile": ("part-00000", (tmp_path / "s").read_bytes()),
        "CSV": ("a.csv", b"1,2"),
        "RecordIO": ("data-0-0000", b""),
    }
    for reader_type, (name, content) in contents.items():
        folder = tmp_path / reader_type
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        (folder / name).write_bytes(content)
        (tmp_path / "list.txt").write_text(f"{folder / name}\n")
        expected = READERS[reader_type][0].partition(":")[2]
        for origin in (f"{folder}", f"{folder}/{name}", f"@{tmp_path}/list.txt"):
            assert type(create_data_reader(origin, environ={})).__name__ == expected
    with HarWriter(tmp_path / "x.har") as archives:
        archives.write("a", b"")
    with pytest.raises(UsageError, match=r"x.har is har, for which there is no reader"):
        create_data_reader(f"{tmp_path}/x.har", environ={})


def test_sources_that_are_refused() -> None:
    with pytest.raises(UsageError, match=f"reader_type is 'Excel'; it must be one of {', '.join(READERS)}"):
        create_data_reader("x", reader_type="Excel")
    with pytest.raises(UsageError, match="TarDataReader has no parameter columns, rul"):
        create_data_reader("x.tar", environ={}, rul="x", columns=1)
    with pytest.raises(UsageError, match="records_per_task is 0; it must be at least 1"):
        create_data_reader("x.tar", 0, environ={})


ROWS = [["1", 'a "quoted" word', "x"], ["2", "over\ntwo lines", ""], ["3", "", "ü"], ["4", "semi;colon", "\r\n"]]


def csv_text(rows: list[list[str]], line_end: str = "\n") -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator=line_end).writerows(rows)
    return file.getvalue().encode()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_rows_with_line_breaks_in_quotes_are_one_record(tmp_path: Path, line_end: str) -> None:
    (tmp_path / "a.csv").write_bytes(csv_text(ROWS * 1000, line_end).rstrip())
    reader = create_data_reader(f"{tmp_path}/a.csv", 700, environ={})
    assert [shard.records for shard in shards_of(reader)] == [700] * 5 + [500]
    assert [next(csv.reader(io.StringIO(row, newline=""))) for row in all_records(reader)] == ROWS * 1000


@pytest.mark.parametrize("fresh", [False, True], ids=["counted", "not-counted"])
def test_a_range_of_rows(tmp_path: Path, fresh: bool) -> None:
    rows = [[str(number), "x\ny"] for number in range(5000)]
    (tmp_path / "a.csv").write_bytes(csv_text(rows))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(csv_text(rows)))
    fsspec.filesystem("memory").pipe("/readers/a.csv", csv_text(rows))
    reader = TextDataReader(str(tmp_path))
    for name in (f"{tmp_path}/a.csv", f"{tmp_path}/b.csv.gz", "memory://readers/a.csv"):
        if not fresh:
            assert reader.count(name) == 5000
        for start, end in ((0, 3), (1023, 1026), (4990, 5000), (2048, 2048)):
            got = list(reader.read_records(task(name, start, end)))
            assert got == [f'{number},"x\ny"' for number in range(start, end)]


def test_a_header_is_not_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,a\n\n2,b\n")
    (tmp_path / "b.csv").write_text("id,name\n")
    reader = TextDataReader(str(tmp_path), header=True)
    assert shards_of(reader) == [Shard(f"{tmp_path}/a.csv", 0, 2)]
    assert all_records(reader) == ["1,a", "2,b"]
    assert list(reader.metadata.column_names) == ["id", "name"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'a,5" disk\nb,6" disk\n', ['a,5" disk', 'b,6" disk']),
        (b'5" x,"q\nr"\nc\n', ['5" x,"q\nr"', "c"]),
        (b'"a""\n""b","c"x"\nd\n', ['"a""\n""b","c"x"', "d"]),
        (b'"",""""\n', ['"",""""']),
        (b'a, "b\n', ['a, "b']),
        (b'\xef\xbb\xbf"a\nb",c\n\xef\xbb\xbfd\n', ['"a\nb",c', "\ufeffd"]),
        (b"a\r\r\nb\r\n\r\nc\r", ["a\r", "b", "c"]),
        (b"a\0b\n\0\n", ["a\0b", "\0"]),
    ],
)
def test_quotes_marks_and_line_ends(tmp_path: Path, content: bytes, rows: list[str]) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert all_records(TextDataReader(f"{tmp_path}/a.csv")) == rows


@given(st.text('a",\n ', max_size=20))
def test_rows_are_those_of_the_csv_module(text: str) -> None:
    try:
        rows = [row.decode() for _, row in text_rows([text[:7].encode(), text[7:].encode()], "x")]
    except DataError:
        # Another character is then in quotes, too: it does not begin a row.
        longer = list(csv.reader(io.StringIO(f"{text}\nx", newline="")))
        assert longer[-1] != ["x"]
    else:
        found = [next(csv.reader(io.StringIO(row, newline=""))) for row in rows]
        assert found == [row for row in csv.reader(io.StringIO(text, newline="")) if row]


def test_the_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfid,"a, b"\n1,2\n')
    assert TextDataReader(f"{tmp_path}/a.csv", header=True).metadata.column_names == ["id", "a, b"]
    for names in (b"caf\xe9", b"x" * 200_000):
        (tmp_path / "b.csv").write_bytes(names + b"\n1\n")
        with pytest.raises(DataError, match=r"b\.csv: the names of its columns cannot be read"):
            TextDataReader(f"{tmp_path}/b.csv", header=True).metadata  # noqa: B018


def test_a_source_that_can_be_read_only_once(tmp_path: Path) -> None:
    """A reader that opened it would wait for ever."""
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UsageError, match=r"a\.csv can be read only once, and a reader reads it for each task"):
        TextDataReader(f"{tmp_path}/a.csv").create_shards()


def test_text_that_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text('1,a\n2,"b\n')
    with pytest.raises(DataError, match=r"a\.csv, offset 4: ends inside of a quoted field"):
        TextDataReader(f"{tmp_path}/a.csv").create_shards()
    (tmp_path / "b.csv").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"b\.csv: a row is not UTF-8"):
        all_records(TextDataReader(f"{tmp_path}/b.csv"))
    monkeypatch.setattr("tarkit.formats.textrows._LONGEST_ROW", 2 << 20)
    (tmp_path / "c.csv").write_bytes(b'"' + b"x\n" * (2 << 20))
    with pytest.raises(DataError, match=r"c\.csv, offset 0: a quote is open for more than 2 MiB"):
        TextDataReader(f"{tmp_path}/c.csv").create_shards()
    # A few bytes can stand for more than memory has.
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"a\n" + bytes(9 << 20)))
    with pytest.raises(DataError, match=r"d\.csv\.gz, offset 2: a row has no end for more than 2 MiB"):
        TextDataReader(f"{tmp_path}/d.csv.gz").create_shards()


def test_a_task_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    reader = TextDataReader(f"{tmp_path}/a.csv")
    with pytest.raises(DataError, match="has 2 records, and records 1 to 3 were asked for; create the shards anew"):
        list(reader.read_records(task(f"{tmp_path}/a.csv", 1, 4)))


def test_records_in_the_order_of_indices(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{number}\n" for number in range(10)))
    reader = TextDataReader(f"{tmp_path}/a.csv")
    assert list(reader.read_records(task(f"{tmp_path}/a.csv", 4, 8, (7, 4, 6)))) == ["7", "4", "6"]
    with pytest.raises(UsageError, match="record 8 is not in the range 4 to 8"):
        list(reader.read_records(task(f"{tmp_path}/a.csv", 4, 8, (8,))))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards, one of them compressed, and what is not data."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, first, count in (("a.tar", 0, 200), ("b.tar.gz", 200, 70)):
        with tarkit.TarWriter(str(folder / name)) as sink:
            for number in range(first, first + count):
                sink.write({"__key__": f"{number:04d}", "cls": number, "bin": bytes(number)})
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("records_per_task", [None, 1, 64, 65, 1000])
def test_samples_of_tar_shards(shards: Path, records_per_task: int | None) -> None:
    reader = TarDataReader(str(shards), records_per_task)
    found = all_records(reader)
    assert [sample["__key__"] for sample in found] == [f"{number:04d}" for number in range(270)]
    assert [sample["bin"] for sample in found] == [bytes(number) for number in range(270)]
    reader.create_shards()
    assert reader.tally.skipped == {"metadata": 1}


def test_tar_shards_at_a_url_are_read_from_the_offset(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("memory").pipe("/readers/a.tar", (shards / "a.tar").read_bytes())
    reader = TarDataReader("memory://readers/a.tar")
    assert shards_of(reader) == [Shard("memory://readers/a.tar", 0, 200)]
    monkeypatch.setattr("tarkit.readers.ranged.open_read", None)
    found = list(reader.read_records(task("memory://readers/a.tar", 150, 153)))
    assert [sample["__key__"] for sample in found] == ["0150", "0151", "0152"]


def test_a_range_of_a_shard_that_this_reader_did_not_count(shards: Path) -> None:
    found = list(TarDataReader(str(shards)).read_records(task(f"{shards}/b.tar.gz", 60, 70)))
    assert [sample["cls"] for sample in found] == [str(number).encode() for number in range(260, 270)]


def test_a_member_that_is_in_no_sample_moves_no_range(tmp_path: Path) -> None:
    """k64.__m__ has the key of a sample that comes later, whose offset is remembered: it was that
    of the member.
    """
    shard = str(tmp_path / "a.tar")
    with tarfile.open(shard, "w") as tar:
        for name in ["k64.__m__", *(f"k{number}.txt" for number in range(70))]:
            tar.addfile(tarfile.TarInfo(name))
    reader = TarDataReader(shard)
    reader.create_shards()
    assert [sample["__key__"] for sample in reader.read_records(task(shard, 64, 67))] == ["k64", "k65", "k66"]


RECORDS = [f"record {number}".encode() * (number % 5) for number in range(5000)]


def test_records_of_recordio(tmp_path: Path) -> None:
    for name, records in (("a", RECORDS[:3000]), ("b", RECORDS[3000:])):
        with recordio.RecordWriter(f"{tmp_path}/{name}", max_chunk_size=1000) as writer:
            writer.write_batch(records)
    (tmp_path / "_SUCCESS").touch()
    reader = create_data_reader(str(tmp_path), 700, environ={})
    assert [shard.records for shard in shards_of(reader)] == [700] * 4 + [200] + [700, 700, 600]
    assert all_records(reader) == RECORDS
    assert list(reader.read_records(task(f"{tmp_path}/b", 10, 13, (12, 10)))) == [RECORDS[3012], RECORDS[3010]]


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_records_of_tfrecord(tmp_path: Path, name: str) -> None:
    with tfrecord.RecordWriter(f"{tmp_path}/{name}") as writer:
        for record in RECORDS:
            writer.write(record)
    reader = create_data_reader(f"{tmp_path}/{name}", 1500, reader_type="TFRecord")
    assert [shard.records for shard in shards_of(reader)] == [1500, 1500, 1500, 500]
    assert all_records(reader) == RECORDS


def test_damage_in_a_range_is_reported_with_its_offset_in_the_file(tmp_path: Path) -> None:
    with tfrecord.RecordWriter(f"{tmp_path}/a.tfrecord") as writer:
        for number in range(3000):
            writer.write(b"%04d" % number)
    reader = create_data_reader(f"{tmp_path}/a.tfrecord", environ={})
    assert len(shards_of(reader)) == 1
    flip(tmp_path / "a.tfrecord", 2500 * 20 + 12)
    with pytest.raises(DataError, match=r"a\.tfrecord, offset 50000"):
        list(reader.read_records(task(f"{tmp_path}/a.tfrecord", 2400, 2600)))


def test_pairs_of_sequence_files(tmp_path: Path) -> None:
    for name, first, last in (("part-00000.seq", 0, 300), ("part-00001.seq", 300, 400)):
        with PairWriter(str(tmp_path / name), block_bytes=500) as writer:
            for number in range(first, last):
                writer.write(f"key {number}", b"%d" % number)
    (tmp_path / "_SUCCESS").touch()
    reader = create_data_reader(str(tmp_path), 128, reader_type="SequenceFile")
    assert [shard.records for shard in shards_of(reader)] == [128, 128, 44, 100]
    assert all_records(reader) == [(f"key {number}", b"%d" % number) for number in range(400)]
    # The third task begins behind many blocks, which are not read again.
    path = tmp_path / "part-00000.seq"
    flip(path, 200)
    assert len(list(reader.read_records(task(str(path), 256, 300)))) == 44
    with pytest.raises(DataError, match="offset"):
        list(reader.read_records(task(str(path), 0, 128)))


def test_shards_that_are_created_anew_are_those_of_the_new_file(tmp_path: Path) -> None:
    """Of the same length as the old one, or compressed where the old one was not: nothing of its
    index is used.
    """

    def write(kind: str, name: str, records: list[bytes]) -> None:
        if kind == "RecordIO":
            with recordio.RecordWriter(name, compression="none") as writer:
                writer.write_batch(records)
        elif kind == "TFRecord":
            with tfrecord.RecordWriter(name, compression=None) as writer:
                for record in records:
                    writer.write(record)
        elif kind == "SequenceFile":
            with PairWriter(name, "NullWritable", compression="none", sync_interval=100) as pairs:
                for record in records:
                    pairs.write(None, record)
        else:
            Path(name).write_bytes(b"".join(record + b"\n" for record in records))

    def found(reader: AbstractDataReader) -> list[bytes]:
        records = [each[1] if isinstance(each, tuple) else each for each in all_records(reader)]
        return [each.encode() if isinstance(each, str) else each for each in records]

    name = f"{tmp_path}/a"
    for kind in ("RecordIO", "TFRecord", "SequenceFile", "CSV"):
        reader = create_data_reader(name, 1100, reader_type=kind)
        write(kind, name, [b"%016d" % number for number in range(3000)])
        assert len(found(reader)) == 3000
        new = [b"%06d" % number for number in range(6000)]
        write(kind, name, new)
        assert found(reader) == new
        if kind != "RecordIO":
            Path(name).write_bytes(gzip.compress(Path(name).read_bytes()))
            assert found(reader) == new
    write("RecordIO", name, [b"12345678"])
    fresh = create_data_reader(name, reader_type="RecordIO")
    assert list(fresh.read_records(task(name, 0, 1))) == [b"12345678"]
    write("RecordIO", name, [b"12", b"34"])
    with pytest.raises(DataError, match=r"was replaced since this reader first used it: .*; create the shards anew"):
        list(fresh.read_records(task(name, 0, 2)))


class Slow(FileDataReader):
    """The first file cannot be read, and the others are at a store that does not answer."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.asked, self.answer = threading.Semaphore(0), threading.Event()
        self.ended: list[BaseException] = []

    def count(self, url: str) -> int:
        if url.endswith("0"):
            assert all(self.asked.acquire(timeout=300) for _ in range(3))
            raise DataError("is damaged", url=url)
        self.asked.release()
        try:
            return waits.call(self.answer.wait, 300)
        except waits.Stopped as error:
            self.ended.append(error)
            raise

    def read(self, url: str, start: int, end: int) -> Iterator[Any]:
        raise NotImplementedError


def test_when_a_file_cannot_be_counted_others_are_not_waited_for(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(b"")
    reader = Slow(str(tmp_path))
    with pytest.raises(DataError, match="0: is damaged"):
        reader.create_shards()
    reader.answer.set()
    assert len(reader.ended) == 3


def test_parquet_that_is_damaged_or_has_other_columns(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed, so Parquet is not tested")
    import pyarrow.parquet

    path = tmp_path / "a.parquet"

    def read(table: Any, at: int = 0, count: int = 0, columns: Any = None, **options: Any) -> list[Any]:
        pyarrow.parquet.write_table(table, path, **options)
        content = bytearray(path.read_bytes())
        for place in range(at, at + count):
            content[place] ^= 0xFF
        path.write_bytes(content)
        return all_records(ParquetDataReader(str(path), columns=columns))

    table = arrow.table({"id": list(range(1000)), "s": [{"x": 1, "y": 2}] * 1000})
    for compression, at, count in (("snappy", 100, 400), ("snappy", 4, 20), ("none", 200, 1)):
        options = {"compression": compression, "use_dictionary": False, "write_page_checksum": True}
        with pytest.raises(DataError, match=r"a\.parquet: row group 0 cannot be read: "):
            read(table, at, count, **options)
    assert read(table, columns=["s.x"])[0] == {"s": {"x": 1}}
    metadata = ParquetDataReader(str(path), columns=["s.x"]).metadata
    assert (metadata.column_names, metadata.column_dtypes) == (["s"], {"s": "struct<x: int64>"})
    for columns in (["nope"], ["id", "nope"], ["s.z"]):
        with pytest.raises(DataError, match=rf"a\.parquet: has no column {columns[-1]}; it has id, s"):
            read(table, columns=columns)
    for wrong in ("id", []):
        with pytest.raises(UsageError, match="it must be a list of names, or None for all"):
            read(table, columns=wrong)
    twice = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match=r"a\.parquet: has two columns a"):
        read(twice)


def test_rows_of_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed, so Parquet is not tested")
    import pyarrow.parquet

    table = arrow.table({"id": list(range(1000)), "name": [f"n{number}" for number in range(1000)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=128)
    fsspec.filesystem("memory").pipe("/readers/b.parquet", (tmp_path / "a.parquet").read_bytes())
    for name in (f"{tmp_path}/a.parquet", "memory://readers/b.parquet"):
        reader = ParquetDataReader(name, 300)
        assert [shard.records for shard in shards_of(reader)] == [300, 300, 300, 100]
        assert all_records(reader) == table.to_pylist()
        assert reader.metadata.column_dtypes == {"id": "int64", "name": "string"}
        narrow = ParquetDataReader(name, columns=["name"])
        assert list(narrow.read_records(task(name, 127, 130))) == [{"name": f"n{number}"} for number in (127, 128, 129)]
    (tmp_path / "c.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"c\.parquet: is not a Parquet file that can be read"):
        ParquetDataReader(f"{tmp_path}/c.parquet").create_shards()


def test_a_ranged_file_is_as_the_file(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(5_000_000)
    (tmp_path / "x").write_bytes(content)
    with (tmp_path / "x").open("rb") as theirs, RangedFile(str(tmp_path / "x")) as ours:
        assert ours.seekable() and ours.readable()
        for whence, at, size in (
            (0, 4_999_990, 100),
            (0, 10, 4_500_000),
            (1, -5, 5),
            (2, -7, -1),
            (0, 0, 0),
            (0, 6_000_000, 4),
        ):
            assert theirs.seek(at, whence) == ours.seek(at, whence) == ours.tell()
            assert theirs.read(size) == ours.read(size)
        theirs.seek(3)
        ours.seek(3)
        copy = io.BytesIO()
        shutil.copyfileobj(ours, copy)
        assert copy.getvalue() == theirs.read()


def test_a_ranged_file_without_a_length_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.store.ranges.identify", lambda url: Identity(None, "tag"))
    with pytest.raises(StreamError, match="its length is not known"):
        RangedFile(str(tmp_path / "x"))


def test_a_ranged_file_that_is_replaced_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(5_000_000))
    with RangedFile(str(tmp_path / "x")) as file:
        file.read(10)
        (tmp_path / "y").write_bytes(bytes(5_000_000))
        (tmp_path / "y").replace(tmp_path / "x")
        file.seek(4_900_000)
        with pytest.raises(StreamError, match="was replaced while it was read"):
            file.read(10)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/readers.md, one after the other."""
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("data/a.tar") as sink:
        for number in range(5):
            sink.write({"__key__": f"k{number}", "cls": number})
    (tmp_path / "b.words").write_text("one two three")
    page = (Path(__file__).resolve().parents[3] / "docs" / "readers.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    names: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks), names)
    own = names["CustomDataReader"](".")
    assert shards_of(own) == [Shard("b.words", 0, 3)] and all_records(own) == ["one", "two", "three"]
    for kind in READERS:
        assert f"| `{kind}`" in page or f"`{kind}` |" in page, f"{kind} is not in the table of docs/readers.md"


def test_shards_that_get_an_index_or_another_one(tmp_path: Path) -> None:
    """Neither places that were found without an index nor those of an earlier index are used for
    the new shard.
    """
    path = tmp_path / "a.tar"

    def write(first: int, count: int, size: int, index: bool) -> list[str]:
        path.with_suffix(".idx").unlink(missing_ok=True)
        with tarkit.TarWriter(str(path), index=index) as sink:
            for number in range(first, first + count):
                sink.write({"__key__": f"{number:04d}", "bin": bytes(size)})
        return [f"{number:04d}" for number in range(first, first + count)]

    def keys(reader: TarDataReader, *tasks: Task) -> list[str]:
        found = (reader.read_records(each) for each in tasks) if tasks else [all_records(reader)]
        return [sample["__key__"] for each in found for sample in each]

    counting = TarDataReader(str(path), 150)
    for first, count, size, index in ((0, 300, 10, False), (1000, 400, 600, True), (2000, 300, 10, True)):
        wanted = write(first, count, size, index)
        assert keys(counting) == wanted
        assert keys(TarDataReader(str(path)), task(str(path), 100, 200)) == wanted[100:200]


@pytest.mark.parametrize("counted", [False, True], ids=["not-counted", "counted"])
def test_a_file_that_changes_while_a_task_reads_it_is_an_error(tmp_path: Path, counted: bool) -> None:
    """Replaced, or grown: the records that came before are as they were, and the task fails."""
    for change in ("replace", "grow"):
        (tmp_path / "a.csv").write_text("1\n2\n3\n")
        reader = TextDataReader(f"{tmp_path}/a.csv")
        if counted:
            assert shards_of(reader)[0].records == 3
        rows = reader.read_records(task(f"{tmp_path}/a.csv", 0, 3))
        assert next(rows) == "1"
        if change == "grow":
            with (tmp_path / "a.csv").open("a") as file:
                file.write("4\n")
        else:
            (tmp_path / "b").write_text("7\n8\n9\n")
            # Of many kernels, the clock of files goes on only every few milliseconds.
            os.utime(tmp_path / "b", (1, 1))
            (tmp_path / "b").replace(tmp_path / "a.csv")
        with pytest.raises(DataError, match=r"a\.csv: was replaced while it was read: .*; create the shards anew"):
            list(rows)


def test_a_file_that_was_replaced_since_it_was_counted_is_an_error(tmp_path: Path) -> None:
    """Offsets of the file that was there lead to other records of this one."""
    name = f"{tmp_path}/a.csv"
    for kind in ("a", "longer "):
        Path(name).write_text("".join(f"{kind}{number},x\n" for number in range(3000)))
        if kind == "a":
            reader = TextDataReader(name)
            reader.create_shards()
    with pytest.raises(
        DataError, match=r"a\.csv: was replaced since this reader first used it: .*; create the shards anew"
    ):
        list(reader.read_records(task(name, 2000, 2001)))
    reader.create_shards()
    assert list(reader.read_records(task(name, 2000, 2001))) == ["longer 2000,x"]
    for start, end in ((-1, 2), (5, 2)):
        with pytest.raises(UsageError, match=f"records {start} to {end} are not a range"):
            list(reader.read_records(task(name, start, end)))


def test_a_range_of_a_file_that_is_compressed_by_zlib(tmp_path: Path) -> None:
    name = f"{tmp_path}/a.tfrecord"
    with tfrecord.RecordWriter(name, compression="zlib") as writer:
        for number in range(3000):
            writer.write(b"%d" % number)
    assert all_records(create_data_reader(name, 700)) == [b"%d" % number for number in range(3000)]
