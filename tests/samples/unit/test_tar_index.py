"""The index of a tar shard: its text, how it is made, what is read through it, and how a stale one
is found.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest
from formatpages import hex_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from tarbuild import END, archive_of, header, long_name, member, padded, pax

import tarkit
from tarkit.errors import (
    CorruptHeaderError,
    DataError,
    GivenUpError,
    MissingInputError,
    RepeatedKeyError,
    StaleIndexError,
    TemporaryStreamError,
    UnsupportedMemberError,
    UsageError,
)
from tarkit.formats.tally import Tally
from tarkit.names.outputnames import index_url
from tarkit.readers.reader import Shard, Task, TaskShard, shards_of
from tarkit.readers.tar import TarDataReader
from tarkit.samples import indexedshard, indexing
from tarkit.samples.index import ShardIndex, build_index, decode_index, publish_index, unchecked_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.sample import Sample, last_dot
from tarkit.trainers.shardlist import NoIndexError
from tarkit.trainers.shardmap import ShardMap

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "tar-index.md").read_text(encoding="utf-8")
TESTS = Path(__file__).resolve().parents[2]
FOREIGN = TESTS / "formats" / "data" / "foreign"
STORED = sorted((TESTS / "samples" / "data" / "tar-index").glob("*.idx"))
FILES = [(f"{number:02d}.{field}", bytes(number * 700)) for number in range(20) for field in ("a", "b")]


def write_shard(path: Path, count: int = 200, first: int = 0) -> str:
    with tarkit.TarWriter(str(path)) as sink:
        for number in range(first, first + count):
            sink.write({"__key__": f"{number:04d}", "cls": number, "bin": bytes(number)})
    return str(path)


def make(url: str) -> ShardIndex:
    index = build_index(url)
    publish_index(index, url)
    return index


def whole(url: str) -> list[Sample]:
    return list(tarkit.read_samples([url], literal=True))


def ranged(url: str, start: int, end: int) -> list[Sample]:
    shard = open_indexed(url)
    assert shard is not None
    return list(shard.samples(start, end))


@pytest.fixture
def shard(tmp_path: Path) -> str:
    url = write_shard(tmp_path / "a.tar")
    make(url)
    return url


def test_the_example_of_the_page(tmp_path: Path) -> None:
    url = str(tmp_path / "x.tar")
    with tarkit.TarWriter(url, mtime=0) as sink:
        sink.write({"__key__": "images/cat", "cls": b"3\n", "jpg": b"\xff\xd8\xff\xd9"})
    (text,) = hex_blocks(PAGE)
    assert build_index(url).encode() == text
    assert re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) == [text.decode()]
    assert f"Its index has {len(text)} bytes" in PAGE


def test_the_program_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        exec(program, {})
    assert (tmp_path / "train-000000.idx").read_bytes().startswith(b"v1.2 100\ncls 512 1 000.cls\n")


def test_a_pax_header_before_each_member(tmp_path: Path) -> None:
    """As GNU tar's format posix has for times.

    NVIDIA/DALI issue 4215 is about offsets that were 1,024 too large.
    """
    times = pax({b"mtime": b"1660000000.5"})
    sizes = {"jpg": 41185, "json": 386, "txt": 7}
    members = [times + member(f"000000005.{field}".encode(), bytes(size)) for field, size in sizes.items()]
    (tmp_path / "a.tar").write_bytes(b"".join([*members, END]))
    line = b"jpg 1536 41185 000000005.jpg json 44544 386 000000005.json txt 46592 7 000000005.txt\n"
    assert make(str(tmp_path / "a.tar")).encode() == b"v1.2 1\n" + line
    assert [len(value) for value in ranged(f"{tmp_path}/a.tar", 0, 1)[0].values()][2:] == list(sizes.values())


def test_one_sample_behind_pax_headers_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = pax({b"mtime": b"1660000000.5"})
    content = [times + member(f"{number}.{field}".encode(), b"x") for number in range(3) for field in ("a", "b")]
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(b"".join([*content, END]))
    make(url)
    opened, expected = open_indexed(url), whole(url)
    monkeypatch.setattr(indexedshard, "open_range", None)
    assert opened is not None and [opened.sample(number) for number in range(3)] == expected


@pytest.mark.parametrize("behind_pax", [(), (2,), (0, 3, 4), range(6)])
def test_samples_in_any_order(behind_pax: Sequence[int], tmp_path: Path) -> None:
    """Some of them without plain headers; one that is wanted twice comes twice."""
    times = pax({b"mtime": b"1660000000.5"})
    members = [times * (number in behind_pax) + member(b"%d.a" % number, b"%d" % number) for number in range(6)]
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(b"".join([*members, END]))
    make(url)
    opened, expected = open_indexed(url), whole(url)
    assert opened is not None
    for numbers in ([], [3], [5, 0, 2], [4, 1, 2, 3, 4], [1, 1, 0, 1, 2, 3, 4, 5]):
        found = opened.take(numbers)
        assert found == [expected[number] for number in numbers]
        assert len({id(each) for each in found}) == len(numbers)


def foreign(name: str, folder: Path) -> str:
    """A copy of a stored archive without the hard link at its end, which no index can have."""
    data = (FOREIGN / f"{name}.tar").read_bytes()
    path = folder / f"{name}.tar"
    path.write_bytes(data)
    try:
        build_index(str(path))
    except UnsupportedMemberError as error:
        assert error.offset is not None
        path.write_bytes(data[: error.offset] + END)
    return str(path)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_an_index_that_wds2idx_wrote(path: Path, tmp_path: Path) -> None:
    """tests/samples/data/tar-index/ORIGIN.md says how.

    In the locale C its names have GNU tar's escapes.
    """
    url = foreign(path.stem, tmp_path)
    theirs = path.read_bytes().replace(rb"\303\251", "é".encode())
    same = path.stem != "gnutar-defaults"
    assert (build_index(url).encode() == theirs) == same
    Path(index_url(url)).write_bytes(theirs)
    if same:
        shard = open_indexed(url)
        assert shard is not None
        assert list(shard.samples(0, len(shard))) == whole(url)
    else:
        with pytest.raises(DataError, match="is stale"):
            ranged(url, 0, 6)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOREIGN.glob("*.tar")))
def test_archives_of_other_programs(name: str, tmp_path: Path) -> None:
    """Each range gives what reading the whole archive gives.

    Offsets are those that Python's tarfile knows.
    """
    url = foreign(name, tmp_path)
    expected = whole(url)
    index = make(url)
    assert len(index) == len(expected) > (0 if "sparse" not in name else -1)
    with tarfile.open(url, ignore_zeros=True) as archive:
        places = {(info.name, info.offset_data, info.size) for info in archive if info.isreg()}
    assert {(each.name, each.offset, each.size) for number in range(len(index)) for each in index[number]} <= places
    for start in range(len(expected)):
        assert ranged(url, start, len(expected)) == expected[start:]
        assert ranged(url, start, start + 1) == expected[start : start + 1]


def test_every_kind_of_member(tmp_path: Path) -> None:
    name = b"d" * 120 + b".txt"
    pieces = [
        header(b"folder/", kind=b"5"),
        member(b"__meta__", b"no sample"),
        member(b"a.x", b"1"),
        header(b"link.x", kind=b"2"),
        member(b"a.y", b"22" * 512),
        long_name(name) + member(name[:100], b"333"),
        pax({b"path": b"e.txt"}) + member(b"other", b"4444"),
        pax({b"size": b"5"}) + header(b"f.txt", 0) + padded(b"55555"),
        member(b"README", b"no sample"),
        END,
        END,
        member(b"g.txt", b""),
        member(b".hidden", b"x"),
        header(b"end", kind=b"1"),
        END,
        bytes(7),
    ]
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(b"".join(pieces))
    tally = Tally()
    index = build_index(url, tally=tally)
    publish_index(index, url)
    expected = whole(url)
    assert [sample["__key__"] for sample in expected] == ["a", name.decode()[:-4], "e", "f", "g"]
    skipped = {"folder": 1, "metadata": 1, "symlink": 1, "no-extension": 1, "hidden": 1, "hard-link": 1}
    assert (tally.skipped, tally.samples) == (skipped, 5)
    for start in range(6):
        for end in range(start, 6):
            assert ranged(url, start, end) == expected[start:end]


def test_a_sample_on_each_side_of_an_end_mark(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(member(b"a.x", b"1") + END + member(b"b.x", b"2") + member(b"b.y", b"3") + END)
    make(url)
    assert ranged(url, 0, 2) == whole(url)
    assert ranged(url, 1, 2) == whole(url)[1:]


def test_another_key_rule(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(archive_of([("a.0.jpg", b"1"), ("a.0.cls", b"2"), ("a.1.jpg", b"3")], tarfile.USTAR_FORMAT))
    publish_index(build_index(url, rule="last-dot"), url)
    assert Path(index_url(url)).read_bytes() == b"v1.2 2\njpg 512 1 a.0.jpg cls 1536 1 a.0.cls\njpg 2560 1 a.1.jpg\n"
    shard = open_indexed(url, last_dot)
    assert shard is not None and [sample["__key__"] for sample in shard.samples(0, 2)] == ["a.0", "a.1"]
    with pytest.raises(
        DataError, match=r"a\.idx: line 2: its names are not those of one sample by this key rule; tarkit"
    ):
        open_indexed(url)


@pytest.mark.parametrize("name", ["a b.x", "a.x y", "a\tb.x", "a.x\n", "a\vb.x", "a\r.x", "a.\f", "% %20.x"])
def test_a_name_with_a_blank_is_escaped(tmp_path: Path, name: str) -> None:
    """In a text of tarkit's own: DALI would read other words.

    That of a shard without blanks stays as DALI's is.
    """
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(member(b"%20.x", b"1") + member(name.encode(), b"22") + member(b"z.x", b"3") + END)
    make(url)
    field, *_, last = "".join(f"%{ord(each):02X}" if each in " %\t\n\v\f\r" else each for each in name).partition(".")
    word = f"{field}.{last}"
    text = f"tarkit-v1 3\nx 512 1 %2520.x\n{last} 1536 2 {word}\nx 2560 1 z.x\n"
    assert Path(index_url(url)).read_bytes() == text.encode()
    assert decode_index(text.encode(), "a.idx").encode() == text.encode()
    for start, end in ((0, 3), (1, 2), (2, 3)):
        assert ranged(url, start, end) == whole(url)[start:end]
    opened = open_indexed(url)
    assert opened is not None and list(opened.keys()) == [sample["__key__"] for sample in whole(url)]
    assert opened.index[1][0].name == name and opened.sample(1) == whole(url)[1]
    Path(url).write_bytes(member(b"%20.x", b"1") + member(b"b.x", b"22") + member(b"z.x", b"3") + END)
    with pytest.raises(DataError, match=r"a\.idx is stale"):
        ranged(url, 1, 2)
    make(url)
    assert Path(index_url(url)).read_bytes() == b"v1.2 3\nx 512 1 %20.x\nx 1536 2 b.x\nx 2560 1 z.x\n"


def test_blanks_do_not_make_other_fields_of_the_same_words(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(member(b"k.a b", b"1") + member(b"k.c", b"2") + END)
    make(url)
    Path(url).write_bytes(member(b"k.a", b"1") + member(b"k.b c", b"2") + END)
    with pytest.raises(DataError, match=r"a\.idx is stale"):
        ranged(url, 0, 1)


@pytest.mark.parametrize("word", [b"a%.x", b"a%2.x", b"a%2g.x", b"a%41.x", b"a%0a.x"])
def test_escapes_that_are_refused(word: bytes) -> None:
    with pytest.raises(DataError, match=r"^a\.idx: line 2: a % is not followed by the number of a blank, a line break"):
        decode_index(b"tarkit-v1 1\nx 512 1 " + word + b"\n", "a.idx")


def test_trainers_and_services_are_fed_with_names_that_have_blanks(tmp_path: Path) -> None:
    """``ShardMap`` asks for an index, and ``tarkit index`` makes one."""
    url = str(tmp_path / "a.tar")
    with tarkit.TarWriter(url) as writer:
        for number in range(5):
            writer.write({"__key__": f"New York/{number}", "cls": number})
    with pytest.raises(NoIndexError, match=r"make it by tarkit index .*a\.tar$"):
        ShardMap(url)
    assert [outcome.error for outcome in indexing.index_all([url])] == [None]
    samples = ShardMap(url)
    assert [samples[number] for number in range(5)] == whole(url) == samples.take([(0, at) for at in range(5)])
    reader = TarDataReader(data_dir=str(tmp_path), records_per_task=2)
    assert [sample for task in tasks(reader) for sample in reader.read_records(task)] == whole(url)


def test_names_that_are_not_ascii_are_their_bytes(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(member("été\u00a0\u0085.x".encode(), b"1") + member(b"\xff.x", b"2") + END)
    make(url)
    assert Path(index_url(url)).read_bytes().endswith(b"\nx 1536 1 \xff.x\n")
    assert ranged(url, 0, 2) == whole(url)


def test_a_shard_without_samples(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(header(b"folder/", kind=b"5") + END)
    assert make(url).encode() == b"v1.2 0\n"
    assert (ranged(url, 0, 0), TarDataReader(url).count(url)) == ([], 0)


@pytest.mark.parametrize(
    "name", ["a.tar.bz2", "a.txz", "a", "-", "pipe:cat a.tar", "a.idx", "s3://b/a.tar.lz4", "a.TAR", "a.zst"]
)
def test_names_of_shards_that_have_no_index(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"only a shard whose name ends in .tar, .tar.zst, .tzst, .tar.gz or .tgz has an index"
    ):
        build_index(name)
    assert open_indexed(name) is None


def test_where_the_index_is() -> None:
    names = {"a.tar": "a.idx", "a.0.tar": "a.0.idx", "x.tar.tar": "x.tar.idx", "s3://b/x.tar": "s3://b/x.idx"}
    names |= {"a.tar.zst": "a.tar.zst.idx", "a.tgz": "a.tgz.idx", "http://h/a.tzst?x=1": "http://h/a.tzst.idx?x=1"}
    names |= {"http://h/a.tar?sig=a.tar#x": "http://h/a.idx?sig=a.tar#x", "f.tar/a.tar": "f.tar/a.idx"}
    assert {name: index_url(name) for name in names} == names


def test_a_compressed_shard_under_a_plain_name(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(gzip.compress(archive_of(FILES, tarfile.USTAR_FORMAT)))
    with pytest.raises(UsageError, match=r"a\.tar is compressed \(gz\), and its name does not say so: rename it"):
        build_index(f"{tmp_path}/a.tar")


def test_damage_is_an_error_and_so_is_every_cut(tmp_path: Path) -> None:
    data = archive_of(FILES[:4], tarfile.USTAR_FORMAT)
    end = len(data.rstrip(b"\0"))
    url = str(tmp_path / "a.tar")
    for at in range(0, end, 97):
        Path(url).write_bytes(data[:at])
        with pytest.raises(DataError):
            build_index(url)
    Path(url).write_bytes(data[:520] + b"x" + data[521:] + b"garbage")
    with pytest.raises(CorruptHeaderError):
        build_index(url)
    Path(url).write_bytes(member(b"a.x", b"") + member(b"b.x", b"") + member(b"a.y", b"") + END)
    with pytest.raises(RepeatedKeyError):
        build_index(url)


TEXT = b"v1.2 2\nx 512 1 a.x y 1536 600 a.y\nx 3072 0 b.x\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            b"v1.2 2",
            b"v1.1 2",
            "its first line is not v1.2, or tarkit-v1, and the number of samples; tarkit index --force makes a new one",
        ),
        (b"v1.2 2", b"v1.2 2 ", "its first line is not v1.2"),
        (b"v1.2 2", b"v1.2 -2", "its first line is not v1.2"),
        (b"v1.2 2", b"v1.2 1", "its first line counts 1 samples, and 2 follow"),
        (b"v1.2 2", b"v1.2 3", "its first line counts 3 samples, and 2 follow"),
        (b"b.x\n", b"b.x", "its last line has no end, so it was cut"),
        (b"b.x\n", b"b.x\n\n", "counts 2 samples, and 3 follow"),
        (b"x 3072 0 b.x", b"x 3072 b.x", "line 3: it is not field, offset, size and name"),
        (b"x 3072 0 b.x", b"x  3072 0 b.x", "line 3: it is not field, offset, size and name"),
        (b"x 3072 0 b.x", b"x 3072 0 b.x ", "line 3: it is not field, offset, size and name"),
        (b"x 3072 0 b.x", b"", "line 3: it is not field, offset, size and name"),
        (b"3072", b"3,072", "line 3: it is not field, offset, size and name"),
        (b"3072", b"-3072", "line 3: it is not field, offset, size and name"),
        (b"512", b"9" * 30, "line 2: it is not field, offset, size and name"),
        (b"3072", b"3071", "line 3: no member begins at offset 3071"),
        (b"3072", b"2560", "line 3: no member begins at offset 2560"),
        (b"1536", b"0", "line 2: no member begins at offset 0"),
        (b"0 b.x", b"0 b.y", "line 3: its names are not those of one sample by this key rule"),
        (b"a.y", b".y", "line 2: its names are not those of one sample by this key rule"),
        (b"a.y", b"z/.y", "line 2: its names are not those of one sample by this key rule"),
        (b"0 b.x", b"0 __b__/b.x", "line 3: its names are not those of one sample by this key rule"),
        (b"b.x", b"a.x", "line 3: the key comes back after other samples"),
    ],
)
def test_texts_that_are_refused(old: bytes, new: bytes, message: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(DataError, match=re.escape(message)) as found:
        decode_index(TEXT.replace(old, new), "a.idx")
    assert found.value.url == "a.idx"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"cls 512 1 a.cls txt", b"txt"),
        (b"cls 512 1 a.cls", b"cls 512 2 a.cls"),
        (b"cls 512 1 a.cls", b"jpg 512 1 a.jpg"),
        (b"txt 1536 2 a.txt", b"txt 1536 3 a.txt"),
        (b"a.cls txt 1536 2 a.txt", b"b.cls txt 1536 2 b.txt"),
        (b"cls 512 1 a.cls txt 1536 2 a.txt", b"txt 1024 2 a.txt cls 1536 1 a.cls"),
    ],
)
def test_a_line_of_another_sample_is_found_when_it_is_read(tmp_path: Path, old: bytes, new: bytes) -> None:
    url = str(tmp_path / "a.tar")
    with tarkit.TarWriter(url, index=True) as sink:
        sink.write({"__key__": "a", "cls": 1, "txt": "xy"})
        sink.write({"__key__": "z", "cls": 1})
    text = Path(index_url(url)).read_bytes()
    assert text.count(old) == 1
    Path(index_url(url)).write_bytes(text.replace(old, new))
    with pytest.raises(DataError, match=r"a\.idx is stale"):
        ranged(url, 0, 2)
    assert ranged(url, 1, 2) == whole(url)[1:]


def test_every_cut_of_a_text_is_refused() -> None:
    for at in range(len(TEXT)):
        with pytest.raises(DataError):
            decode_index(TEXT[:at], "a.idx")


@given(st.binary(max_size=80), st.integers(0, len(TEXT)))
def test_any_bytes_are_an_index_or_a_data_error(noise: bytes, at: int) -> None:
    own = b"tarkit-v1" + TEXT[4:]
    for text in (noise, TEXT[:at] + noise, TEXT[:at] + noise + TEXT[at:], own[:at] + noise + own[at:]):
        try:
            index = decode_index(text, "a.idx")
        except DataError:
            continue
        assert decode_index(index.encode(), "a.idx").encode() == index.encode()


KEYS = st.lists(st.text("abé/_-% ", min_size=1, max_size=4).filter(lambda key: not key.endswith("/")), unique=True)
FIELDS = st.dictionaries(st.sampled_from(["cls", "jpg", "seg.png", "x" * 120]), st.binary(max_size=1500), min_size=1)


@settings(max_examples=20)
@given(st.data(), KEYS)
def test_each_range_is_the_slice_of_the_whole_reading(data: st.DataObject, keys: list[str]) -> None:
    sink = io.BytesIO()
    with tarkit.TarWriter(sink, format=data.draw(st.sampled_from(["pax", "gnu"])), encoder=False) as writer:
        for key in keys:
            try:
                writer.write({"__key__": key, **data.draw(FIELDS)})
            except tarkit.errors.EncodeError:
                continue
    url = "memory://tar-index/h.tar"
    fsspec.filesystem("memory").pipe("/tar-index/h.tar", sink.getvalue())
    index = make(url)
    expected = whole(url)
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    assert len(index) == len(expected)
    assert ranged(url, start, end) == expected[start:end]


@pytest.mark.parametrize("piece", [1, 5000])
def test_a_range_is_read_in_pieces(piece: int, shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are read by the index.

    None of them needs the reader, which reads the rest from a sample on.
    """
    monkeypatch.setattr(indexedshard, "_PIECE", piece)
    opened, expected = open_indexed(shard), whole(shard)
    assert opened is not None
    monkeypatch.setattr(opened, "_read_range", None)
    for start, end in ((0, 200), (7, 8), (13, 170), (199, 200)):
        assert opened.take(range(start, end)) == list(opened.samples(start, end)) == expected[start:end]


def test_ranges_that_are_not_there(shard: str) -> None:
    opened = open_indexed(shard)
    assert opened is not None
    for start, end in ((-1, 3), (3, 2), (0, 201)):
        with pytest.raises(UsageError, match=f"samples {start} to {end} are not a range: .* has 200 samples"):
            list(opened.samples(start, end))


def tasks(reader: TarDataReader) -> list[Task]:
    return [Task(TaskShard(each.name, each.start, each.start + each.records)) for each in shards_of(reader)]


def test_a_reader_counts_by_the_index_and_fetches_only_the_bytes_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "memory://tar-index/a.tar"
    write_shard(tmp_path / "a.tar", 3000)
    fsspec.filesystem("memory").pipe("/tar-index/a.tar", (tmp_path / "a.tar").read_bytes())
    index = make(url)
    asked: list[tuple[int, int]] = []
    from tarkit.store import ranges

    original = ranges.read_range

    def noted(url: str, start: int, stop: int, *, size: int) -> bytes:
        asked.append((start, stop))
        return original(url, start, stop, size=size)

    monkeypatch.setattr(ranges, "read_range", noted)
    monkeypatch.setattr("tarkit.readers.ranged.open_read", None)
    monkeypatch.setattr("tarkit.readers.tar.open_read", None)
    reader = TarDataReader(url, 1000)
    assert shards_of(reader) == [Shard(url, start, 1000) for start in (0, 1000, 2000)]
    size = (tmp_path / "a.tar").stat().st_size
    assert asked == [(index[2999][-1].offset - 512, size)]
    del asked[:]
    for number, task in enumerate(tasks(reader)):
        del asked[:]
        found = list(reader.read_records(task))
        assert [sample["__key__"] for sample in found] == [f"{each:04d}" for each in range(task.start, task.end)]
        assert asked == ([(index[2999][-1].offset - 512, size)] if not number else []) + [
            index.span(task.start, task.end)
        ]


def test_a_reader_with_and_without_indexes_gives_the_same(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 200)):
        make(write_shard(tmp_path / f"{name}.tar", 200, first))
    write_shard(tmp_path / "c.tar", 10, 400)
    found = []
    for index in (True, False):
        reader = TarDataReader(str(tmp_path), 70, index=index)
        found.append([[list(reader.read_records(task)) for task in tasks(reader)], shards_of(reader)])
        assert reader.tally.skipped == {"index": 2}
    assert found[0] == found[1]
    assert sum(map(len, found[0][0])) == 410


def test_a_reader_holds_few_indexes(tmp_path: Path) -> None:
    for number in range(20):
        make(write_shard(tmp_path / f"{number:02d}.tar", 3, 10 * number))
    reader = TarDataReader(str(tmp_path), 2)
    for _ in range(2):
        keys = [sample["__key__"] for task in tasks(reader) for sample in reader.read_records(task)]
        assert keys == [f"{10 * number + more:04d}" for number in range(20) for more in range(3)]
    assert len(reader._indexed) == 16


STALE = r"a\.tar: .*, so .*a\.idx is stale; make a new one: tarkit index --force .*a\.tar$"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda path: write_shard(path, 150), "it has .* bytes, and by its index the last sample ends at"),
        (lambda path: write_shard(path, 250), "a member is at .*, behind the last sample of its index"),
        (lambda path: write_shard(path, 200, 1), "no header is at .*, where its index has that of the last member"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x" * 512), "are not the end of an archive"),
    ],
    ids=["shorter", "longer", "as-long", "garbage"],
)
def test_a_stale_index_is_found_when_it_is_opened(shard: str, change: Callable[[Path], object], what: str) -> None:
    change(Path(shard))
    for read in (lambda: open_indexed(shard), lambda: TarDataReader(shard).create_shards()):
        with pytest.raises(StaleIndexError, match=f"{what}.*{STALE[8:]}"):
            read()


def test_a_change_in_the_middle_is_found_when_its_samples_are_read(shard: str) -> None:
    """The same length and the same last sample: opening the index finds nothing."""
    index = build_index(shard)
    data = bytearray(Path(shard).read_bytes())
    begin, end = index.span(100, 101)
    other = member(b"other.bin", bytes(end - begin - 512))
    data[begin:end] = other
    Path(shard).write_bytes(data)
    assert len(ranged(shard, 0, 100)) == 100
    assert len(ranged(shard, 101, 200)) == 99
    for start, stop in ((100, 101), (50, 150)):
        with pytest.raises(StaleIndexError, match=f"sample 100 differs from its index.*{STALE[8:]}"):
            ranged(shard, start, stop)


def test_samples_that_are_one_in_the_shard(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(member(b"a.x", b"1") + member(b"a.y", b"2") + member(b"b.x", b"3") + END)
    make(url)
    Path(url).write_bytes(member(b"a.x", b"1") + header(b"dir/", kind=b"5") * 2 + member(b"b.x", b"3") + END)
    with pytest.raises(StaleIndexError, match="sample 0 differs from its index"):
        ranged(url, 0, 2)
    Path(url).write_bytes(header(b"dir/", kind=b"5") * 4 + member(b"b.x", b"3") + END)
    with pytest.raises(StaleIndexError, match="samples 0 to 0 of its index do not exist"):
        ranged(url, 0, 1)


def test_damage_is_reported_with_its_offset_in_the_shard(shard: str) -> None:
    index = build_index(shard)
    data = bytearray(Path(shard).read_bytes())
    at = index[120][0].offset - 512
    data[at] ^= 1
    Path(shard).write_bytes(data)
    with pytest.raises(
        CorruptHeaderError, match=rf"a\.tar, offset {at}: .*; or .*a\.idx is stale: tarkit index --force"
    ):
        ranged(shard, 110, 130)
    assert len(ranged(shard, 0, 120)) == 120


def test_a_shard_that_is_replaced_while_it_is_open(shard: str) -> None:
    opened = open_indexed(shard)
    assert opened is not None
    write_shard(Path(shard), 150)
    with pytest.raises(DataError, match="was replaced since its identity was read"):
        list(opened.samples(0, 10))


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_shard_that_is_written_over_while_its_samples_are_read(
    when: int, shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was looked at, and before a read: with members of the same names and sizes."""
    opened = open_indexed(shard)
    assert opened is not None
    data = Path(shard).read_bytes()
    real, reads = os.pread, count()

    def overwriting(*arguments: int) -> bytes:
        if next(reads) == when:
            Path(shard).write_bytes(data)
            os.utime(shard, ns=(1, 1))
        return real(*arguments)

    monkeypatch.setattr("tarkit.store.rangedfile.os.pread", overwriting)
    with pytest.raises(DataError, match="was replaced since its identity was read"):
        opened.take([3, 9, 8])
    with pytest.raises(DataError, match="was replaced since its identity was read"):
        opened.sample(3)


def test_a_named_pipe_or_folder_in_place_of_a_shard_is_not_read(shard: str) -> None:
    """A named pipe would wait for its writer."""
    os.remove(shard)
    os.mkfifo(shard)
    with pytest.raises(StaleIndexError, match="it has 0 bytes"):
        open_indexed(shard)
    os.remove(shard)
    os.mkdir(shard)
    assert open_indexed(shard) is None


def test_of_a_shard_that_is_opened_the_end_is_read_once(shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of a data set waits until tens of shards are open."""
    begin, end = build_index(shard).span(0, 200)[1], os.path.getsize(shard)
    real, reads = os.pread, list[tuple[int, int]]()

    def noted(file: int, size: int, at: int) -> bytes:
        reads.append((at, size))
        return real(file, size, at)

    monkeypatch.setattr(os, "pread", noted)
    assert open_indexed(shard, check=False) is not None
    assert reads[0] == (0, os.path.getsize(index_url(shard)))
    assert reads[1][1] == 512 and reads[2:] == [(begin, end - begin)], "the last header, and the end of the shard"


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60), st.data())
def test_a_line_of_an_index_that_is_not_split(lengths: list[int], data: st.DataObject) -> None:
    lines = [b"x" * length for length in lengths]
    text = b"v1.2 %d\n" % len(lines) + b"".join(line + b"\n" for line in lines)
    for number in data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=9)):
        index = unchecked_index(text, "a.idx")
        assert index.line(number).encode() == lines[number]
        assert [index.line(near).encode() for near in range(number, len(lines))] == lines[number:]
        assert index.line(number).encode() == lines[number]
    assert unchecked_index(text, "a.idx").encode() == text


def test_an_index_is_split_when_a_second_sample_is_read(shard: str) -> None:
    """The first batch of a data set reads one sample of most of its shards."""
    opened = open_indexed(shard, check=False)
    assert opened is not None
    opened.take([57])
    assert not isinstance(opened.index._lines, list)
    opened.take([58])
    assert isinstance(opened.index._lines, list)


def test_the_last_sample_is_cut(shard: str) -> None:
    _, end = build_index(shard).span(0, 200)
    with open(shard, "r+b") as file:
        file.truncate(end - 1)
    with pytest.raises(StaleIndexError, match=r"it has .* bytes"):
        open_indexed(shard)


def test_every_cut_of_a_shard_with_an_index(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(archive_of(FILES[:6], tarfile.USTAR_FORMAT))
    make(url)
    data, expected = Path(url).read_bytes(), whole(url)
    end = len(data.rstrip(b"\0"))
    for at in [*range(0, end, 61), *range(end - 20, end + 1100, 13)]:
        Path(url).write_bytes(data[:at])
        try:
            assert ranged(url, 0, 3) == expected
        except DataError:
            continue
        # What is missing are zeros behind the mark.
        assert whole(url) == expected


def test_no_flipped_bit_gives_another_sample_than_reading_all(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(b"".join(member(name, name) for name in (b"a.x", b"a.y", b"b.x", b"c.z")) + END)
    make(url)
    data = Path(url).read_bytes()
    for at in range(0, len(data), 29):
        Path(url).write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        try:
            found = [ranged(url, number, number + 1)[0] for number in range(3)]
        except DataError:
            continue
        assert found == whole(url)


@pytest.mark.parametrize("step", ["build_index", "publish_index"])
def test_a_shard_that_is_replaced_while_it_is_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    url = write_shard(tmp_path / "a.tar", 10)
    original = getattr(indexing, step)

    def replaced(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        write_shard(tmp_path / "a.tar", 20)
        return result

    monkeypatch.setattr(indexing, step, replaced)
    (outcome,) = indexing.index_all([url])
    assert isinstance(outcome.error, TemporaryStreamError)
    assert "the shard was replaced while it was indexed" in str(outcome.error)
    assert os.listdir(tmp_path) == ["a.tar"]


def test_a_store_that_is_gone_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def give_up(url: str, rule: object) -> None:
        asked.append(url)
        error = GivenUpError("no answer", url=url)
        error.answered = False
        raise error

    monkeypatch.setattr(indexing, "open_indexed", give_up)
    outcomes = list(indexing.index_all(["memory://gone/a.tar", "memory://gone/b.tar"]))
    assert asked == ["memory://gone/a.tar"]
    assert [outcome.error.exit_code for outcome in outcomes if outcome.error is not None] == [75, 75]


def test_an_index_that_may_not_be_read_is_as_none(shard: str) -> None:
    os.unlink(index_url(shard))
    os.mkdir(index_url(shard))
    assert open_indexed(shard) is None


def test_a_shard_that_is_gone(shard: str) -> None:
    os.unlink(shard)
    with pytest.raises(MissingInputError):
        open_indexed(shard)
