"""The client of the shard service, against a real service."""

from __future__ import annotations

from pathlib import Path

import pytest
from shardthread import InThread

from tarkit.service.dataset import DataSet
from tarkit.service.ledger import NoShard
from tarkit.service.shardclient import ShardClient

pytest.importorskip("grpc", reason="the shard service needs grpcio")


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_each_record_once_and_the_end_is_the_end(tmp_path: Path, prefetch: int) -> None:
    read: list[int] = []
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 22, 8, 2), prefetch=prefetch) as client,
    ):
        for shard in client:
            read += shard.records
            client.done(shard)
        assert client.fetch() is NoShard.END
        client.flush()
        assert client.counts == {"accepted": 6, "late": 0, "stale": 0, "unknown": 0, "repeated": 0}
        assert client.progress().done == 6
    assert sorted(read) == sorted([*range(22)] * 2)
