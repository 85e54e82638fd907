"""Damaged SequenceFiles: every cut, every flipped byte, lengths that lie.

What is lost is an error, or counted.
"""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import sequencebuild
from sequencebuild import MARK, block, header, record
from traced import traced_peak

from tarkit.errors import CorruptHeaderError, DataError, DecodeError, TooLargeError, TruncatedError
from tarkit.formats.sequencefile import PairWriter, header_of, read_pairs
from tarkit.formats.sequencefile.codecs import CODECS, codec_of
from tarkit.formats.tally import Tally

DATA = Path(__file__).resolve().parents[1] / "data" / "sequencefile"
ROWS = [(f"key {i}", f"value {i}" * (i % 4)) for i in range(12)]


def built(kind: str, version: int = 6) -> tuple[bytes, list[int]]:
    """A file of ROWS, three of them behind each mark; the places where it may end."""
    data = header(version, kind)
    ends = [len(data)]
    for start in range(0, len(ROWS), 3):
        rows = ROWS[start : start + 3]
        if kind == "block":
            data += block(rows)
            ends.append(len(data))
            continue
        data += MARK if start and version >= 2 else b""
        for key, value in rows:
            data += record(key, value, kind == "record")
            ends.append(len(data))
    return data, ends


def unseen_cuts(data: bytes, ends: list[int], kind: str) -> list[int]:
    """Where a cut leaves a file that is whole: behind a record, a block, or a mark between
    records."""
    marks = [] if kind == "block" else [found.end() for found in re.finditer(re.escape(MARK), data)]
    return sorted({*ends, *marks} - {len(data)})


KINDS = [("none", 6), ("record", 6), ("block", 6), ("none", 1), ("record", 3), ("block", 4)]


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_every_cut_is_an_error_and_what_came_before_is_right(kind: str, version: int) -> None:
    data, ends = built(kind, version)
    assert list(read_pairs(io.BytesIO(data))) == ROWS
    quiet = []
    for cut in range(len(data)):
        found = []
        try:
            for pair in read_pairs(io.BytesIO(data[:cut])):
                found.append(pair)
        except TruncatedError as error:
            assert error.offset is not None
            assert error.offset <= cut
        else:
            quiet.append(cut)
        assert found == ROWS[: len(found)]
    # No reader can notice that.
    assert quiet == unseen_cuts(data, ends, kind)


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_every_cut_is_counted_when_damage_is_passed_over(kind: str, version: int) -> None:
    data, ends = built(kind, version)
    unseen = unseen_cuts(data, ends, kind)
    for cut in range(ends[0], len(data)):
        tally = Tally()
        found = list(read_pairs(io.BytesIO(data[:cut]), on_damage="skip", tally=tally))
        assert found == ROWS[: len(found)]
        assert tally.members == len(found)
        assert bool(tally.damage) == (cut not in unseen)
        if tally.damage:
            ((_, start, end, reason),) = tally.damage
            assert start <= end == cut
            assert reason.startswith((f"records from {len(found)} on: ", f"records {len(found)} to {len(found) + 2}: "))


@pytest.mark.parametrize("name", ["none", "block-default", "block-snappy"])
def test_every_cut_of_a_file_of_hadoop(name: str) -> None:
    data = (DATA / f"{name}.seq").read_bytes()
    expected = list(read_pairs(io.BytesIO(data)))
    quiet = 0
    for cut in range(len(data)):
        found: list[Any] = []
        try:
            for pair in read_pairs(io.BytesIO(data[:cut])):
                found.append(pair)
        except TruncatedError:
            continue
        finally:
            assert found == expected[: len(found)]
        quiet += 1
    # Behind each record and mark, or each block, and behind the header: all but the very end.
    marks = data.count(header_of(io.BytesIO(data)).sync) - 1
    assert quiet == (marks if name.startswith("block") else marks + len(expected))


def test_a_flipped_byte_costs_the_block_that_it_is_in() -> None:
    data, ends = built("block")
    noticed = 0
    for place in range(ends[0], len(data)):
        number = sum(place >= end for end in ends) - 1
        others = ROWS[: 3 * number] + ROWS[3 * number + 3 :]
        for change in (0x01, 0xFF):
            bad = bytearray(data)
            bad[place] ^= change
            try:
                # Some bits of zlib's own header mean nothing to what is read.
                assert list(read_pairs(io.BytesIO(bytes(bad)))) == ROWS
                continue
            except DataError as error:
                noticed += 1
                assert error.offset == ends[number]
                assert f"record {3 * number}: " in str(error)
            tally = Tally()
            assert list(read_pairs(io.BytesIO(bytes(bad)), on_damage="skip", tally=tally)) == others
            ((_, start, end, reason),) = tally.damage
            assert (start, end) == (ends[number], ends[number + 1])
            assert reason.startswith((f"records {3 * number} to {3 * number + 2}: ", f"records from {3 * number} on: "))
            assert tally.members == len(others)
    assert noticed > 1.9 * (len(data) - ends[0])


def test_a_flipped_byte_of_a_record_costs_what_is_left_up_to_the_next_mark() -> None:
    data, ends = built("none")
    marks = [0, *(ends[i] for i in (3, 6, 9)), len(data)]
    for place in range(ends[0], len(data)):
        stretch = sum(place >= mark for mark in marks) - 1
        others = set(ROWS[: 3 * stretch] + ROWS[3 * stretch + 3 :])
        bad = bytearray(data)
        bad[place] ^= 0x41
        tally = Tally()
        found = list(read_pairs(io.BytesIO(bytes(bad)), on_damage="skip", tally=tally))
        assert others <= set(found)
        # There is no checksum: a changed letter is a changed letter. Everything else is noticed.
        assert tally.damage or len(found) == len(ROWS)
        assert len(found) + len(tally.damage) * 3 >= len(ROWS)


def test_a_block_whose_count_is_known_is_lost_by_its_range() -> None:
    data, ends = built("block")
    bad = bytearray(data)
    bad[ends[2] - 1] ^= 1  # of the checksum of the values of the second block
    tally = Tally()
    assert list(read_pairs(io.BytesIO(bytes(bad)), on_damage="skip", tally=tally)) == ROWS[:3] + ROWS[6:]
    assert [damage[1:3] for damage in tally.damage] == [(ends[1], ends[2])]
    assert tally.damage[0][3].startswith("records 3 to 5: the values of a block cannot be decoded: ")


def test_two_stretches_of_damage() -> None:
    data, ends = built("none")
    bad = bytearray(data)
    bad[ends[1] + 3] = 0xEE  # the length of the second record
    bad[ends[6] + 6] ^= 1  # in the second mark
    tally = Tally()
    found = list(read_pairs(io.BytesIO(bytes(bad)), on_damage="skip", tally=tally))
    assert found == ROWS[:1] + ROWS[3:6] + ROWS[9:]
    assert [damage[1:3] for damage in tally.damage] == [(ends[1], ends[3]), (ends[6], ends[9])]
    assert tally.damage[1][3] == "records from 4 on: the sync mark is not that of the header"


# What Hadoop's own reader ends at, or passes over, without an error.


def test_two_marks_in_a_row() -> None:
    data = header() + record("a", "1") + MARK + MARK + record("b", "2")
    with pytest.raises(DataError, match="two sync marks follow each other"):
        list(read_pairs(io.BytesIO(data)))
    tally = Tally()
    assert list(read_pairs(io.BytesIO(data), on_damage="skip", tally=tally)) == [("a", "1"), ("b", "2")]
    assert len(tally.damage) == 1


@pytest.mark.parametrize("left", [1, 3, 4, 19])
def test_a_file_that_ends_in_a_part_of_its_last_mark(left: int) -> None:
    data = header() + record("a", "1") + MARK[:left]
    with pytest.raises(TruncatedError, match=r"record 1: the file ends in (the length of a record|a sync mark)"):
        list(read_pairs(io.BytesIO(data)))


def test_a_key_of_negative_length() -> None:
    data = header() + struct.pack(">ii", 4, -3) + b"\1a\0\0"
    with pytest.raises(DataError, match="record 0: the length of its key is -3"):
        list(read_pairs(io.BytesIO(data)))


def test_a_block_cut_in_its_keys_and_in_its_mark() -> None:
    data, ends = built("block")
    for more, what in ((10, "a sync mark"), (25, "the lengths of keys"), (40, "keys")):
        found = []
        with pytest.raises(TruncatedError, match=f"record 3: the file ends in {what}"):
            for pair in read_pairs(io.BytesIO(data[: ends[1] + more])):
                found.append(pair)
        assert found == ROWS[:3]


# Lengths that lie.


@pytest.mark.parametrize(
    "tail",
    [
        struct.pack(">ii", 2**31 - 1, 10),
        struct.pack(">ii", 2**30, 2**30),
        struct.pack(">i", -2),
        struct.pack(">ii", 3, 4) + b"abc",
    ],
)
@pytest.mark.parametrize("more", [0, 1000])
def test_the_length_of_a_record_allocates_nothing(tail: bytes, more: int) -> None:
    data = header() + record("a", "1") + tail + bytes(more) + MARK + record("b", "2")
    tally = Tally()
    with traced_peak() as peak:
        with pytest.raises(DataError, match="record 1: "):
            list(read_pairs(io.BytesIO(data)))
        assert list(read_pairs(io.BytesIO(data), on_damage="skip", tally=tally)) == [("a", "1"), ("b", "2")]
        assert peak() < 2_000_000
    assert len(tally.damage) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\x88" + struct.pack(">q", 2**60),
        b"\x88" + struct.pack(">q", 2**60) + bytes([3]) * 8,
        b"\x02" + b"\x88" + struct.pack(">q", 2**60),
        b"\x02" + b"\x8c\x7f\xff\xff\xff",
        b"\x02" + b"\xff",
        b"\xff",
        b"\x80" + struct.pack(">q", 2**60),
    ],
)
def test_the_numbers_of_a_block_allocate_nothing(body: bytes) -> None:
    data = header(kind="block") + block(ROWS[:3]) + MARK + body + block(ROWS[3:6])
    tally = Tally()
    with traced_peak() as peak:
        with pytest.raises(DataError, match="record 3: "):
            list(read_pairs(io.BytesIO(data)))
        assert list(read_pairs(io.BytesIO(data), on_damage="skip", tally=tally)) == ROWS[:6]
        assert peak() < 2_000_000
    assert len(tally.damage) == 1


def test_the_header_allocates_nothing() -> None:
    good = header()
    for bad in (
        b"SEQ\x06" + b"\x8c\x7f\xff\xff\xff" + good[5:],
        b"SEQ\x06" + b"\x88" + struct.pack(">q", 2**60) + good[5:],
        b"SEQ\x06" + b"\xff" + good[5:],
        good[:-20] + struct.pack(">i", 2**31 - 1) + sequencebuild.SYNC,
        good[:-20] + struct.pack(">i", -1) + sequencebuild.SYNC,
        good[:-22] + b"\x02" + good[-21:],
        good[:-22] + b"\x00\x01" + good[-20:],
        good.replace(b"Text", b"T\xffxt"),
        b"Obj\x01" + good[4:],
    ):
        for policy in ("error", "skip"):
            with traced_peak() as peak:
                with pytest.raises(CorruptHeaderError):
                    list(read_pairs(io.BytesIO(bad), on_damage=policy))
                assert peak() < 2_000_000


def test_what_is_larger_than_mem_is_named() -> None:
    out = io.BytesIO()
    with PairWriter(out, "Text", compression="none") as writer:
        writer.write("small", b"1")
        writer.write("large", bytes(5000))
    with pytest.raises(TooLargeError, match=r"record 1: it has 5010 bytes; at most 1000 are read; .* a larger --mem"):
        list(read_pairs(io.BytesIO(out.getvalue()), mem=1000))


@pytest.mark.parametrize("compression", ["record", "block"])
@pytest.mark.parametrize("codec", ["zlib", "gzip", "bzip2", "snappy", "lz4", "zstd"])
def test_a_bomb_has_a_bound(codec: str, compression: str) -> None:
    out = io.BytesIO()
    with PairWriter(out, "Text", compression=compression, codec=codec) as writer:
        writer.write("large", bytes(8_000_000))
    data = out.getvalue()
    with traced_peak() as peak:
        with pytest.raises(DataError, match="mem"):
            list(read_pairs(io.BytesIO(data), mem=500_000))
        assert peak() < 6_000_000


@pytest.mark.parametrize("name", sorted(CODECS))
def test_damaged_buffers_are_errors(name: str) -> None:
    codec = CODECS[name]
    plain = b"some text, " * 50
    packed = codec.compress(plain)
    assert codec.decompress(packed, len(plain)) == plain
    assert codec.decompress(codec.compress(b""), 0) == b""
    for cut in range(1, len(packed)):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            assert codec.decompress(packed[:cut], 1000) == plain
        assert not isinstance(caught.value, (MemoryError, AssertionError))
    with pytest.raises(ValueError, match="mem"):
        codec.decompress(packed, len(plain) - 1)


@pytest.mark.parametrize("name", ["SnappyCodec", "Lz4Codec"])
def test_lengths_in_a_compressed_buffer(name: str) -> None:
    codec = CODECS[name]
    packed = codec.compress(b"some text, " * 50)
    for wrong in (
        struct.pack(">i", -1) + packed[4:],
        packed[:4] + struct.pack(">i", -1) + packed[8:],
        packed[:4] + struct.pack(">i", 2**31 - 1) + packed[8:],
        packed[:4] + struct.pack(">i", 0) + packed[8:],
        struct.pack(">i", 2**31 - 1) + packed[4:],
        struct.pack(">i", 549) + packed[4:],
        packed + b"\0",
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            codec.decompress(wrong, 1 << 40)
        assert not isinstance(caught.value, MemoryError)
    # Four bytes for a length and 15 bytes for what snappy says it has: more than they could hold.
    with pytest.raises(ValueError, match="a different length"):
        CODECS["SnappyCodec"].decompress(b"\x7f\xff\xff\xff\0\0\0\x0f" + b"\xff\xff\xff\xff\x07" + bytes(10), 1 << 40)


def test_a_codec_that_tarkit_does_not_have() -> None:
    data = header(kind="block", codec="com.hadoop.compression.lzo.LzoCodec") + block(ROWS[:3])
    with pytest.raises(DecodeError, match=r"compressed by com\.hadoop\.compression\.lzo\.LzoCodec"):
        list(read_pairs(io.BytesIO(data), on_damage="skip"))
    with pytest.raises(DecodeError):
        codec_of("SnappyCodec", "")


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_noise_raises_nothing_but_data_errors(policy: str) -> None:
    import random

    noise = random.Random(1)
    for kind in ("none", "record", "block"):
        for size in range(0, 400, 7):
            data = header(kind=kind) + MARK * (kind == "block") + noise.randbytes(size)
            try:
                list(read_pairs(io.BytesIO(data), on_damage=policy))
            except DataError:
                assert policy == "error"
