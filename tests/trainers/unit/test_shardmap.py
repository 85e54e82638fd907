"""Samples by number are those that reading the whole shard gives; ranks are found or refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import resource
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from tarkit.errors import DataError, MissingInputError, StaleIndexError, UsageError, shortened
from tarkit.samples.index import build_index, publish_index
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.samples.shardwriter import ShardWriter
from tarkit.samples.tarwriter import TarWriter
from tarkit.trainers import openshards
from tarkit.trainers.shardmap import ShardMap
from tarkit.world import consumer


def write(path: Path, *samples: Sample) -> None:
    with TarWriter(str(path), index=True) as writer:
        for sample in samples:
            writer.write(sample)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shard, count in enumerate((3, 0, 5)):
        write(
            tmp_path / f"s-{shard}.tar",
            *({"__key__": f"k{shard}{n}", "txt": b"%d" % n, "bin": bytes(n * 300)} for n in range(count)),
        )
    return tmp_path


def test_all_samples_by_number(folder: Path) -> None:
    every = list(read_samples(f"{folder}/s-{{0..2}}.tar"))
    samples = ShardMap(f"{folder}/s-{{0..2}}.tar")
    assert (len(samples), samples.counts) == (8, [3, 0, 5])
    assert [samples[number] for number in range(8)] == every
    assert [samples[number] for number in range(-8, 0)] == every


def test_samples_of_several_shards_at_once(folder: Path) -> None:
    """Neighbours are read at once, and the others one by one."""
    every = list(read_samples(f"{folder}/s-{{0..2}}.tar"))
    places = [(2, 3), (2, 4), (0, 0), (0, 1), (0, 2), (2, 0), (2, 2), (2, 1), (2, 1), (0, 2)]
    taken = list(ShardMap(f"{folder}/s-{{0..2}}.tar").take(places))
    assert taken == [every[number + (3 if shard else 0)] for shard, number in places]


def _descriptors(folder: Path) -> int:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and str(folder) in os.readlink(link) for link in links)


@pytest.mark.parametrize(("held", "soft", "most"), [(None, 8, 2), (1, 1000, 1), (None, resource.RLIM_INFINITY, 4)])
def test_shards_that_are_held_and_their_descriptors(
    tmp_path: Path, held: int | None, soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, soft))
    openshards._most_files.cache_clear()
    for shard in range(4):
        write(tmp_path / f"s-{shard}.tar", *({"__key__": f"k{shard}{n}", "txt": b"%d" % n} for n in range(3)))
    samples = ShardMap(f"{tmp_path}/s-{{0..3}}.tar", held=held)
    for number in (0, 3, 6, 9, 1, 4, 11, 2, 0, 5):
        assert samples[number]["__key__"] == f"k{number // 3}{number % 3}"
        assert _descriptors(tmp_path) <= most
    assert _descriptors(tmp_path) == most
    openshards._most_files.cache_clear()


def _other_line(folder: Path, old: bytes, new: bytes) -> ShardMap:
    index = folder / "s-2.idx"
    text = index.read_bytes()
    assert text.count(old) == 1
    index.write_bytes(text.replace(old, new))
    return ShardMap(str(folder / "s-2.tar"))


@pytest.mark.parametrize(
    ("old", "new", "message", "wrong"),
    [
        (b"1 k23.txt", b"1 k23,txt", "line 5: its names are not those of one sample by this key rule", [3]),
        (b"1 k23.txt", b"1 k21.txt", "line 5: the key comes back after other samples", [0, 1, 2, 3, 4]),
        (b"1 k23.txt", b"2 k23.txt", "sample 3 differs from its index", [3]),
        (b" 1 k23.txt", b" k23.txt", "line 5: it is not field, offset, size and name of each member", [3, 4]),
        (b" 1 k23.txt", b" 1x k23.txt", "line 5: it is not field, offset, size and name of each member", [3, 4]),
        (b" 1 k23.txt", b" 999999999999 k23.txt", "line 6: no member begins at", [3, 4]),
    ],
)
def test_another_line_of_an_index_is_wrong(
    folder: Path, old: bytes, new: bytes, message: str, wrong: list[int]
) -> None:
    """It is found when its sample is wanted, or when the key is looked for.

    That a key comes back, when a second sample is: the first is compared with its own line alone.
    """
    samples = _other_line(folder, old, new)
    expected = list(read_samples(str(folder / "s-2.tar")))
    assert samples[1] == expected[1]
    for number in range(5):
        if number in wrong:
            with pytest.raises(DataError, match=message) as found:
                samples[number]
            assert re.search(r"s-2\.(idx|tar)", str(found.value.url))
        else:
            assert samples[number] == expected[number]
    with pytest.raises(DataError, match=r"s-2\.(idx|tar)"):
        (samples[0], samples[3])


@pytest.mark.parametrize(("old", "new"), [(b"1 k23.txt", b"1 k23,txt"), (b"1 k22.txt", b"513 k22.txt")])
def test_its_own_line_or_the_one_before_is_wrong(folder: Path, old: bytes, new: bytes) -> None:
    with pytest.raises(DataError, match=r"s-2\.(idx|tar)"):
        _other_line(folder, old, new)[3]


@pytest.mark.parametrize("number", [1, 2])
def test_half_a_sample_is_never_given(tmp_path: Path, number: int) -> None:
    """Not even as the first sample that is read of a shard, of which the keys of all others are not
    looked at yet.
    """
    shard, index = tmp_path / "s.tar", tmp_path / "s.idx"
    with TarWriter(str(shard), index=True) as sink:
        for key in ("a", "b", "c"):
            sink.write({"__key__": key, "jpg": b"x", "txt": "y"})
    _, *lines = index.read_bytes().splitlines()
    words = lines[1].split()
    lines[1:2] = [b" ".join(words[:4]), b" ".join(words[4:])]
    index.write_bytes(b"\n".join([b"v1.2 4", *lines, b""]))
    with pytest.raises(DataError, match="line 4: the key comes back after other samples") as found:
        ShardMap(str(shard))[number]
    assert str(found.value.url) == str(index)


@pytest.mark.parametrize("bit", [0, 4, 6])
def test_flipped_bits_of_an_index_give_the_sample_or_an_error_of_the_data(folder: Path, bit: int) -> None:
    index = folder / "s-2.idx"
    text, sample = index.read_bytes(), ShardMap(str(folder / "s-2.tar"))[3]
    for at in range(
        text.rindex(b"\n", 0, -1), len(text)
    ):  # of the last line, with which the end of a shard is compared
        index.write_bytes(text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :])
        with suppress(DataError):
            assert ShardMap(str(folder / "s-2.tar"))[3] == sample


def test_a_shard_that_is_listed_twice_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As by two specs that overlap: one may want it, but not without a word."""
    assert len(ShardMap([f"{folder}/s-0.tar", f"{folder}/s-{{0..2}}.tar"])) == 3 + 8
    assert caplog.messages == [f"{folder}/s-0.tar is listed 2 times, and each time its samples count as others"]


def test_a_size_that_no_shard_has(folder: Path) -> None:
    """So much memory is not asked for."""
    with pytest.raises(DataError, match=r"s-2\.idx: line 6: no member begins at offset"):
        _other_line(folder, b"1 k23.txt", b"999999999999999999 k23.txt")[3]


@pytest.mark.parametrize("number", [8, -9])
def test_numbers_that_are_not(folder: Path, number: int) -> None:
    with pytest.raises(IndexError, match=f"^sample {number} of 8 samples$"):
        ShardMap(f"{folder}/s-{{0..2}}.tar")[number]


@pytest.mark.parametrize("wanted", [slice(0, 3), "0-1", 1.0])
def test_no_number_at_all(folder: Path, wanted: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{wanted!r} is not the number of a sample; subset(slice) gives a")):
        ShardMap(f"{folder}/s-{{0..2}}.tar")[wanted]


def test_no_shard_at_all() -> None:
    with pytest.raises(UsageError, match=r"^a data set names no shards$"):
        ShardMap([])


def test_a_shard_that_is_not_there(folder: Path) -> None:
    with pytest.raises(MissingInputError, match=r"s-7\.tar: no such file"):
        ShardMap(str(folder / "s-7.tar"))


def test_a_shard_without_an_index(folder: Path) -> None:
    os.unlink(folder / "s-2.idx")
    with pytest.raises(UsageError, match=r"s-2\.tar has no index .*s-2\.idx: make it by tarkit index .*s-2\.tar$"):
        ShardMap(f"{folder}/s-{{0..2}}.tar")


def listing(folder: Path, *counts: int, **more: int) -> str:
    """A manifest of the three shards, with these counts."""
    entries = [{"url": f"s-{shard}.tar", "nsamples": count, **more} for shard, count in enumerate(counts)]
    (folder / "d.json").write_text(json.dumps({"wids_version": 1, "shardlist": entries}))
    return str(folder / "d.json")


def test_a_manifest_instead_of_shards(folder: Path) -> None:
    every = list(read_samples(f"{folder}/s-{{0..2}}.tar"))
    manifest = listing(folder, 3, 0, 5)
    for urls in (manifest, Path(manifest), [manifest], (each for each in [manifest])):
        samples = ShardMap(urls)
        assert (len(samples), samples.counts) == (8, [3, 0, 5])
        assert [samples[number] for number in range(8)] == every
    samples = ShardMap([f"{folder}/s-2.tar", manifest])
    assert samples.counts == [5, 3, 0, 5]
    assert samples[5] == every[0]


def test_shards_and_manifest_in_a_store() -> None:
    url = "memory://shardmap/d.json"
    with ShardWriter("memory://shardmap/s-%d.tar", maxcount=2, manifest=url) as writer:
        for number in range(5):
            writer.write({"__key__": f"k{number}", "txt": b"%d" % number})
    listed, counted = ShardMap(url), ShardMap("memory://shardmap/s-{0..2}.tar")
    assert listed.counts == counted.counts == [2, 2, 1]
    assert (
        [listed[n]["txt"] for n in range(5)] == [counted[n]["txt"] for n in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    )
    fsspec.filesystem("memory").rm("/shardmap/s-1.idx")
    with pytest.raises(UsageError, match=r"s-1\.tar has no index memory://shardmap/s-1\.idx: make it by tarkit index"):
        ShardMap("memory://shardmap/s-{0..2}.tar")


def test_nothing_but_the_manifest_is_read_to_open_it(folder: Path) -> None:
    manifest = listing(folder, 3, 0, 5)
    first = ShardMap(manifest)[0]
    os.unlink(folder / "s-1.tar")
    os.unlink(folder / "s-2.idx")
    samples = ShardMap(manifest)
    assert (len(samples), samples[0]) == (8, first)
    with pytest.raises(UsageError, match=r"s-2\.tar has no index .*s-2\.idx: make it by tarkit index .*s-2\.tar$"):
        samples[7]
    os.unlink(folder / "s-2.tar")
    with pytest.raises(MissingInputError, match=r"s-2\.tar: no such file$"):
        ShardMap(manifest)[7]


@pytest.mark.parametrize("wrong", [4, 6])
def test_a_manifest_that_counts_one_more_or_less(folder: Path, wrong: int) -> None:
    samples = ShardMap(listing(folder, 3, 0, wrong))
    assert samples[2]["__key__"] == "k02"
    message = rf"s-2\.tar: it has 5 samples by .*/s-2\.idx, and {wrong} by .*/d\.json; make index and manifest anew"
    for ask in (3, -1):
        with pytest.raises(DataError, match=message):
            samples[ask]


def test_a_manifest_with_another_size(folder: Path) -> None:
    samples = ShardMap(listing(folder, 3, 0, 5, filesize=10240))
    assert samples[0]["__key__"] == "k00"
    os.truncate(folder / "s-2.tar", 20480)
    with pytest.raises(DataError, match=r"s-2\.tar: it has 20480 bytes, and 10240 by .*/d\.json"):
        samples[3]


def test_a_shard_that_is_written_again_after_its_samples_were_counted(folder: Path) -> None:
    samples = ShardMap(f"{folder}/s-{{0..2}}.tar")
    write(folder / "s-2.tar", {"__key__": "other", "txt": b"x"})
    message = r"it has 1 samples by .*/s-2\.idx, and 5 by the index that was there when the data set was opened"
    with pytest.raises(DataError, match=message):
        samples[3]


@pytest.mark.parametrize("text", [b"", b"v1.2 3", b"v1.1 3\n", b"v1.2 " + b"1" * 40 + b"\n", bytes(600)])
def test_a_first_line_that_has_no_count(folder: Path, text: bytes) -> None:
    (folder / "s-0.idx").write_bytes(text)
    with pytest.raises(
        DataError, match=r"s-0\.idx: its first line is not v1\.2, or tarkit-v1, and the number of samples"
    ):
        ShardMap(f"{folder}/s-{{0..2}}.tar")


def test_it_goes_to_another_process_and_holds_few_shards(folder: Path) -> None:
    samples = ShardMap(f"{folder}/s-{{0..2}}.tar", held=1)
    (samples[0], samples[7])
    assert pickle.loads(pickle.dumps(samples))[7] == samples[-1]
    assert len(samples.shards._open) == 1


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_others(tmp_path: Path, form: int) -> None:
    """Long names, sizes in extended headers, and members between samples that belong to none."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=form) as tar:
        for number in range(4):
            for field in ("txt", "é.bin" if form != tarfile.USTAR_FORMAT else "bin"):
                folder = "d" * (90 if form == tarfile.USTAR_FORMAT else 200)
                name = f"{folder if number % 2 else 'd'}/k{number}.{field}"
                info = tarfile.TarInfo(name)
                info.size = 700 * number
                if form == tarfile.PAX_FORMAT and number == 2:
                    info.pax_headers = {"comment": "c", "mtime": "1.5"}
                tar.addfile(info, io.BytesIO(bytes([number]) * info.size))
            tar.addfile(tarfile.TarInfo("README"))
    publish_index(build_index(str(path)), str(path))
    samples = ShardMap(str(path))
    assert [samples[number] for number in (3, 1, 0, 2)] == [list(read_samples(str(path)))[n] for n in (3, 1, 0, 2)]


def damaged(path: Path, at: int, to: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(to)


@pytest.mark.parametrize("keep_time", [False, True])
@pytest.mark.parametrize(
    ("at", "to", "kind"),
    [
        (0, b"x", DataError),  # the name, so the checksum
        (148, b"x", DataError),  # the checksum, which is no number
        (156, b"L", DataError),  # the kind: another member's name
        (0, None, StaleIndexError),  # another name, with its checksum
    ],
)
def test_a_shard_that_changes_while_it_is_read(
    folder: Path, at: int, to: bytes | None, kind: type[DataError], keep_time: bool
) -> None:
    path = folder / "s-0.tar"
    samples = ShardMap(str(path))
    before = os.stat(path)
    assert samples[0]["__key__"] == "k00"
    if to is None:
        other = tarfile.TarInfo("j00.bin").tobuf(tarfile.USTAR_FORMAT)
        to = other[:512]
    damaged(path, at, to)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(kind if keep_time else DataError):
        samples[0]


def test_another_shard_takes_its_place(folder: Path) -> None:
    samples = ShardMap(f"{folder}/s-2.tar")
    assert samples[1]["txt"] == b"1"
    write(folder / "new.tar", *({"__key__": f"k2{n}", "txt": b"%d" % (n + 5), "bin": bytes(n * 300)} for n in range(5)))
    os.replace(folder / "new.tar", folder / "s-2.tar")
    found = samples[1]
    assert found["txt"] == b"1", "the shard that it opened is read to its end"
    with pytest.raises(DataError, match="was replaced since its identity was read"):
        list(samples.shards.get(0).samples(0, 5))


@pytest.mark.parametrize(
    ("rank", "world", "environ", "expected"),
    [
        (None, None, {}, (0, 1)),
        (2, 3, {"RANK": "0", "WORLD_SIZE": "9"}, (2, 3)),
        (None, None, {"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
        (None, None, {"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
    ],
)
def test_ranks(rank: int | None, world: int | None, environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert consumer(rank, world, environ) == expected


@pytest.mark.parametrize(
    ("rank", "world", "environ", "message"),
    [
        (1, None, {}, "rank and world are 1 and None; give both or neither"),
        (3, 3, {}, "rank and world are 3 and 3; a rank is 0 to 2"),
        (None, None, {"RANK": "1"}, "RANK and WORLD_SIZE are 1 and None; give both or neither"),
        (None, None, {"RANK": "4", "WORLD_SIZE": "4"}, "RANK and WORLD_SIZE are 4 and 4; a rank is 0 to 3"),
        (None, None, {"RANK": "x", "WORLD_SIZE": "4"}, "RANK is 'x' and WORLD_SIZE is '4'; both must be numbers"),
        (
            None,
            None,
            {"RANK": "0", "WORLD_SIZE": "9" * 5000},
            f"RANK is '0' and WORLD_SIZE is {shortened(repr('9' * 5000))}; both must be numbers",
        ),
    ],
)
def test_ranks_that_cannot_be(rank: int | None, world: int | None, environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        consumer(rank, world, environ)


def test_a_process_group_goes_first_and_may_not_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert consumer(environ={}) == consumer(environ={"RANK": "1", "WORLD_SIZE": "2"}) == (1, 2)
    assert consumer(environ={"WORLD_SIZE": "2"}) == (1, 2), "Lightning's launcher sets no RANK"
    for rank, world in (("0", "2"), ("1", "3"), ("x", "2")):
        with pytest.raises(UsageError, match=f"torch.distributed has 1 of 2 and RANK and WORLD_SIZE have {rank} of"):
            consumer(environ={"RANK": rank, "WORLD_SIZE": world})
    with pytest.raises(UsageError, match=r"torch.distributed has 1 of 2 and RANK and WORLD_SIZE have None of 3"):
        consumer(environ={"WORLD_SIZE": "3"})
