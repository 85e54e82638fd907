"""A field of a remote shard as a file: by few requests, through faults, never of another shard."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpserver import Fault, FaultServer

from tarkit.errors import StreamError
from tarkit.samples.tarwriter import TarWriter
from tarkit.trainers.shardmap import ShardMap

LONG = random.Random(0).randbytes(1_000_000)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def url(server: FaultServer, tmp_path: Path) -> str:
    with TarWriter(str(tmp_path / "a.tar"), index=True) as writer:
        writer.write({"__key__": "x", "cls": 1, "wav": LONG})
    server.put("a.idx", (tmp_path / "a.idx").read_bytes())
    return server.put("a.tar", (tmp_path / "a.tar").read_bytes())


def ranges(server: FaultServer) -> list[int]:
    """The sizes of the ranges of the shard that were asked for, but of one byte."""
    asked = [re.findall(r"\d+", headers.get("Range", "0-0")) for path, headers in server.requests if path == "a.tar"]
    return [size for first, last in asked if (size := int(last) - int(first) + 1) > 1]


@pytest.mark.parametrize("is_cached", [False, True])
def test_what_is_needed_is_requested(server: FaultServer, url: str, is_cached: bool, tmp_path: Path) -> None:
    samples = ShardMap(url, cache=tmp_path / "cache" if is_cached else None)
    assert samples[0]["cls"] == b"1"
    server.requests.clear()
    with samples.open_field(0, "wav") as file:
        assert file.read(44) == LONG[:44]
        file.seek(500_000)
        assert file.read(100_000) == LONG[500_000:600_000]
    assert ranges(server) == [512, 64 << 10, 96 << 10, 64 << 10]


def test_faults_on_the_way(server: FaultServer, url: str) -> None:
    samples = ShardMap(url)
    with samples.open_field(0, "wav") as file:
        server.objects["a.tar"].faults += [Fault("cut", 30_000), Fault("status", status=503)]
        assert file.read() == LONG


def test_a_shard_that_is_replaced(server: FaultServer, url: str) -> None:
    with ShardMap(url).open_field(0, "wav") as file:
        file.read(10)
        server.put("a.tar", server.objects["a.tar"].content[::-1], etag='"other"')
        file.seek(700_000)
        with pytest.raises(StreamError, match=r"a\.tar"):
            file.read(10)
