"""Training from S3 whose connections drop at random: the samples and the order are those of local
shards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_client import s3_bucket
from s3proxy import Fault, S3Proxy, s3_proxy
from trainshards import needs_torch, write_shards

import tarkit
from tarkit.store.transfer import copy_file

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
COUNTS = (21, 0, 12, 9)
BATCH = 6
OPTIONS: dict[str, Any] = {"batch": BATCH, "fields": "__key__ bin", "decode": None, "seed": 3, "run": 5, "block": 15}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    def fields(shard: int, number: int) -> dict[str, bytes]:
        return {"bin": random.Random(f"{shard} {number}").randbytes(3000)}

    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS, fields)


@pytest.fixture(scope="module")
def expected(local: str) -> list[list[Any]]:
    loader = tarkit.batches(local, collate=list, **OPTIONS)
    return [list(loader) for _ in range(2)]


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[S3Proxy]:
    with s3_proxy(s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def remote(s3_endpoint: str, proxy: S3Proxy, local: str) -> Iterator[str]:
    with s3_bucket(s3_endpoint, proxy.endpoint) as bucket:
        for shard in range(len(COUNTS)):
            for suffix in ("tar", "idx"):
                copy_file(local.replace("{0..3}.tar", f"{shard}.{suffix}"), bucket.url(f"s-{shard}.{suffix}"))
        yield bucket.url("s-{0..3}.tar")


def drops(proxy: S3Proxy, seed: int, often: int) -> None:
    """Of about so many requests one fails, somehow."""
    draw = random.Random(seed)
    for operation in ("get", "head"):
        for _ in range(10):
            proxy.faults.append(Fault(operation, "pass", times=draw.randrange(2 * often)))
            actions = ["reset", "lose", 503, 500] + (["break"] if operation == "get" else [])
            proxy.faults.append(Fault(operation, draw.choice(actions)))


def failed(proxy: S3Proxy) -> int:
    return sum(fault.action != "pass" and not fault.times for fault in proxy.faults)


@pytest.mark.parametrize("kept", [True, False])
def test_random_drops_change_no_batch(
    remote: str, proxy: S3Proxy, expected: list[list[Any]], tmp_path: Path, kept: bool
) -> None:
    drops(proxy, 1, 4 if kept else 10)
    loader = tarkit.batches(remote, collate=list, cache=tmp_path if kept else False, **OPTIONS)
    assert list(loader) == expected[0]
    assert failed(proxy) >= 5
    if kept:
        before = proxy.count("get")
        assert list(loader) == expected[1]
        assert proxy.count("get") == before, "the second epoch is read from this machine"


def test_it_goes_on_with_other_ranks_from_the_cache(
    remote: str, proxy: S3Proxy, expected: list[list[Any]], tmp_path: Path
) -> None:
    drops(proxy, 2, 4)
    first = tarkit.batches(remote, collate=list, cache=tmp_path, **OPTIONS)
    running = iter(first)
    assert [next(running) for _ in range(4)] == expected[0][:4]
    ranks = [tarkit.batches(remote, collate=list, cache=tmp_path, rank=r, world=2, **OPTIONS) for r in range(2)]
    for rank in ranks:
        rank.load_state_dict(first.state_dict())
    assert [sum(parts, []) for parts in zip(*ranks, strict=True)] == expected[0][4:]


@needs_torch
@pytest.mark.parametrize("kept", [True, False])
def test_pytorch_with_random_drops(
    remote: str, proxy: S3Proxy, expected: list[list[Any]], tmp_path: Path, kept: bool
) -> None:
    from tarkit.trainers.torch import ShardDataset

    drops(proxy, 3, 4 if kept else 10)
    place = tmp_path if kept else False
    dataset = ShardDataset(remote, collate=list, cache=place, **OPTIONS)
    assert [[tuple(row) for row in batch] for batch in dataset.loader(2)] == expected[0]
    assert failed(proxy) >= 5
