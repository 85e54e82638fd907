"""RecordIO of both dialects is read as it was written, and written as the originals write it."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st
from recordiobuild import DATA, HELLO, RECORDS, VECTORS, go_chunk, py_chunk, written
from traced import traced_peak

from tarkit.errors import (
    CorruptRecordError,
    DataError,
    EncodeError,
    StreamError,
    TooLargeError,
    TruncatedError,
    UsageError,
)
from tarkit.formats.recordio import RecordWriter, read_index, read_records
from tarkit.formats.recordio.chunk import GO, PYRECORDIO, Dialect
from tarkit.formats.tally import Tally

NUMBERS = [b"12345", b"1234", b"12"]
HELD = {"go-chunk10": NUMBERS, "empty": []}
STORED = {"go-none": 200, "go-snappy": 1500, "go-gzip": 1500, "pyrecordio": 300}
DIALECTS = pytest.mark.parametrize("dialect", [GO, PYRECORDIO], ids=lambda each: each.name)


def held(vector: str) -> list[bytes]:
    """The records of a vector."""
    return HELD.get(vector, [b""] if "emptyrec" in vector else HELLO)


def write_all(path: Path, records: list[object]) -> None:
    """Write what may not be records."""
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)  # type: ignore[arg-type]


# ---- files of other programs


@pytest.mark.parametrize("name", VECTORS)
def test_the_originals_vectors_are_read(name: str) -> None:
    assert list(read_records(io.BytesIO(VECTORS[name]))) == held(name)


@pytest.mark.parametrize(
    ("name", "compression", "size"),
    [
        ("go7-hello", "snappy", 32 << 20),
        ("go7-emptyrec", "snappy", 32 << 20),
        ("go-hello-none", "none", 32 << 20),
        ("go-emptyrec-none", "none", 32 << 20),
        ("go-chunk10", "none", 10),
        ("empty", "snappy", 32 << 20),
    ],
)
def test_the_originals_vectors_are_written_byte_for_byte(name: str, compression: str, size: int) -> None:
    assert written(held(name), compression, size) == VECTORS[name]


@pytest.mark.parametrize("name", STORED)
def test_stored_files_are_read(name: str) -> None:
    path = DATA / f"{name}.recordio"
    assert list(read_records(path)) == RECORDS[: STORED[name]]
    assert read_index(path).records == STORED[name]


@pytest.mark.parametrize(("name", "size"), [("go-none", 20_000), ("go-snappy", 200_000)])
def test_stored_files_are_written_byte_for_byte(name: str, size: int) -> None:
    content = (DATA / f"{name}.recordio").read_bytes()
    assert written(RECORDS[: STORED[name]], name.removeprefix("go-"), size) == content


# ---- there and back


@given(
    records=st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(bytes))),
    compression=st.sampled_from(["none", "snappy", "gzip"]),
    size=st.sampled_from([1, 10, 1000, 100_000]),
    dialect=st.sampled_from([GO, PYRECORDIO]),
    reads=st.lists(st.integers(1, 100), min_size=1),
)
def test_round_trip(records: list[bytes], compression: str, size: int, dialect: Dialect, reads: list[int]) -> None:
    content = written(records, compression, size, dialect)
    assert written(records, compression, size, dialect) == content
    tally = Tally()
    assert list(read_records(ShortReads(content, reads), tally=tally)) == records
    assert tally == Tally(members=len(records))
    index = read_index(io.BytesIO(content))
    assert (index.records, index.size) == (len(records), len(content))


class ShortReads(io.RawIOBase):
    """A file that gives a few bytes at a time."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._file = io.BytesIO(content)
        self._sizes = sizes
        self._turn = 0

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        self._turn += 1
        return self._file.read(min(size, self._sizes[self._turn % len(self._sizes)]))


def test_the_chunk_rule() -> None:
    sizes = [4, 6, 1, 10, 11, 0, 25, 0, 3]
    index = read_index(io.BytesIO(written([bytes(size) for size in sizes], "none", 10)))
    # Empty records go with what is there; a record that is larger than a chunk is one of its own.
    groups, numbers = [], iter(sizes)
    for chunk in index.chunks:
        groups.append([next(numbers) for _ in range(chunk.records)])
    assert groups == [[4, 6], [1], [10], [11], [0], [25], [0, 3]]


def test_frames_do_not_depend_on_how_records_are_gathered() -> None:
    small = [bytes([number % 256]) * 999 for number in range(3000)]
    content = b"".join(struct.pack("<I", len(each)) + each for each in small)
    assert written(small) == go_chunk(b"", len(small), 1, bytes(snappy.compress(content)))


def test_large_records_in_all_sizes_of_batches() -> None:
    records = [bytes([7]) * size for size in (0, 1 << 20, 3, 5 << 20, 65_532, 65_536, 65_537)]
    for compression in ("none", "snappy", "gzip"):
        assert list(read_records(io.BytesIO(written(records, compression)))) == records


def test_files_one_after_the_other_and_both_dialects_are_one_file() -> None:
    content = written(HELLO) + written(NUMBERS, "none", 10, PYRECORDIO) + written([b""], "gzip")
    assert list(read_records(io.BytesIO(content))) == [*HELLO, *NUMBERS, b""]


def test_a_file_that_is_compressed_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio.gz"
    with RecordWriter(path) as writer:
        writer.write_batch(HELLO)
    assert gzip.decompress(path.read_bytes()) == VECTORS["go7-hello"]
    assert list(read_records(path)) == HELLO
    with pytest.raises(CorruptRecordError, match="a chunk begins with 04 03 02 01; found 1f 8b"):
        read_index(path)


# ---- the writer


def test_records_of_other_types() -> None:
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write(bytearray(b"Hello"))
        writer.write(memoryview(b"World,"))
        writer.write(memoryview(struct.pack("<4H", 25938, 28515, 25714, 20297)).cast("H"))
    assert list(read_records(io.BytesIO(out.getvalue()))) == [b"Hello", b"World,", b"RecordIO"]


@pytest.mark.parametrize("record", ["text", None, 7, [b"x"]])
def test_what_is_not_bytes_is_refused_and_nothing_is_published(record: object, tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    with pytest.raises(EncodeError, match=f"a.recordio: a record is bytes, not {type(record).__name__}"):
        write_all(path, [b"x", record])
    assert list(tmp_path.iterdir()) == []


def test_a_record_larger_than_its_field_is_refused() -> None:
    # Zeros that were never written to take no memory.
    with pytest.raises(EncodeError, match="a record has 4294967296 bytes; RecordIO takes 4294967295"):  # noqa: SIM117
        with RecordWriter(io.BytesIO()) as writer:
            writer.write(bytes(1 << 32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"compression": "zip"}, "no compression 'zip' in RecordIO; use none, snappy, gzip"),
        ({"max_chunk_size": 0}, "max_chunk_size is 0; it must be from 1 to 4294967295"),
        ({"max_chunk_size": 1 << 32}, "max_chunk_size is 4294967296"),
    ],
)
def test_wrong_arguments_of_the_writer(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        RecordWriter(tmp_path / "a", **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_close_again_and_discard_after_close(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    writer = RecordWriter(path)
    writer.write(b"Hello")
    assert not writer.closed
    assert not path.exists()
    writer.close()
    writer.close()
    writer.discard()
    assert writer.closed
    assert list(read_records(path)) == [b"Hello"]


# ---- ranges and the index


@DIALECTS
def test_every_range_with_and_without_an_index(dialect: Dialect, tmp_path: Path) -> None:
    records = [bytes(size) for size in (5, 5, 1, 0, 12, 3, 3, 3, 1, 0)]
    path = tmp_path / "a.recordio"
    path.write_bytes(written(records, "snappy", 10, dialect))
    index = read_index(path)
    assert len(index.chunks) > 3
    for start in range(len(records) + 2):
        for stop in (None, *range(start, len(records) + 3)):
            assert list(read_records(path, start=start, stop=stop)) == records[start:stop]
            assert list(read_records(path, start=start, stop=stop, index=index)) == records[start:stop]
    with path.open("rb") as file:
        assert read_index(file) == index
        assert list(read_records(file, start=3, stop=6, index=index)) == records[3:6]


def test_the_index_of_another_file_of_the_same_length(tmp_path: Path) -> None:
    """Without the second record, nothing would say that there is one."""
    (tmp_path / "a").write_bytes(written([b"12345678"]))
    index = read_index(tmp_path / "a")
    (tmp_path / "a").write_bytes(written([b"12", b"34"]))
    with pytest.raises(DataError, match="offset 0: this chunk has 2 records, and its index counts 1; read the"):
        list(read_records(tmp_path / "a", index=index))


def test_ranges_of_a_file_that_is_replaced_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of the other file are as good, and at the same places."""
    monkeypatch.setattr("tarkit.formats.recordio.read._WINDOW", 100)
    monkeypatch.setattr("tarkit.formats.recordio.index._WINDOW", 50)
    for name, fill in (("a", b"a"), ("new", b"b")):
        with RecordWriter(tmp_path / name, compression="none", max_chunk_size=30) as writer:
            writer.write_batch([fill * 30] * 40)
    url = str(tmp_path / "a")
    index = read_index(url)
    records = read_records(url, index=index)
    assert next(records) == b"a" * 30
    (tmp_path / "new").replace(tmp_path / "a")
    with pytest.raises(StreamError, match="a: was replaced while it was read"):
        list(records)


def test_an_index_of_a_file_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replacing(url: str, start: int, stop: int, *, size: int) -> bytes:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(tmp_path / "a")
        return content[start:stop]

    content = written(RECORDS)
    (tmp_path / "a").write_bytes(content)
    monkeypatch.setattr("tarkit.store.ranges.read_range", replacing)
    with pytest.raises(StreamError, match="a: was replaced while it was read"):
        read_index(str(tmp_path / "a"))


class CountedFile(io.BytesIO):
    """A file that counts the bytes that are read."""

    read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def test_an_index_and_a_range_read_no_more_than_they_need() -> None:
    records = [bytes([number]) * (1 << 20) for number in range(6)]
    file = CountedFile(written(records, "none", 1 << 20))
    index = read_index(file)
    assert index.records == 6
    assert file.read_bytes < 6 * (64 << 10) + 1
    file.read_bytes = 0
    assert list(read_records(file, start=4, stop=5, index=index)) == [records[4]]
    assert file.read_bytes == index.chunks[4].size


def test_an_index_of_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.recordio"
    path.write_bytes(written(HELLO))
    index = read_index(path)
    path.write_bytes(written(NUMBERS))
    with pytest.raises(DataError, match="has 61 bytes, and had 70 when it was indexed; read the index again"):
        next(read_records(path, index=index))


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (3, 2)])
def test_wrong_ranges(start: int, stop: int | None) -> None:
    with pytest.raises(UsageError, match="are not a range"):
        next(read_records(io.BytesIO(), start=start, stop=stop))


def test_other_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="on_damage is 'ignore'; it must be one of error, skip"):
        next(read_records(io.BytesIO(), on_damage="ignore"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot seek"):
        read_index(ShortReads(b"", [1]))  # type: ignore[arg-type]


def test_the_index_of_a_file_cut_at_any_byte(tmp_path: Path) -> None:
    content = written(RECORDS[:9], "snappy", 100)
    path = tmp_path / "a.recordio"
    path.write_bytes(content)
    ends = {0, *(chunk.offset + chunk.size for chunk in read_index(path).chunks)}
    for size in range(len(content)):
        path.write_bytes(content[:size])
        if size in ends:
            read_index(path)
        else:
            with pytest.raises(TruncatedError, match="the stream ends inside"):
                read_index(path)


# ---- memory


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (struct.pack("<5I", 0x01020304, 0, 0, 2**31 - 1, 1), TruncatedError),
        (struct.pack("<5I", 0x01020304, 0, 1, 2**32 - 1, 2**32 - 1), TruncatedError),
        (struct.pack("<5I", 0x01020304, 2**32 - 1, 0, 2, 2**32 - 1), TruncatedError),
        (go_chunk(struct.pack("<I", 2**31 - 1), 1), CorruptRecordError),
        (go_chunk(struct.pack("<I", 2**31 - 1) + b"xyz", 2**32 - 1), CorruptRecordError),
        (py_chunk(b"\xff\xff\xff\xff\x0f\x00", 1, 2), CorruptRecordError),
    ],
)
@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_a_length_that_lies_takes_no_memory(content: bytes, error: type[DataError], on_damage: str) -> None:
    content = VECTORS["go7-hello"] + content
    tally = Tally()
    with traced_peak() as peak:
        records = read_records(io.BytesIO(content), on_damage=on_damage, mem=1 << 40, tally=tally)  # type: ignore[arg-type]
        if on_damage == "skip":
            assert list(records) == HELLO
            assert len(tally.damage) == 1
        else:
            with pytest.raises(error):
                list(records)
        assert peak() < 4_000_000


@pytest.mark.parametrize("on_damage", ["error", "skip"])
@pytest.mark.parametrize("compression", ["snappy", "gzip"])
@DIALECTS
def test_a_chunk_above_the_bound_is_not_taken_for_damage(dialect: Dialect, compression: str, on_damage: str) -> None:
    content = written([b"x", bytes(3 << 20)], compression, 1, dialect)
    records = read_records(io.BytesIO(content), on_damage=on_damage, mem=2 << 20)  # type: ignore[arg-type]
    assert next(records) == b"x"
    with pytest.raises(TooLargeError, match=r"bytes or more; at most 2097152 are allowed; .* larger --mem"):
        next(records)
    assert len(list(read_records(io.BytesIO(content), mem=4 << 20))) == 2


def test_a_payload_above_the_bound() -> None:
    content = written([bytes(3000)], "none")
    with pytest.raises(TooLargeError, match="a chunk has 3004 bytes or more; at most 3000 are allowed"):
        list(read_records(io.BytesIO(content), mem=3000))
    with pytest.raises(TooLargeError):
        list(read_records(io.BytesIO(content * 2), mem=3000, on_damage="skip"))
