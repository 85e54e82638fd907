"""The walk through an archive: every header form, every size, every name.

The quick way and the long way agree.
"""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tarbuild import (
    END,
    FORMATS,
    GNU,
    POSIX,
    V7,
    SlowArchive,
    header,
    long_name,
    member,
    members_of,
    padded,
    pax,
    record,
    samples_of,
    short_reads,
    until_error,
    whole_reads,
)

from tarkit.errors import (
    CorruptHeaderError,
    DataError,
    DuplicateFieldError,
    NotATarError,
    RepeatedKeyError,
    TruncatedError,
    UnsupportedMemberError,
    UsageError,
)
from tarkit.formats.tally import Tally
from tarkit.formats.tar.walk import Archive, Member
from tarkit.samples.read import read_members
from tarkit.samples.sample import in_sample

# ---- against Python's tarfile

NAMES = st.builds(
    lambda parts, field: "/".join(parts) + field,
    st.lists(
        st.text("aé猫.\udcff_ -\n", min_size=1, max_size=60).filter(lambda s: s.strip(".")), min_size=1, max_size=6
    ),
    st.sampled_from([".x", ".seg.png", "", ".\u00fc"]),
).filter(lambda name: all(_is_utf8_or_escaped(part) for part in name.split("/")))
KINDS = st.sampled_from([tarfile.REGTYPE] * 6 + [tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
FILES = st.lists(st.tuples(NAMES, st.integers(0, 2000), KINDS), max_size=8)


def _is_utf8_or_escaped(text: str) -> bool:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text


def written_by_tarfile(files: list[tuple[str, int, bytes]], format: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for number, (name, size, kind) in enumerate(files):
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "elsewhere"
            info.size = size if info.isreg() else 0
            info.mtime = number
            try:
                archive.addfile(info, io.BytesIO(bytes([number + 1]) * info.size))
            except ValueError:
                continue  # ustar has no room for this name
    return out.getvalue()


def read_by_tarfile(data: bytes) -> tuple[list[Member], Counter[str]]:
    found: list[Member] = []
    others: Counter[str] = Counter()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            if content is None:
                others["folder" if info.isdir() else "symlink"] += 1
            else:
                found.append((info.name, content.read(), info.offset))
    return found, others


@given(files=FILES, format=st.sampled_from(sorted(FORMATS)), seed=st.integers(0, 9))
@example(files=[("a" * 101 + ".x", 0, b"0"), ("b.x", 512, b"0"), ("c.x", 513, b"0")], format="gnu", seed=0)
@example(files=[("\udcff" * 100 + ".x", 1, b"0")], format="pax", seed=1)
def test_what_tarfile_writes_is_read_as_tarfile_reads_it(
    files: list[tuple[str, int, bytes]], format: str, seed: int
) -> None:
    data = written_by_tarfile(files, FORMATS[format])
    expected, others = read_by_tarfile(data)
    tally = Tally()
    assert members_of(data, tally=tally) == expected
    assert tally.skipped == others
    assert list(read_members(short_reads(data, seed))) == expected
    assert list(SlowArchive(whole_reads(data), "", Tally(), in_sample()).members()) == expected


# ---- the quick way and the long way

SIZE_FIELDS = [
    b"00000000000\0",
    b"00000000001\0",
    b"00000000010 ",
    b"000000000010",
    b"00000000008\0",
    b"00000000017\0",
    b"00000000009\0",
    b"         10\0",
    b"10 \0\0\0\0\0\0\0\0\0",
    b"\0" * 12,
    b" " * 12,
    b"0000000001_\0",
    b"-0000000001\0",
    b"+0000000001\0",
    b"\x80" + bytes(10) + b"\x08",
    b"\xff" * 12,
    b"\x80" + b"\x01" * 11,
]
# Anagrams have the same sum, so that a checksum which was seen comes back.
ANAGRAMS = [b"ab.x", b"ba.x", b"ax.b", b"xb.a", b"\0ab.x", b"", b"d/", b"/d"]


@given(
    st.lists(
        st.tuples(st.sampled_from(ANAGRAMS), st.sampled_from(SIZE_FIELDS), st.sampled_from([POSIX, GNU, V7])),
        max_size=8,
    ),
    st.sampled_from([b"", END, END * 3, END + member(b"ab.x", b"1")]),
)
@example([(b"a.x", b"00000000017\0", POSIX), (b"a.x", b"00000000008\0", POSIX)], END)
@example([(b"a.x", b"000000000010", POSIX)] * 2, END)
@example([(b"d/", b"00000000000\0", POSIX)] * 2, END)
@example([(b"ab.x", b"00000000001\0", POSIX)] * 2, END + member(b"ab.x", b"1"))
def test_the_quick_way_and_the_long_way_agree(members: list[tuple[bytes, bytes, bytes]], end: bytes) -> None:
    data = b"".join(
        header(name, size_field=digits, magic=magic) + padded(b"12345678") for name, digits, magic in members
    )
    outcomes = []
    for kind in (Archive, SlowArchive):
        tally, found = Tally(), []
        try:
            for item in kind(whole_reads(data + end), "x", tally, in_sample()).members():
                found.append(item)
            outcomes.append((found, None, tally))
        except DataError as error:
            outcomes.append((found, str(error), tally))
    assert outcomes[0] == outcomes[1]


# ---- sizes


@pytest.mark.parametrize(
    ("digits", "size"),
    [
        (b"00000000003\0", 3),
        (b"000000000003", 3),
        (b"          3 ", 3),
        (b"3\0\0\0\0\0\0\0\0\0\0\0", 3),
        (b"3 \0garbage\0\0", 3),
        (b"\x80" + bytes(10) + b"\x03", 3),
        (b"\0" * 12, 0),
        (b" " * 12, 0),
    ],
)
def test_forms_of_a_size(digits: bytes, size: int) -> None:
    data = header(b"a.x", size_field=digits) + (padded(b"abc") if size else b"") + member(b"b.x", b"b") + END
    assert [item[:2] for item in members_of(data)] == [("a.x", b"abc"[:size]), ("b.x", b"b")]


@pytest.mark.parametrize(
    "digits", [b"-0000000001\0", b"00000000008\0", b"00000000009\0", b"0000000_001\0", b"0x000000001\0", b"\xff" * 12]
)
def test_a_size_that_is_no_number_is_damage(digits: bytes) -> None:
    bad = header(b"b.x", size_field=digits) + padded(b"12345678") + END
    with pytest.raises(CorruptHeaderError, match="offset 0"):
        members_of(bad)
    with pytest.raises(CorruptHeaderError, match="damaged header") as caught:
        members_of(member(b"a.x") + bad)
    assert caught.value.offset == 512


@pytest.mark.parametrize("digits", [b"77777777777\0", b"\x80" + b"\x3f" * 11, b"00000010000\0"])
def test_a_size_past_the_end_is_a_cut(digits: bytes) -> None:
    found, error = until_error(member(b"a.x", b"a") + header(b"b.x", size_field=digits) + padded(b"x") + END)
    assert found == [("a.x", b"a", 0)]
    assert isinstance(error, TruncatedError)
    assert (error.offset, error.member, error.url) == (1024, "b.x", "x.tar")


# ---- names

LONG = b"d/" + b"n" * 65_000 + b".txt"


@pytest.mark.parametrize(
    ("before", "name", "prefix", "expected"),
    [
        (b"", b"../../a.x", b"", "../../a.x"),
        (b"", b"/etc/a.x", b"", "/etc/a.x"),
        (b"", b"a\nb.x", b"", "a\nb.x"),
        (b"", b"\xff\xfe.x", b"", "\udcff\udcfe.x"),
        (b"", b"n" * 98 + b".x", b"", "n" * 98 + ".x"),
        (b"", b"b.x", b"p" * 155, "p" * 155 + "/b.x"),
        (b"", b"b.x", b"a/b", "a/b/b.x"),
        (long_name(LONG), LONG[:100], b"", LONG.decode()),
        (pax({b"path": LONG}), LONG[:100], b"", LONG.decode()),
        (pax({b"path": LONG}, kind=b"X"), LONG[:100], b"", LONG.decode()),
        (pax({b"path": "é\n=.x".encode()}), b"e.x", b"", "é\n=.x"),
        (pax({b"path": b"new.x"}), b"old.x", b"pre", "new.x"),
        (pax({b"path": b"\xff.x", b"hdrcharset": b"BINARY"}), b"_.x", b"", "\udcff.x"),
        (pax({b"comment": b"c", b"mtime": b"1.5"}), b"a.x", b"", "a.x"),
        (pax({b"comment": b"c"}, kind=b"g"), b"a.x", b"", "a.x"),
        (pax({b"path": b"first.x"}) + long_name(b"second.x"), b"a.x", b"", "second.x"),
        (long_name(b"first.x") + pax({b"path": b"second.x"}), b"a.x", b"", "second.x"),
        (long_name(b"elsewhere", kind=b"K"), b"a.x", b"", "a.x"),
        (pax({}), b"a.x", b"", "a.x"),
        (pax({b"path": b""}), b"a.x", b"pre", "pre/a.x"),
        (pax({b"path": b"other.x"}) + pax({b"path": b"", b"mtime": b"1"}), b"a.x", b"", "a.x"),
    ],
)
def test_names(before: bytes, name: bytes, prefix: bytes, expected: str) -> None:
    one = before + member(name, b"content", prefix=prefix)
    data = member(b"0.x") + one + member(b"2.x") + END
    assert members_of(data) == [("0.x", b"", 0), (expected, b"content", 512), ("2.x", b"", 512 + len(one))]


def test_a_gnu_header_has_no_prefix() -> None:
    assert members_of(member(b"a.x", b"1", magic=GNU, prefix=b"14752342341") + END) == [("a.x", b"1", 0)]
    assert members_of(member(b"a.x", b"1", magic=V7, prefix=b"junk") + END) == [("a.x", b"1", 0)]


@pytest.mark.parametrize("before", [b"", long_name(b"")])
def test_a_file_without_a_name_is_counted(before: bytes) -> None:
    tally = Tally()
    name = b"a.x" if before else b""
    assert members_of(before + member(name, b"1") + member(b"b.x") + END, tally=tally)[0][0] == "b.x"
    assert tally.skipped == {"no-name": 1}


def test_v7_archives() -> None:
    data = member(b"d/", magic=V7, kind=b"\0") + member(b"a.x", b"1", magic=V7, kind=b"\0") + member(b"b.x") + END
    tally = Tally()
    assert [name for name, _, _ in members_of(data, tally=tally)] == ["a.x", "b.x"]
    assert tally.skipped == {"folder": 1}


def test_signed_checksums() -> None:
    name = b"\xc3\xa9.x"
    block = header(name, signed=True)
    assert block != header(name)
    assert [item[0] for item in members_of(block + header(name, signed=True) + END)] == ["é.x", "é.x"]


def test_a_signed_checksum_is_no_measure_for_other_headers() -> None:
    block, other = header(b"\xc3\xa9.x", signed=True), header(b"zyy.x")
    assert sum(b"\xc3\xa9.x") == sum(b"zyy.x")
    assert header(b"\xc3\xa9.x")[148:156] == other[148:156]
    with pytest.raises(CorruptHeaderError, match="checksum does not match"):
        members_of(block + other[:148] + block[148:156] + other[156:] + END)


# ---- kinds


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(b"2", "symlink"), (b"3", "device"), (b"4", "device"), (b"5", "folder"), (b"6", "fifo")],
)
@pytest.mark.parametrize("size", [0, 513])
def test_links_devices_and_folders_have_no_content(kind: bytes, reason: str, size: int) -> None:
    tally = Tally()
    data = member(b"a.x", b"1") + header(b"n.x", size, kind=kind) + member(b"b.x", b"2") + END
    assert [name for name, _, _ in members_of(data, tally=tally)] == ["a.x", "b.x"]
    assert tally.skipped == {reason: 1}


@pytest.mark.parametrize(("kind", "reason"), [(b"D", "folder"), (b"V", "metadata"), (b"A", "metadata")])
def test_what_other_tars_write_besides_files_is_passed_over_with_its_content(kind: bytes, reason: str) -> None:
    tally = Tally()
    data = member(b"a.x", b"1") + member(b"n.x", bytes(range(256)) * 5, kind=kind) + member(b"b.x", b"2") + END
    assert [name for name, _, _ in members_of(data, tally=tally)] == ["a.x", "b.x"]
    assert tally.skipped == {reason: 1}


# ---- members whose content cannot be delivered

TAR_INSIDE = member(b"0.x", b"not a member") * 3


def old_sparse(name: bytes) -> bytes:
    """As GNU tar writes a file of many holes: two more blocks of the map stand between header and
    content.
    """
    block = bytearray(header(name, len(TAR_INSIDE), kind=b"S", magic=GNU))
    block[482] = 1
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 8 * 0x20)
    return bytes(block) + bytes(504) + b"\1" + bytes(7) + bytes(512) + TAR_INSIDE


def pax_sparse(name: bytes) -> bytes:
    records = {b"GNU.sparse.major": b"1", b"GNU.sparse.name": name}
    return pax(records) + member(b"GNUSparseFile.0/" + name, TAR_INSIDE)


Make = Callable[[bytes], bytes]
UNDELIVERED: list[tuple[Make, str, str]] = [
    (lambda name: header(name, kind=b"1"), "hard-link", "tar --hard-dereference"),
    (lambda name: header(name, 513, kind=b"1"), "hard-link", "tar --hard-dereference"),
    (lambda name: pax({b"path": name}) + header(b"short", kind=b"1"), "hard-link", "tar --hard-dereference"),
    (
        lambda name: long_name(name) + header(b"short", 513, kind=b"1", magic=GNU),
        "hard-link",
        "tar --hard-dereference",
    ),
    (lambda name: member(name, TAR_INSIDE, kind=b"S", magic=GNU), "sparse", "bsdtar --no-read-sparse"),
    (old_sparse, "sparse", "without tar --sparse"),
    (pax_sparse, "sparse", "without tar --sparse"),
    (lambda name: pax({b"GNU.sparse.map": b"0,1"}) + member(name, b"1"), "sparse", "without tar --sparse"),
    (lambda name: member(name, TAR_INSIDE, kind=b"M", magic=GNU), "continuation", "without tar --multi-volume"),
    (lambda name: member(name, TAR_INSIDE, kind=b"Z"), "unknown-type", "as a regular file"),
]


@pytest.mark.parametrize(("lost", "reason", "hint"), UNDELIVERED)
def test_a_field_whose_content_is_not_in_the_shard_is_an_error_that_names_it(
    lost: Make, reason: str, hint: str
) -> None:
    with pytest.raises(UnsupportedMemberError, match=hint) as caught:
        members_of(member(b"0.x") + lost(b"2.cls") + member(b"2.jpg") + END)
    assert (caught.value.kind, caught.value.offset, caught.value.member) == (reason, 512, "2.cls")


@pytest.mark.parametrize(("lost", "reason", "hint"), UNDELIVERED)
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_only_the_sample_that_lacks_a_field_is_dropped_and_counted(
    lost: Make, reason: str, hint: str, first: bool
) -> None:
    pair = [lost(b"2.cls"), member(b"2.jpg", b"j")]
    row = [member(b"1.cls", b"1"), member(b"1.jpg", b"j"), *pair[:: 1 if first else -1], lost(b"3.cls")]
    data = b"".join(row) + member(b"4.cls", b"4") + member(b"4.jpg", b"j") + END
    for read in (whole_reads(data), short_reads(data, 1)):
        tally = Tally()
        samples = samples_of(read, tally=tally, on_damage="skip")
        assert [(each["__key__"], each["cls"], each["jpg"]) for each in samples] == [
            ("1", b"1", b"j"),
            ("4", b"4", b"j"),
        ]
        assert tally.skipped == {reason: 2, "incomplete-sample": 2}
        assert tally.damage == []
        assert tally.lost_anything


@pytest.mark.parametrize(("lost", "reason", "hint"), UNDELIVERED)
def test_what_is_no_field_is_counted_and_no_error(lost: Make, reason: str, hint: str) -> None:
    tally = Tally()
    data = member(b"1.jpg", b"1") + lost(b"README") + member(b"2.jpg", b"2") + END
    assert [name for name, _, _ in members_of(data, tally=tally)] == ["1.jpg", "2.jpg"]
    assert tally.skipped == {reason: 1}
    assert not tally.lost_anything


def test_the_key_rule_says_what_is_a_field() -> None:
    data = member(b"1.jpg", b"1") + header(b"2.cls", kind=b"1") + END
    assert len(list(read_members(whole_reads(data), rule=r"(\d+)\.(jpg)"))) == 1


def test_a_hard_link_with_its_content_is_a_file() -> None:
    """As pax -o linkdata writes it; bsdtar extracts the content too."""
    data = pax({b"mtime": b"1.5"}) + member(b"2.cls", b"content", kind=b"1") + member(b"3.cls", b"3") + END
    assert members_of(data) == [("2.cls", b"content", 0), ("3.cls", b"3", 2048)]


def test_a_lost_field_of_a_sample_that_was_delivered_is_a_key_that_comes_back() -> None:
    data = member(b"1.jpg") + member(b"2.jpg") + header(b"1.cls", kind=b"1") + END
    with pytest.raises(RepeatedKeyError, match="comes back"):
        samples_of(data, on_damage="skip")
    tally = Tally()
    kept = samples_of(data, on_damage="skip", on_repeated_key="allow", tally=tally)
    assert [sample["__key__"] for sample in kept] == ["1", "2"]
    assert tally.skipped == {"hard-link": 1, "incomplete-sample": 1}


def test_damage_right_before_a_lost_field() -> None:
    data = member(b"1.jpg") + b"?" * 512 + header(b"2.cls", kind=b"1") + member(b"2.jpg") + member(b"3.jpg") + END
    tally = Tally()
    assert [sample["__key__"] for sample in samples_of(data, on_damage="skip", tally=tally)] == ["3"]
    assert tally.skipped == {"hard-link": 1, "incomplete-sample": 1, "sample-beside-damage": 1}


@pytest.mark.parametrize("cut", [512, 1000, 1024, 1536, 2000])
def test_a_cut_in_what_is_not_delivered_is_an_error(cut: int) -> None:
    """In the map of a sparse file, or in its content."""
    tally = Tally()
    assert samples_of(old_sparse(b"2.cls")[:cut], on_damage="skip", tally=tally) == []
    assert tally.damage


@pytest.mark.parametrize("kind", [b"0", b"7", b"\0"])
def test_regular_kinds(kind: bytes) -> None:
    assert members_of(member(b"a.x", b"1", kind=kind) * 2 + END) == [("a.x", b"1", 0), ("a.x", b"1", 1024)]


def test_a_folder_written_as_a_file_is_counted_every_time() -> None:
    tally = Tally()
    members_of(member(b"a.x") + member(b"d/") * 3 + END, tally=tally)
    assert tally.skipped == {"folder": 3}


# ---- extended headers that are wrong


def raw_pax(content: bytes) -> bytes:
    return member(b"p", content, kind=b"x")


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (raw_pax(b"nonsense\n"), "has no length"),
        (raw_pax(b"12 path=a.x"), "malformed"),
        (raw_pax(b"12 path=a.xX"), "malformed"),
        (raw_pax(b"9 path=a\n99 path=b\n"), "malformed"),
        (raw_pax(b"7 patha\n"), "malformed"),
        (raw_pax(b"0 path=a\n"), "malformed"),
        (raw_pax(b"-9 path=a\n"), "has no length"),
        (raw_pax(b" path=a\n"), "has no length"),
        (raw_pax(b"9" * 30 + b" path=a\n"), "malformed"),
        (raw_pax(b"9" * 5000 + b" path=a\n"), "malformed"),
        (raw_pax(b"\0" + record(b"path", b"b.x")), "has no length"),
        (raw_pax(record(b"size", b"-1")), "size="),
        (raw_pax(record(b"size", b"")), "size="),
        (raw_pax(record(b"size", b"1e3")), "size="),
        (raw_pax(record(b"size", b"9" * 5000)), "size="),
        (raw_pax(record(b"path", b"a\0b.x")), "NUL"),
        (pax({b"path": b"b.x"}, kind=b"g"), "global"),
        (pax({b"size": b"3"}, kind=b"g"), "global"),
        (header(b"p", 2**24 + 1, kind=b"x"), "claims"),
        (header(b"p", 8**11 - 1, kind=b"L"), "claims"),
        (header(b"p", size_field=b"\x80" + b"\x01" * 11, kind=b"x"), "claims"),
    ],
)
def test_a_bad_extended_header_is_damage(before: bytes, says: str) -> None:
    found, error = until_error(member(b"0.x") + before + member(b"a.x", b"1") + END)
    assert found == [("0.x", b"", 0)]
    assert isinstance(error, CorruptHeaderError), error
    assert says in str(error)
    assert error.offset == 512


def test_nul_padding_inside_an_extended_header_is_allowed() -> None:
    data = raw_pax(record(b"path", b"b.x") + bytes(7)) + member(b"a.x", b"1") + END
    assert members_of(data) == [("b.x", b"1", 0)]


def test_a_pax_size_counts_instead_of_the_header_s() -> None:
    data = pax({b"size": b"3"}) + header(b"a.x", 0) + padded(b"abc") + member(b"b.x") + END
    assert [item[:2] for item in members_of(data)] == [("a.x", b"abc"), ("b.x", b"")]


def test_numbers_of_an_extended_header_have_any_number_of_digits() -> None:
    """POSIX.1, pax: decimal, without a bound.

    Zeros before them were taken for damage.
    """
    for zeros in (3, 30, 6000):
        size = record(b"size", b"0" * zeros + b"3")
        rest = b" path=b.x\n"
        data = raw_pax(b"%0*d" % (zeros, zeros + len(rest)) + rest + size) + header(b"a.x", 0) + padded(b"abc") + END
        assert [item[:2] for item in members_of(data)] == [("b.x", b"abc")]


@pytest.mark.parametrize("before", [pax({b"path": b"a.x"}), long_name(b"a.x")])
def test_an_extended_header_with_no_member_after_it(before: bytes) -> None:
    with pytest.raises(CorruptHeaderError, match="followed by no member"):
        members_of(member(b"0.x") + before + END)
    with pytest.raises(TruncatedError, match="inside a header"):
        members_of(member(b"0.x") + before)
    with pytest.raises(CorruptHeaderError, match="followed by no member"):
        members_of(before + END)


# ---- the end, and several archives in a row


def test_empty_archives() -> None:
    assert members_of(END) == members_of(bytes(512)) == members_of(bytes(10_240)) == members_of(bytes(700)) == []
    with pytest.raises(TruncatedError, match="empty"):
        members_of(b"")


def test_one_zero_block_is_an_end() -> None:
    assert members_of(member(b"a.x") + bytes(512)) == [("a.x", b"", 0)]


@pytest.mark.parametrize("garbage", [b"x", b"x" * 511, b"x" * 512, b"\0" * 512 + b"x", bytes(100) + b"x" + bytes(5000)])
def test_garbage_after_the_mark_is_damage(garbage: bytes) -> None:
    for seed in range(4):
        found, error = until_error(short_reads(member(b"a.x") + END + garbage, seed))
        assert found[0] == ("a.x", b"", 0)
        assert isinstance(error, CorruptHeaderError)
        assert "neither zeros nor an archive" in str(error)


@pytest.mark.parametrize("gap", [512, 1024, 10_240, 1_000_448])
def test_archives_in_a_row(gap: int) -> None:
    one, two = member(b"ab.x", b"1") + member(b"b.x"), member(b"ba.x", b"2") + member(b"d.x")
    data = one + bytes(gap) + two + END
    samples = samples_of(data)
    assert [sample["__key__"] for sample in samples] == ["ab", "b", "ba", "d"]
    assert members_of(data)[2] == ("", b"", 0)
    assert samples_of(short_reads(data, 1)) == samples


def test_a_cut_second_archive_is_noticed_although_its_headers_are_like_the_first_s() -> None:
    one = member(b"ab.x", b"1") + member(b"ba.x", b"2")
    for cut in (len(one), 1024):
        found, error = until_error(one + END + one[:cut])
        assert len(found) == 3 + cut // 1024
        assert isinstance(error, TruncatedError), error


def test_a_key_on_both_sides_of_a_border() -> None:
    data = member(b"a.x", b"1") + END + member(b"a.y", b"2") + END
    with pytest.raises(RepeatedKeyError) as caught:
        samples_of(data)
    assert (caught.value.offset, caught.value.key, caught.value.url) == (2048, "a", "x.tar")
    tally = Tally()
    both = samples_of(data, on_repeated_key="allow", tally=tally)
    assert [sorted(sample) for sample in both] == [["__key__", "__url__", "x"], ["__key__", "__url__", "y"]]
    assert (tally.samples, tally.reopened) == (2, 1)


# ---- policies


def test_keys_that_come_back() -> None:
    data = b"".join(member(name, b"1") for name in (b"a.x", b"b.x", b"a.y", b"c.x")) + END
    with pytest.raises(RepeatedKeyError, match="first at offset 0") as caught:
        samples_of(data)
    assert (caught.value.offset, caught.value.member) == (2048, "a.y")
    tally = Tally()
    assert [s["__key__"] for s in samples_of(data, on_repeated_key="allow", tally=tally)] == ["a", "b", "a", "c"]
    assert (tally.samples, tally.members, tally.reopened) == (4, 4, 1)


@pytest.mark.parametrize(("policy", "kept"), [("first", b"1"), ("last", b"3")])
def test_fields_that_come_twice(policy: str, kept: bytes) -> None:
    data = b"".join(member(*file) for file in [(b"a.x", b"1"), (b"a.y", b""), (b"a.x", b"2"), (b"a.x", b"3")]) + END
    with pytest.raises(DuplicateFieldError, match="begins at offset 0") as caught:
        samples_of(data)
    assert (caught.value.offset, caught.value.key) == (1536, "a")
    tally = Tally()
    (sample,) = samples_of(data, on_duplicate_field=policy, tally=tally)
    assert sample == {"__key__": "a", "__url__": "x.tar", "x": kept, "y": b""}
    assert (tally.samples, tally.members, tally.replaced) == (1, 4, 2)


@pytest.mark.parametrize(
    "policy", [{"on_duplicate_field": "x"}, {"on_repeated_key": "first"}, {"on_damage": "ignore"}], ids=str
)
def test_policies_that_do_not_exist(policy: Mapping[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(policy))):
        samples_of(END, **policy)


# ---- what is no tar

NO_TARS = {
    b"PK\x03\x04" + b"z" * 600: "a zip file",
    b"\x89PNG\r\n\x1a\n" + bytes(600): "a PNG image",
    b"\xff\xd8\xff\xe0" + bytes(600): "a JPEG image",
    b"GIF89a" + bytes(600): "a GIF image",
    b"RIFF\0\0\0\0WEBP" + bytes(600): "a RIFF file",
    b"%PDF-1.4\n": "a PDF file",
    b"\x7fELF" + bytes(600): "an ELF program",
    b"\x1f\x8b\x08" + bytes(600): "gzip inside",
    b"<!DOCTYPE html><html>": "an HTML or XML page",
    b"\xef\xbb\xbf\n <?xml version": "an HTML or XML page",
    b'{"error": "no such key"}': "JSON",
    b"[1, 2]" * 200: "JSON",
    b"hello, world\n" * 100: "text beginning 'hello, world",
    b"a": "text beginning 'a'",
    b"#!/bin/sh\n": "a script",
    b"version https://git-lfs.github.com/spec/v1\n": "a Git LFS pointer",
    b"SEQ\x06" + bytes(600): "a Hadoop SequenceFile",
    b"\x93NUMPY" + bytes(600): "a NumPy array",
    bytes(range(1, 256)) * 4: "begins with the bytes 01 02 03 04 05 06 07 08",
    b"\0" * 100 + b"x" * 500: "begins with the bytes 00 00",
}


@pytest.mark.parametrize("policy", ["error", "skip"])
@pytest.mark.parametrize(("data", "phrase"), NO_TARS.items(), ids=NO_TARS.values())
def test_what_is_no_tar_is_named(data: bytes, phrase: str, policy: str) -> None:
    with pytest.raises(NotATarError, match="not a tar") as caught:
        members_of(data, on_damage=policy)
    assert phrase in str(caught.value)
    assert (caught.value.offset, caught.value.url) == (0, "x.tar")
    assert "\n" not in str(caught.value)
