"""Indexes of tar shards in stores: written with the shard or later, and what is fetched through
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from azure_client import azure_container
from gcs_client import gcs_bucket
from s3_client import s3_bucket
from s3proxy import s3_proxy

import tarkit
from tarkit.errors import StaleIndexError
from tarkit.readers.reader import Task, TaskShard
from tarkit.readers.tar import TarDataReader
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.indexing import index_all
from tarkit.store.entries import remove

# aiohttp warns of large bodies that are bytes, which is how s3fs and gcsfs themselves send them.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
CONTENT = random.Random(5).randbytes(20_000)
COUNT = 1000


def write_shard(url: str, count: int = COUNT, *, index: bool = True) -> None:
    with tarkit.TarWriter(url, encoder=False, index=index) as sink:
        for number in range(count):
            sink.write({"__key__": f"{number:04d}", "bin": CONTENT[number:], "cls": b"%d" % number})


def test_one_request_for_a_task_on_s3(s3_endpoint: str) -> None:
    with s3_proxy(s3_endpoint) as proxy, s3_bucket(s3_endpoint, proxy.endpoint) as bucket:
        url = bucket.url("a.tar")
        write_shard(url)
        reader = TarDataReader(url, 100)
        assert reader.count(url) == COUNT
        assert keys(reader, url, 0, 100) == [f"{number:04d}" for number in range(100)]
        before = proxy.count("get")
        assert keys(reader, url, 500, 600) == [f"{number:04d}" for number in range(500, 600)]
        assert proxy.count("get") == before + 1


def keys(reader: TarDataReader, url: str, start: int, end: int) -> list[str]:
    return [sample["__key__"] for sample in reader.read_records(Task(TaskShard(url, start, end)))]


@pytest.fixture(params=["s3_endpoint", "gcs_endpoint", "azure_endpoint"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    opener = {"s3_endpoint": s3_bucket, "gcs_endpoint": gcs_bucket, "azure_endpoint": azure_container}[request.param]
    with opener(request.getfixturevalue(request.param)) as bucket:  # type: ignore[operator]
        yield bucket.url("a.tar")


def test_written_replaced_stale_and_made_anew(url: str) -> None:
    write_shard(url, 50)
    expected = list(tarkit.read_samples(url))
    shard = open_indexed(url)
    assert shard is not None
    assert list(shard.samples(20, 50)) == expected[20:]
    write_shard(url, 40)
    shard = open_indexed(url)
    assert shard is not None
    assert len(shard) == 40
    write_shard(url, 30, index=False)
    with pytest.raises(StaleIndexError):
        open_indexed(url)
    states = [(outcome.state, outcome.samples, outcome.error) for _ in range(2) for outcome in index_all([url])]
    assert states == [("renewed", 30, None), ("fresh", 30, None)]
    shard = open_indexed(url)
    assert shard is not None
    assert shard.index.encode() == build_index(url).encode()
    remove(url.replace(".tar", ".idx"))
    assert open_indexed(url) is None
    assert [outcome.state for outcome in index_all([url])] == ["made"]
