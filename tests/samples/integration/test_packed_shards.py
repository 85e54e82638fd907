"""Compressed shards of several programs give the samples of the plain tar, wherever they are."""

from __future__ import annotations

import importlib.util
import logging
import pickle
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import FaultServer

import tarkit
from tarkit.errors import CompressionError, DataError, StaleIndexError, TemporaryStreamError, UsageError
from tarkit.names.outputnames import index_url, seek_url
from tarkit.readers.tar import TarDataReader
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import IndexedShard, open_indexed
from tarkit.samples.indexing import ensure_index, index_all
from tarkit.samples.sample import Sample
from tarkit.samples.shardwriter import ShardWriter
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers.shardlist import NoIndexError
from tarkit.trainers.shardmap import ShardMap

COUNT = 300

needs_gzip = pytest.mark.skipif(
    importlib.util.find_spec("indexed_gzip") is None, reason="NO indexed_gzip, NO .tar.gz IS READ BY NUMBER"
)
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="NO PROGRAM zstd, WHICH JUDGES WHAT IS WRITTEN")


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    drawn = random.Random(3)
    sizes = [drawn.choice((0, 10, 9_000, 30_000)) for _ in range(COUNT)]
    return [{"__key__": f"d/{n:04d}", "bin": drawn.randbytes(size), "cls": b"%d" % n} for n, size in enumerate(sizes)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, samples: list[Sample]) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    for name in ("a.tar", "a.tar.zst"):
        with tarkit.TarWriter(str(folder / name), index=True) as writer:
            writer.write_all(samples)
    return folder


def same(found: list[Sample], wanted: list[Sample]) -> bool:
    return [each | {"__url__": ""} for each in found] == [each | {"__url__": ""} for each in wanted]


def by_tar(folder: Path, *options: str | Path) -> None:
    names = subprocess.run(["tar", "-tf", folder / "a.tar"], check=True, capture_output=True, text=True).stdout
    (folder / "files").mkdir()
    subprocess.run(["tar", "-xf", folder / "a.tar", "-C", folder / "files"], check=True)
    subprocess.run(["tar", "-C", folder / "files", *options, *names.split()], check=True)


def by_gzip(folder: Path, packed: Path) -> None:
    packed.write_bytes(subprocess.run(["gzip", "-c", folder / "a.tar"], check=True, capture_output=True).stdout)


MADE: dict[str, tuple[str, Any]] = {
    "tarkit": ("b.tar.zst", lambda folder, packed: shutil.copy(folder / "a.tar.zst", packed)),
    "one frame": (
        "b.tzst",
        lambda folder, packed: subprocess.run(["zstd", "-q", folder / "a.tar", "-o", packed], check=True),
    ),
    "gzip": ("b.tar.gz", by_gzip),
    "tar -z": ("b.tgz", lambda folder, packed: by_tar(folder, "-czf", packed)),
}


@pytest.fixture(
    scope="module",
    params=[
        "tarkit",
        pytest.param("one frame", marks=needs_zstd),
        pytest.param("gzip", marks=needs_gzip),
        pytest.param("tar -z", marks=needs_gzip),
    ],
)
def shard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Return a compressed shard with its index."""
    name, make = MADE[request.param]
    packed = tmp_path_factory.mktemp("shard") / name
    make(folder, packed)
    assert ensure_index(str(packed)).state == "made"
    return packed


def test_the_samples_are_those_of_the_plain_tar(shard: Path, samples: list[Sample], tmp_path: Path) -> None:
    url = str(shard)
    assert same(list(tarkit.read_samples(url)), samples)
    assert [outcome.error for outcome in index_all([url], check=True)] == [None]
    assert ensure_index(url).state == "fresh"
    order = random.Random(1).sample(range(COUNT), 60)
    for cache in (None, tmp_path / "cache"):
        found = ShardMap(url, cache=cache, run=40)
        for each in (found, pickle.loads(pickle.dumps(found))):
            assert len(each) == COUNT
            assert same([each[number] for number in order], [samples[number] for number in order])
            assert same(each.take([(0, number) for number in range(7, 250)]), samples[7:250])
    kept = [path.stat().st_size for path in (tmp_path / "cache").glob("*.part")]
    opened = open_indexed(url)
    assert opened is not None
    assert opened.packed is not None
    assert sum(kept) == opened.packed.size, "each byte of content once"
    with opened.open_field(140, "bin") as field:
        assert (field.seek(5), field.read(3)) == (5, bytes(samples[140]["bin"])[5:8])
    reader = TarDataReader(url)
    assert reader.count(url) == COUNT
    assert same(list(reader.read(url, 290, 999)), samples[290:])


@needs_zstd
def test_other_programs_read_what_is_written(folder: Path) -> None:
    plain = (folder / "a.tar").read_bytes()
    run = subprocess.run(["zstd", "-dcq", folder / "a.tar.zst"], check=True, capture_output=True)
    assert run.stdout == plain
    subprocess.run(["zstd", "-tq", folder / "a.tar.zst"], check=True)
    listed = [
        subprocess.run(["tar", *each], check=True, capture_output=True).stdout
        for each in (["--zstd", "-tf", folder / "a.tar.zst"], ["-tf", folder / "a.tar"])
    ]
    assert listed[0] == listed[1] != b""


def test_a_series_with_a_manifest(tmp_path: Path, samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/caches")
    with ShardWriter(f"{tmp_path}/s-%d.tar.zst", maxcount=100, manifest=f"{tmp_path}/d.json") as writer:
        for sample in samples:
            writer.write(sample)
    found = ShardMap(f"{tmp_path}/d.json")
    assert same([found[number] for number in range(0, COUNT, 9)], samples[::9])
    assert {outcome.state for outcome in index_all(writer.shards, check=True)} == {"fresh"}
    batches = list(tarkit.batches(f"{tmp_path}/d.json", batch=50, seed=1, fields="cls", decode=None))
    assert sorted(int(value) for (batch,) in batches for value in batch) == list(range(COUNT))
    assert not (tmp_path / "caches").exists(), "content of local shards is kept only in a folder that was named"


def damaged(folder: Path, tmp_path: Path, frame: int = 1) -> tuple[str, str]:
    """Copy the shard with a flipped bit in a frame; return its path, and the first key in it."""
    data = bytearray((folder / "a.tar.zst").read_bytes())
    shard = open_indexed(str(folder / "a.tar.zst"))
    assert shard is not None
    assert shard.packed is not None
    table = shard.packed.frames.table
    data[(table.packed[frame] + table.packed[frame + 1]) // 2] ^= 16
    (tmp_path / "a.tar.zst").write_bytes(data)
    shutil.copy(folder / "a.tar.zst.idx", tmp_path)
    first = next(n for n in range(COUNT) if shard.index.span(n, n + 1)[1] > table.unpacked[frame])
    return str(tmp_path / "a.tar.zst"), f"d/{first:04d}"


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_flipped_bit_is_an_error_of_the_samples_of_its_frame(
    folder: Path, tmp_path: Path, samples: list[Sample], with_cache: bool
) -> None:
    url, first = damaged(folder, tmp_path)
    found = ShardMap(url, cache=tmp_path / "cache" if with_cache else None)
    failed = []
    for number in range(COUNT):
        try:
            assert same([found[number]], [samples[number]])
        except CompressionError as error:
            failed.append(error.key)
            assert str(error).startswith(f"{url}, key 'd/{number:04d}': its compressed content at ")
            assert "is damaged" in str(error)
    assert failed[0] == first
    assert 10 < len(failed) < 120
    shard = open_indexed(url)
    assert shard is not None
    read = []
    with pytest.raises(CompressionError, match=r"a\.tar\.zst, key 'd/\d+': its compressed content"):
        read.extend(shard.samples(0, COUNT))
    if not with_cache:
        with pytest.raises(CompressionError, match=r"key 'd/\d+': its compressed content"):
            found.take([(0, number) for number in range(COUNT)])


def test_samples_of_a_damaged_frame_can_be_counted(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = damaged(folder, tmp_path)
    with caplog.at_level(logging.WARNING):
        found = list(tarkit.batches(url, batch=10, fields="cls", decode=None, on_error="count"))
    assert 150 < sum(len(batch) for (batch,) in found) < COUNT
    assert "samples of it that fail are left out and counted" in caplog.text


def test_damage_at_the_end_costs_the_samples_of_its_frame(folder: Path, tmp_path: Path) -> None:
    """It cannot be compared with the index; only trainers, which read all samples, accept that."""
    shard = open_indexed(str(folder / "a.tar.zst"))
    assert shard is not None
    assert shard.packed is not None
    url, first = damaged(folder, tmp_path, len(shard.packed.frames.table) - 1)
    options: Any = {"on_error": "count", "max_errors": "90%", "shuffle": False}
    loader = tarkit.batches(url, batch=COUNT, fields="cls", decode=None, **options)
    ((found,),) = loader
    whole = int(first.removeprefix("d/"))
    assert [int(value) for value in found] == list(range(whole))
    assert (loader.counts["failed"], loader.skipped[0].key) == (COUNT - whole, first)
    with pytest.raises(CompressionError, match=rf"key '{first}': "):
        ShardMap(url)[whole]
    for opening in (lambda: open_indexed(url), lambda: ensure_index(url)):
        with pytest.raises(CompressionError, match=r"a\.tar\.zst.* is damaged"):
            opening()


def test_damage_behind_the_last_sample_hides_no_stale_index(folder: Path, tmp_path: Path) -> None:
    url, first = damaged(folder, tmp_path)
    whole = int(first.removeprefix("d/"))
    index = Path(index_url(url))
    index.write_bytes(b"".join([b"v1.2 %d\n" % whole, *index.read_bytes().splitlines(keepends=True)[1 : whole + 1]]))
    with pytest.raises(CompressionError, match=r"a\.tar\.zst: its compressed content at"):
        ShardMap(url)[0]


def test_a_shard_that_was_compressed_again_has_a_stale_index(folder: Path, tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar.zst")
    shutil.copy(folder / "a.tar.zst.idx", tmp_path)
    with tarkit.TarWriter(url) as writer:
        writer.write({"__key__": "a", "txt": "x"})
    with pytest.raises(
        StaleIndexError, match=r"has no seek table at its end, and no .*\.seek beside it; make it: tarkit"
    ):
        open_indexed(url)
    with tarkit.TarWriter(url, compress="zst-seekable") as writer:
        writer.write({"__key__": "a", "txt": "x"})
    with pytest.raises(StaleIndexError, match=r"it has 10240 bytes, and by its index the last sample ends at \d+"):
        open_indexed(url)
    assert ensure_index(url).state == "renewed"
    assert ShardMap(url)[0]["txt"] == b"x"


def test_what_cannot_be_read_by_number_is_refused_when_the_data_set_is_opened(folder: Path, tmp_path: Path) -> None:
    for name in ("a.tar.bz2", "a.tar.xz", "a.tar.lz4"):
        with pytest.raises(
            UsageError, match=rf"{name}: only a shard whose name .*; unpack it: tarkit cat \S*{name} -o"
        ):
            ShardMap(str(tmp_path / name))
        write_manifest(str(tmp_path / "d.json"), [ManifestShard(str(tmp_path / name), 1)])
        with pytest.raises(UsageError, match=rf"{name}: only a shard whose name"):
            ShardMap(str(tmp_path / "d.json"))
    with tarkit.TarWriter(str(tmp_path / "c.tar.zst")) as writer:
        writer.write({"__key__": "a", "txt": "x"})
    with pytest.raises(NoIndexError, match=r"c\.tar\.zst has no index \S*c\.tar\.zst\.idx: make it by tarkit index"):
        ShardMap(str(tmp_path / "c.tar.zst"))
    message = r"c\.tar\.zst: has frames that do not state the size of their content; rewrite it: tarkit split \S+ -o"
    with pytest.raises(DataError, match=message):
        ensure_index(str(tmp_path / "c.tar.zst"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.tar.zst", "d.json"]


def served(server: FaultServer, path: Path) -> str:
    for name in (index_url(str(path)), seek_url(str(path))):
        if Path(name).exists():
            server.put(Path(name).name, Path(name).read_bytes())
    return server.put(path.name, path.read_bytes())


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def asked(server: FaultServer, path: Path) -> int:
    """Return the number of bytes of a file that were asked for so far; one byte asks who it is."""
    ranges = [headers.get("Range", "bytes=0-0").removeprefix("bytes=") for headers in server.asked(path.name)]
    pairs = [each.partition("-")[::2] for each in ranges if each != "0-0"]
    return sum(int(end or path.stat().st_size - 1) - int(begin) + 1 for begin, end in pairs)


def test_over_http_only_the_frames_of_a_sample_are_fetched(
    server: FaultServer, shard: Path, samples: list[Sample], tmp_path: Path
) -> None:
    url = served(server, shard)
    opened = open_indexed(url)
    assert isinstance(opened, IndexedShard)
    assert opened.packed is not None
    frames = opened.packed.frames
    largest = max(end - begin for begin, end in (frames.packed_range(n, n) for n in range(len(frames.table))))
    before, requests = asked(server, shard), len(server.asked(shard.name))
    assert same([opened.sample(150)], samples[150:151])
    assert len(server.asked(shard.name)) <= requests + 1, "the identity of the shard is part of the answer"
    assert 0 < asked(server, shard) - before <= 2 * largest or len(frames.table) == 1
    assert same(list(opened.samples(20, 290)), samples[20:290])
    cached = ShardMap(url, cache=tmp_path / "cache")
    order = random.Random(2).sample(range(COUNT), COUNT)
    before = asked(server, shard)
    assert same([cached[number] for number in order[:50]], [samples[number] for number in order[:50]])
    cached.fetch([(0, number) for number in order])
    fetched = asked(server, shard)
    # The table at the end, and a byte in which two blocks of gzip meet.
    assert fetched - before <= shard.stat().st_size + (1 << 16) + len(frames.table)
    assert same([cached[number] for number in order], [samples[number] for number in order])
    assert same(cached.take([(0, number) for number in range(COUNT)]), samples)
    assert asked(server, shard) == fetched, "each frame was fetched once"


def test_a_cache_that_is_too_small(
    server: FaultServer, folder: Path, samples: list[Sample], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Parts are decoded again, which is logged once."""
    url = served(server, folder / "a.tar.zst")
    found = ShardMap(url, cache=tmp_path / "cache", cache_size=5 << 19)
    assert len(list(found.keys_of(0))) == COUNT
    for _ in range(2):
        found.shards.begin_epoch()
        assert same([found[number] for number in range(COUNT)], samples)
    assert caplog.text == ""
    order = random.Random(2).sample(range(COUNT), 40)
    assert same([found[number] for number in order], [samples[number] for number in order])
    assert caplog.text.count("parts are removed from it before their samples are read, which are then") == 1
    full = ShardMap(url, cache=tmp_path / "other", cache_size=1)
    assert same([full[number] for number in order], [samples[number] for number in order])


def test_a_remote_shard_that_is_replaced(server: FaultServer, folder: Path) -> None:
    url = served(server, folder / "a.tar.zst")
    opened = open_indexed(url)
    assert opened is not None
    data = (folder / "a.tar.zst").read_bytes()
    server.put("a.tar.zst", bytes(255 - byte for byte in data))
    with pytest.raises((TemporaryStreamError, DataError), match="replaced"):
        opened.sample(0)


def test_the_index_of_a_shard_does_not_depend_on_its_compression(folder: Path) -> None:
    assert build_index(str(folder / "a.tar.zst")).encode() == (folder / "a.idx").read_bytes()
    assert (folder / "a.tar.zst.idx").read_bytes() == (folder / "a.idx").read_bytes()
