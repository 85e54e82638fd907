"""The shard service answers a plain gRPC caller, in its own protocol and in that of ElasticDL's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.messages import protocol
from tarkit.service.server import serving

grpc = pytest.importorskip("grpc", reason="the shard service needs grpcio")


def through_a_server(
    tmp_path: Path, calls: Callable[[Callable[..., Awaitable[Any]]], Awaitable[None]], **options: Any
) -> None:
    """Run ``calls(call)`` with a server on a free port; ``call(protocol, method, **fields)`` is one unary call."""

    async def run() -> None:
        journal = Journal(str(tmp_path / "state"))
        async with (
            Dispatcher(journal, **options) as dispatcher,
            serving(dispatcher, "127.0.0.1:0") as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):

            async def call(name: str, method: str, /, **fields: Any) -> Any:
                spoken = protocol(name)
                made = next(each for each in spoken.calls if each.name == method)
                path = {"shards": "tarkit.shards.v1.ShardService", "elasticdl": "proto.Master"}[name]
                stub = channel.unary_unary(f"/{path}/{method}", made.request.SerializeToString, made.reply.FromString)
                return await stub(made.request(**fields), timeout=10)

            await calls(call)
        journal.close()

    asyncio.run(run())


def test_own_protocol_hands_out_each_record_once(tmp_path: Path) -> None:
    async def calls(call: Callable[..., Awaitable[Any]]) -> None:
        await call("shards", "Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        read: list[int] = []
        reply = await call("shards", "Exchange", worker="a", name="iris", want=2)
        while not reply.end:
            read += [record for lease in reply.leases for record in range(lease.start, lease.end)]
            reports = [{"token": lease.token} for lease in reply.leases]
            reply = await call("shards", "Exchange", worker="a", name="iris", want=2, reports=reports)
        assert sorted(read) == list(range(22))

    through_a_server(tmp_path, calls)


def test_elasticdl_protocol_ends_with_an_empty_task(tmp_path: Path) -> None:
    async def calls(call: Callable[..., Awaitable[Any]]) -> None:
        params = {"batch_size": 4, "num_epochs": 2, "dataset_size": 22, "num_minibatches_per_shard": 2}
        await call("elasticdl", "report_dataset_shard_params", dataset_name="iris", task_type=1, **params)
        shards = []
        while (task := await call("elasticdl", "get_dataset_task", dataset_name="iris")).type:
            shards.append((task.shard.start, task.shard.end))
            await call("elasticdl", "report_dataset_task_result", dataset_name="iris", task_id=task.task_id)
        assert shards == [(0, 8), (8, 16), (16, 22)] * 2

    through_a_server(tmp_path, calls)


@pytest.mark.parametrize("blocked", [True, False])
def test_workers_who_wait_for_each_other_are_told_to_finish(tmp_path: Path, blocked: bool) -> None:
    """A batch of 12 of shards of 8: the last batch is short, and only the end of the data completes it."""

    async def calls(call: Callable[..., Awaitable[Any]]) -> None:
        await call("shards", "Declare", name="iris", size=16, records_per_shard=8, epochs=1)
        drained: list[str] = []

        async def train(worker: str) -> None:
            ask = {"worker": worker, "name": "iris", "want": 1}
            (lease,) = (await call("shards", "Exchange", **ask)).leases
            reply = await call("shards", "Exchange", **ask, blocked=blocked)
            assert (reply.drain, reply.end, len(reply.leases)) == (True, False, 0)
            drained.append(worker)
            reports = [{"token": lease.token}]
            await call("shards", "Exchange", worker=worker, name="iris", reports=reports)
            assert (await call("shards", "Exchange", **ask)).end

        both = asyncio.gather(train("a"), train("b"))
        await asyncio.sleep(0.5)
        assert drained == []
        await both
        assert sorted(drained) == ["a", "b"]

    through_a_server(tmp_path, calls, standstill=2.0)
