"""Damage in RecordIO files: one chunk is lost, by name, or an error is raised.

A cut file is never a quiet end.
"""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path

import pytest
from recordiobuild import HELLO, go_chunk, py_chunk, written

from tarkit.errors import CorruptRecordError, DataError, TooLargeError, TruncatedError
from tarkit.formats.recordio import read_batches, read_index, read_records, walk
from tarkit.formats.recordio.chunk import GO, MAGIC, PYRECORDIO, Dialect
from tarkit.formats.tally import Tally

RECORDS = [b"%d " % number * (number % 7) for number in range(40)]
KINDS = pytest.mark.parametrize(
    ("dialect", "compression"),
    [(dialect, compression) for dialect in (GO, PYRECORDIO) for compression in ("none", "snappy", "gzip")],
    ids=lambda each: each if isinstance(each, str) else each.name,
)


def skipping(content: bytes) -> tuple[list[bytes], list[tuple[int, int, str]]]:
    """The records of a damaged file, and (first byte, byte after the last, reason) of each stretch
    that was lost.
    """
    tally = Tally()
    records = list(read_records(io.BytesIO(content), on_damage="skip", tally=tally))
    assert tally.members == len(records)
    assert all(url == "<stream>" for url, *_ in tally.damage)
    return records, [(start, end, reason) for _, start, end, reason in tally.damage]


def delivered(content: bytes) -> tuple[list[bytes], DataError | None]:
    """What the reader gives before its error, batch by batch."""
    records: list[bytes] = []
    try:
        for batch in read_batches(io.BytesIO(content)):
            records += batch
    except DataError as error:
        return records, error
    return records, None


@KINDS
def test_a_flipped_byte_costs_its_chunk_and_is_reported_by_its_records(dialect: Dialect, compression: str) -> None:
    content = written(RECORDS, compression, 60, dialect)
    chunks = read_index(io.BytesIO(content)).chunks
    assert len(chunks) > 5
    for chunk in (chunks[0], chunks[3], chunks[-1]):
        end = chunk.first + chunk.records
        for offset in range(chunk.offset, chunk.offset + chunk.size):
            for flip in (0x01, 0xFF):
                damaged = bytearray(content)
                damaged[offset] ^= flip
                records, damage = skipping(bytes(damaged))
                assert records == RECORDS[: chunk.first] + RECORDS[end:], (offset, flip)
                ((start, stop, reason),) = damage
                assert (start, stop) == (chunk.offset, chunk.offset + chunk.size), (offset, flip)
                assert reason.startswith(f"records {chunk.first} to {end - 1}: "), (offset, flip, reason)
                before, error = delivered(bytes(damaged))
                assert error is not None
                assert error.offset == chunk.offset, (offset, flip)
                assert before == RECORDS[: len(before)]
                assert chunk.first <= len(before) <= end


@KINDS
def test_a_cut_is_an_error_at_every_byte(dialect: Dialect, compression: str) -> None:
    content = written(RECORDS, compression, 60, dialect)
    # A file has no end mark: cut between two chunks, it is a whole file with fewer records.
    ends = {chunk.offset: chunk for chunk in read_index(io.BytesIO(content)).chunks}
    for size in range(len(content)):
        records, error = delivered(content[:size])
        chunk = max((each for each in ends.values() if each.offset <= size), key=lambda each: each.offset)
        assert records == RECORDS[: chunk.first]
        if size in ends:
            assert error is None
            continue
        assert isinstance(error, TruncatedError)
        assert error.offset == chunk.offset
        kept, damage = skipping(content[:size])
        assert kept == records
        ((start, end, reason),) = damage
        assert (start, end) == (chunk.offset, size)
        assert reason.startswith(f"records from {chunk.first} on: the stream ends inside ")


@KINDS
def test_two_damaged_chunks(dialect: Dialect, compression: str) -> None:
    content = bytearray(written(RECORDS, compression, 60, dialect))
    chunks = read_index(io.BytesIO(content)).chunks
    for chunk in (chunks[1], chunks[4]):
        content[chunk.offset + chunk.size - 1] ^= 1
    records, damage = skipping(bytes(content))
    gone = {n for chunk in (chunks[1], chunks[4]) for n in range(chunk.first, chunk.first + chunk.records)}
    assert records == [record for number, record in enumerate(RECORDS) if number not in gone]
    assert [reason.partition(":")[0] for *_, reason in damage] == [
        f"records {chunk.first} to {chunk.first + chunk.records - 1}" for chunk in (chunks[1], chunks[4])
    ]


def test_a_header_whose_fields_are_all_damaged() -> None:
    content = bytearray(written(RECORDS, "snappy", 60))
    chunk = read_index(io.BytesIO(content)).chunks[2]
    content[chunk.offset : chunk.offset + 20] = b"\xee" * 20
    content[-1] ^= 1
    records, damage = skipping(bytes(content))
    last = read_index(io.BytesIO(written(RECORDS, "snappy", 60))).chunks[-1]
    assert records == RECORDS[: chunk.first] + RECORDS[chunk.first + chunk.records : last.first]
    (start, end, reason), (_, _, later) = damage
    assert (start, end) == (chunk.offset, chunk.offset + chunk.size)
    assert reason.startswith(f"records from {chunk.first} on: a chunk begins with 04 03 02 01; found ee ee")
    # From here on the numbers of records are not known.
    assert later.startswith("records from ")


@pytest.mark.parametrize("garbage", [b"x", bytes(100), MAGIC, MAGIC * 30, random.Random(5).randbytes(5000)])
@pytest.mark.parametrize("place", [0, 2, -1])
def test_bytes_between_chunks(garbage: bytes, place: int) -> None:
    content = written(RECORDS, "snappy", 60)
    chunks = read_index(io.BytesIO(content)).chunks
    at = chunks[place].offset if place >= 0 else len(content)
    damaged = content[:at] + garbage + content[at:]
    _records, error = delivered(damaged)
    assert isinstance(error, (CorruptRecordError, TruncatedError))
    assert error.offset == at
    if place == 0 and not garbage.startswith(MAGIC):
        # It could be any file, but for the chunks that are found in it.
        assert "04 03 02 01" in error.reason
    kept, damage = skipping(damaged)
    assert kept == RECORDS
    assert [each[:2] for each in damage] == [(at, at + len(garbage))]
    assert damage[0][2].startswith("records from ")


@pytest.mark.parametrize("content", [b"a", b"Hello", bytes(3000), random.Random(7).randbytes(100_000)])
def test_what_is_not_recordio_is_an_error_also_when_damage_is_skipped(content: bytes) -> None:
    for on_damage in ("error", "skip"):
        with pytest.raises(CorruptRecordError, match="<stream>, offset 0: a chunk begins with 04 03 02 01; found"):
            list(read_records(io.BytesIO(content), on_damage=on_damage))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", [range(4), range(4, 8), range(12, 16), range(16, 20)])
def test_a_file_inside_a_damaged_record_is_not_taken_for_a_part_of_it(field: range) -> None:
    inner = written([b"not a record of this file"] * 5, "none", 30)
    content = bytearray(written([b"a", inner, b"b", b"c"], "none", 1))
    chunk = read_index(io.BytesIO(content)).chunks[1]
    for offset in field:
        content[chunk.offset + offset] ^= 0x55
    records, damage = skipping(bytes(content))
    assert records == [b"a", b"b", b"c"]
    assert [reason.partition(":")[0] for *_, reason in damage] == ["records 1 to 1"]


def test_a_size_above_the_bound_that_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_TRUSTED", 1000)
    good = written(HELLO, "none")
    size = bytearray(good)
    size[15] = 0x7F
    # The other fields find the end; if the checksum is damaged, too, the next chunk is near.
    assert skipping(bytes(size) + good)[0] == HELLO
    size[4] ^= 1
    records, damage = skipping(bytes(size) + bytes(500) + good)
    assert records == HELLO
    assert damage[0][:2] == (0, len(good) + 500)
    assert damage[0][2].startswith(
        "records from 0 on: a chunk has 2130706464 bytes or more; at most 1073741824 are allowed"
    )
    # Where no chunk is near, the chunk may well be as large as it says.
    with pytest.raises(TooLargeError, match="read it with a larger --mem"):
        skipping(bytes(size) + bytes(5000) + good)


def test_a_range_that_damage_makes_unknown_is_an_error(tmp_path: Path) -> None:
    content = bytearray(written(RECORDS, "snappy", 60))
    path = tmp_path / "a.recordio"
    path.write_bytes(content)
    index = read_index(path)
    chunk = index.chunks[2]
    content[chunk.offset : chunk.offset + 20] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(DataError, match="hides how many records were lost, so the range cannot be found"):
        list(read_records(path, start=30, on_damage="skip"))
    assert list(read_records(path, start=30, on_damage="skip", index=index)) == RECORDS[30:]
    # One damaged chunk of a known size hides nothing.
    content = bytearray(written(RECORDS, "snappy", 60))
    content[chunk.offset + 25] ^= 1
    path.write_bytes(content)
    tally = Tally()
    wanted = chunk.first + chunk.records + 2
    assert list(read_records(path, start=wanted, on_damage="skip", tally=tally)) == RECORDS[wanted:]
    assert list(read_records(path, start=1, stop=wanted, index=index, on_damage="skip")) == [
        *RECORDS[1 : chunk.first],
        *RECORDS[chunk.first + chunk.records : wanted],
    ]


LENGTHS = b"\x05\0\0\0Hello\x02\0\0\0Hi"


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (go_chunk(LENGTHS, 3), "the chunk ends inside record 2 of 3"),
        (go_chunk(LENGTHS, 1), "bytes follow the last of the 1 records of the chunk"),
        (go_chunk(LENGTHS + b"\0", 2), "bytes follow the last of the 2 records of the chunk"),
        (go_chunk(LENGTHS[:-1], 2), "the chunk ends inside record 1 of 2"),
        (go_chunk(LENGTHS[:11], 2), "the chunk ends inside record 1 of 2"),
        (
            go_chunk(LENGTHS, 2, 1),
            "the payload cannot be decompressed: it does not begin with the mark of framed snappy",
        ),
        (go_chunk(b"", 3, 1, written(HELLO)[20:-1]), "the payload cannot be decompressed: failed to fill whole buffer"),
        (go_chunk(b"", 3, 1, written(HELLO)[20:] + b"\x02\0\0\0"), "unsupported chunk type: 2"),
        (go_chunk(b"", 3, 1, written(HELLO)[20:-1] + b"?"), "bad checksum"),
        (go_chunk(LENGTHS, 2, 2), "the payload cannot be decompressed: gz stream does not begin with the magic of gz"),
        (go_chunk(LENGTHS, 2, 7), "the number 7 is not that of a compression (dialect of Go)"),
        (py_chunk(LENGTHS, 2, 0), "the number 0 is not that of a compression (dialect of pyrecordio)"),
        (py_chunk(LENGTHS, 2, 2), "the payload cannot be decompressed: "),
    ],
)
def test_a_chunk_with_a_right_checksum_that_makes_no_sense(chunk: bytes, reason: str) -> None:
    content = written([b"before"]) + chunk + written([b"after"])
    records, error = delivered(content)
    assert records[:1] == [b"before"]
    assert b"after" not in records
    assert isinstance(error, CorruptRecordError)
    assert reason in error.reason
    assert "fetch the file again, or read it with --on-damage skip (on_damage='skip')" in str(error)
    records, damage = skipping(content)
    assert records == [b"before", b"after"]
    assert len(damage) == 1


def test_the_hint_for_a_first_chunk_names_another_format() -> None:
    for offset, words in (
        (0, "if it has another format, name the format (--from, reader_type=)"),
        (1, "fetch the file"),
    ):
        error = delivered(written(HELLO) * offset + b"\x1f\x8b" + written(HELLO))[1]
        assert isinstance(error, CorruptRecordError) and f"; {words}" in str(error)


def test_a_chunk_without_records() -> None:
    assert list(read_records(io.BytesIO(py_chunk(b"", 0, 1) + written(HELLO, "none", dialect=PYRECORDIO)))) == HELLO
    assert isinstance(delivered(py_chunk(b"\0\0\0\0", 0, 1))[1], CorruptRecordError)


def test_random_damage_never_gives_another_record() -> None:
    draw = random.Random(11)
    for _ in range(300):
        dialect, compression = draw.choice([GO, PYRECORDIO]), draw.choice(["none", "snappy", "gzip"])
        content = bytearray(written(RECORDS, compression, draw.choice([30, 60, 200]), dialect))
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(content))
            action = draw.randrange(3)
            if action == 0:
                content[at] = draw.randrange(256)
            elif action == 1:
                del content[at : at + draw.randrange(1, 50)]
            else:
                content[at:at] = draw.randbytes(draw.randrange(1, 50))
        records, damage = skipping(bytes(content))
        left = iter(RECORDS)
        assert all(record in left for record in records), "a subsequence of what was written"
        assert damage or records == RECORDS
        before, error = delivered(bytes(content))
        assert before == RECORDS[: len(before)]
        assert error is not None or before == RECORDS


def test_sizes_in_the_header_may_be_anything() -> None:
    good = written(HELLO, "none")
    for size in (0, 3, 4, 2**31 - 1, 2**32 - 1):
        for records in (0, 1, 2**31 - 1, 2**32 - 1):
            bad = good[:12] + struct.pack("<2I", size, records) + good[20:]
            found, damage = skipping(good + bad + good)
            assert found == HELLO * 2
            assert len(damage) == 1


def test_a_search_behind_damage_takes_time_as_the_file_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that only look like those of chunks are each checked, but not without end."""
    monkeypatch.setattr("tarkit.formats.recordio.walk._IN_VAIN", 1 << 20)
    headers = b"".join(MAGIC + struct.pack("<4I", number, 0, 40_000, 1) for number in range(4000))
    data = MAGIC + b"\xff" * 16 + headers
    with pytest.raises(CorruptRecordError, match="too many chunks that are damaged"):
        list(read_records(io.BytesIO(data), on_damage="skip"))
    monkeypatch.setattr("tarkit.formats.recordio.walk._IN_VAIN", 1 << 40)
    tally = Tally()
    assert list(read_records(io.BytesIO(data), on_damage="skip", tally=tally)) == [] and len(tally.damage) == 1


@pytest.mark.parametrize(("compressor", "ratio"), [(0, 1), (1, 22), (2, 1032)])
def test_an_index_does_not_believe_more_records_than_a_chunk_can_hold(compressor: int, ratio: int) -> None:
    """A trainer's list of tasks would have as many entries."""

    def chunk(records: int) -> io.BytesIO:
        payload = bytes(8)
        return io.BytesIO(MAGIC + struct.pack("<4I", zlib.crc32(payload), compressor, 8, records) + payload)

    assert read_index(chunk(2 * ratio)).records == 2 * ratio
    for records in (2 * ratio + 1, 0xFFFF_FFFF):
        with pytest.raises(CorruptRecordError, match=f"offset 0: a chunk of 8 bytes cannot hold {records} records"):
            read_index(chunk(records))


@KINDS
def test_an_index_of_the_densest_chunks(dialect: Dialect, compression: str) -> None:
    """Empty records, which compress best."""
    file = io.BytesIO(written([b""] * 300_000, compression, dialect=dialect))
    assert read_index(file).records == 300_000
