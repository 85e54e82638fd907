"""Shards with an index on an HTTP server: what is fetched of them, and what happens when that
fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpserver import Fault, FaultServer

import tarkit
from tarkit.errors import DataError, StaleIndexError, StreamError, TemporaryStreamError
from tarkit.readers.reader import Task, TaskShard
from tarkit.readers.tar import TarDataReader
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.store.packedfile import open_packed
from tarkit.store.retry import DEFAULT_RETRY
from tarkit.trainers.shardlist import NoIndexError
from tarkit.trainers.shardmap import ShardMap

SECRET = "c4n4ry"
COUNT = 400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tarkit.TarWriter(str(tmp_path / "a.tar")) as sink:
        for number in range(COUNT):
            sink.write({"__key__": f"{number:04d}", "bin": bytes(5000)})
    return tmp_path / "a.tar"


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def keys(reader: TarDataReader, url: str, start: int, end: int) -> list[str]:
    return [sample["__key__"] for sample in reader.read_records(Task(TaskShard(url, start, end)))]


def test_a_task_begins_at_its_own_bytes(server: FaultServer, path: Path) -> None:
    index = build_index(str(path))
    server.put("a.idx", index.encode())
    url = f"{server.put('a.tar', path.read_bytes())}?key={SECRET}"
    reader = TarDataReader(url, 100)
    assert reader.count(url) == COUNT
    assert keys(reader, url, 300, 400) == [f"{number:04d}" for number in range(300, 400)]
    ranges = {headers.get("Range") for headers in server.asked("a.tar")}
    start, stop = index.span(300, 400)
    last = index[COUNT - 1][0].offset - 512
    size = path.stat().st_size
    # Its identity, the end that shows that the index is this one's, the samples: no answer is cut
    # short.
    assert ranges == {"bytes=0-0", f"bytes={last}-{size - 1}", f"bytes={start}-{stop - 1}"}


def test_a_connection_that_is_cut_goes_on(server: FaultServer, path: Path) -> None:
    server.put("a.idx", build_index(str(path)).encode(), Fault("cut", 99), Fault("reset", 500))
    url = server.put("a.tar", path.read_bytes())
    shard = open_indexed(url)
    assert shard is not None
    faults = [Fault(), Fault("cut", 100_000), Fault("part", 5000), Fault("status"), Fault("drip", 9)]
    server.objects["a.tar"].faults = faults
    found = list(shard.samples(100, 250))
    assert not faults
    assert found == list(tarkit.read_samples(url))[100:250]


def test_a_shard_that_is_replaced(server: FaultServer, path: Path) -> None:
    server.put("a.idx", build_index(str(path)).encode())
    url = server.put("a.tar", path.read_bytes())
    shard = open_indexed(url)
    assert shard is not None
    server.put("a.tar", bytes(255 - byte for byte in path.read_bytes()))
    with pytest.raises(DataError, match="was replaced since its identity was read"):
        list(shard.samples(0, 1))
    with pytest.raises(StaleIndexError, match="no header is at"):
        open_indexed(url)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_without_an_index_the_shard_is_streamed(server: FaultServer, path: Path, status: int) -> None:
    """Stores that do not report what is missing answer 403."""
    server.put("a.idx", b"", always=Fault("status", status=status))
    url = server.put("a.tar", path.read_bytes())
    reader = TarDataReader(url)
    assert reader.count(url) == COUNT
    assert keys(reader, url, 398, 400) == ["0398", "0399"]


def test_a_data_set_whose_index_or_shard_is_refused(server: FaultServer, path: Path) -> None:
    """A store that does not report what is missing may mean that: the message has both."""
    refused = Fault("status", status=403)
    index = server.put("a.idx", b"", always=refused)
    url = server.put("a.tar", path.read_bytes())
    where = "tarkit index a.tar in the folder that the server serves"
    make = f"if the shard has no index, make it by {where}; else allow this process to read it"
    with pytest.raises(NoIndexError, match=rf"^{index}: the server answers 403 Forbidden; {make}$"):
        ShardMap(url)
    server.put("a.idx", build_index(str(path)).encode())
    samples = ShardMap(url, cache=None)
    server.objects["a.idx"].always = refused
    with pytest.raises(NoIndexError, match=rf"^{index}: the server answers 403 Forbidden; {make}$"):
        samples[0]
    server.objects["a.idx"].always, server.objects["a.tar"].always = None, refused
    with pytest.raises(StreamError, match=rf"^{url}: the server answers 403 Forbidden$"):
        samples[0]


def test_seek_points_that_are_refused(server: FaultServer) -> None:
    beside = server.put("a.tar.zst.seek", b"", always=Fault("status", status=403))
    url = server.put("a.tar.zst", b"x")
    message = (
        rf"no {beside} beside it, or it may not be read \(the server answers 403 Forbidden\); make it: tarkit index"
    )
    with pytest.raises(StaleIndexError, match=message):
        open_packed(url)


def test_a_server_that_does_not_answer_for_the_index(
    server: FaultServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is one is not known, and a later try may find it."""
    for name, value in {"attempts": 2, "base": 0.0}.items():
        monkeypatch.setitem(DEFAULT_RETRY.__dict__, name, value)
    server.put("a.idx", b"", always=Fault("status"))
    url = server.put("a.tar", path.read_bytes())
    with pytest.raises(TemporaryStreamError):
        open_indexed(url)


def test_a_shard_without_a_length_is_streamed(server: FaultServer, path: Path) -> None:
    server.put("a.idx", build_index(str(path)).encode())
    url = server.put("a.tar", path.read_bytes(), length=False, chunked=True, always=Fault("no-range"))
    assert open_indexed(url) is None
    assert len(keys(TarDataReader(url), url, 0, 10)) == 10


def test_secrets_are_in_no_error_and_no_sample(server: FaultServer, path: Path) -> None:
    server.put("a.idx", build_index(str(path)).encode())
    server.put("a.tar", path.read_bytes()[:-20480])
    url = f"http://me:{SECRET}@{server.host}/a.tar?key={SECRET}"
    with pytest.raises(StaleIndexError) as stale:
        open_indexed(url)
    server.put("a.idx", b"x")
    with pytest.raises(DataError) as wrong:
        open_indexed(url)
    server.put("a.idx", build_index(str(path)).encode())
    server.put("a.tar", path.read_bytes())
    reader = TarDataReader(url)
    found = [*reader.read_records(Task(TaskShard(url, 0, 1))), *TarDataReader(url, index=False).read(url, 0, 1)]
    shown = [str(stale.value), str(wrong.value), *(sample["__url__"] for sample in found)]
    assert not any(SECRET in text for text in shown)


def test_a_data_set_is_opened_by_its_manifest_alone(server: FaultServer, path: Path) -> None:
    entries = [{"url": f"s/{name}.tar", "nsamples": COUNT} for name in "abc"]
    text = json.dumps({"wids_version": 1, "shardlist": entries}).encode()
    url = f"{server.put('dataset.json', text)}?key={SECRET}"
    for name in "abc":
        server.put(f"s/{name}.idx", build_index(str(path)).encode(), Fault("cut", 7))
        server.put(f"s/{name}.tar", path.read_bytes())
    samples = ShardMap(url)
    assert len(samples) == 3 * COUNT
    assert [len(server.asked(f"s/{name}.{end}")) for name in "abc" for end in ("idx", "tar")] == [0] * 6
    assert samples[COUNT + 7]["__key__"] == "0007"
    assert [bool(server.asked(f"s/{name}.tar")) for name in "abc"] == [False, True, False]
    counted = ShardMap(samples.urls)
    assert (counted.counts, counted.urls[0].endswith(f"/s/a.tar?key={SECRET}")) == ([COUNT] * 3, True)
    assert [bool(server.asked(f"s/{name}.tar")) for name in "abc"] == [False, True, False]
    server.put("s/c.idx", b"v1.2 1\ncls 512 1 a.cls\n")
    with pytest.raises(DataError) as caught:
        samples[-1]
    assert SECRET not in str(caught.value) and "/s/c.tar" in str(caught.value)
