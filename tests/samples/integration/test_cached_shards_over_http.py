"""Remote shards through the cache of this machine: the samples that reading them gives, whatever
happens meanwhile.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import multiprocessing
import pickle
import random
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import Fault, FaultServer

import tarkit
from tarkit.errors import DataError, StreamError, UsageError
from tarkit.samples.index import build_index
from tarkit.specs.manifest import ManifestShard, write_manifest
from tarkit.trainers.shardmap import ShardMap

COUNT, RUN = 95, 20


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def put(server: FaultServer, tmp_path: Path, name: str = "a", fill: bytes = b"x", **more: Any) -> str:
    path = tmp_path / f"{name}.tar"
    with tarkit.TarWriter(str(path)) as sink:
        for number in range(COUNT):
            sink.write({"__key__": f"{number:04d}", "bin": fill * 3000, "cls": b"%d" % number})
    server.put(f"{name}.idx", build_index(str(path)).encode(), **more)
    return server.put(f"{name}.tar", path.read_bytes(), **more)


def cached(url: str, tmp_path: Path, **options: Any) -> ShardMap:
    return ShardMap(url, cache=tmp_path / "cache", run=RUN, **options)


def parts_of(requests: list[tuple[str, dict[str, str]]]) -> list[tuple[str, str]]:
    """Shards and ranges that were asked for; that of the first byte asks which object it is."""
    ranges = [(path, headers.get("Range", "bytes=0-0")) for path, headers in requests if ".tar" in path]
    return [(path, wanted) for path, wanted in ranges if wanted != "bytes=0-0"]


def asked(server: FaultServer) -> int:
    """How many parts of a.tar were asked for."""
    return len([1 for path, _ in parts_of(server.requests) if path == "a.tar"])


def test_the_samples_are_the_same_and_fetched_once(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    every = list(tarkit.read_samples(url))
    samples = cached(url, tmp_path)
    numbers = [*range(0, COUNT, 7), *range(COUNT)]
    assert [samples[number] for number in numbers] == [every[number] for number in numbers]
    assert asked(server) == 1 + 5, "the end of the shard, and a request for each run"
    for again in (samples, cached(url, tmp_path), pickle.loads(pickle.dumps(samples))):
        assert [again[number] for number in numbers] == [every[number] for number in numbers]
        assert again.shards.get(0).parts is not None
    assert asked(server) == 1 + 5
    other = ShardMap(url)
    assert [other[number] for number in (3, 94)] == [every[3], every[94]]


def test_no_more_is_sent_than_is_read(server: FaultServer, tmp_path: Path) -> None:
    """An answer that is cut off by the client was sent all the same, as far as the buffers of the
    connection go.
    """
    url = put(server, tmp_path)
    samples = ShardMap(url)
    assert samples[0]["cls"] == b"0", "the index and the end of the shard are read with the first one"
    before = server.sent
    spans = [len(samples[number]["bin"]) + len(samples[number]["cls"]) for number in range(7, COUNT, 7)]
    assert server.sent - before <= 1.05 * 2 * 4608 * len(spans)


def test_what_a_batch_needs_is_fetched_together(server: FaultServer, tmp_path: Path) -> None:
    samples = cached(put(server, tmp_path), tmp_path)
    samples.fetch((0, number) for number in (0, 1, 21, 41, 94))
    assert asked(server) == 1 + 4
    assert samples[22]["cls"] == b"22"
    assert asked(server) == 1 + 4


def test_a_shard_that_is_replaced_is_never_mixed(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    samples = cached(url, tmp_path)
    assert samples[0]["bin"][:1] == b"x"
    assert put(server, tmp_path, fill=b"y") == url
    assert samples[1]["bin"][:1] == b"x", "of the shard that it opened"
    with pytest.raises(StreamError, match=r"a\.tar: was replaced while it was read"):
        samples[30]
    again = cached(url, tmp_path)
    assert {again[number]["bin"][:1] for number in range(COUNT)} == {b"y"}


def test_an_index_that_is_made_anew_is_taken(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    assert cached(url, tmp_path)[50]["cls"] == b"50"
    text = server.objects["a.idx"].content
    lines = text.splitlines(keepends=True)
    server.put("a.idx", b"".join([lines[0], lines[1].replace(b"0000", b"000a"), *lines[2:]]))
    with pytest.raises(DataError, match="is stale"):
        cached(url, tmp_path)[0]
    server.put("a.idx", text)
    assert cached(url, tmp_path)[0]["cls"] == b"0"


def test_connections_that_break(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    every = list(tarkit.read_samples(url))
    faults = [Fault(), Fault("cut", 100), Fault(), Fault("reset", 5000), Fault("status"), Fault("part", 99)]
    server.objects["a.tar"].faults = [*faults, *faults]
    server.objects["a.idx"].faults = faults[1:]
    samples = cached(url, tmp_path)
    assert [samples[number] for number in range(COUNT)] == every


def test_what_could_be_replaced_unseen_is_not_kept(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path, etag="")
    samples = cached(url, tmp_path)
    assert samples[50]["cls"] == b"50" and samples.shards.get(0).parts is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("size", [200_000, 2000])
def test_a_cache_that_is_too_small(
    server: FaultServer, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Parts are fetched twice an epoch, and then each of their samples: never a run for each
    sample.
    """
    url = put(server, tmp_path)
    every = list(tarkit.read_samples(url))
    samples = cached(url, tmp_path, cache_size=size)
    for epoch in range(2):
        samples.shards.begin_epoch()
        before = asked(server)
        for offset in range(RUN):
            for number in range(offset, COUNT, RUN):
                assert samples[number] == every[number]
        assert asked(server) - before <= COUNT + 10 + (epoch == 0)
    assert len(caplog.messages) == 1 and caplog.messages[0].endswith("; set a larger cache_size")
    assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.part")) <= size


def test_a_folder_that_cannot_be_used(server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_bytes(b"")
    samples = cached(put(server, tmp_path), tmp_path)
    assert [samples[number]["cls"] for number in (0, 1, 50)] == [b"0", b"1", b"50"]
    assert len(caplog.messages) == 1


def test_headers_that_are_not_plain(server: FaultServer, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(30):
            info = tarfile.TarInfo(f"é{number:03d}.bin")
            info.size, info.pax_headers = 700, {"comment": "c"}
            tar.addfile(info, io.BytesIO(bytes([number]) * 700))
    server.put("a.idx", build_index(str(path)).encode())
    url = server.put("a.tar", path.read_bytes())
    every = list(tarkit.read_samples(url))
    samples = cached(url, tmp_path)
    assert [samples[number] for number in range(30)] == every
    assert asked(server) == 1 + 2


def test_damage_in_the_middle_is_an_error_with_its_place(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    content = bytearray(server.objects["a.tar"].content)
    content[40 * 4608] ^= 1
    server.put("a.tar", bytes(content))
    samples = cached(url, tmp_path)
    assert samples[41]["cls"] == b"41"
    with pytest.raises(DataError, match=r"a\.tar, offset 184320: .*is stale"):
        samples[40]


def test_shards_of_one_name_and_another_key_rule(server: FaultServer, tmp_path: Path) -> None:
    urls = [put(server, tmp_path, "a"), put(server, tmp_path, "b", fill=b"b")]
    samples = cached(urls, tmp_path)  # type: ignore[arg-type]
    assert (samples[0]["bin"][:1], samples[COUNT]["bin"][:1]) == (b"x", b"b")
    for _ in range(2):
        assert cached(urls[0], tmp_path, rule="last-dot")[1]["cls"] == b"1"
    with pytest.raises(UsageError, match="run is 0; it must be at least 1"):
        ShardMap(urls[0], cache=tmp_path, run=0)


def test_large_samples_are_parts_by_themselves(server: FaultServer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tarkit.samples.cachedshard._MOST", 20_000)
    samples = cached(put(server, tmp_path), tmp_path)
    assert [samples[number]["cls"] for number in range(COUNT)] == [b"%d" % number for number in range(COUNT)]
    sizes = {path.stat().st_size for path in (tmp_path / "cache").glob("*.part")}
    assert max(sizes) <= 20_000 and asked(server) == 1 + 4 * 5 + 4


@pytest.mark.parametrize("kept", [True, False])
def test_a_shard_that_is_gone_is_asked_for_few_times(server: FaultServer, tmp_path: Path, kept: bool) -> None:
    urls = [put(server, tmp_path, name) for name in "ab"]
    manifest = str(tmp_path / "d.json")
    write_manifest(manifest, [ManifestShard(url, COUNT) for url in urls])
    del server.objects["b.tar"], server.objects["b.idx"]
    place = tmp_path / "cache" if kept else False
    loader = tarkit.batches(
        manifest, batch=10, fields="cls", decode=None, on_error="count", cache=place, block=50, collate=list
    )
    found = list(loader)
    assert len(found) == 19 and sum(map(len, found)) + loader.counts["failed"] == 190 + loader.counts["filled"]
    assert loader.counts["failed"] >= COUNT - 10
    assert len(server.asked("b.tar")) + len(server.asked("b.idx")) <= 4


def test_a_data_set_larger_than_the_cache_is_fetched_once_an_epoch(
    server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of two lanes are in up to 10 runs of 46 kB.

    The cache has place for 30, and the data set has 60. A run of which both lanes have a part, one
    at its beginning and one at its end, is fetched twice.
    """
    monkeypatch.setattr("tarkit.store.cache._USED_SECONDS", 0.0)  # an epoch takes no time here
    urls = [put(server, tmp_path, name) for name in "abcdef"]
    options = {"fields": "__key__ bin", "decode": None, "collate": list, "batch": 4, "lanes": 2, "run": 10, "block": 40}
    loader = tarkit.batches(urls, cache=tmp_path / "cache", cache_size=1_400_000, **options)
    for _ in range(3):
        server.requests.clear()
        assert sum(map(len, loader)) == 568
        runs = [run for path, wanted in parts_of(server.requests) for run in _runs_in(path, wanted)]
        assert 44 < len(set(runs)) <= 60 and len(runs) <= 66
    assert not caplog.messages
    assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.part")) <= 1_400_000


def _runs_in(path: str, wanted: str) -> list[tuple[str, int]]:
    """The runs in a range, which may be of several neighbours."""
    begin, end = map(int, wanted.removeprefix("bytes=").split("-"))
    return [(path, at // 46_080) for at in range(begin, end + 1, 46_080)]


def _read_for_ever(url: str, folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    while True:
        samples = cached(url, folder, cache_size=300_000)
        for _ in range(COUNT):
            samples[draw.randrange(COUNT)]


def test_readers_that_are_killed_together_leave_a_cache_that_is_right(server: FaultServer, tmp_path: Path) -> None:
    url = put(server, tmp_path)
    every = list(tarkit.read_samples(url))
    context, draw = multiprocessing.get_context("fork"), random.Random(4)
    for turn in range(5):
        readers = [context.Process(target=_read_for_ever, args=(url, tmp_path, 3 * turn + seed)) for seed in range(3)]
        for reader in readers:
            reader.start()
        time.sleep(0.05 + draw.random() * 0.15)
        for reader in readers:
            reader.kill()
        for reader in readers:
            reader.join()
        samples = cached(url, tmp_path, cache_size=300_000)
        assert [samples[number] for number in range(0, COUNT, 3)] == every[::3]
        held = [path.stat().st_size for path in (tmp_path / "cache").glob("*.part")]
        assert held and sum(held) <= 300_000


@pytest.mark.skipif(importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed")
def test_a_web_dataset_fetches_each_part_once(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Front to back, with any size of its reads, and of a compressed shard, too."""
    from tarkit.store import cachedread
    from tarkit.trainers.webdataset import WebDataset

    monkeypatch.setattr(cachedread, "_PART", 100_000)
    (tmp_path / "cache").mkdir()
    url = put(server, tmp_path)
    packed = server.put("b.tar.gz", gzip.compress((tmp_path / "a.tar").read_bytes()))
    every = list(tarkit.read_samples([url, packed]))
    before = len(server.requests)
    dataset = WebDataset([url, packed], shardshuffle=False, cache_dir=tmp_path / "cache")
    assert list(dataset) == every
    fetched = len(parts_of(server.requests[before:]))
    parts = sum(-(-len(server.objects[name].content) // 100_000) for name in ("a.tar", "b.tar.gz"))
    assert fetched == parts
    asked_again = len(server.requests)
    again = pickle.loads(pickle.dumps(dataset))
    assert list(dataset) == list(again) == every
    assert len(server.requests) == asked_again + 4, "whether the shards are the same"
    put(server, tmp_path, fill=b"y")
    replaced = WebDataset(url, shardshuffle=False, cache_dir=tmp_path / "cache", cache_size=10_000_000)
    assert {sample["bin"][:1] for sample in replaced} == {b"y"}


@pytest.mark.skipif(importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed")
def test_a_web_dataset_does_not_mix_a_shard_that_is_replaced(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tarkit.store import cachedread
    from tarkit.trainers.webdataset import WebDataset

    monkeypatch.setattr(cachedread, "_PART", 10_000)
    (tmp_path / "cache").mkdir()
    url = put(server, tmp_path)
    running = iter(WebDataset(url, shardshuffle=False, cache_dir=tmp_path / "cache"))
    assert next(running)["bin"][:1] == b"x"
    put(server, tmp_path, fill=b"y")
    with pytest.raises(StreamError, match=r"a\.tar: was replaced while it was read"):
        list(running)
