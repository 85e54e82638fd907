"""Raw samples have the bytes of their members, wherever these lie in the archive."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import pytest

from tarkit import read_samples
from tarkit.errors import DuplicateFieldError, RepeatedKeyError
from tarkit.formats.tar import raw
from tarkit.formats.tar.headers import END_OF_ARCHIVE
from tarkit.formats.tar.large import KeepInFiles
from tarkit.samples.rawsamples import RawSample, raw_samples
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import FieldFile


def as_bytes(content: bytes | FieldFile) -> bytes:
    return content if isinstance(content, bytes) else content.read()


def as_sample(sample: RawSample) -> Sample:
    """The sample, after its bytes were compared with its words by tarfile."""
    data = b"".join(map(as_bytes, sample.parts))
    assert len(data) == sample.size
    words = sample.words.decode().split("\0")
    with tarfile.open(fileobj=io.BytesIO(data + END_OF_ARCHIVE)) as archive:
        members = archive.getmembers()
    assert [(each.name, str(each.size), str(each.offset_data)) for each in members] == list(
        zip(words[3::4], words[2::4], words[1::4], strict=True)
    )
    return {"__key__": sample.key, **{name: as_bytes(value) for name, value in sample.fields().items()}}


def odd_archive(rng: random.Random, number: int) -> bytes:
    """One or two archives, with long names, folders and files of no sample between the members."""
    whole = b""
    for part in range(rng.choice([1, 1, 2])):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as tar:
            for each in range(rng.randint(0, 20)):
                key = f"{number}-{part}-{each}" + "x" * rng.choice([0, 0, 120]) + rng.choice(["", "é"])
                for field in rng.sample(["jpg", "cls", "json", "a.b"], rng.randint(1, 3)):
                    for other in [".hidden", "__meta__/x", "none", "dir/.b"] if rng.random() < 0.1 else []:
                        tar.addfile(tarfile.TarInfo(other))
                    content = rng.randbytes(rng.choice([0, 1, 511, 512, 513, 5000, rng.choice([7, 300_000])]))
                    member = tarfile.TarInfo(f"{key}.{field}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        whole += buffer.getvalue()
    return whole


@pytest.mark.parametrize("limits", [None, (2000, 6000)], ids=["in memory", "large in files"])
def test_they_have_the_content_that_the_reader_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int] | None
) -> None:
    rng = random.Random(1)
    if limits is not None:
        monkeypatch.setattr(raw._KeepLarge, "__init__", lambda self: KeepInFiles.__init__(self, None, *limits))
    shard = tmp_path / "odd.tar"
    for number in range(40):
        shard.write_bytes(odd_archive(rng, number))
        plain = [{k: v for k, v in sample.items() if k != "__url__"} for sample in read_samples(str(shard))]
        assert [as_sample(each) for each in raw_samples(str(shard), globals_seen=[])] == plain


def test_the_last_sample_has_its_bytes_though_zeros_follow(tmp_path: Path) -> None:
    shard = tmp_path / "zeros.tar"
    with tarfile.open(shard, "w") as tar:
        for key in "ab":
            member = tarfile.TarInfo(f"{key}.txt")
            member.size = 700
            tar.addfile(member, io.BytesIO(key.encode() * 700))
    with shard.open("ab") as file:
        file.write(bytes(1 << 20))
    assert [each.fields()["txt"] for each in raw_samples(str(shard), globals_seen=[])] == [b"a" * 700, b"b" * 700]


@pytest.mark.parametrize(
    ("names", "error"), [(["a.x", "b.x", "a.y"], RepeatedKeyError), (["a.x", "a.y", "a.x"], DuplicateFieldError)]
)
def test_a_key_or_field_that_comes_back_is_an_error(tmp_path: Path, names: list[str], error: type[Exception]) -> None:
    shard = tmp_path / "twice.tar"
    with tarfile.open(shard, "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(error, match=r"twice\.tar, offset 1024, member"):
        list(raw_samples(str(shard), globals_seen=[]))
