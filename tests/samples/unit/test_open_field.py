"""A field of a sample is opened as a file: its bytes, by few reads, or an error that names it."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import DataError, MissingFieldError, StaleIndexError, StreamError
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.read import read_samples
from tarkit.samples.tarwriter import TarWriter
from tarkit.store import ranges
from tarkit.trainers.shardmap import ShardMap

LONG = random.Random(0).randbytes(300_000)


@pytest.fixture
def shard(tmp_path: Path) -> str:
    path = str(tmp_path / "a.tar")
    with TarWriter(path, index=True) as writer:
        for number in range(3):
            key = f"{'folder/' * 30 * (number == 1)}{number}"
            writer.write({"__key__": key, "cls": number, "flac": LONG[number:], "txt": "", "wav": b"%d" % number})
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a shard."""
    found: list[int] = []
    original = ranges.read_range

    def noted(url: str, start: int, stop: int, **more: Any) -> bytes:
        found.append(stop - start)
        return original(url, start, stop, **more)

    monkeypatch.setattr(ranges, "read_range", noted)
    return found


def opened(path: str) -> IndexedShard:
    found = open_indexed(path)
    assert found is not None
    return found


def test_each_field_is_its_bytes(shard: str) -> None:
    samples = ShardMap(shard)
    for number, sample in enumerate(samples):
        for field in ("cls", "flac", "txt", "wav"):
            with samples.open_field(number, field) as file:
                assert file.read() == sample[field]
    with samples.open_field(-1, "wav") as file:
        assert file.read() == b"2"


def test_a_field_of_a_subset(shard: str) -> None:
    for subset in (ShardMap(shard).subset(range(1, 3)), ShardMap(shard, keys=["2"])):
        for number in range(len(subset)):
            assert subset.open_field(number, "wav").read() == subset[number]["wav"]


def test_a_file_at_any_place(shard: str) -> None:
    model, chance = io.BytesIO(LONG[1:]), random.Random(1)
    with opened(shard).open_field(1, "flac") as file:
        for _ in range(300):
            offset, whence = chance.choice(((chance.randrange(310_000), 0), (-chance.randrange(299_000), 2)))
            assert file.seek(offset, whence) == model.seek(offset, whence)
            size = chance.choice((0, 1, 7, 5000, 40_000, -1))
            assert file.read(size) == model.read(size)
            assert file.tell() == model.tell()
        with pytest.raises((OSError, ValueError)):
            file.seek(-1)


def test_only_what_is_needed_is_read(shard: str, reads: list[int]) -> None:
    found = opened(shard)
    reads.clear()
    with found.open_field(0, "flac") as file:
        assert file.read(100) == LONG[:100]
        file.seek(200_000)
        assert file.read(100) == LONG[200_000:200_100]
        file.seek(0)
        assert file.read(100) == LONG[:100], "the beginning is kept"
        file.seek(200_500)
        assert file.read(100) == LONG[200_500:200_600]
    assert reads == [512, 16 << 10, 16 << 10]


def test_other_archives(tmp_path: Path) -> None:
    """Two archives, one behind the other, with members between that are of no sample."""
    written = b""
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
            for name in ("README", f"{number}{'é' * 120}.a", "folder/._x.a", f"{number}{'é' * 120}.b.wav"):
                info = tarfile.TarInfo(name)
                info.size, info.uname = len(name), "ü"
                archive.addfile(info, io.BytesIO(name.encode().ljust(len(name))[: len(name)]))
        written += stream.getvalue()
    path = tmp_path / "a.tar"
    path.write_bytes(written)
    path.with_suffix(".idx").write_bytes(build_index(str(path)).encode())
    samples = ShardMap(str(path))
    assert len(samples) == 2
    for number, sample in enumerate(samples):
        for field in ("a", "b.wav"):
            assert samples.open_field(number, field).read() == sample[field]


def test_what_is_not_there(shard: str) -> None:
    with pytest.raises(MissingFieldError, match=r"a\.tar, key '2': the sample has no field 'mp3'; it has cls, flac"):
        ShardMap(shard).open_field(2, "mp3")
    for number in (3, -1):
        with pytest.raises(IndexError):
            opened(shard).open_field(number, "wav")
    with pytest.raises(IndexError, match=r"sample 3 of 3 samples"):
        ShardMap(shard).open_field(3, "wav")


@pytest.mark.parametrize(
    ("word", "value"),
    [(6, b"299999"), (6, b"9" * 17), (5, b"2048"), (5, b"900000"), (7, b"7.flac"), (2, b"900")],
    ids=["shorter", "longer", "later", "behind the end", "another name", "a longer field before it"],
)
def test_an_index_of_another_shard(shard: str, word: int, value: bytes) -> None:
    index = Path(shard).with_suffix(".idx")
    first = index.read_bytes().splitlines()[1]
    words = first.split(b" ")
    assert words[4:6] == [b"flac", b"1536"]
    words[word] = value
    index.write_bytes(index.read_bytes().replace(first, b" ".join(words)))
    with pytest.raises(DataError, match=r"a\.idx"):
        opened(shard).open_field(0, "flac")


def test_a_shard_that_was_replaced(shard: str) -> None:
    found = opened(shard)
    file = found.open_field(0, "flac")
    file.read(10)
    os.utime(shard, (1, 1))
    with pytest.raises(DataError, match=r"a\.tar: was replaced since its identity was read"):
        found.open_field(0, "flac")
    file.seek(150_000)
    with pytest.raises(StreamError, match=r"a\.tar: was replaced while it was read"):
        file.read(10)


def test_a_field_whose_header_is_another(shard: str) -> None:
    with open(shard, "r+b") as file:
        file.seek(1024)  # the header of 0.flac
        file.write(b"x")
    with pytest.raises(StaleIndexError, match=r"field 'flac' of sample 0 differs from its index"):
        opened(shard).open_field(0, "flac")


def test_a_field_of_a_compressed_shard(shard: str, tmp_path: Path) -> None:
    """Offsets of its index are those of the content."""
    copy = f"{tmp_path}/packed.tar.zst"
    with TarWriter(copy, index=True) as writer:
        for sample in read_samples(shard):
            writer.write({name: value for name, value in sample.items() if name != "__url__"})
    plain, packed = ShardMap(shard), ShardMap(copy)
    for number in range(3):
        with packed.open_field(number, "flac") as file, packed.open_field(number, "wav") as other:
            file.seek(200_000)
            assert file.read(5) == plain[number]["flac"][200_000:200_005]
            assert other.read() == plain[number]["wav"]
            assert file.read(5) == plain[number]["flac"][200_005:200_010]
