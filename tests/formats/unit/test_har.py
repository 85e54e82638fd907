"""Hadoop archives: read in place, written, to and from tar shards; damage is an error.

What Hadoop's own reader makes of them is in test_hadoop_formats.py.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import harbuild
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarkit.errors import (
    AlreadyPublishedError,
    DataError,
    EncodeError,
    MissingInputError,
    StreamError,
    TarkitError,
    TruncatedError,
    UsageError,
)
from tarkit.formats.har import HarArchive, HarEntry, HarWriter, read
from tarkit.formats.tally import Tally
from tarkit.samples.tarwriter import TarWriter
from tarkit.steps.convert import convert
from tarkit.steps.harshards import har_samples
from tarkit.store.publish import PublishStream

FILES = {"/a/1.jpg": b"one", "/a/1.cls": b"", "/a/b/c d~*\u00e9.txt": b"two" * 100, "/top": b"x", "/z.jpg": b"last"}


def relative(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path[1:]: content for path, content in files.items()}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("split", [1, 3, 1000])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_what_another_program_wrote(tmp_path: Path, version: int, split: int, parts: int) -> None:
    harbuild.build(tmp_path / "x.har", FILES, version, split, parts)
    archive = HarArchive(tmp_path / "x.har")
    assert (archive.version, len(archive), sorted(archive.names())) == (version, 5, sorted(relative(FILES)))
    assert {name: archive.read(name) for name in archive.names()} == relative(FILES)
    tally = Tally()
    assert dict(archive.items(tally=tally)) == relative(FILES)
    assert (tally.members, tally.damage) == (5, [])


def test_version_1_has_names_as_they_are(tmp_path: Path) -> None:
    files = {"/a+b/%41.txt": b"1", "/c": b"2"}
    harbuild.build(tmp_path / "x.har", files, 1)
    assert dict(HarArchive(str(tmp_path / "x.har")).items()) == relative(files)


def test_entries(tmp_path: Path) -> None:
    harbuild.build(tmp_path / "x.har", {"/a": b"1", "/b": b"23"})
    assert HarArchive(tmp_path / "x.har").entries()[1] == HarEntry(
        "b", "part-0", 1, 2, 1700000000.123, 420, "us er", "grp"
    )
    harbuild.build(tmp_path / "y.har", {"/a": b"1", "/b": b"23"}, 2)
    assert HarArchive(tmp_path / "y.har").entries()[1] == HarEntry("b", "part-0", 1, 2)


def test_a_file_is_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harbuild.build(tmp_path / "x.har", FILES)
    archive = HarArchive(tmp_path / "x.har")
    asked = []
    original = read.read_range

    def noted(url: str, start: int, stop: int, *, size: int) -> bytes:
        asked.append((url, start, stop, size))
        return original(url, start, stop, size=size)

    monkeypatch.setattr(read, "read_range", noted)
    assert archive.read("z.jpg") == b"last"
    assert asked == [(str(tmp_path / "x.har" / "part-0"), 304, 308, 308)]


def test_an_archive_in_a_store() -> None:
    import fsspec

    with HarWriter("memory://arch/x.har") as writer:
        for name, content in relative(FILES).items():
            writer.write(name, content)
    archive = HarArchive("memory://arch/x.har")
    assert dict(archive.items()) == relative(FILES)
    assert archive.read("a/1.jpg") == b"one"
    fsspec.filesystem("memory").rm("/arch", recursive=True)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        HarArchive(tmp_path / "none.har")
    harbuild.build(tmp_path / "x.har", FILES)
    for name in ("nothing", "a", "/top", ""):
        with pytest.raises(MissingInputError, match="no such file in this archive"):
            HarArchive(tmp_path / "x.har").read(name)


def test_urls_of_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def missing(url: str) -> Any:
        asked.append(url)
        raise MissingInputError("gone", url=url)

    monkeypatch.setattr(read, "identify", missing)
    for url in ("har://hdfs-nn.example:9000/data/x.har", "har://webhdfs-nn:9870/x.har"):
        with pytest.raises(MissingInputError):
            HarArchive(url)
    assert asked == ["hdfs://nn.example:9000/data/x.har/_masterindex", "webhdfs://nn:9870/x.har/_masterindex"]
    with pytest.raises(UsageError, match="does not name a file system"):
        HarArchive("har:///data/x.har")


def test_contents_that_are_far_apart_overlap_or_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x.har"
    files = {f"/{i}": bytes([i]) * i * 7 for i in range(30)}
    harbuild.build(folder, files)
    index = folder / "_index"
    # Every second one is left out; two share bytes with the one before.
    text = index.read_text()
    for i in range(1, 30, 2):
        text = "".join(line for line in text.splitlines(True) if not line.startswith(f"%2F{i} "))
        text = text.replace(f" {i} ", " ", 1) if f" 0 0 {i} " not in text else text.replace(f" 0 0 {i} ", " 0 0 ", 1)
    lines = [line for line in text.splitlines(True) if not line.startswith("%2F dir")]
    names = [line.partition(" ")[0].removeprefix("%2F") for line in lines] + ["more"]
    entry = HarArchive(folder).entries()[20]
    lines.append(f"%2Fmore file part-0 {entry.offset - 5} 12 0+420+a+b \n")
    lines.append("%2F dir 0+420+a+b 0 0 " + "".join(f"{name} " for name in names) + "\n")
    index.write_text("".join(lines))
    (folder / "_masterindex").write_text(f"3 \n0 2147483647 0 {len(''.join(lines))} \n")
    data = (folder / "part-0").read_bytes()
    for piece in (1, 3, 100, 1 << 20):
        monkeypatch.setattr("tarkit.store.window._PIECE", piece)
        found = dict(HarArchive(folder).items())
        assert found.pop("more") == data[entry.offset - 5 : entry.offset + 7]
        assert found == {f"{i}": files[f"/{i}"] for i in range(0, 30, 2)}


# The writer.


def test_the_bytes_of_a_small_archive(tmp_path: Path) -> None:
    folder = tmp_path / "x.har"
    with HarWriter(folder, mtime=1.5, owner="me & you", group="g") as writer:
        writer.write("a b/1.jpg", b"one")
        writer.write("a b/~", [b"t", b"wo"], mtime=0, mode=0o600)
        assert writer.files == 2
    props = "493+me%2B%2526%2Byou+g"
    lines = [
        f"%2F dir 1500+{props} 0 0 a+b \n",
        f"%2Fa+b dir 1500+{props} 0 0 1.jpg %7E \n",
        f"%2Fa+b%2F%7E file part-0 3 3 0+384+{props[4:]} \n",
        f"%2Fa+b%2F1.jpg file part-0 0 3 1500+420+{props[4:]} \n",
    ]
    hashes = [harbuild.hash_of(path) for path in ("/", "/a b", "/a b/~", "/a b/1.jpg")]
    in_order = [line for _, line in sorted(zip(hashes, lines, strict=True))]
    assert (folder / "_index").read_text() == "".join(in_order)
    assert (folder / "_masterindex").read_text() == f"3 \n0 {max(hashes)} 0 {len(''.join(lines))} \n"
    assert (folder / "part-0").read_bytes() == b"onetwo"
    assert sorted(path.name for path in folder.iterdir()) == ["_index", "_masterindex", "part-0"]


def test_the_same_files_give_the_same_bytes_as_the_format_says(tmp_path: Path) -> None:
    files = {f"/d{i % 7}/{i}.txt": b"%d" % i for i in range(2500)}
    harbuild.build(tmp_path / "built.har", files)
    with HarWriter(tmp_path / "x.har", part_size=1000) as writer:
        for path, content in files.items():
            writer.write(path[1:], content)
    ours = HarArchive(tmp_path / "x.har")
    assert dict(ours.items()) == relative(files)
    assert ours.names() == [path[1:] for path in files]
    master = (tmp_path / "x.har" / "_masterindex").read_text().splitlines()
    assert len(master) == 4
    assert [line.split()[:2] for line in master[1:]] == [
        line.split()[:2] for line in (tmp_path / "built.har" / "_masterindex").read_text().splitlines()[1:]
    ]
    assert len(list((tmp_path / "x.har").glob("part-*"))) > 5


NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=6)


@given(
    st.dictionaries(
        st.lists(NAME.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join),
        st.binary(max_size=20),
        max_size=8,
    ),
    st.sampled_from([1, 30, 1000]),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], part_size: int) -> None:
    folder = tmp_path_factory.mktemp("har") / "x.har"
    written = {}
    with HarWriter(folder, part_size=part_size) as writer:
        for name, content in files.items():
            try:
                writer.write(name, content)
                written[name] = content
            except EncodeError:
                above = [name[:at] for at, character in enumerate(name) if character == "/"]
                assert any(each in written for each in above) or any(each.startswith(f"{name}/") for each in written)
    archive = HarArchive(folder)
    assert dict(archive.items()) == written
    assert {name: archive.read(name) for name in archive.names()} == written


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", ".", "a/../b", "a/./b", "\udcff", "d/x", "d", "d/x/y"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with HarWriter(tmp_path / "x.har") as writer:
        writer.write("d/x", b"1")
        with pytest.raises(EncodeError):
            writer.write(name, b"2")
    assert dict(HarArchive(tmp_path / "x.har").items()) == {"d/x": b"1"}


def test_nothing_is_published_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), HarWriter(tmp_path / "x.har") as writer:
        writer.write("a", b"1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="closed"):
        writer.write("b", b"")


def test_an_error_removes_no_folder_that_was_there_or_has_files(tmp_path: Path) -> None:
    (tmp_path / "x.har").mkdir()
    for name, other in (("x.har", None), ("y.har", "other")):
        with pytest.raises(RuntimeError), HarWriter(tmp_path / name) as writer:
            writer.write("a", b"1")
            if other is not None:
                (tmp_path / name / other).touch()
            raise RuntimeError
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["x.har", "y.har", "y.har/other"]


def test_content_that_fails_leaves_no_name(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield b"half"
        raise RuntimeError

    with HarWriter(tmp_path / "x.har") as writer:
        with pytest.raises(RuntimeError):
            writer.write("d/bad", pieces())
        writer.write("good", b"1")
    assert dict(HarArchive(tmp_path / "x.har").items()) == {"good": b"1"}


def test_an_archive_that_is_there_stays(tmp_path: Path) -> None:
    for content in (b"1", b"2"):
        try:
            with HarWriter(tmp_path / "x.har") as writer:
                writer.write("a", content)
        except AlreadyPublishedError:
            assert content == b"2"
    assert HarArchive(tmp_path / "x.har").read("a") == b"1"


def _build(target: Path, files: dict[str, bytes], **arguments: Any) -> None:
    with HarWriter(target, part_size=1, **arguments) as writer:
        for name, content in files.items():
            writer.write(name, content)


def test_a_writer_that_was_killed_after_its_last_file_can_be_repeated(tmp_path: Path) -> None:
    """It had published the archive, and had not ended yet: the same command has to end well."""
    target = tmp_path / "x.har"
    files = {"a": b"1" * 3_000_000, "b": b"2"}
    _build(target, files)
    before = {path.name: (path.stat().st_ino, path.read_bytes()) for path in target.iterdir()}
    os.link(target / "_masterindex", target / "._masterindex.tarkit-0123abcd")
    _build(target, files)
    assert {path.name: (path.stat().st_ino, path.read_bytes()) for path in target.iterdir()} == before
    for other in (
        {},
        {"a": files["a"]},
        {**files, "b": b"3"},
        {**files, "b": b""},
        {**files, "b": b"22"},
        {**files, "c": b"3"},
        {"a": files["a"], "d": b"2"},
    ):
        with pytest.raises(AlreadyPublishedError, match="_masterindex: a different archive exists already; remove it"):
            _build(target, other)
    with pytest.raises(AlreadyPublishedError, match="a different archive"):
        _build(target, files, mtime=7)
    assert {path.name: (path.stat().st_ino, path.read_bytes()) for path in target.iterdir()} == before


def test_of_two_writers_at_once_one_wins(tmp_path: Path) -> None:
    first, second = HarWriter(tmp_path / "x.har"), HarWriter(tmp_path / "x.har")
    first.write("a", b"1")
    second.write("b", b"2")
    first.close()
    with pytest.raises(AlreadyPublishedError):
        second.close()
    second.discard()
    assert dict(HarArchive(tmp_path / "x.har").items()) == {"a": b"1"}


def test_a_writer_in_the_middle_of_publishing_keeps_its_parts(tmp_path: Path) -> None:
    late = HarWriter(tmp_path / "x.har")
    late.write("b", b"2")
    with HarWriter(tmp_path / "x.har") as writer:
        writer.write("a", b"1")
    (tmp_path / "x.har" / "_masterindex").unlink()
    with pytest.raises(AlreadyPublishedError, match="part-0"), late:
        pass
    assert (tmp_path / "x.har" / "part-0").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["part-1", "_index", "_masterindex"])
def test_a_disk_that_is_full_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Contents that were published before its index are not left under their names."""

    def full(self: PublishStream) -> None:
        if self.name.endswith(name):
            raise StreamError("no space left on device", url=self.name)
        commit(self)

    commit = PublishStream.commit
    monkeypatch.setattr(PublishStream, "commit", full)
    with pytest.raises(StreamError, match="no space left"), HarWriter(tmp_path / "x.har", part_size=1) as writer:
        writer.write("a", b"1")
        writer.write("b", b"2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["before a part was read", "between two files", "while all are read"])
def test_an_archive_that_is_replaced_while_it_is_read(tmp_path: Path, when: str) -> None:
    """By one whose parts have the same length: the index that was read is not theirs."""

    def build(content: bytes) -> None:
        shutil.rmtree(tmp_path / "x.har", ignore_errors=True)
        harbuild.build(tmp_path / "x.har", {"/a": content, "/b": content[::-1]})

    build(b"old one")
    archive = HarArchive(tmp_path / "x.har")
    files = archive.items()
    if when == "between two files":
        assert archive.read("a") == b"old one"
    elif when == "while all are read":
        assert next(files) == ("a", b"old one")
    build(b"new one")
    with pytest.raises(StreamError, match="was replaced while it was read"):
        if when == "while all are read":
            list(files)
        else:
            archive.read("b")


def test_an_archive_of_nothing(tmp_path: Path) -> None:
    with HarWriter(tmp_path / "x.har"):
        pass
    assert HarArchive(tmp_path / "x.har").names() == []
    with pytest.raises(UsageError):
        HarWriter(tmp_path / "y.har", part_size=0)


# Damage.


@pytest.mark.parametrize("name", ["_masterindex", "_index", "part-0", "part-1"])
def test_every_cut_is_an_error(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "x.har"
    files = {"/a/1": b"one", "/a/2": b"", "/b": b"three", "/c": b"four"}
    harbuild.build(folder, files, split=2, parts=2)
    data = (folder / name).read_bytes()
    for cut in range(len(data)):
        (folder / name).write_bytes(data[:cut])
        with pytest.raises(DataError) as caught:
            list(HarArchive(folder).items())
        assert name in str(caught.value) or "_masterindex" in str(caught.value)
    (folder / name).unlink()
    with pytest.raises(MissingInputError):
        list(HarArchive(folder).items())


def test_a_cut_part_costs_the_files_that_it_does_not_have(tmp_path: Path) -> None:
    folder = tmp_path / "x.har"
    files = {"/a/1": b"one", "/a/2": b"", "/b": b"three", "/c": b"four"}
    harbuild.build(folder, files)
    (folder / "part-0").write_bytes(b"onethr")
    archive = HarArchive(folder)
    tally = Tally()
    assert dict(archive.items(on_damage="skip", tally=tally)) == {"a/1": b"one", "a/2": b""}
    url = str(folder / "part-0")
    assert tally.damage == [
        (url, 3, 8, "record 2: the part ends before the end of b"),
        (url, 6, 12, "record 3: the part ends before the end of c"),
    ]
    assert tally.members == 2
    with pytest.raises(TruncatedError, match=r"part-0, offset 3, member 'b': the part ends at byte 6"):
        archive.read("b")
    with pytest.raises(UsageError):
        list(archive.items(on_damage="ignore"))


def test_every_flipped_byte_of_the_index_is_noticed_or_harmless(tmp_path: Path) -> None:
    folder = tmp_path / "x.har"
    files = {"/a/1": b"one", "/a/2": b"", "/b": b"three"}
    harbuild.build(folder, files, split=2)
    for name in ("_index", "_masterindex"):
        data = (folder / name).read_bytes()
        for place in range(len(data)):
            bad = bytearray(data)
            bad[place] ^= 0x10
            (folder / name).write_bytes(bad)
            try:
                archive = HarArchive(folder)
                found = dict(archive.items())
            except TarkitError:
                continue
            # Offsets, and times, are not protected by anything; the names are, by their folders.
            assert set(found) == set(relative(files))
        (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    "line",
    [
        "%2Fx file part-0 0 9223372036854775807 0+420+a+b \n",
        "%2Fx file part-0 1152921504606846976 1 0+420+a+b \n",
    ],
)
def test_a_size_that_lies_allocates_nothing(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "x.har"
    folder.mkdir()
    index = "%2F dir 0+420+a+b 0 0 x \n" + line
    (folder / "_index").write_text(index)
    (folder / "_masterindex").write_text(f"3 \n0 2147483647 0 {len(index)} \n")
    (folder / "part-0").write_bytes(b"abc")
    archive = HarArchive(folder)
    for act in (lambda: archive.read("x"), lambda: list(archive.items())):
        with pytest.raises(TruncatedError):
            act()


@pytest.mark.parametrize(
    "line",
    [
        "x file part-0 0 1 0+420+a+b \n",
        "%2Fx fifo part-0 0 1 0+420+a+b \n",
        "%2Fx file ../part-0 0 1 0+420+a+b \n",
        "%2Fx file part-0 -1 1 0+420+a+b \n",
        "%2Fx file part-0 0 1 0+420+a \n",
        "%2Fx file part-0 0 \n",
        "%2Fx \n",
        "\n",
        "%2F%FF file part-0 0 1 0+420+a+b \n",
        "%2F dir 0+420+a+b 0 0 \n",
        "%2F..%2Fx file part-0 0 1 0+420+a+b \n",
        "%2Fa%2F%2Fx file part-0 0 1 0+420+a+b \n",
        "%2Fa%2F. dir 0+420+a+b 0 0 \n",
        f"%2Fx file part-{'9' * 5000} 0 1 0+420+a+b \n",
        f"%2Fx file part-0 {'9' * 4300} {'9' * 4300} 0+420+a+b \n",
        f"%2Fx file part-0 0 1 {'9' * 400}+420+a+b \n",
        f"%2Fx file part-0 0 1 0+{'9' * 400}+a+b \n",
        "%2Fy dir 0+420+a+b 0 0 gone \n",
    ],
)
def test_lines_that_cannot_be(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "x.har"
    folder.mkdir()
    index = "%2F dir 0+420+a+b 0 0 \n" + line
    (folder / "_index").write_text(index)
    (folder / "_masterindex").write_text(f"3 \n0 2147483647 0 {len(index)} \n")
    with pytest.raises(DataError, match="_index"):
        HarArchive(folder)


@pytest.mark.parametrize(
    "text",
    [
        "4 \n",
        "0 \n",
        "x \n",
        "\n",
        "",
        "3 \n0 1 0\n",
        "3 \n0 1 5 10 \n",
        "3 \n0 1 0 -1 \n",
        f"3 \n0 1 0 {'9' * 5000} \n",
        "3" * 5000,
    ],
)
def test_master_indexes_that_cannot_be(tmp_path: Path, text: str) -> None:
    harbuild.build(tmp_path / "x.har", FILES)
    (tmp_path / "x.har" / "_masterindex").write_text(text)
    with pytest.raises(DataError, match="_masterindex"):
        HarArchive(tmp_path / "x.har")


# Tar shards.

SAMPLES = [
    {"__key__": "b/2", "jpg": b"jpg 2", "cls": b"2"},
    {"__key__": "a/1", "jpg": b"jpg 1", "cls": b""},
    {"__key__": "c", "seg.png": b"", "txt": "\u00e9".encode()},
]


def shard(path: Path, samples: list[Any]) -> bytes:
    with TarWriter(path, encoder=False) as writer:
        for sample in samples:
            writer.write(sample)
    return path.read_bytes()


def test_tar_to_har_and_back_is_the_same_shard(tmp_path: Path) -> None:
    before = shard(tmp_path / "x.tar", SAMPLES)
    tally = Tally()
    convert(f"{tmp_path}/x.tar", f"{tmp_path}/x.har")
    convert(f"{tmp_path}/x.har", f"{tmp_path}/y.tar", tally=tally)
    assert (tmp_path / "y.tar").read_bytes() == before
    assert (tally.samples, tally.members) == (3, 6)


def test_a_field_that_only_begins_with_underscores_is_kept(tmp_path: Path) -> None:
    before = shard(tmp_path / "x.tar", [{"__key__": "a", "___": b"1", "__mask": b"2", "jpg": b"3"}])
    convert(f"{tmp_path}/x.tar", f"{tmp_path}/x.har")
    assert HarArchive(tmp_path / "x.har").names() == ["a.___", "a.__mask", "a.jpg"]
    convert(f"{tmp_path}/x.har", f"{tmp_path}/y.tar")
    assert (tmp_path / "y.tar").read_bytes() == before


def test_members_of_two_shards_with_one_name(tmp_path: Path) -> None:
    shard(tmp_path / "x-0.tar", SAMPLES[:1])
    shard(tmp_path / "x-1.tar", SAMPLES)
    with pytest.raises(EncodeError, match="has this path already"):
        convert(f"{tmp_path}/x-{{0..1}}.tar", f"{tmp_path}/x.har")
    with pytest.raises(MissingInputError):
        HarArchive(tmp_path / "x.har")


def test_files_that_are_not_samples_and_files_that_are_apart(tmp_path: Path) -> None:
    harbuild.build(tmp_path / "x.har", {"/a.jpg": b"1", "/README": b"2", "/b.jpg": b"3", "/a.cls": b"4", "/.x": b"5"})
    archive, tally = HarArchive(tmp_path / "x.har"), Tally()
    with pytest.raises(DataError, match=r"2 files of the archive cannot be part of a sample.*on_others"):
        list(har_samples(archive))
    with pytest.raises(UsageError):
        list(har_samples(archive, on_others="ignore"))
    found = list(har_samples(archive, on_others="skip", tally=tally))
    assert tally.skipped == {"no-extension": 1, "hidden": 1}
    assert [(s["__key__"], s["jpg"], s.get("cls")) for s in found] == [("a", b"1", b"4"), ("b", b"3", None)]


def test_names_with_dots_that_begin_no_field(tmp_path: Path) -> None:
    harbuild.build(tmp_path / "x.har", {"/img_0.5.jpg": b"1", "/img_0.7.jpg": b"2"})
    archive = HarArchive(tmp_path / "x.har")
    with pytest.raises(DataError, match="two jpg fields of one sample"):
        list(har_samples(archive))
    assert len(list(har_samples(archive, on_same_extension="allow"))) == 1
