"""Indexes that are written with their shards: what reading the shard gives, and never one of
another shard.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tarkit
from tarkit.errors import EncodeError, StreamError, UsageError
from tarkit.runs.work import Work
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.tarwriter import TarWriter
from tarkit.samples.writtenindex import WrittenIndex
from tarkit.store.fieldfile import FieldFile

SAMPLES = [{"__key__": f"k{number}", "txt": b"x" * number * 300, "cls": b"%d" % number} for number in range(8)]


def write(path: Path, samples: list[dict[str, Any]] = SAMPLES, **options: Any) -> Path:
    with TarWriter(str(path), encoder=False, index=True, **options) as sink:
        for sample in samples:
            sink.write(sample)
    return path


def is_indexed(path: Path) -> bool:
    """Whether the index is that of reading the shard."""
    return path.with_suffix(".idx").read_bytes() == build_index(str(path)).encode()


KEYS = st.text("abé/. %\n", min_size=1, max_size=130)
FIELDS = st.dictionaries(
    st.sampled_from(["cls", "jpg", "seg.png", "x y", "__meta__", "y" * 110, "ö"]),
    st.integers(0, 2000).map(bytes),
    min_size=1,
)


@given(st.lists(st.tuples(KEYS, FIELDS), max_size=6), st.sampled_from(["pax", "gnu", "ustar"]), st.data())
def test_the_bytes_that_reading_the_shard_gives(
    samples: list[tuple[str, dict[str, bytes]]], format: str, data: st.DataObject
) -> None:
    url = "memory://written-index/h.tar"
    rule = data.draw(st.sampled_from(["first-dot", "last-dot"]))
    with TarWriter(url, encoder=False, index=True, format=format, keep_meta=True, rule=rule) as sink:
        for key, fields in samples:
            try:
                sink.write({"__key__": key, **fields})
            except EncodeError:
                continue
            if data.draw(st.booleans()):
                sink.separate()
    written = fsspec.filesystem("memory").cat("/written-index/h.idx")
    assert written == build_index(url, rule=rule).encode()


def test_large_fields_and_several_samples_at_once(tmp_path: Path) -> None:
    large = FieldFile.keep([bytes(1 << 20)], str(tmp_path), url="", member="")
    with TarWriter(str(tmp_path / "a.tar"), encoder=False, index=True) as sink:
        sink.write_all(SAMPLES[:2])
        sink.write({"__key__": "large", "a": large, "b": bytes(300_000), "c": b""})
        with pytest.raises(EncodeError):
            sink.write_all([SAMPLES[3], SAMPLES[0]])
        sink.write_all(SAMPLES[2:])
    assert is_indexed(tmp_path / "a.tar")
    assert len(build_index(str(tmp_path / "a.tar"))) == 9


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (io.BytesIO(), {}, "the shard must have a name, not be a file object"),
        ("-", {}, "-: only a shard whose name ends in .tar, .tar.zst, .tzst, .tar.gz or .tgz has an index$"),
        ("pipe:cat > a.tar", {}, "only a shard whose name ends in .tar"),
        ("a.tar.gz", {}, "a.tar.gz: a shard compressed by gzip is not written with an index; name it .tar.zst"),
        ("a.tar.xz", {}, "a.tar.xz: only a shard whose name .*; unpack it: tarkit cat a.tar.xz -o OUT.tar"),
        ("train", {}, r"; name the shards of a folder, such as 'train/\*\.tar'$"),
        ("v1.0/train/", {}, r"; name the shards of a folder, such as 'v1\.0/train/\*\.tar'$"),
        ("a.idx", {}, "a.idx: only a shard whose name .*; name the shard, not its index$"),
        ("a.tar.zst", {"compress": False}, "a.tar.zst is not to be compressed; with an index, its name must say that"),
        ("a.tar.zst", {"compress": "gz"}, r"a.tar.zst is to be compressed \(gz\); with an index"),
        ("a.tar", {"compress": "zst"}, r"a.tar is to be compressed \(zst\); with an index, its name must say that"),
        ("a.tar", {"compress": True}, r"to be compressed \(gz\)"),
        ("a.tar", {"on_repeated_key": "allow"}, "a shard with repeated keys has no index"),
    ],
)
def test_shards_that_can_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        TarWriter(target, index=True, **options)
    assert os.listdir() == []


def test_compression_that_is_switched_off(tmp_path: Path) -> None:
    assert is_indexed(write(tmp_path / "a.tar", compress=False))


def test_the_index_of_the_shard_that_is_replaced_is_gone_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tar")
    events = []
    monkeypatch.setattr(
        "tarkit.store.publish.PublishStream.commit",
        lambda self, commit=tarkit.store.publish.PublishStream.commit: (
            events.append((Path(self.name).name, path.with_suffix(".idx").exists())),
            commit(self),
        ),
    )
    write(path, SAMPLES[:3])
    assert events == [("a.tar", False), ("a.idx", False)]
    assert is_indexed(path)


@pytest.mark.parametrize("error", [StreamError("full"), KeyboardInterrupt()])
def test_an_index_that_cannot_be_written_is_not_that_of_another_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = write(tmp_path / "a.tar")

    def fail(index: WrittenIndex) -> None:
        raise error

    monkeypatch.setattr(WrittenIndex, "publish", fail)
    with pytest.raises(type(error)):
        write(path, SAMPLES[:3])
    assert os.listdir(tmp_path) == ["a.tar"]
    assert len(list(tarkit.read_samples(str(path)))) == 3


def test_what_is_discarded_leaves_shard_and_index_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar")
    with pytest.raises(ZeroDivisionError), TarWriter(str(path), index=True) as sink:
        sink.write({"__key__": "a", "cls": 1})
        _ = 1 / 0
    assert is_indexed(path)
    assert len(build_index(str(path))) == 8


def test_close_twice(tmp_path: Path) -> None:
    sink = TarWriter(str(tmp_path / "a.tar"), index=True)
    sink.close()
    (tmp_path / "a.idx").unlink()
    sink.close()
    sink.discard()
    assert os.listdir(tmp_path) == ["a.tar"]


def test_a_series(tmp_path: Path) -> None:
    seen = []
    with tarkit.ShardWriter(
        f"{tmp_path}/a-%02d.tar", 3, encoder=False, index=True, post=lambda name: seen.append(is_indexed(Path(name)))
    ) as sink:
        for sample in SAMPLES:
            sink.write(sample)
    assert seen == [True, True, True]
    counts = [len(shard) for name in sink.shards if (shard := open_indexed(name)) is not None]
    assert counts == [3, 3, 2]


@pytest.mark.parametrize(
    ("pattern", "options"),
    [("a-%d.tar.gz", {}), ("a-%d.tar", {"compress": "gz"}), ("a-%d.tar", {"opener": io.BytesIO}), ("%d.x", {})],
)
def test_a_series_that_can_have_none(tmp_path: Path, pattern: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="index"):
        tarkit.ShardWriter(f"{tmp_path}/{pattern}", index=True, **options)
    assert os.listdir(tmp_path) == []


# Runs


def upper(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["__key__"] == "k2" else {**sample, "new": b"x" * int(sample["cls"])}


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    for number in range(3):
        with TarWriter(str(tmp_path / f"in-{number}.tar"), encoder=False) as sink:
            for sample in SAMPLES[number:]:
                sink.write(sample)
    return [str(tmp_path / f"in-{number}.tar") for number in range(3)]


def test_an_index_does_not_change_the_fingerprint() -> None:
    work = Work(inputs=("a.tar",), outdir="out", command="true")
    assert work.fingerprint() == Work(inputs=("a.tar",), outdir="out", command="true", index=True).fingerprint()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--index goes with -o or -O"),
        ({"output": "-"}, "only a shard whose name ends in"),
        ({"output": "out.tgz"}, "out.tgz: a shard compressed by gzip is not written with an index"),
        ({"output": "out.tar", "on_repeated_key": "allow"}, "--index does not go with --on-repeated-key allow"),
    ],
)
def test_runs_that_cannot_write_one(inputs: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tarkit.process(inputs[0], function=upper, index=True, **options)
