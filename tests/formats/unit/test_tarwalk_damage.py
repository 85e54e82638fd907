"""Archives that were cut, flipped, patched: an error that says where, or exactly what is left and
what was lost.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tarbuild import (
    BLOCK,
    END,
    FORMATS,
    GNU,
    V7,
    archive_of,
    header,
    long_name,
    member,
    members_of,
    padded,
    pax,
    samples_of,
    short_reads,
    until_error,
)

from tarkit.errors import CompressionError, CorruptHeaderError, DataError, NotATarError, TruncatedError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.walk import Member
from tarkit.samples.read import read_members
from tarkit.samples.sample import group_by_keys

FILES = [
    ("a.cls", b"3"),
    ("a.jpg", b"j" * 513),
    ("b.cls", b""),
    ("d/" + "long" * 23 + "/" + "e" * 60 + ".txt", b"t"),
]
UNICODE = [("\u00e9.cls", b"7"), ("n" * 120 + ".cls", b"8")]


def whole(format: str) -> tuple[bytes, list[Member], int]:
    """An archive, its members, and the offset of its end mark."""
    files = FILES + (UNICODE if format != "ustar" else UNICODE[:1])
    data = archive_of(files, FORMATS[format])
    end = len(data.rstrip(b"\0")) + BLOCK - 1 & -BLOCK
    return data[: end + 2 * BLOCK], members_of(data), end


# ---- every cut


def few_cuts(size: int) -> list[int]:
    """Those at and beside the ends of blocks, and some within."""
    return [cut for cut in range(size) if cut % 17 == 0 or cut % BLOCK in (0, 1, 511)]


@pytest.mark.parametrize("format", FORMATS)
def test_every_cut_is_an_error_and_what_came_before_is_right(format: str) -> None:
    data, expected, end = whole(format)
    assert len(expected) == len(FILES) + (1 if format == "ustar" else 2)
    for cut in range(len(data)) if format == "ustar" else few_cuts(len(data)):
        read = short_reads(data[:cut], cut) if cut % 7 == 0 else io.BytesIO(data[:cut]).read
        found, error = until_error(read)
        if cut >= end + BLOCK:
            assert (found, error) == (expected, None), cut
            continue
        assert found == expected[: len(found)]
        # All that is whole before the cut was delivered: the content of the next one is not all
        # there.
        if len(found) < len(expected):
            after = expected[len(found) + 1][2] if len(found) + 1 < len(expected) else end
            assert cut < after, cut
        assert isinstance(error, TruncatedError if cut == 0 or cut >= BLOCK else NotATarError), (cut, error)
        assert error.url == "x.tar"
        assert error.offset is not None
        assert 0 <= error.offset <= cut
        assert "\n" not in str(error)


@pytest.mark.parametrize("format", FORMATS)
def test_no_cut_gives_a_torn_sample(format: str) -> None:
    data, _, end = whole(format)
    expected = samples_of(data)
    for cut in range(0, end + BLOCK, 5):
        found = []
        with pytest.raises((TruncatedError, NotATarError)):
            for sample in group_by_keys(read_members(io.BytesIO(data[:cut]).read), url="x.tar"):
                found.append(sample)
        assert found == expected[: len(found)]


@pytest.mark.parametrize("format", FORMATS)
def test_short_reads_change_nothing(format: str) -> None:
    data, expected, _ = whole(format)
    for seed in range(8):
        for most in (1, 3, 511, 513, 4096):
            assert list(read_members(short_reads(data, seed, most))) == expected


def test_a_cut_inside_skipped_content_is_an_error() -> None:
    data = member(b"a.x") + member(b"n", b"x" * 2000, kind=b"Z") + member(b"b.x") + END
    for cut in range(512, 512 + 512 + 2048 + 512):
        found, error = until_error(data[:cut])
        assert isinstance(error, TruncatedError), cut
        assert len(found) == (2 if cut == 512 + 512 + 2048 + 512 else 1)


@pytest.mark.parametrize("second", [b"", b"x" * 30])
def test_every_cut_in_a_row_of_archives(second: bytes) -> None:
    one = member(b"ab.x", b"1") + member(b"ba.x", b"2")
    two = member(b"ba.y", second) + member(b"ab.y", second)
    data = one + END + two + END
    for cut in range(len(one + END) + 1, len(one + END + two) + BLOCK):
        _, error = until_error(data[:cut])
        inside_first_header = cut < len(one + END) + BLOCK
        assert isinstance(error, CorruptHeaderError if inside_first_header else TruncatedError), cut


# ---- every flipped bit


def header_offsets(data: bytes, end: int) -> list[int]:
    found, position = [], 0
    while position < end:
        found.append(position)
        size = int(data[position + 124 : position + 135], 8)
        position += BLOCK + size + -size % BLOCK
    return found


def is_harmless(offset: int, before: int, block: bytes) -> bool:
    """The checksum field leaves itself out of its sum, and says the same number in other bytes: a
    leading 0 or the NUL at its end may be a blank, and what follows that end is not looked at.
    """
    return offset == 155 or (block[offset] == 0x20 and (offset, before) in ((148, 0x30), (154, 0)))


def is_signed_sum(block: bytes) -> bool:
    """One flipped bit can turn the sum into that over signed bytes, which is taken too.

    The name is not touched.
    """
    signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + 8 * 0x20
    return int(block[148:154], 8) == signed


@pytest.mark.parametrize("format", FORMATS)
def test_every_flipped_bit_of_a_header_is_noticed_or_harmless(format: str) -> None:
    """Of the first one, and of another one of each type, with a name in ASCII and one
    that is not.
    """
    data, expected, end = whole(format)
    first, *others = header_offsets(data, end)
    assert len(others) >= len(expected) - 1
    offsets = [first, *{(data[at + 156], data[at : at + 100].isascii()): at for at in others}.values()]
    harmless = signed = 0
    for start in offsets:
        for place in range(BLOCK):
            for bit in range(8):
                flipped = bytearray(data)
                flipped[start + place] ^= 1 << bit
                found, error = until_error(bytes(flipped))
                if error is None:
                    assert found == expected
                    block = bytes(flipped[start : start + BLOCK])
                    if is_harmless(place, data[start + place], block):
                        harmless += 1
                    else:
                        assert 148 <= place < 154 and is_signed_sum(block), (start, place, bit)
                        signed += 1
                    continue
                in_magic = start == 0 and 257 <= place < 262
                assert isinstance(error, NotATarError if in_magic else CorruptHeaderError), (start, place, bit)
                assert error.offset == start
                assert found == expected[: len(found)]
                assert all(offset < start for _, _, offset in found)
    # Eight bits after the NUL, one in the NUL, and one in a leading zero, for each header.
    assert harmless == 10 * len(offsets)
    assert signed == (0 if format == "pax" else 1)  # only a name that is not ASCII has two sums


@given(st.binary(min_size=0, max_size=3000), st.integers(0, 4096))
def test_noise_raises_nothing_but_data_errors(noise: bytes, place: int) -> None:
    data, _, _ = whole("pax")
    patched = data[:place] + noise + data[place + len(noise) :]
    _, error = until_error(patched)
    assert error is None or isinstance(error, DataError)
    for policy in ("allow", "error"):
        try:
            tally = Tally()
            samples_of(patched, on_damage="skip", on_repeated_key=policy, tally=tally)
        except DataError:
            continue
        assert all(0 <= start <= stop <= len(patched) for _, start, stop, _ in tally.damage)


# ---- going on after damage


def row(count: int, fields: tuple[str, ...] = ("cls", "jpg"), **kw: bytes) -> list[tuple[str, bytes]]:
    """(member name, member) of many samples k0, k1, …; each member is 1,024 bytes."""
    return [
        (f"k{number}.{field}", member(f"k{number}.{field}".encode(), field.encode(), **kw))
        for number in range(count)
        for field in fields
    ]


def joined(members: list[tuple[str, bytes]]) -> bytes:
    return b"".join(data for _, data in members) + END


def spoiled(data: bytes, offset: int) -> bytes:
    """One byte of a header changed."""
    return data[: offset + 1] + bytes([data[offset + 1] ^ 0x55]) + data[offset + 2 :]


def survivors(data: bytes | Callable[[int], bytes], tally: Tally) -> set[str]:
    samples = samples_of(data, tally=tally, on_damage="skip")
    assert all(set(sample) == {"__key__", "__url__", "cls", "jpg"} for sample in samples)
    return {sample["__key__"] for sample in samples}


ALL = {f"k{number}" for number in range(6)}


@pytest.mark.parametrize("magic", [b"ustar\x0000", GNU, V7])
@pytest.mark.parametrize(
    ("index", "lost"), [(4, {"k1", "k2"}), (5, {"k2", "k3"}), (10, {"k4", "k5"}), (11, {"k5"}), (1, {"k0", "k1"})]
)
def test_a_spoiled_header(index: int, lost: set[str], magic: bytes) -> None:
    data = spoiled(joined(row(6, magic=magic)), 1024 * index)
    tally = Tally()
    assert survivors(data, tally) == ALL - lost
    stop = 1024 * (index + 1) if index < 11 else len(data)
    ((url, start, found_stop, reason),) = tally.damage
    assert (url, start, found_stop) == ("x.tar", 1024 * index, stop)
    assert "checksum" in reason
    assert tally.skipped == {"sample-beside-damage": len(lost)}
    assert tally.samples == 6 - len(lost)
    for seed in range(5):
        again = Tally()
        assert survivors(short_reads(data, seed), again) == ALL - lost
        assert again == tally


def test_damage_in_the_middle_of_a_sample_does_not_make_its_key_a_repeated_one() -> None:
    members = row(5, ("a", "b", "c", "d"))
    for index in (5, 6):
        tally = Tally()
        samples = samples_of(spoiled(joined(members), 1024 * index), on_damage="skip", tally=tally)
        assert [sample["__key__"] for sample in samples] == ["k0", "k2", "k3", "k4"]
        assert tally.skipped == {"sample-beside-damage": 2}  # both halves of it
        assert tally.reopened == 0
    twice = spoiled(spoiled(joined(members), 1024 * 5), 1024 * 6)
    assert [s["__key__"] for s in samples_of(twice, on_damage="skip")] == ["k0", "k2", "k3", "k4"]


def test_a_key_that_comes_back_is_still_an_error_after_damage() -> None:
    members = [*row(4), ("k0.png", member(b"k0.png"))]
    with pytest.raises(DataError, match="comes back"):
        samples_of(spoiled(joined(members), 2048), on_damage="skip")


@pytest.mark.parametrize("length", [1, 100, 512, 1000, 5120, 1_200_000])
@pytest.mark.parametrize("fill", [b"g", b"ustar\x0000"])
def test_garbage_between_members(length: int, fill: bytes) -> None:
    members = row(6)
    garbage = (fill * length)[:length]
    data = joined(members[:4])[:4096] + garbage + joined(members[4:])
    tally = Tally()
    assert survivors(data, tally) == ALL - {"k1", "k2"}
    assert [entry[1:3] for entry in tally.damage] == [(4096, 4096 + length)]
    assert tally.lost_bytes == length


@pytest.mark.parametrize("missing", [1, 100, 511, 600, 1024 + 7])
def test_bytes_that_are_missing(missing: int) -> None:
    """What follows a hole does not begin at a multiple of 512."""
    data = joined(row(6))
    holed = data[: 4096 + 300] + data[4096 + 300 + missing :]
    tally = Tally()
    assert survivors(holed, tally) <= ALL - {"k2"}
    assert survivors(holed, Tally()) >= {"k0", "k4", "k5"}
    ((_, start, stop, _),) = tally.damage
    assert start == 4096 if missing < 600 else start >= 4096
    assert data.endswith(holed[stop:])


def test_a_cut_keeps_what_was_whole() -> None:
    data = joined(row(6))
    for cut in range(1024, len(data) - 1024, 101):
        tally = Tally()
        kept = survivors(data[:cut], tally)
        # The last sample that was begun may lack a member.
        delivered = (cut - 515) // 1024 + 1
        assert kept == {f"k{n}" for n in range((delivered - 1) // 2)}
        ((_, start, stop, reason),) = tally.damage
        assert start <= stop == cut
        assert cut - start <= 1024
        assert "ends" in reason


def test_two_stretches_of_damage() -> None:
    data = spoiled(spoiled(joined(row(9)), 1024 * 4), 1024 * 13)
    tally = Tally()
    assert survivors(data, tally) == {"k0", "k3", "k4", "k5", "k8"}
    assert [entry[1:3] for entry in tally.damage] == [(4096, 5120), (13 * 1024, 14 * 1024)]
    assert tally.lost_bytes == 2048


def test_damage_to_the_end_mark() -> None:
    data = joined(row(3))[:-1024]
    tally = Tally()
    assert survivors(data + b"x" * 1024, tally) == {"k0", "k1"}
    assert [entry[1:3] for entry in tally.damage] == [(6144, 7168)]


@pytest.mark.parametrize("length", [1, 511, 513])
def test_less_than_a_block_behind_the_end_mark(length: int) -> None:
    tally = Tally()
    assert survivors(joined(row(3)) + b"x" * length, tally) >= {"k0", "k1"}
    assert [entry[1:3] for entry in tally.damage] == [(7168, 7168 + length)]


def bad_extended(kind: str, name: bytes) -> bytes:
    if kind == "pax":
        good = pax({b"path": name})
        return good[:512] + b"!" + good[513:]
    return spoiled(long_name(name), 0)


@pytest.mark.parametrize("kind", ["pax", "long-name"])
@pytest.mark.parametrize(
    "short",
    [
        b"k2.cls",
        b"no-extension",
        b"dir/k2/other.cls",
        b"k9.cls",
    ],
)
def test_damage_to_an_extended_header_is_damage_to_its_member(kind: str, short: bytes) -> None:
    """Its member must not come under the name of the short header, nor pass for the torn sample."""
    members = row(6)
    before = bad_extended(kind, b"k2.cls")
    data = joined(members[:4])[:4096] + before + member(short, b"cls") + joined(members[5:])
    tally = Tally()
    samples = samples_of(data, on_damage="skip", tally=tally)
    assert all(set(sample) == {"__key__", "__url__", "cls", "jpg"} for sample in samples)
    assert {sample["__key__"] for sample in samples} == ALL - {"k1", "k2"}
    assert tally.damage[0][1] == 4096


def test_a_stream_that_breaks_off() -> None:
    """As a damaged gzip stream does: an error in place of bytes."""
    data = joined(row(6))
    for cut in range(512, len(data) - 512, 97):
        for seed in (0, 1):
            read = short_reads(data[:cut], seed)

            def broken(count: int, read: Callable[[int], bytes] = read) -> bytes:
                piece = read(count)
                if not piece:
                    raise CompressionError("the gzip stream is cut short", url="x.tar")
                return piece

            tally = Tally()
            kept = survivors(broken, tally)
            assert kept <= ALL
            assert len(kept) >= cut // 1024 // 2 - 1
            ((_, start, stop, reason),) = tally.damage
            assert reason == "the gzip stream is cut short"
            assert cut - 1024 <= start <= stop
            assert stop == max(start, cut)
            with pytest.raises(CompressionError):
                list(read_members(short_error(data[:cut])))


def short_error(data: bytes) -> Callable[[int], bytes]:
    stream = io.BytesIO(data)

    def read(count: int) -> bytes:
        piece = stream.read(min(count, 1000))
        if not piece:
            raise CompressionError("cut")
        return piece

    return read


def test_an_error_that_is_none_of_the_data_s_is_not_passed_over() -> None:
    data = joined(row(3))
    stream = io.BytesIO(data[:3000])

    def read(count: int) -> bytes:
        piece = stream.read(min(count, 1000))
        if not piece:
            raise OSError(5, "Input/output error")
        return piece

    with pytest.raises(OSError, match="Input/output error"):
        list(read_members(read, on_damage="skip"))


def test_a_spoiled_first_header_is_damage_if_it_still_says_ustar() -> None:
    with pytest.raises(CorruptHeaderError, match="offset 0"):
        samples_of(spoiled(joined(row(3)), 0))
    assert survivors(spoiled(joined(row(3)), 0), Tally()) == {"k1", "k2"}


def test_a_tar_inside_a_damaged_member_is_not_taken_for_a_part_of_the_archive() -> None:
    inner = joined(row(4)) + END
    outer = member(b"x.tar", inner) + member(b"b.x", b"1") + member(b"c.x", b"2") + member(b"d.x", b"3") + END
    tally = Tally()
    samples = samples_of(spoiled(outer, 0), on_damage="skip", tally=tally)
    assert [sample["__key__"] for sample in samples] == ["c", "d"]
    assert tally.damage[0][1:3] == (0, len(member(b"x.tar", inner)))


def test_an_absurd_size_loses_the_rest_but_is_counted() -> None:
    members = row(3)
    data = joined(members[:2])[:2048] + header(b"k1.cls", 8**11 - 1) + padded(b"x") + joined(members[3:])
    tally = Tally()
    assert survivors(data, tally) == {"k0"}
    assert [entry[1:3] for entry in tally.damage] == [(2048, len(data))]
