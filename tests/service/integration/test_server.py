"""Each reply of the shard service and its cause; calls that are held, cancelled or cut.

Trouble with the state.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from shardservice import Caller, Service
from shardthread import held_back

from tarkit.elasticdl.mastercalls import ElasticDLCalls
from tarkit.errors import MissingInputError, StreamError, UsageError
from tarkit.service.connection import Security, security_of_files
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules, Limits, NoShard, TaskRequest
from tarkit.service.ledger import Ledger
from tarkit.service.server import ShardCalls, serving

grpc = pytest.importorskip("grpc", reason="the shard service needs grpcio")

PEM = Path(__file__).resolve().parents[1] / "data"
OWN = "tarkit.shards.v1.ShardService"
SIZED = ("--dataset", "iris=22", "--records-per-shard", "8")


class Server:
    """A server in this process.

    ``call(method, **fields)`` is one call; ``elasticdl=True``: of that protocol.
    """

    def __init__(self, dispatcher: Dispatcher, channel: Any) -> None:
        self.dispatcher, self.channel = dispatcher, channel
        self._callers = [Caller("", elasticdl=each, channel=channel) for each in (False, True)]

    def call(self, method: str, /, *, elasticdl: bool = False, **fields: Any) -> Any:
        return self._callers[elasticdl](method, **fields)


def with_server(
    calls: Callable[[Server], Awaitable[None]],
    journal: Journal | None = None,
    rules: LeaseRules | None = None,
    **options: Any,
) -> None:
    async def run() -> None:
        kept = journal or Journal(":memory:")
        async with (
            Dispatcher(kept, rules, **{"tick": 0.02, **options}) as dispatcher,
            serving(dispatcher, "127.0.0.1:0", protocols=(ShardCalls, ElasticDLCalls)) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            await calls(Server(dispatcher, channel))
        kept.close()

    asyncio.run(run())


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    """The status of a call that fails, and its sentence."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details()


BAD = [
    ("Declare", {"name": "", "size": 1, "records_per_shard": 1}, "1 to 1024 bytes"),
    ("Declare", {"name": "a", "size": 0, "records_per_shard": 1}, "size is 0"),
    ("Declare", {"name": "a", "size": 1, "records_per_shard": 0}, "records_per_shard is 0"),
    ("Declare", {"name": "a", "size": 1, "records_per_shard": 1, "epochs": -1}, "epochs is -1"),
    ("Declare", {"name": "a", "size": 1, "records_per_shard": 1, "remainder": "x"}, "remainder is 'x'"),
    ("Exchange", {"worker": ""}, "worker must be a word"),
    ("Exchange", {"worker": "w" * 2000}, "worker must be a word"),
    ("Exchange", {"worker": "w", "want": -1}, "want is -1"),
    ("Exchange", {"worker": "w", "wait": float("nan")}, "wait is nan"),
    ("Declare", {"name": "a", "size": 2**61, "records_per_shard": 1, "epochs": 3}, "3 epochs of 23058"),
    ("Declare", {"name": "a", "records_per_shard": 1, "files": [{"name": "f" * 8193, "records": 1}]}, "8193 bytes"),
    ("Restore", {"name": "iris", "content": "{"}, "not a checkpoint"),
]
BAD_ELASTICDL = [
    ("report_dataset_shard_params", {"batch_size": 0, "dataset_size": 1}, "batch_size is 0"),
    ("report_dataset_shard_params", {"batch_size": 1, "dataset_size": 0}, "size is 0"),
    ("report_dataset_shard_params", {"batch_size": 1, "dataset_size": 1, "task_type": 9}, "task_type is 9"),
    ("report_training_params", {"batch_size": 1, "num_minibatches_per_shard": -1}, "num_minibatches_per_shard is -1"),
]


def test_bad_parameters_have_a_sentence() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        for elasticdl, bad in ((False, BAD), (True, BAD_ELASTICDL)):
            for method, fields, reason in bad:
                code, details = await refusal(server.call(method, elasticdl=elasticdl, **fields))
                assert code == "INVALID_ARGUMENT" and reason in details, (method, fields, details)
        token = (await server.call("Exchange", worker="w", want=1)).leases[0].token
        report = {"token": token, "ranges": [{"first": 0, "end": 9}]}
        assert (await refusal(server.call("Exchange", worker="w", reports=[report])))[0] == "INVALID_ARGUMENT"
        refused = await refusal(server.channel.unary_unary(f"/{OWN}/Exchange")(b"\xff\xff\xff"))
        assert refused == ("INVALID_ARGUMENT", "the message is not a ExchangeRequest")
        with pytest.raises(grpc.aio.AioRpcError, match="worker must be a word"):
            await server.call("Attend", worker="").read()

    with_server(calls)


def test_the_numbers_of_shuffled_records_are_bounded() -> None:
    async def calls(server: Server) -> None:
        shuffled = {"name": "iris", "size": 1000, "shuffle_records": True, "epochs": 1}
        code, details = await refusal(server.call("Declare", records_per_shard=101, **shuffled))
        assert code == "INVALID_ARGUMENT" and "it is 100 at most" in details
        await server.call("Declare", records_per_shard=40, **shuffled)
        leases = (await server.call("Exchange", worker="w", want=25)).leases
        assert [len(lease.indices) for lease in leases] == [40, 40, 40]

    with_server(calls, limits=Limits(indices=100))


def test_each_refusal_has_its_status() -> None:
    async def calls(server: Server) -> None:
        iris = {"name": "iris", "records_per_shard": 8, "epochs": 1}
        assert (await server.call("Declare", size=22, **iris)).made
        assert not (await server.call("Declare", size=22, **iris)).made
        code, details = await refusal(server.call("Declare", size=23, **iris))
        assert code == "FAILED_PRECONDITION" and "size 22, not 23" in details
        code, details = await refusal(server.call("Declare", name="b", size=1, records_per_shard=1))
        assert code == "RESOURCE_EXHAUSTED" and "1 data set" in details
        for method in ("Exchange", "Save", "Reset", "GetProgress"):
            worker = {"worker": "w"} if method == "Exchange" else {}
            code, details = await refusal(server.call(method, name="rose", **worker))
            assert code == "NOT_FOUND" and "'rose' was not declared" in details
        assert len((await server.call("Exchange", worker="w", want=3)).leases) == 3
        held, attending = server.call("Exchange", worker="h", want=1), server.call("Attend", worker="w")
        await attending.read()
        await until(lambda: server.dispatcher.pending.number == 1)
        for _ in range(2):
            code, _ = await refusal(server.call("Exchange", worker="one too many", want=1))
            assert code == "RESOURCE_EXHAUSTED"
        held.cancel()
        await until(lambda: server.dispatcher.pending.number == 0)
        assert (await server.call("GetProgress")).progress
        attending.cancel()

    with_server(calls, limits=Limits(datasets=1, calls=2))


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that will come true."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.01)


def test_an_unexpected_error_is_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def calls(server: Server) -> None:
        monkeypatch.setattr(server.dispatcher, "ledger", lambda name: 1 // 0)
        code, details = await refusal(server.call("Save", name="iris"))
        assert (code, details) == ("INTERNAL", "unexpected ZeroDivisionError in the service, which is a bug in tarkit")

    with caplog.at_level(logging.ERROR):
        with_server(calls)
    (record,) = caplog.records
    assert record.getMessage().startswith("Save: unexpected ZeroDivisionError")
    assert record.exc_info is None


def test_elasticdl_calls_that_are_not_about_data() -> None:
    async def calls(server: Server) -> None:
        for method in ("report_used_resource", "report_global_step", "report_model_metric", "report_prestop"):
            await server.channel.unary_unary(f"/proto.Master/{method}")(b"\x08\x01")
        stub = server.channel.unary_unary("/proto.Master/get_comm_rank")
        assert (await refusal(stub(b"")))[0] == "UNIMPLEMENTED"

    with_server(calls)


def test_workers_who_wait_for_each_other_are_told_to_finish() -> None:
    """A batch of 12 of shards of 8: the last batch is short, and only the end of the data completes
    it.
    """
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=16, records_per_shard=8, epochs=1)
        drained: list[str] = []

        async def train(worker: str) -> None:
            ask = {"worker": worker, "name": "iris", "want": 1}
            (lease,) = (await server.call("Exchange", **ask)).leases
            reply = await server.call("Exchange", **ask)
            assert (reply.drain, reply.end, len(reply.leases)) == (True, False, 0)
            drained.append(worker)
            await server.call("Exchange", worker=worker, name="iris", reports=[{"token": lease.token}])
            assert (await server.call("Exchange", **ask)).end

        both = asyncio.gather(train("a"), train("b"))
        await until(lambda: server.dispatcher.pending.number == 2)
        for now[0] in (0.0, 4.9):
            await asyncio.sleep(0.1)  # it looks at them
            assert drained == []
        while not both.done():
            now[0] += 0.3
            await asyncio.sleep(0.02)
        await both
        assert sorted(drained) == ["a", "b"]

    with_server(calls, clock=lambda: now[0])


def test_a_client_of_elasticdl_whose_batch_needs_records_of_two_strict_epochs_gets_them() -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=16, records_per_shard=8, epochs=2, strict_epochs=True)

        def task() -> Any:
            return server.call("get_dataset_task", elasticdl=True, dataset_name="iris")

        async def report(*tasks: Any) -> None:
            for each in tasks:
                done = {"dataset_name": "iris", "task_id": each.task_id}
                await server.call("report_dataset_task_result", elasticdl=True, **done)

        first, last = await task(), await task()
        await report(first)
        third = asyncio.ensure_future(task())
        await until(lambda: server.dispatcher.pending.number == 1)
        for now[0] in (0.0, 4.9):
            await asyncio.sleep(0.1)  # it looks at them
            assert not third.done()
        now[0] = 5.1
        await report(last, await third, await task())
        assert not (await task()).type
        (found,) = (await server.call("GetProgress", name="iris")).progress
        assert (found.epoch, found.done, found.ended) == (2, 4, True)

    with_server(calls, clock=lambda: now[0])


@pytest.mark.parametrize("run", ["", "uid-1"])
def test_a_worker_that_comes_when_the_data_set_has_ended_is_reported(
    run: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not where the service is of the run in which it has ended."""

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=8, records_per_shard=8, epochs=1)
        assert not (await server.call("Exchange", worker="a", name="iris")).end
        (lease,) = (await server.call("Exchange", worker="a", name="iris", want=1)).leases
        report = {"worker": "a", "name": "iris", "reports": [{"token": lease.token}]}
        assert not (await server.call("Exchange", **report)).end
        assert (await server.call("Exchange", worker="a", name="iris", want=1)).end
        assert not caplog.records
        assert (await server.call("Exchange", worker="b", name="iris")).end is not bool(run)
        for _ in range(2):
            task = await server.call("get_dataset_task", elasticdl=True, dataset_name="iris")
            assert not task.type

    with_server(calls, run=run)
    found = [
        re.search("data set 'iris' has ended; worker '(b|worker-0) ?.*', which comes now, gets no", each.getMessage())
        for each in caplog.records
    ]
    assert [each and each[1] for each in found] == ([] if run else ["b", "worker-0"])


def test_the_oldest_elasticdl_clients_get_the_services_own_data_set() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        server.dispatcher.default = "iris"
        params = {"batch_size": 4, "num_epochs": 9, "dataset_size": 5}
        await server.call("report_training_params", elasticdl=True, **params)
        default = "_EDL_DEFAULT_TRAINING_DATA"
        await server.call("report_dataset_shard_params", elasticdl=True, dataset_name=default, **params)
        assert [*server.dispatcher.ledgers] == ["iris"] and server.dispatcher.differing == 2
        shards = []
        for fetch, report, name in (
            ("get_task", "report_task_result", ""),
            ("get_dataset_task", "report_dataset_task_result", default),
            ("get_task", "report_task_result", ""),
        ):
            task = await server.call(fetch, elasticdl=True, dataset_name=name)
            shards.append((task.shard.name, task.shard.start, task.shard.end))
            await server.call(report, elasticdl=True, dataset_name=name, task_id=task.task_id)
        assert shards == [("iris", 0, 8), ("iris", 8, 16), ("iris", 16, 22)]
        assert not (await server.call("get_task", elasticdl=True)).type
        assert (await server.call("get_dataset_epoch", elasticdl=True, dataset_name=default)).epoch == 1

    with_server(calls)


def test_elasticdl_checkpoints_failures_and_resets() -> None:
    async def calls(server: Server) -> None:
        params = {"batch_size": 4, "num_epochs": 1, "dataset_size": 22, "num_minibatches_per_shard": 2}

        async def ask(method: str, **fields: Any) -> Any:
            return await server.call(method, elasticdl=True, **fields)

        await ask("report_dataset_shard_params", dataset_name="iris", **params)
        task = await ask("get_dataset_task", dataset_name="iris")
        saved = await ask("get_shard_checkpoint", dataset_name="iris")
        await ask("report_dataset_task_result", dataset_name="iris", task_id=task.task_id, err_message="no label")
        # Once, and once more that is not counted.
        await ask("report_dataset_task_result", dataset_name="iris", task_id=task.task_id, err_message="no label")
        assert (await ask("report_shard_checkpoint", content=saved.content)).success
        for content in ("{", '{"dataset_name":"other","epoch":1}', '{"dataset_name":"\\ud800"}'):
            assert not (await ask("report_shard_checkpoint", content=content)).success
        assert [(await ask("get_dataset_task", dataset_name="iris")).shard.start for _ in range(3)] == [0, 8, 16]
        await ask("reset_dataset", dataset_name="iris")
        assert (await ask("get_dataset_task", dataset_name="iris")).shard.start == 0

    with_server(calls)


def test_a_call_before_the_declaration_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async def calls(server: Server) -> None:
        early = server.call("get_dataset_task", elasticdl=True, dataset_name="iris")
        await asyncio.sleep(0.2)
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        assert (await early).shard.end == 8
        monkeypatch.setattr("tarkit.elasticdl.mastercalls.UNDECLARED", 0.1)
        code, _ = await refusal(server.call("get_dataset_task", elasticdl=True, dataset_name="rose"))
        assert code == "NOT_FOUND"

    with_server(calls)


def test_a_thousand_calls_are_held_and_reports_are_answered() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=1060, records_per_shard=1, epochs=1)
        leases = [*(await server.call("Exchange", worker="w", want=1000)).leases]
        leases += (await server.call("Exchange", worker="w", want=60)).leases
        held = [
            asyncio.ensure_future(server.call("Exchange", worker=f"h{number}", want=1)) for number in range(500)
        ] + [
            asyncio.ensure_future(server.call("get_dataset_task", elasticdl=True, worker_id=number))
            for number in range(500)
        ]
        await until(lambda: server.dispatcher.pending.number == 1000)
        times, waits = [], []
        for lease in leases[:60]:
            # Other programs do not count; but a report that is held takes no time of the processor.
            began, sent = time.process_time(), time.monotonic()
            await server.call("Exchange", worker="w", reports=[{"token": lease.token}])
            times.append(time.process_time() - began)
            waits.append(time.monotonic() - sent)
        assert sorted(times)[30] < 0.01 and sorted(waits)[30] < 0.5
        assert server.dispatcher.pending.number == 1000
        await server.call("Exchange", worker="w", call=1, held=[each.token for each in leases[61:]])
        await until(lambda: any(each.done() for each in held))
        (first,) = (each for each in held if each.done())
        token = first.result().leases[0].token
        await server.call("Exchange", worker="h0", reports=[{"token": token}])
        await server.call("Exchange", worker="w", reports=[{"token": each.token} for each in leases[61:]])
        replies = await asyncio.gather(*held)
        assert sum(reply.end for reply in replies[:500]) == 499
        assert sum(not reply.type for reply in replies[500:]) == 500

    with_server(calls)


def test_a_held_call_that_breaks_loses_the_worker() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=16, records_per_shard=8, epochs=1)
        for _ in range(2):
            await server.call("get_dataset_task", elasticdl=True, dataset_name="iris")
        # A published client that asks ahead, and is killed: its connection is what breaks.
        held = server.call("get_dataset_task", elasticdl=True, dataset_name="iris")
        await until(lambda: server.dispatcher.pending.number == 1)
        held.cancel()
        await until(lambda: server.dispatcher.ledgers["iris"].progress().todo == 2)
        assert [lease.start for lease in (await server.call("Exchange", worker="w", want=2)).leases] == [0, 8]

    with_server(calls)


def test_a_worker_whose_attendance_breaks_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=16, records_per_shard=8, epochs=1)
        for worker in ("a", "b"):
            assert (await server.call("Exchange", worker=worker, want=1)).leases
        attending = {worker: server.call("Attend", worker=worker) for worker in ("a", "b")}
        for stream in attending.values():
            assert (await stream.read()).heartbeat > 0
        now[0] = 0.5  # longer than a lease: who attends keeps it
        await asyncio.sleep(0.1)  # it looks at the leases; from now on they last, and only the grace passes
        assert server.dispatcher.ledgers["iris"].progress().leased == 2
        graces = held_back(asyncio.get_running_loop(), server.dispatcher.heartbeats._lose, monkeypatch)
        for stream in attending.values():
            stream.cancel()
        await until(lambda: not server.dispatcher.heartbeats.attached)
        again = server.call("Attend", worker="a")
        await again.read()
        assert [seconds for seconds, _ in graces] == [2.0, 2.0]
        for _, over in graces:
            over()
        lease = (await server.call("Exchange", worker="c", want=1)).leases[0]
        assert (lease.start, server.dispatcher.ledgers["iris"].workers().keys()) == (8, {"a", "c"})
        again.cancel()

    rules = LeaseRules(floor=0.3, first=0.3)
    with_server(calls, rules=rules, grace=2.0, clock=lambda: now[0])


async def asked(server: Server) -> object:
    """What worker b is answered, without waiting."""
    server.dispatcher.heard("b")
    _, answer = await server.dispatcher.exchange(server.dispatcher.ledger("d"), "b", request=TaskRequest(2, wait=0.0))
    return answer


def test_a_worker_that_attends_is_not_lost_by_the_call_of_another() -> None:
    """Its deadline is over when the other one calls, and the service has not looked since."""
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="d", size=2, records_per_shard=1, epochs=1)
        await server.call("Exchange", worker="a", want=1)
        with server.dispatcher.attend("a"):
            now[0] = 1.5
            reply = await server.call("Exchange", worker="b", want=2)
            assert [lease.start for lease in reply.leases] == [1]
            await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
            now[0] = 3.0
            assert await asked(server) is NoShard.WAIT
        await asyncio.sleep(0.1)
        now[0] = 4.5
        answer = await asked(server)
        assert isinstance(answer, list) and [lease.shard.start for lease in answer] == [0]

    with_server(calls, rules=LeaseRules(floor=1.0, first=1.0), clock=lambda: now[0])


def test_a_worker_that_attends_and_does_nothing_keeps_its_shards_up_to_the_longest_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Or one of ElasticDL's clients, a thread of which waits for the end, while the other one does
    nothing.
    """
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="d", size=3, records_per_shard=1, epochs=1)
        await server.call("Exchange", worker="a", want=1)
        task = await server.call("get_dataset_task", elasticdl=True, dataset_name="d")
        again = asyncio.ensure_future(server.call("Exchange", worker="c", want=1))
        last = (await again).leases[0].token
        waits = asyncio.ensure_future(server.call("get_dataset_task", elasticdl=True, dataset_name="d"))
        await until(lambda: server.dispatcher.pending.number == 1)
        ledger = server.dispatcher.ledger("d")
        with server.dispatcher.attend("a"), server.dispatcher.attend("c"):
            for now[0] in (1.5, 3.0, 4.5, 6.0):
                await server.call("Exchange", worker="c", reports=[{"token": last, "ranges": []}] * (now[0] == 6.0))
                await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
                assert ledger.progress().leased == 3 - (now[0] == 6.0)
            now[0] = 7.0
            assert (await waits).task_id != task.task_id  # one of those that came back
            assert (ledger.progress().todo, ledger.progress().leased) == (1, 1)
            assert (
                "data set 'd': worker 'a' hangs: the worker was given no shard and reported none for 7 s; "
                "it loses 1 shard"
            ) in caplog.messages

    with_server(calls, rules=LeaseRules(floor=1.0, first=1.0, ceiling=7.0), clock=lambda: now[0])


def test_a_report_that_never_arrives_brings_its_shard_back() -> None:
    """Of a client of ElasticDL that does not send it again, and goes on to the end on the same
    connection.
    """
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="d", size=3, records_per_shard=1, epochs=1)

        async def ask(method: str, **fields: Any) -> Any:
            return await server.call(method, elasticdl=True, dataset_name="d", **fields)

        lost, *others = [await ask("get_dataset_task") for _ in range(3)]
        for task in others:
            await ask("report_dataset_task_result", task_id=task.task_id)
        waits = asyncio.ensure_future(ask("get_dataset_task"))
        for now[0] in (1.5, 3.0, 4.5, 6.0):
            await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
            (counts,) = (await server.call("GetProgress")).progress
            assert (counts.done, counts.leased, counts.epoch, waits.done()) == (2, 1, 1, False)
        now[0] = 7.0
        again = await waits
        assert (again.shard.start, again.task_id != lost.task_id) == (lost.shard.start, True)
        await ask("report_dataset_task_result", task_id=again.task_id)
        await ask("report_dataset_task_result", task_id=lost.task_id)  # it arrives after all
        (counts,) = (await server.call("GetProgress")).progress
        assert (counts.done, counts.records, counts.leased, counts.todo) == (3, 3, 0, 0)
        assert server.dispatcher.verdicts == {"accepted": 3, "stale": 1}

    with_server(calls, rules=LeaseRules(floor=1.0, first=1.0, ceiling=7.0), clock=lambda: now[0])


def test_workers_have_time_to_find_a_service_that_was_started_again(tmp_path: Path) -> None:
    """Their leases are shorter than a client takes to connect again."""
    now, rules = [0.0], LeaseRules(floor=1.0, ceiling=1.0)

    async def before(server: Server) -> None:
        await server.call("Declare", name="d", size=1, records_per_shard=1, epochs=1)
        await server.call("Exchange", worker="a", want=1)

    async def after(server: Server) -> None:
        now[0] = 1.5
        assert await asked(server) is NoShard.WAIT
        now[0] = 4.5
        await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
        now[0] = 6.2
        assert isinstance(await asked(server), list)

    with_server(before, Journal(str(tmp_path / "state")), rules, clock=lambda: now[0])
    now[0] = 0.0
    with_server(after, Journal(str(tmp_path / "state")), rules, clock=lambda: now[0])


def test_a_worker_keeps_leases_of_data_sets_that_its_calls_do_not_name() -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        for name in "de":
            await server.call("Declare", name=name, size=2, records_per_shard=1, epochs=1)
        await server.call("Exchange", worker="a", name="d", want=1)
        for now[0] in (0.9, 1.8, 2.7):
            await asyncio.sleep(0.1)  # it looks at the leases
            assert server.dispatcher.ledger("d").leased
            await server.call("Exchange", worker="a", name="e")
        now[0] = 3.9
        await until(lambda: not server.dispatcher.ledger("d").leased)

    with_server(calls, rules=LeaseRules(floor=1.0, first=1.0), clock=lambda: now[0])


def test_a_call_looks_at_no_other_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each of 1,000 data sets adds to a call would be more than the call."""
    looked: set[str] = set()

    async def calls(server: Server) -> None:
        for name in "def":
            await server.call("Declare", name=name, size=2, records_per_shard=1, epochs=1)
        for name, value in vars(Ledger).items():
            if callable(value) and not name.startswith("__"):
                monkeypatch.setattr(Ledger, name, noted(value))
        (lease,) = (await server.call("Exchange", worker="a", name="d", want=1)).leases
        await server.call("Exchange", worker="a", name="d", reports=[{"token": lease.token}])
        task = await server.call("get_dataset_task", elasticdl=True, worker_id=1, dataset_name="d")
        await server.call("report_dataset_task_result", elasticdl=True, dataset_name="d", task_id=task.task_id)
        assert looked == {"d"}

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(ledger: Ledger, *arguments: Any, **options: Any) -> Any:
            looked.add(ledger.dataset.name)
            return method(ledger, *arguments, **options)

        return called

    with_server(calls, tick=60.0)


def test_a_silent_worker_is_lost_after_its_lease() -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=8, records_per_shard=8, epochs=1)
        await server.call("Exchange", worker="a", want=1)
        held = asyncio.ensure_future(server.call("Exchange", worker="b", want=1))
        await until(lambda: server.dispatcher.pending.number == 1)
        now[0] = 0.29
        await asyncio.sleep(0.1)  # it looks at the leases
        assert not held.done()
        now[0] = 0.31
        assert (await held).leases[0].start == 0

    with_server(calls, rules=LeaseRules(floor=0.3, first=0.3, ceiling=0.3), clock=lambda: now[0])


def test_expected_watchers_and_those_that_came_see_the_end_before_the_service_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarkit.service.heartbeats._TICK", 0.01)
    now = [0.0]

    async def calls(server: Server) -> None:
        heartbeats = server.dispatcher.heartbeats
        heartbeats.expected = frozenset(["ps-0"])
        heartbeats.watched("worker-0", over=False)
        heartbeats.watched("worker-1", over=False)  # it is never heard of again
        now[0] = 500.0
        heartbeats.watched("worker-0", over=False)
        drained = asyncio.ensure_future(heartbeats.drained(900.0, 10.0))
        for passed, name in ((11.0, "worker-0"), (20.0, "ps-0")):
            now[0] = 500.0 + passed
            await asyncio.sleep(0.1)
            assert not drained.done()
            heartbeats.watched(name, over=True)
        await asyncio.sleep(0.1)
        assert not drained.done()
        now[0] = 901.0  # worker-1 was heard of longer ago than the service waits
        await drained

    with_server(calls, clock=lambda: now[0])


def test_workers_that_are_all_gone_are_noticed_and_watchers_of_nothing_do_not_count() -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        heartbeats = server.dispatcher.heartbeats
        heartbeats.expected = frozenset(["ps-0"])
        now[0] = 5000.0
        heartbeats.watched("ps-0", over=False)
        assert not heartbeats.is_deserted(900.0)  # no worker was here yet
        await server.call("Declare", name="iris", size=8, records_per_shard=8, epochs=1)
        await server.call("Exchange", worker="a", want=1)
        now[0] += 901.0
        heartbeats.watched("ps-0", over=False)
        assert heartbeats.is_deserted(900.0)
        heartbeats.watched("worker-0", over=False)
        assert not heartbeats.is_deserted(900.0)
        now[0] += 901.0
        with heartbeats.during("a", bound=False):
            assert not heartbeats.is_deserted(900.0)  # a call of it is open
        server.dispatcher.desert()
        assert [(each.aborted, each.over) for each in server.dispatcher.progress()] == [(True, True)]

    with_server(calls, clock=lambda: now[0])


def test_known_workers_are_told_of_the_end_before_the_service_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.service.heartbeats._TICK", 0.01)
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=8, records_per_shard=8, epochs=1)
        await server.call("Exchange", worker="b")
        lease = (await server.call("Exchange", worker="a", want=1)).leases[0]
        await server.call("Exchange", worker="a", reports=[{"token": lease.token}])
        assert (await server.call("Exchange", worker="a", want=1)).end
        drained = asyncio.ensure_future(server.dispatcher.heartbeats.drained(30.0))
        await asyncio.sleep(0.1)
        now[0] = 29.0  # longer than for workers that are not known
        await asyncio.sleep(0.1)
        assert not drained.done()
        assert (await server.call("Exchange", worker="b", want=1)).end
        await drained
        await server.call("Exchange", worker="c")
        drained = asyncio.ensure_future(server.dispatcher.heartbeats.drained(30.0))
        await asyncio.sleep(0.1)
        now[0] = 60.0  # no longer than was asked for
        await drained

    with_server(calls, clock=lambda: now[0])


def test_held_calls_of_a_service_that_stops_are_unavailable() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=8, records_per_shard=8, epochs=1)
        await server.call("Exchange", worker="a", want=1)
        held = [
            server.call("Exchange", worker="b", want=1),
            server.call("get_dataset_task", elasticdl=True, dataset_name="iris"),
            server.call("get_dataset_task", elasticdl=True, dataset_name="rose"),
        ]
        await until(lambda: server.dispatcher.pending.number == 2)
        server.dispatcher.close()
        for each in held:
            assert await refusal(each) == ("UNAVAILABLE", "the service is stopping; ask again")
        refused = await refusal(server.call("Exchange", worker="c", want=1))
        assert refused == ("UNAVAILABLE", "the service is stopping; ask again")
        # The worker that trains keeps its shard: the next service goes on.
        assert server.dispatcher.ledgers["iris"].workers().keys() == {"a"}

    with_server(calls)


class FullJournal(Journal):
    """A journal whose disk is full while ``full`` is."""

    full = False

    def write(self, changes: Any) -> None:
        if self.full:
            raise StreamError("the state cannot be written: database or disk is full", url=self.path)
        super().write(changes)


def test_a_full_disk_stops_handing_out_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FullJournal(str(tmp_path / "state"))
    monkeypatch.setattr("tarkit.service.journal._RETRY", 0.1)

    async def calls(server: Server) -> None:
        dispatcher = server.dispatcher
        await server.call("Declare", name="iris", size=24, records_per_shard=8, epochs=1)
        lease = (await server.call("Exchange", worker="a", want=1)).leases[0]
        journal.full = True
        report = asyncio.ensure_future(server.call("Exchange", worker="a", reports=[{"token": lease.token}]))
        await until(lambda: dispatcher.trouble is not None)
        fetch = asyncio.ensure_future(server.call("Exchange", worker="b", want=1))
        gone = server.call("Exchange", worker="c", want=1)
        await asyncio.sleep(0.3)  # tried again
        gone.cancel()
        assert not report.done() and not fetch.done()
        assert dispatcher.ledgers["iris"].progress().leased == 0
        journal.full = False
        assert [*(await report).verdicts] == [0]
        assert (await fetch).leases[0].start == 8
        assert dispatcher.trouble is None
        assert (await server.call("Exchange", worker="a", want=1)).leases[0].start == 16

    with caplog.at_level(logging.WARNING):
        with_server(calls, journal)
    said = [record.levelname for record in caplog.records if record.name.startswith("tarkit.")]
    assert said == ["ERROR", "WARNING"]
    again = Journal(str(tmp_path / "state"))
    (ledger,) = again.load(LeaseRules(), 0.0)
    again.close()
    assert (ledger.progress().done, ledger.progress().leased) == (1, 2)


def test_tls_and_a_token(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "a-token-that-must-not-be-shown"
    (tmp_path / "token").write_text(f"{secret}\n")
    tls = ("--tls-key", str(PEM / "key.pem"), "--tls-certificate", str(PEM / "certificate.pem"))
    credentials = grpc.ssl_channel_credentials((PEM / "certificate.pem").read_bytes())
    with Service(tmp_path, *SIZED, *tls, "--token-file", "token", "--listen", "0.0.0.0:0") as running:
        port = running.address.rpartition(":")[2]
        with Caller("", channel=grpc.secure_channel(f"localhost:{port}", credentials)) as call:
            request, stub = call.stubs["Exchange"]
            message = request(worker="a", want=1)
            for metadata in ((), (("authorization", "Bearer no"),), (("authorization", secret),)):
                with pytest.raises(grpc.RpcError) as caught:
                    stub(message, timeout=10, metadata=metadata)
                assert caught.value.code().name == "UNAUTHENTICATED"
                assert secret not in caught.value.details()
            assert stub(message, timeout=10, metadata=(("authorization", f"Bearer {secret}"),)).leases
        with Caller(f"localhost:{port}") as call, pytest.raises(grpc.RpcError):
            call("GetProgress", timeout=2)
        running.process.terminate()
        code, out, err = running.end()
    assert code == 143 and secret not in "".join(out + err)


@pytest.mark.parametrize(
    ("files", "kind", "reason"),
    [
        (("key.pem", None, None), UsageError, "both a key and a certificate"),
        (("certificate.pem", "certificate.pem", None), UsageError, "is not the key"),
        (("nosuch.pem", "certificate.pem", None), MissingInputError, "cannot be read"),
        ((None, None, "nosuch"), MissingInputError, "cannot be read"),
        ((None, None, "key.pem"), UsageError, "the first line must be the token"),
    ],
)
def test_files_of_keys_that_are_refused(files: Iterable[str | None], kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        security_of_files(*(None if name is None else str(PEM / name) for name in files))


def test_without_more_a_server_speaks_tarkits_own_protocol_only() -> None:
    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal) as dispatcher,
            serving(dispatcher, "127.0.0.1:0") as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            own, elasticdl = (Caller("", elasticdl=each, channel=channel) for each in (False, True))
            assert not (await own("GetProgress")).progress
            code, _ = await refusal(elasticdl("get_task"))
            assert code == "UNIMPLEMENTED"
        journal.close()

    asyncio.run(run())


def test_a_message_is_not_read_without_the_token() -> None:
    async def run() -> None:
        journal = Journal(":memory:")
        async with (
            Dispatcher(journal) as dispatcher,
            serving(dispatcher, "127.0.0.1:0", security=Security(token="secret")) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            for method in (f"{OWN}/Declare", "proto.Master/get_task", "no/such"):
                # No message is ever sent.
                call = channel.stream_unary(f"/{method}")(metadata=(("authorization", "Bearer other"),), timeout=5)
                assert (await refusal(call))[0] == "UNAUTHENTICATED"
        journal.close()

    asyncio.run(run())


def test_calls_are_refused_when_too_many_shards_are_dead() -> None:
    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=0, strict_epochs=True)
        leases = (await server.call("Exchange", worker="a", want=3)).leases
        held = [asyncio.ensure_future(server.call("Exchange", worker=f"b{number}", want=1)) for number in range(3)]
        held.append(asyncio.ensure_future(server.call("get_task", elasticdl=True)))
        await until(lambda: server.dispatcher.pending.number == 4)
        await server.call("Exchange", worker="a", reports=[{"token": leases[0].token, "error": "no such file"}])
        await server.call("Exchange", worker="a", reports=[{"token": each.token} for each in leases[1:]])
        for call in held:
            code, details = await refusal(call)
            assert code == "FAILED_PRECONDITION" and "1 dead shard, and the limit is 1" in details
        assert server.dispatcher.ended
        (found,) = (await server.call("GetProgress", name="iris")).progress
        assert (found.aborted, found.ended, found.done, found.dead) == (True, False, 2, 1)
        await server.call("Reset", name="iris")
        assert len((await server.call("Exchange", worker="a", want=3)).leases) == 3

    with_server(calls, rules=LeaseRules(errors=1, dead=1))


def test_tokens_of_a_state_that_is_gone_complete_nothing() -> None:
    earlier: list[Any] = []

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        await server.call("report_dataset_shard_params", elasticdl=True, batch_size=1, dataset_size=9, dataset_name="e")
        leases = (await server.call("Exchange", worker="w", name="iris", want=3)).leases
        task = await server.call("get_dataset_task", elasticdl=True, dataset_name="e")
        if not earlier:
            earlier.extend([[{"token": lease.token} for lease in leases], task.task_id])
            return
        reports, task_id = earlier
        verdicts = (await server.call("Exchange", worker="v", name="iris", reports=reports)).verdicts
        assert set(verdicts) <= {2, 3}
        await server.call("report_dataset_task_result", elasticdl=True, task_id=task_id, dataset_name="e")
        for name, leased in (("iris", 3), ("e", 1)):
            (found,) = (await server.call("GetProgress", name=name)).progress
            assert (found.done, found.leased) == (0, leased)

    with_server(calls)
    with_server(calls)


def test_a_service_that_stood_still_does_not_blame_its_workers() -> None:
    now = [0.0]

    async def calls(server: Server) -> None:
        await server.call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        await server.call("Exchange", worker="w", want=1)
        ledger = server.dispatcher.ledger("iris")
        now[0] = 100.0  # such as after SIGSTOP, or while a virtual machine was moved
        assert (await server.call("Exchange", worker="v", want=1)).leases[0].start == 8
        await asyncio.sleep(0.1)
        assert ledger.progress().leased == 2
        for _ in range(4):  # the worker itself is silent
            now[0] += 1.0
            await asyncio.sleep(0.1)
        assert ledger.progress().leased == 0

    with_server(calls, rules=LeaseRules(floor=3.0, first=3.0, ceiling=3.0), clock=lambda: now[0])


def test_addresses_that_are_refused() -> None:
    for listen, security, reason in (
        ("50001", Security(), "is not HOST:PORT"),
        ("127.0.0.1:70000", Security(), "is not HOST:PORT"),
        ("0.0.0.0:0", Security(), "other machines"),
        ("0.0.0.0:0", Security(token="t"), "other machines"),
        ("0.0.0.0:0", Security(b"k", b"c"), "other machines"),
        ("192.0.2.1:0", Security(b"k", b"c", "t"), "cannot listen there"),
    ):

        async def run(listen: str = listen, security: Security = security) -> None:
            async with Dispatcher(Journal(":memory:")) as dispatcher, serving(dispatcher, listen, security=security):
                pass

        with pytest.raises(UsageError, match=reason):
            asyncio.run(run())
