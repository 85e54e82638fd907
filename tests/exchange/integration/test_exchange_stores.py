"""An exchange whose inputs, run files and outputs are all in a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from s3_client import s3_bucket
from s3proxy import s3_proxy

import tarkit
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.runfile import Row, RunFile, RunWriter
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.slices import ExchangeSlice
from tarkit.store.entries import entries
from tarkit.store.publish import open_publish
from tarkit.store.read import read_whole

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
SHARDS, SAMPLES = 6, 40


def write_inputs(folder: str) -> list[str]:
    urls = [f"{folder}/in-{shard}.tar" for shard in range(SHARDS)]
    for shard, url in enumerate(urls):
        with tarkit.TarWriter(url, encoder=False) as sink:
            for number in range(SAMPLES):
                sink.write({"__key__": f"{shard}-{number:03d}", "bin": bytes([number]) * 900, "cls": b"%d" % shard})
    return urls


def shards_of(folder: str) -> dict[str, bytes]:
    """The shards and indexes of a folder."""
    names = [entry for entry in entries(folder) if entry.name.endswith((".tar", ".idx"))]
    return {entry.name: read_whole(entry.url, compression=None) for entry in names}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local")
    (folder / "in").mkdir()
    Exchange(
        Shuffle(3), write_inputs(str(folder / "in")), str(folder / "out"), ExchangeSettings(shards=7, index=True)
    ).run()
    return shards_of(str(folder / "out"))


def test_slices_in_a_bucket_make_the_shards_of_one_run_here(s3_endpoint: str, local: dict[str, bytes]) -> None:
    with s3_bucket(s3_endpoint) as bucket:
        urls = write_inputs(bucket.url("in"))
        out = bucket.url("out")
        exchange = ExchangeSlice(Shuffle(3), urls, out, ExchangeSettings(shards=7))
        for number in range(2):
            exchange.scatter(number, 2)
        for number in range(2):
            exchange.gather(number, 2)
        assert shards_of(out) == local
        assert not any("_exchange" in entry.url for entry in entries(out, recursive=True))


def test_adjacent_blocks_are_read_with_one_request(s3_endpoint: str) -> None:
    with s3_proxy(s3_endpoint) as proxy, s3_bucket(s3_endpoint, proxy.endpoint) as bucket:
        url = bucket.url("run.tar")
        with open_publish(url, compression=None) as output:
            writer = RunWriter(output, 4000)
            writer.write(Row(b"%03d" % number, (bytes(1024),), 1024, b"") for number in range(50))
            table = writer.end()
        run = RunFile(url, output.bytes_written, table)
        before = proxy.count("get")
        assert len(run.blocks) > 10
        positions = [row.position for row in run.rows(run.blocks[2:9])]
        first = sum(block.samples for block in run.blocks[:2])
        assert positions[0] == b"%03d" % first
        assert proxy.count("get") == before + 1


def test_the_work_folder_is_a_folder_here(tmp_path: Path, s3_endpoint: str, local: dict[str, bytes]) -> None:
    with s3_bucket(s3_endpoint) as bucket:
        urls = write_inputs(bucket.url("in"))
        settings = ExchangeSettings(shards=7)
        Exchange(Shuffle(3), urls, bucket.url("out"), settings, work=str(tmp_path / "work")).run()
        assert shards_of(bucket.url("out")) == local
        assert not (tmp_path / "work").exists()
