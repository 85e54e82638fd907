"""SequenceFiles: those of Hadoop and Spark, those of every version, parts, folders, and what the
writer makes.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sequencebuild
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import (
    CorruptHeaderError,
    DecodeError,
    EncodeError,
    MissingInputError,
    StreamError,
    UsageError,
)
from tarkit.formats.sequencefile import PairWriter, header_of, read_index, read_pairs
from tarkit.formats.tally import Tally
from tarkit.store import rangedfile, ranges

DATA = Path(__file__).resolve().parents[1] / "data" / "sequencefile"
CODECS = ("default", "gzip", "bzip2", "snappy", "lz4")
OURS = ("zlib", "gzip", "bzip2", "snappy", "lz4", "zstd")
WHOLE = [0, 1, -1, 127, 128, -112, -113, 255, 256, 65535, 65536, -65537, 2**31 - 1, -(2**31)]
LARGE = [*WHOLE, 2**31, -(2**31) - 1, 2**40, 2**56, -(2**56), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, -2.25, float("inf"), 3.0e-39, 1e30]
PAIRS = [(f"key-{i:04}-\u00e9\U0001f431", (b"value %d;" % i) * (i % 7) + bytes(range(i))) for i in range(60)]
"""The records of make.py."""


def as_float(value: float) -> float:
    """Rounded to 32 bits by another way than struct's."""
    import ctypes

    return ctypes.c_float(value).value


@pytest.mark.parametrize("name", ["none", *(f"{kind}-{codec}" for kind in ("record", "block") for codec in CODECS)])
def test_what_hadoop_wrote(name: str) -> None:
    tally = Tally()
    assert list(read_pairs(DATA / f"{name}.seq", tally=tally)) == PAIRS
    assert (tally.members, tally.shards, tally.damage) == (60, 1, [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int-long", [(i, i) for i in WHOLE]),
        ("vint-vlong", [(i, i) for i in WHOLE]),
        ("vlong-null", [(i, None) for i in LARGE]),
        ("boolean-float", [(i % 2 == 1, as_float(each)) for i, each in enumerate(FLOATS)]),
        ("null-double", [(None, each) for each in FLOATS]),
        ("byte-short", [(i, i) for i in (0, 1, -1, 127, -128)]),
        ("md5-text", [(hashlib.md5(b"%d" % i).digest(), f"{i}") for i in range(3)]),
        ("empty-none", []),
        ("empty-block", []),
        *(
            (f"long-{k}-{c}", [("long", b"0123456789abcdef" * 20_000)] * 2)
            for k in ("record", "block")
            for c in ("snappy", "lz4")
        ),
    ],
)
def test_classes_of_hadoop(name: str, expected: list[Any]) -> None:
    found = list(read_pairs(DATA / f"{name}.seq"))
    assert found == expected
    assert [type(each) for pair in found for each in pair] == [type(each) for pair in expected for each in pair]


def test_folders_of_spark() -> None:
    tally = Tally()
    assert list(read_pairs(DATA / "spark-none", tally=tally)) == [(f"key-{i}", i) for i in range(10)]
    assert tally.skipped == {"metadata": 1, "checksum": 3}
    assert (tally.members, tally.shards) == (10, 2)
    assert list(read_pairs(str(DATA / "spark-gzip"))) == [(i, b"%d" % i) for i in range(10)]
    ((key, value),) = read_pairs(DATA / "spark-pickle")
    # Java's serialization of an array of arrays of bytes, which is not looked into.
    assert key is None
    assert value.startswith(b"\xac\xed\x00\x05ur")


def test_an_unknown_class_is_an_error_by_its_name_or_stays_bytes() -> None:
    path = DATA / "text-map.seq"
    with pytest.raises(DecodeError, match=r"values are of org.apache.hadoop.io.MapWritable.*raw=True"):
        next(read_pairs(path))
    with pytest.raises(DecodeError, match="MapWritable"):
        next(read_pairs(path, on_damage="skip"))
    # One class of its own (0x01), -116 for it is not needed: Text is -116 (0x8c), IntWritable -123
    # (0x85).
    values = [bytes.fromhex("00 00000001 8c 0161 85") + i.to_bytes(4, "big") for i in range(3)]
    assert list(read_pairs(path, raw=True)) == [(f"{i}", value) for i, value in enumerate(values)]
    assert list(read_pairs(path, raw="all")) == [(b"\x01%d" % i, value) for i, value in enumerate(values)]


def test_header_of_hadoop() -> None:
    header = header_of(DATA / "none.seq")
    assert header.metadata == {"a": "1", "note": "caf\u00e9"}
    assert (header.version, header.key_class, header.value_class, header.compression, header.codec) == (
        6,
        "org.apache.hadoop.io.Text",
        "org.apache.hadoop.io.BytesWritable",
        "none",
        "",
    )
    assert header_of(DATA / "block-snappy.seq").codec == "org.apache.hadoop.io.compress.SnappyCodec"


@pytest.mark.parametrize("name", ["none", "int-long", "vint-vlong", "null-double", "md5-text", "empty-block"])
def test_the_same_bytes_as_hadoop(name: str) -> None:
    path = DATA / f"{name}.seq"
    header = header_of(path)
    out = io.BytesIO()
    with PairWriter(
        out,
        header.key_class,
        header.value_class,
        compression=header.compression,
        codec=header.codec or "zlib",
        metadata=header.metadata,
        sync=header.sync,
        sync_interval=400,
        block_bytes=1500,
    ) as writer:
        for pair in read_pairs(path):
            writer.write(*pair)
    assert out.getvalue() == path.read_bytes()


ROWS = [("a", "1"), ("b\u00e9", ""), ("", "3")]


@pytest.mark.parametrize(
    ("version", "kind"),
    [(v, "none") for v in range(1, 7)] + [(v, "record") for v in range(3, 7)] + [(v, "block") for v in range(4, 7)],
)
def test_every_version(version: int, kind: str) -> None:
    data = sequencebuild.header(version, kind)
    mark = sequencebuild.MARK if version >= 2 else b""
    if kind == "block":
        data += sequencebuild.block(ROWS[:2]) + sequencebuild.block(ROWS[2:])
    else:
        rows = [sequencebuild.record(key, value, kind == "record") for key, value in ROWS]
        data += rows[0] + mark + rows[1] + rows[2]
    assert list(read_pairs(io.BytesIO(data))) == ROWS
    assert header_of(io.BytesIO(data)).version == version


@pytest.mark.parametrize("version", [0, 7, 255])
def test_a_version_that_does_not_exist(version: int) -> None:
    with pytest.raises(CorruptHeaderError, match=f"version {version}; tarkit reads 1 to 6"):
        list(read_pairs(io.BytesIO(b"SEQ" + bytes([version]) + bytes(100))))


def test_utf8_of_old_hadoop() -> None:
    value = "\0\U0001f431\u00e9"
    encoded = b"\xc0\x80" + b"\xed\xa0\xbd\xed\xb0\xb1" + "\u00e9".encode()
    body = len(encoded).to_bytes(2, "big") + encoded
    record = (len(body) * 2).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body * 2
    data = sequencebuild.header(3, "none", "UTF8", "UTF8") + record
    assert list(read_pairs(io.BytesIO(data))) == [(value, value)]
    out = io.BytesIO()
    with PairWriter(out, "UTF8", "UTF8", compression="none") as writer:
        writer.write(value, value)
    assert out.getvalue().endswith(record)


class Dribble:
    """A file object that gives a few bytes at a time."""

    def __init__(self, data: bytes, seed: int) -> None:
        self._file = io.BytesIO(data)
        self._random = random.Random(seed)

    def read(self, count: int) -> bytes:
        return self._file.read(min(count, self._random.choice((1, 2, 3, 19, 20, 21, 500))))


@pytest.mark.parametrize("name", ["none", "record-snappy", "block-lz4", "long-block-snappy"])
@pytest.mark.parametrize("seed", range(3))
def test_short_reads_change_nothing(name: str, seed: int) -> None:
    data = (DATA / f"{name}.seq").read_bytes()
    expected = list(read_pairs(io.BytesIO(data)))
    assert list(read_pairs(Dribble(data, seed))) == expected  # type: ignore[arg-type]


def test_a_whole_file_that_was_compressed(tmp_path: Path) -> None:
    path = tmp_path / "x.seq.gz"
    path.write_bytes(gzip.compress((DATA / "none.seq").read_bytes()))
    assert list(read_pairs(path)) == PAIRS


# Parts.


def parts(read: Callable[[int, int | None], Iterator[Any]], cuts: list[int]) -> list[Any]:
    """The records of all parts between these bytes, in order."""
    edges: list[int | None] = [*sorted(cuts), None]
    found = []
    start = 0
    for stop in edges:
        found += list(read(start, stop))
        start = stop or 0
    return found


@pytest.mark.parametrize("name", ["none", "record-default", "block-default", "md5-text", "empty-block"])
@pytest.mark.parametrize("local", [True, False])
@given(cuts=st.lists(st.integers(0, 6000), max_size=5))
@settings(max_examples=40)
def test_parts_give_each_record_once(name: str, local: bool, cuts: list[int]) -> None:
    path = DATA / f"{name}.seq"
    data = path.read_bytes()

    def read(start: int, stop: int | None) -> Iterator[Any]:
        return read_pairs(path if local else io.BytesIO(data), start=start, stop=stop)

    assert parts(read, cuts) == list(read_pairs(path))


def test_a_file_that_ends_in_a_sync_mark_is_whole() -> None:
    path, expected = DATA / "ends-in-sync.seq", [("a", 1), ("b", 2)]
    tally = Tally()
    assert list(read_pairs(path, on_damage="skip", tally=tally)) == list(read_pairs(path)) == expected
    assert (tally.members, tally.damage, read_index(path).records) == (2, [], 2)
    for cut in range(path.stat().st_size):
        assert parts(lambda start, stop: read_pairs(path, start=start, stop=stop), [cut]) == expected


@pytest.mark.parametrize("name", ["none", "block-default"])
def test_parts_at_every_byte(name: str) -> None:
    path = DATA / f"{name}.seq"
    data = path.read_bytes()
    expected = list(read_pairs(path))
    sizes = set()
    for cut in range(0, len(data) + 1, 4 if name == "none" else 1):  # a record and a sync mark are longer
        first = list(read_pairs(io.BytesIO(data), stop=cut))
        assert first + list(read_pairs(io.BytesIO(data), start=cut)) == expected
        sizes.add(len(first))
    assert len(sizes) > 3, "the file has several marks, and so several ways to be cut"


def test_a_part_is_read_without_what_is_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.seq"
    with PairWriter(path, "IntWritable", compression="none") as writer:
        for index in range(3000):
            writer.write(index, bytes(1000))
    asked: list[tuple[int, int]] = []
    original = ranges.read_range

    def noted(url: str, start: int, stop: int, *, size: int) -> bytes:
        asked.append((start, stop))
        return original(url, start, stop, size=size)

    monkeypatch.setattr(ranges, "read_range", noted)
    found = [key for key, _ in read_pairs(path, start=2_000_000)]
    assert found == list(range(found[0], 3000))
    assert 1900 < found[0] < 2100
    assert asked == [(2_000_000, path.stat().st_size)]


@pytest.mark.parametrize("name", ["none", "record-default", "block-default", "md5-text", "empty-none", "text-map"])
def test_the_index_says_where_records_are(name: str) -> None:
    path = DATA / f"{name}.seq"
    rows = list(read_pairs(path, raw=True))
    records, offsets, firsts = read_index(path)
    assert records == len(rows)
    if records > 14:
        # One place for each mark of a block; without blocks the first records come without a mark.
        assert len(offsets) == path.read_bytes().count(header_of(path).sync) - name.startswith("block")
    assert firsts == sorted(set(firsts))
    assert firsts[:1] == [0][:records]
    for offset, first in zip(offsets, firsts, strict=True):
        assert list(read_pairs(path, raw=True, start=offset)) == rows[first:]


def test_a_part_of_a_file_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.seq"
    shutil.copy(DATA / "none.seq", path)
    monkeypatch.setattr(rangedfile, "BLOCK", 1000)
    monkeypatch.setattr("tarkit.store.window._PIECE", 1000)
    pairs = read_pairs(path, start=1000)
    next(pairs)
    path.write_bytes((DATA / "none.seq").read_bytes())
    with pytest.raises(StreamError, match="replaced"):
        list(pairs)


def test_arguments_that_cannot_be() -> None:
    path = DATA / "none.seq"
    for wrong in ({"start": -1}, {"start": 2, "stop": 1}, {"on_damage": "ignore"}):
        with pytest.raises(UsageError):
            next(read_pairs(path, **wrong))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="folder"):
        next(read_pairs(DATA / "spark-none", start=5))


# Folders.


def test_a_folder_of_many(tmp_path: Path) -> None:
    for name in ("b", "a/part-1", "_temporary/0/part-0", ".hidden", "x.crc", ".hid/y", "m/data", "m/index"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with PairWriter(tmp_path / name, "Text", "Text", compression="none") as writer:
            writer.write(name, "")
    (tmp_path / "_SUCCESS").touch()
    tally = Tally()
    assert [key for key, _ in read_pairs(tmp_path, tally=tally)] == ["a/part-1", "b", "m/data"]
    assert tally.skipped == {"checksum": 1, "hidden": 2, "metadata": 2, "map-file-index": 1}


def test_a_folder_in_a_store() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    for path in (DATA / "spark-none").iterdir():
        store.pipe_file(f"/seq/{path.name}", path.read_bytes())
    tally = Tally()
    assert list(read_pairs("memory://seq", tally=tally)) == [(f"key-{i}", i) for i in range(10)]
    assert tally.skipped == {"metadata": 1, "checksum": 3}
    assert [key for key, _ in read_pairs("memory://seq/part-00001")] == [f"key-{i}" for i in range(5, 10)]
    assert list(read_pairs("memory://seq/part-00001", start=120)) == []
    store.rm("/seq", recursive=True)


def test_a_folder_without_data_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(MissingInputError, match="no data files"):
        next(read_pairs(tmp_path))
    with pytest.raises(MissingInputError):
        next(read_pairs(tmp_path / "none"))


# The writer.


@pytest.mark.parametrize("codec", OURS)
@pytest.mark.parametrize("compression", ["record", "block"])
def test_every_codec_comes_back(codec: str, compression: str, tmp_path: Path) -> None:
    path = tmp_path / "x.seq"
    rows = [*PAIRS, ("long", bytes(range(256)) * 2000), ("zeros", bytes(700_000)), ("", b"")]
    with PairWriter(path, compression=compression, codec=codec, block_bytes=2000, sync_interval=2000) as writer:
        for pair in rows:
            writer.write(*pair)
        assert writer.records == len(rows)
    assert list(read_pairs(path)) == rows


integers = functools.partial(st.integers)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Text": st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    "UTF8": st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    "BytesWritable": st.binary(max_size=300),
    "IntWritable": integers(-(2**31), 2**31 - 1),
    "LongWritable": integers(-(2**63), 2**63 - 1),
    "VIntWritable": integers(-(2**31), 2**31 - 1),
    "VLongWritable": integers(-(2**63), 2**63 - 1),
    "ByteWritable": integers(-128, 127),
    "ShortWritable": integers(-(2**15), 2**15 - 1),
    "FloatWritable": st.floats(width=32, allow_nan=False),
    "DoubleWritable": st.floats(allow_nan=False),
    "BooleanWritable": st.booleans(),
    "NullWritable": st.none(),
    "MD5Hash": st.binary(min_size=16, max_size=16),
    "com.example.Unknown": st.binary(max_size=300),
}


@given(
    data=st.data(), compression=st.sampled_from(["none", "record", "block"]), interval=st.sampled_from([1, 50, 10**6])
)
def test_round_trip(data: st.DataObject, compression: str, interval: int) -> None:
    names = st.sampled_from(sorted(VALUES))
    key, value = data.draw(names), data.draw(names)
    rows = data.draw(st.lists(st.tuples(VALUES[key], VALUES[value]), max_size=12))
    out = io.BytesIO()
    with PairWriter(out, key, value, compression=compression, sync_interval=interval, block_bytes=interval) as writer:
        for pair in rows:
            writer.write(*pair)
    assert list(read_pairs(io.BytesIO(out.getvalue()), raw=True)) == rows


def test_nothing_is_published_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.seq"
    with pytest.raises(RuntimeError), PairWriter(path) as writer:
        writer.write("a", b"")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("class_name", "wrong"),
    [
        ("Text", b"bytes"),
        ("Text", "\ud800"),
        ("BytesWritable", "text"),
        ("IntWritable", 2**31),
        ("IntWritable", 1.0),
        ("VIntWritable", -(2**31) - 1),
        ("ByteWritable", 128),
        ("FloatWritable", "1"),
        ("FloatWritable", 1e300),
        ("BooleanWritable", 1),
        ("NullWritable", 0),
        ("MD5Hash", b"short"),
        ("UTF8", "x" * 65_536),
        ("com.example.Unknown", "text"),
    ],
)
def test_a_value_of_another_type_is_refused(class_name: str, wrong: Any) -> None:
    out = io.BytesIO()
    refused = pytest.raises(EncodeError, match="record 0 cannot be written")
    with PairWriter(out, "NullWritable", class_name) as writer, refused:
        writer.write(None, wrong)
    assert list(read_pairs(io.BytesIO(out.getvalue()), raw=True)) == []


def test_a_value_that_holds_the_mark_of_its_file_is_refused(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.seq", tmp_path / "outer.seq"
    with PairWriter(inner, compression="none", sync_interval=1) as writer:
        writer.write("a", b"1")
    with PairWriter(outer, compression="none") as writer, pytest.raises(EncodeError, match="holds the sync mark"):
        writer.write("inner", inner.read_bytes())
    with PairWriter(outer, compression="none", sync=b"another mark, 16") as writer:
        writer.write("inner", inner.read_bytes())


def test_wrong_arguments_of_the_writer(tmp_path: Path) -> None:
    for wrong in (
        {"compression": "blocks"},
        {"codec": "lzo"},
        {"sync": b"short"},
        {"sync_interval": 0},
        {"block_bytes": 0},
    ):
        with pytest.raises(UsageError):
            PairWriter(tmp_path / "x.seq", **wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    for wrong in (
        {"metadata": {"a": "x" * (1 << 20)}},
        {"metadata": {str(number): "" for number in range(70_000)}},
        {"metadata": {"\udcff": ""}},
        {"key_class": "a.b\udcff"},
        {"value_class": "a." + "b" * (1 << 20)},
    ):
        with pytest.raises(EncodeError):
            PairWriter(tmp_path / "x.seq", **wrong)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
