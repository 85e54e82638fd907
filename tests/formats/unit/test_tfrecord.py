"""TFRecord: files of other programs, every cut, every flipped bit, lengths that lie, and what a
skip loses.
"""

from __future__ import annotations

import errno
import gzip
import io
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfexamples import RECORDS
from tfrecordbuild import file_of, framed, masked, records_of
from traced import traced_peak

from tarkit.errors import (
    CompressionError,
    CorruptRecordError,
    DataError,
    EncodeError,
    MissingInputError,
    StreamError,
    TooLargeError,
    TruncatedError,
    UsageError,
)
from tarkit.formats import tfrecord
from tarkit.formats.tally import Tally
from tarkit.formats.tfrecord import RecordWriter, read_records

FILES = Path(__file__).resolve().parents[1] / "data" / "tfrecord"
SMALL = [b"", b"one", b"2" * 40, b"", b"three" * 5]


def until_error(data: bytes | Path, **options: object) -> tuple[list[bytes], DataError | None]:
    found: list[bytes] = []
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        for record in read_records(source, **options):  # type: ignore[arg-type]
            found.append(record)
    except DataError as error:
        return found, error
    return found, None


def skipped(data: bytes, **options: object) -> tuple[list[bytes], Tally]:
    tally = Tally()
    found = records_of(data, on_damage="skip", tally=tally, **options)
    assert tally.members == len(found)
    return found, tally


def starts(records: list[bytes]) -> list[int]:
    """The offset of each record, and of the end."""
    found = [0]
    for record in records:
        found.append(found[-1] + 16 + len(record))
    return found


class ShortReads(io.BytesIO):
    """Gives fewer bytes than it is asked for."""

    def __init__(self, data: bytes, seed: int) -> None:
        super().__init__(data)
        self.draw = random.Random(seed)

    def read(self, count: int | None = -1) -> bytes:
        assert count is not None
        return super().read(min(count, self.draw.choice((1, 2, 3, 11, 13, 4096))))


# ---- other programs


@pytest.mark.parametrize("name", ["records.tfrecord", "records-gzip.tfrecord", "records-zlib.tfrecord"])
def test_files_of_tensorflow(name: str) -> None:
    tally = Tally()
    assert list(read_records(str(FILES / name), tally=tally)) == RECORDS
    assert (tally.members, tally.damage) == (len(RECORDS), [])


def test_the_compression_that_is_named_is_the_one_that_is_expected() -> None:
    assert list(read_records(FILES / "records-gzip.tfrecord", compression="gz")) == RECORDS
    assert list(read_records(FILES / "records-zlib.tfrecord", compression="zlib")) == RECORDS
    assert list(read_records(FILES / "records.tfrecord", compression=None)) == RECORDS
    for name, compression, error in (
        ("records.tfrecord", "gz", CompressionError),
        ("records-gzip.tfrecord", "zlib", CompressionError),
        ("records-zlib.tfrecord", None, CorruptRecordError),
    ):
        with pytest.raises(error):
            list(read_records(FILES / name, compression=compression))


def test_the_writer_makes_the_file_of_tensorflow(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "x.tfrecord") as writer:
        for record in RECORDS:
            writer.write(record)
    assert writer.records == len(RECORDS)
    assert (tmp_path / "x.tfrecord").read_bytes() == (FILES / "records.tfrecord").read_bytes()


def test_the_file_of_the_package_tfrecord_and_its_index() -> None:
    data = (FILES / "pypi.tfrecord").read_bytes()
    records = records_of(data)
    index = [tuple(map(int, line.split())) for line in (FILES / "pypi.index").read_text().splitlines()]
    assert index == [(start, len(record) + 16) for start, record in zip(starts(records), records, strict=False)]


def test_a_file_of_no_bytes_has_no_records(tmp_path: Path) -> None:
    assert records_of(b"") == []
    for compression in ("gz", "zlib", None):
        with RecordWriter(tmp_path / "empty", compression=compression):
            pass
        assert list(read_records(tmp_path / "empty", compression=compression)) == []


# ---- written and read


@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(0, 99))
def test_what_is_written_is_read(records: list[bytes], seed: int) -> None:
    for compression in (None, "gz", "zlib"):
        made = []
        for _ in range(2):
            file = io.BytesIO()
            with RecordWriter(file, compression=compression) as writer:
                for record in records:
                    writer.write(record)
            made.append(file.getvalue())
        assert made[0] == made[1]
        assert records_of(made[0], compression=compression) == records
        assert list(read_records(ShortReads(made[0], seed), compression=compression)) == records
        if records:
            assert records_of(made[0]) == records


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_the_format_is_as_its_documentation_has_it(records: list[bytes]) -> None:
    file = io.BytesIO()
    with RecordWriter(file) as writer:
        for record in records:
            writer.write(bytearray(record))
    assert file.getvalue() == file_of(records)


def test_records_longer_than_a_read_and_of_many_lengths() -> None:
    draw = random.Random(1)
    sizes = [tfrecord.READ_SIZE * 3 + 7, 0, tfrecord.READ_SIZE - 16, tfrecord.READ_SIZE - 15, *range(3000)]
    records = [draw.randbytes(size) for size in sizes]
    assert records_of(file_of(records)) == records


def test_lengths_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_MAX_REMEMBERED", 3)
    records = [bytes(size) for size in (5, 6, 7, 8, 9, 5, 6, 7, 8, 9)]
    assert records_of(file_of(records)) == records


def test_an_exception_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write(b"one")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    writer = RecordWriter(str(tmp_path / "x.tfrecord"))
    writer.write(b"one")
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_records_are_gathered_up_to_a_bound_and_never_changed(tmp_path: Path) -> None:
    """Of all lengths, around what is written together.

    What is written into a buffer afterwards is not in the file.
    """
    draw = random.Random(2)
    most = tfrecord._GATHERED
    sizes = [*range(500), most - 17, most - 16, most - 15, most, 3 * most + 1, *[0] * 5000, 1, 200, 70_000]
    records = [draw.randbytes(size) for size in sizes]
    with RecordWriter(tmp_path / "x.tfrecord") as writer:
        for record in records:
            buffer = bytearray(record)
            writer.write(buffer)
            buffer[:] = bytes(len(buffer))
            assert sum(map(len, writer._gathered)) + 16 * len(writer._gathered) <= most
    assert (tmp_path / "x.tfrecord").read_bytes() == file_of(records)
    assert writer.records == len(records)


def test_a_disk_that_is_full_is_an_error_of_each_write_from_then_on() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = RecordWriter(Full())
    with pytest.raises(StreamError, match="no space left"):
        for _ in range(100):
            writer.write(bytes(50_000))
    with pytest.raises(StreamError, match="no space left"):
        writer.write(b"one")
    with pytest.raises(StreamError, match="no space left"):
        writer.close()


def test_the_name_says_the_compression(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "x.tfrecord.gz") as writer:
        writer.write(memoryview(b"one"))
    writer.close()
    assert gzip.decompress((tmp_path / "x.tfrecord.gz").read_bytes()) == framed(b"one")
    assert list(read_records(tmp_path / "x.tfrecord.gz")) == [b"one"]


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08\0\0\0\0\0", b"\x78\x01\0\0\0\0\0\0", b"\x78\x9c\0\0\0\0\0\0"])
def test_a_length_that_looks_like_compression_is_a_length(start: bytes) -> None:
    data = framed(bytes(int.from_bytes(start, "little")))
    assert data.startswith(start)
    assert [len(record) for record in records_of(data)] == [int.from_bytes(start, "little")]


def test_wrong_arguments_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_damage is 'ignore'"):
        records_of(b"", on_damage="ignore")
    with pytest.raises(UsageError, match="no compression 'rar'"):
        records_of(b"abc", compression="rar")
    with pytest.raises(MissingInputError):
        list(read_records(tmp_path / "nothing"))


# ---- cuts


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_every_cut_is_an_error_and_what_came_before_is_right(policy: str) -> None:
    data, offsets = file_of(SMALL), starts(SMALL)
    for cut in range(len(data)):
        whole = sum(offset <= cut for offset in offsets) - 1
        tally = Tally()
        found, error = until_error(data[:cut], on_damage=policy, tally=tally)
        assert found == SMALL[:whole], cut
        assert tally.members == whole
        if cut in offsets:
            # There is no mark at the end of a file, so a cut between two records cannot be seen.
            assert (error, tally.damage) == (None, [])
        elif policy == "error" or (whole == 0 and cut < 12):
            assert isinstance(error, TruncatedError), cut
            assert error.offset == offsets[whole]
            assert f"record {whole}: the file ends" in str(error)
            assert tally.damage == []
        else:
            assert error is None
            ((url, start, end, reason),) = tally.damage
            assert (url, start, end) == ("<stream>", offsets[whole], cut)
            assert reason.startswith(f"records from {whole} on: the file ends")


def test_up_to_11_bytes_after_the_last_record_are_an_error() -> None:
    # TensorFlow 2.21 ends there without an error.
    for extra in range(1, 30):
        found, error = until_error(file_of(SMALL) + bytes(extra))
        assert found == SMALL
        assert isinstance(error, TruncatedError if extra < 12 else CorruptRecordError)


@pytest.mark.parametrize("compression", ["gz", "zlib"])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_every_cut_of_a_compressed_file_is_an_error(compression: str, policy: str) -> None:
    data = gzip.compress(file_of(SMALL)) if compression == "gz" else zlib.compress(file_of(SMALL))
    for cut in range(1, len(data)):
        tally = Tally()
        found, error = until_error(data[:cut], compression=compression, on_damage=policy, tally=tally)
        assert found == SMALL[: len(found)]
        if policy == "error" or error is not None:
            assert isinstance(error, CompressionError)
            assert tally.damage == []
            # Without any record, a skip has nothing to go on from.
            assert policy == "error" or not found
            continue
        ((_, start, end, reason),) = tally.damage
        assert start == starts(SMALL)[len(found)] <= end
        assert reason.startswith(f"records from {len(found)} on: {compression} stream is cut short")


# ---- flipped bits


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            yield place, bytes(damaged)


def test_every_flipped_bit_is_an_error_of_its_record() -> None:
    data, offsets = file_of(SMALL), starts(SMALL)
    for place, damaged in flips(data):
        number = sum(offset <= place for offset in offsets) - 1
        found, error = until_error(damaged, compression=None)
        assert found == SMALL[:number]
        assert isinstance(error, CorruptRecordError)
        assert error.offset == offsets[number]
        assert error.exit_code == 65
        in_length = place - offsets[number] < 12
        assert f"record {number}: wrong checksum of the {'length' if in_length else 'data'}" in str(error)
        assert str(error).endswith("fetch the file again, or read it with --on-damage skip (on_damage='skip')")


def test_every_flipped_bit_costs_its_record_and_no_other() -> None:
    data, offsets = file_of(SMALL), starts(SMALL)
    for place, damaged in flips(data):
        number = sum(offset <= place for offset in offsets) - 1
        found, tally = skipped(damaged, compression=None)
        assert found == SMALL[:number] + SMALL[number + 1 :]
        ((url, start, end, reason),) = tally.damage
        assert (url, start, end) == ("<stream>", offsets[number], offsets[number + 1])
        assert reason.startswith(f"record {number}: wrong checksum of the ")


def test_flipped_bits_of_compressed_files_never_give_other_records() -> None:
    for data, codec in ((gzip.compress(file_of(SMALL), mtime=0), "gz"), (zlib.compress(file_of(SMALL)), "zlib")):
        for _, damaged in flips(data):
            found, error = until_error(damaged, compression=codec)
            assert found == SMALL[: len(found)]
            assert error is not None or found == SMALL


def test_not_a_tfrecord_file() -> None:
    for data in (b"hello, this is some text", bytes(1000), random.Random(2).randbytes(400_000)):
        for policy in ("error", "skip"):
            with pytest.raises(CorruptRecordError, match="or this is not a TFRecord file"):
                records_of(data, on_damage=policy)


# ---- what a skip loses


def test_several_records_are_damaged() -> None:
    records = [bytes([number]) * 50 for number in range(20)]
    data = bytearray(file_of(records))
    for number, place in ((3, 0), (4, 20), (9, 9), (19, 65)):
        data[number * 66 + place] ^= 0xFF
    found, tally = skipped(bytes(data))
    assert found == [record for number, record in enumerate(records) if number not in (3, 4, 9, 19)]
    assert [(start, end, reason) for _, start, end, reason in tally.damage] == [
        (3 * 66, 4 * 66, "record 3: wrong checksum of the length"),
        (4 * 66, 5 * 66, "record 4: wrong checksum of the data"),
        (9 * 66, 10 * 66, "record 9: wrong checksum of the length"),
        (19 * 66, 20 * 66, "record 19: wrong checksum of the data"),
    ]
    # The data of two records with their lengths is not that of one: how many were lost is not
    # known, here and later.
    data[5 * 66] ^= 0xFF
    found, tally = skipped(bytes(data))
    assert found == [record for number, record in enumerate(records) if number not in (3, 4, 5, 9, 19)]
    assert [(start, end, reason.partition(":")[0]) for _, start, end, reason in tally.damage] == [
        (3 * 66, 4 * 66, "record 3"),
        (4 * 66, 6 * 66, "records from 4 on"),
        (9 * 66, 10 * 66, "records from 7 on"),
        (19 * 66, 20 * 66, "records from 17 on"),
    ]


def test_bytes_that_are_missing_or_too_many_cost_the_records_that_they_touch() -> None:
    records = [bytes([number]) * 50 for number in range(6)]
    data = file_of(records)
    for at in range(66, 132):
        found, tally = skipped(data[:at] + data[at + 7 :])
        lost = 1 if at + 7 <= 132 else 2
        assert found == records[:1] + records[1 + lost :], at
        assert tally.lost_bytes == lost * 66 - 7
        found, tally = skipped(data[:at] + b"garbage" + data[at:])
        assert found == (records if at == 66 else records[:1] + records[2:]), at
        ((_, start, end, reason),) = tally.damage
        assert (start, end) == (66, 73 if at == 66 else 139)
        assert reason.startswith("records from 1 on: ")


def test_a_cut_file_before_a_whole_one() -> None:
    records = [bytes([number]) * 50 for number in range(6)]
    data = file_of(records)
    for cut in range(67, 132):
        found, tally = skipped(data[:cut] + data)
        assert found == records[:1] + records
        ((_, start, end, _),) = tally.damage
        assert (start, end) == (66, cut)


def test_damage_that_is_longer_than_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_MAX_HELD", 5000)
    monkeypatch.setattr(tfrecord, "READ_SIZE", 1000)
    draw = random.Random(3)
    records = [b"before", draw.randbytes(30_000), b"after"]
    data = bytearray(file_of(records))
    data[starts(records)[1]] ^= 1
    found, tally = skipped(bytes(data))
    assert found == [b"before", b"after"]
    ((_, start, end, reason),) = tally.damage
    assert (start, end) == (starts(records)[1], starts(records)[2])
    assert reason.startswith("records from 1 on: ")


def test_a_search_through_zeros_looks_at_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    length_of = tfrecord._Walk.length_of

    def counted(walk: tfrecord._Walk, head: bytes) -> int:
        nonlocal looked
        looked += 1
        return length_of(walk, head)

    monkeypatch.setattr(tfrecord._Walk, "length_of", counted)
    for extra in range(30):
        for last in (b"", b"after"):
            records = [b"before", bytes(100_000 + extra), last]
            data = bytearray(file_of(records))
            data[starts(records)[1] + 3] ^= 1
            looked = 0
            found, tally = skipped(bytes(data))
            assert found == [b"before", last]
            assert tally.lost_bytes == len(records[1]) + 16
            assert looked < 200


def test_the_stream_breaks_off_while_a_record_is_skipped() -> None:
    records = [bytes([number]) * 50 for number in range(3)]
    data = bytearray(file_of(records))
    data[66 + 30] ^= 1
    compressor = zlib.compressobj(wbits=31)
    # All of the second record came, and nothing after it.
    cut = compressor.compress(bytes(data[:132])) + compressor.flush(zlib.Z_FULL_FLUSH)
    found, tally = skipped(cut)
    assert found == records[:1]
    assert [reason for *_, reason in tally.damage] == [
        "record 1: wrong checksum of the data",
        "records from 2 on: gz stream is cut short",
    ]


def test_what_was_delivered_is_counted_when_the_reader_stops() -> None:
    tally = Tally()
    records = read_records(io.BytesIO(file_of(SMALL)), tally=tally)
    assert next(records) == SMALL[0]
    assert next(records) == SMALL[1]
    records.close()  # type: ignore[attr-defined]
    assert tally.members == 2


# ---- lengths


@pytest.mark.parametrize("length", [2**31 - 1, 2**32, 2**60, 2**64 - 1])
@pytest.mark.parametrize("mem", [1 << 30, 1 << 65])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_length_that_is_not_there_takes_no_memory(length: int, mem: int, policy: str, tmp_path: Path) -> None:
    head = struct.pack("<Q", length)
    (tmp_path / "x").write_bytes(framed(b"one") + head + masked(head) + b"x" * 100)
    tally = Tally()
    with traced_peak() as peak:
        found, error = until_error(tmp_path / "x", on_damage=policy, mem=mem, tally=tally)
        assert peak() < 4 << 20
    assert found == [b"one"]
    if mem == 1 << 30:
        assert isinstance(error, TooLargeError)
        assert f"record 1: {length} bytes" in str(error)
    elif policy == "error":
        assert isinstance(error, TruncatedError)
    else:
        assert error is None
        assert tally.damage[0][1:3] == (19, 19 + 112)


def test_mem_bounds_a_record() -> None:
    data = file_of([b"x" * 100, b"y" * 101])
    found, error = until_error(data, mem=100)
    assert found == [b"x" * 100]
    assert isinstance(error, TooLargeError)
    assert "101 bytes, and mem allows 100; if the file is not damaged, read it with a larger --mem (mem=)" in str(error)
    assert records_of(data, mem=101)[1] == b"y" * 101


def test_what_is_not_bytes_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match="a record is bytes, not str"), RecordWriter(tmp_path / "x") as writer:
        writer.write(b"first")
        writer.write("text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
