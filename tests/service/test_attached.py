"""A worker that attends keeps its leases, however long it works, and whichever worker asks for shards meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher, ShardRequest
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules, NoShard


def test_a_worker_that_attends_is_not_lost_by_the_call_of_another() -> None:
    """Its deadline is over when the other one calls, and the service has not looked since."""

    async def run() -> None:
        now = [0.0]
        journal = Journal(":memory:")
        async with Dispatcher(journal, LeaseRules(floor=1.0, first=1.0), clock=lambda: now[0], tick=0.02) as dispatcher:
            await dispatcher.declare(DataSet("d", 2, 1))
            ledger = dispatcher.ledger("d")
            dispatcher.heard("a")
            _, given = await dispatcher.exchange(ledger, "a", request=ShardRequest(1))
            assert isinstance(given, list)
            with dispatcher.attend("a"):
                now[0] = 1.5
                dispatcher.heard("b")
                _, other = await dispatcher.exchange(ledger, "b", request=ShardRequest(2))
                assert isinstance(other, list)
                assert [lease.shard.start for lease in other] == [1]
                await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
                now[0] = 3.0
                dispatcher.heard("b")
                assert (await dispatcher.exchange(ledger, "b", request=ShardRequest(2, wait=0.0)))[1] is NoShard.WAIT
            await asyncio.sleep(0.1)
            now[0] = 4.5
            dispatcher.heard("b")
            _, back = await dispatcher.exchange(ledger, "b", request=ShardRequest(2))
            assert isinstance(back, list)
            assert [lease.shard.start for lease in back] == [0]
        journal.close()

    asyncio.run(run())


def test_workers_have_time_to_find_a_service_that_was_started_again(tmp_path: Path) -> None:
    """Their leases are shorter than a client takes to connect again."""

    async def run() -> None:
        now, rules = [0.0], LeaseRules(floor=1.0, ceiling=1.0)
        journal = Journal(str(tmp_path / "state"))
        async with Dispatcher(journal, rules, clock=lambda: now[0], tick=0.02) as dispatcher:
            await dispatcher.declare(DataSet("d", 1, 1))
            dispatcher.heard("a")
            await dispatcher.exchange(dispatcher.ledger("d"), "a", request=ShardRequest(1))
        journal.close()
        journal = Journal(str(tmp_path / "state"))
        async with Dispatcher(journal, rules, clock=lambda: now[0], tick=0.02) as dispatcher:
            ledger = dispatcher.ledger("d")
            dispatcher.heard("b")
            now[0] = 1.5
            assert (await dispatcher.exchange(ledger, "b", request=ShardRequest(1, wait=0.0)))[1] is NoShard.WAIT
            now[0] = 4.5
            await asyncio.sleep(0.1)  # it looks at the leases, so that it did not stand still itself
            now[0] = 6.2
            assert isinstance((await dispatcher.exchange(ledger, "b", request=ShardRequest(1, wait=0.0)))[1], list)
        journal.close()

    asyncio.run(run())
