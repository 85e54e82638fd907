"""Plain local files that are read here and there, and copied by the kernel."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tarbuild import END, header, member

from tarkit import TarWriter, read_samples
from tarkit.errors import StreamError, TarkitError, TemporaryStreamError
from tarkit.formats.tar import large
from tarkit.samples.shardwriter import ShardWriter
from tarkit.store import inplace
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
from tarkit.store.sinks import FileSink

FILES = {"a.cls": b"1", "a.jpg": os.urandom(3000), "b.cls": b"2", "b.jpg": bytes(2000), "c.cls": b"3", "c.jpg": b""}
DATA = b"".join(member(name.encode(), content) for name, content in FILES.items()) + END


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "IN_PLACE", 500)
    monkeypatch.setattr(inplace, "_SMALL", 600)


def outcome(path: Path, **options: Any) -> tuple[list[dict[str, Any]], str]:
    """The samples until the end or an error, and the error."""
    samples: list[dict[str, Any]] = []
    try:
        for sample in read_samples(str(path), **options):
            samples.append({name: v.read() if isinstance(v, FieldFile) else v for name, v in sample.items()})
    except TarkitError as error:
        return samples, str(error)
    return samples, ""


def test_large_content_stays_in_the_shard(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(DATA)
    samples = list(read_samples(str(path), in_place=True))
    assert [type(sample["jpg"]) for sample in samples] == [FieldFile, FieldFile, bytes]
    assert outcome(path, in_place=True) == outcome(path)
    assert outcome(path, in_place=True)[1] == ""


def damaged() -> Iterator[bytes]:
    yield from (DATA[:end] for end in range(0, len(DATA), 131))
    for at in range(0, len(DATA), 101):
        yield DATA[:at] + bytes([DATA[at] ^ 0x41]) + DATA[at + 1 :]
    yield member(b"a.jpg", b"x" * 900)[:512] + END
    yield header(b"a.jpg", size=1 << 50) + END
    yield DATA + DATA
    yield DATA + b"tail"


@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_cuts_and_damage_are_found_as_in_a_stream(tmp_path: Path, on_damage: str) -> None:
    path = tmp_path / "x.tar"
    for data in damaged():
        path.write_bytes(data)
        assert outcome(path, in_place=True, on_damage=on_damage) == outcome(
            path, on_damage=on_damage, large=large.KeepInFiles()
        )


def test_a_shard_that_is_changed_or_cut_before_its_content_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(DATA)
    first = next(read_samples(str(path), in_place=True))
    os.utime(path, ns=(1, 1))
    with pytest.raises(TemporaryStreamError, match=r"x.tar, member 'a.jpg': the file was changed while it was read"):
        first["jpg"].read()
    os.truncate(path, 2000)
    with (
        pytest.raises(StreamError, match="the file was cut while it was read: 2536 of 3000"),
        TarWriter(str(tmp_path / "o.tar"), encoder=False) as writer,
    ):
        writer.write({"__key__": "a", "jpg": FieldFile.keep([b"x" * 70_000]), "txt": first["jpg"]})
    assert not (tmp_path / "o.tar").exists()


@pytest.fixture(params=["kernel", "refused", "missing", "nothing"])
def _copying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How copy_file_range answers."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EXDEV, "of two file systems")

    if request.param == "missing":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif request.param != "kernel":
        monkeypatch.setattr(os, "copy_file_range", refuse if request.param == "refused" else lambda *_: 0)


@pytest.mark.usefixtures("_copying")
@pytest.mark.parametrize("more", [{}, {"checksum": "sha256"}, {"compress": "gz"}])
def test_content_is_copied_in_whatever_way(tmp_path: Path, more: dict[str, Any]) -> None:
    content = os.urandom(200_000)
    out = tmp_path / "o.tar"
    source = FieldFile.keep([content])
    with TarWriter(str(out), encoder=False, **more) as writer:
        writer.write({"__key__": "a", "bin": source, "cls": b"1"})
        writer.write({"__key__": "b", "bin": source.part(1000, 100_000), "cls": b"2"})
    if "checksum" in more:
        assert writer.checksum_of_file() == (out.stat().st_size, hashlib.sha256(out.read_bytes()).hexdigest())
    plain = io.BytesIO()
    with TarWriter(plain, encoder=False) as writer:
        writer.write({"__key__": "a", "bin": content, "cls": b"1"})
        writer.write({"__key__": "b", "bin": content[1000:101_000], "cls": b"2"})
    with open_read(out) as stream:
        assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == plain.getvalue()


def test_no_room_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full, raising=False)
    monkeypatch.setattr(sys.modules[FileSink.__module__], "write_all", full)
    stream = open_publish(tmp_path / "o")
    for data in (FieldFile.keep([b"x" * 1000]), b"more"):
        with pytest.raises(StreamError, match="o: no space left on device"):
            stream.write(data)
    assert os.listdir(tmp_path) == []


def test_a_series_is_written_from_shards_in_place(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(DATA)
    for name, in_place in (("p", True), ("q", False)):
        with ShardWriter(str(tmp_path / f"{name}-%d.tar"), maxcount=2, encoder=False) as writer:
            for sample in read_samples(str(path), in_place=in_place):
                writer.write(sample)
    for number in range(2):
        assert (tmp_path / f"p-{number}.tar").read_bytes() == (tmp_path / f"q-{number}.tar").read_bytes()
