"""Many workers that come, stall and go, a service that is killed again and again, a disk that is
full.

TARKIT_LONG_RUNS=1 runs each for as long as docs/shard-service.md says; else for a few seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shardservice import Caller, Service
from waiting import wait_for

from tarkit.service.client import HeldShard, ShardClient
from tarkit.service.dataset import DataSet

grpc = pytest.importorskip("grpc", reason="the shard service needs grpcio")
pytestmark = [pytest.mark.elasticdl, pytest.mark.slow]
LONG = bool(os.environ.get("TARKIT_LONG_RUNS"))
_LATE = 3.0
"""Seconds for which a shard may be with a client before it is used: one that is used longer after
it was acknowledged was handed out again.
"""


class Crowd:
    """Workers without threads: coroutines with plain calls.

    A worker that is killed has a successor.
    """

    def __init__(self, address: str, dataset: DataSet, workers: int, seconds: float) -> None:
        self.dataset, self.workers, self.seconds = dataset, workers, seconds
        self.verdicts: Counter[int] = Counter()
        self.acknowledged: dict[tuple[int, int], float] = {}
        self.again: list[tuple[int, int]] = []
        self.killed = self.stalled = self.ended = self.leases = 0
        self._address, self._random = address, random.Random(7)
        self._callers: list[Caller] = []

    async def run(self) -> None:
        """All workers, to the end of the data set."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(self._address, options=options) for _ in range(40)]
        self._callers = [Caller("", channel=each) for each in channels]
        dataset = self.dataset
        await self._ask(
            0, "Declare", name=dataset.name, size=dataset.size, records_per_shard=dataset.records_per_shard, epochs=1
        )
        self._until = time.monotonic() + self.seconds
        await asyncio.gather(*(self._place(number) for number in range(self.workers)))
        for channel in channels:
            await channel.close()

    async def _ask(self, number: int, name: str, /, **fields: Any) -> Any:
        return await self._callers[number % len(self._callers)](name, timeout=None, **fields)

    async def _place(self, number: int) -> None:
        """A worker and its successors."""
        life = 0
        while True:
            life += 1
            work = asyncio.create_task(self._work(number, f"w{number}.{life}"))
            if time.monotonic() < self._until and self._random.random() < 0.5:
                done, _ = await asyncio.wait({work}, timeout=self._random.uniform(0.5, 10))
                if not done:
                    self.killed += 1
                    work.cancel()
                    await asyncio.wait({work})
                    continue
            await work
            self.ended += 1
            return

    async def _work(self, number: int, worker: str) -> None:
        # The first 900 get shards; the others are held until these are lost or reported late.
        while True:
            asked = time.monotonic()
            reply = await self._ask(number, "Exchange", worker=worker, name=self.dataset.name, want=1)
            if reply.end:
                return
            (lease,) = reply.leases
            self.leases += 1
            key = (lease.epoch, lease.start)
            # What was acknowledged while this call was on its way may have been late.
            if self.acknowledged.get(key, 1e18) < asked:
                self.again.append(key)
            stall = time.monotonic() < self._until and self._random.random() < 0.02
            self.stalled += stall
            await asyncio.sleep(self._random.uniform(3, 6) if stall else self._random.expovariate(1.0))
            report = {"token": lease.token}
            told = await self._ask(number, "Exchange", worker=worker, name=self.dataset.name, reports=[report])
            self.verdicts[told.verdicts[0]] += 1
            if told.verdicts[0] in (0, 1):
                assert key not in self.acknowledged, f"{key} was accepted twice"
                self.acknowledged[key] = time.monotonic()


def test_a_thousand_workers_that_stall_and_are_killed(tmp_path: Path) -> None:
    workers, seconds = (1000, 60.0) if LONG else (300, 8.0)
    shards = int(workers * seconds * (0.8 if LONG else 0.5))
    with Service(tmp_path, "--lease-floor", "2", "--lease-ceiling", "2.5", "--max-losses", "1000000") as service:
        crowd = Crowd(service.address, DataSet("crowd", shards * 4, 4, 1), workers, seconds)
        began = time.monotonic()
        asyncio.run(crowd.run())
        took = time.monotonic() - began
        with ShardClient(service.address, "crowd") as client:
            progress = client.progress()
    sys.stderr.write(
        f"{workers} workers, {shards} shards, {took:.0f} s, {crowd.leases} leases, {crowd.killed} killed, "
        f"{crowd.stalled} stalled, verdicts {dict(crowd.verdicts)}, load {os.getloadavg()[0]:.1f}\n"
    )
    assert crowd.killed and crowd.stalled and crowd.verdicts[1] + crowd.verdicts[2]
    assert crowd.again == []
    # An answer may be lost with its worker: what is accepted, and was not seen to be, is counted by
    # the service.
    assert len(crowd.acknowledged) <= shards
    assert crowd.verdicts[0] + crowd.verdicts[1] == len(crowd.acknowledged) and not crowd.verdicts[3]
    assert (progress.done, progress.dead, progress.leased, progress.todo) == (shards, 0, 0, 0)
    assert progress.records == shards * 4 and progress.ended and crowd.ended == workers


CLIENTS = """
import json, random, sys, threading, time
from tarkit.service.client import HeldShard, ShardClient
address, number = sys.argv[1], int(sys.argv[2])
out = threading.Lock()
def work():
    with ShardClient(address, "run", patience=60) as client:
        for shard in client:
            fetched = time.time()
            time.sleep(random.uniform(0, 0.05))
            client.done(shard)
            client.flush()
            with out:
                print(json.dumps([shard.epoch, shard.start, fetched, time.time()]), flush=True)
        client.flush()
        with out:
            print(json.dumps(client.counts), flush=True)
threads = [threading.Thread(target=work) for _ in range(number)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_service_that_is_killed_every_few_seconds(tmp_path: Path) -> None:
    seconds, every, clients, shards = (120.0, 5.0, 50, 60_000) if LONG else (9.0, 3.0, 10, 3000)
    with Service(tmp_path, "--lease-floor", "10", "--lease-ceiling", "60") as service:
        with ShardClient(service.address, DataSet("run", shards * 2, 4, 2)):
            pass
        running = [
            subprocess.Popen(
                [sys.executable, "-c", CLIENTS, service.address, str(clients // 5)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(5)
        ]
        outputs: list[str] = []
        threads = [threading.Thread(target=lambda each=each: outputs.append(each.communicate()[0])) for each in running]
        for thread in threads:
            thread.start()
        until, kills = time.monotonic() + seconds, 0
        while time.monotonic() < until and any(thread.is_alive() for thread in threads):
            time.sleep(every)
            service.kill()
            service.start()
            kills += 1
        for thread in threads:
            thread.join(300)
        with ShardClient(service.address, "run") as client:
            progress = client.progress()
    lines = [json.loads(line) for output in outputs for line in output.splitlines()]
    counts: Counter[str] = sum((Counter(line) for line in lines if isinstance(line, dict)), Counter())
    read = [line for line in lines if isinstance(line, list)]
    sys.stderr.write(f"{kills} kills, {clients} clients, {len(read)} shards read, {dict(counts)}\n")
    assert [each.returncode for each in running] == [0] * 5 and kills >= 2
    total = 2 * (shards * 2 // 4)
    assert {(epoch, start) for epoch, start, *_ in read} == {
        (epoch, start) for epoch in (1, 2) for start in range(0, shards * 2, 4)
    }
    first: dict[tuple[int, int], float] = {}
    for epoch, start, fetched, done in sorted(read, key=lambda line: line[3]):
        assert fetched < first.setdefault((epoch, start), done) + _LATE, "acknowledged, and handed out again"
    assert (progress.done, progress.records, progress.dead, progress.ended) == (total, shards * 4, 0, True)
    assert counts["accepted"] + counts["late"] + counts["stale"] + counts["repeated"] == len(read)
    assert counts["accepted"] + counts["late"] + counts["repeated"] >= total and not counts["unknown"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB: the state has 4 MiB of changes before it is written anew."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"NO tmpfs, A FULL DISK IS NOT TRIED: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_under_the_journal(tmp_path: Path, small_disk: Path) -> None:
    with Service(tmp_path, "--state", str(small_disk / "state"), "--http", "0") as service:
        with ShardClient(service.address, DataSet("iris", 400, 4, 1), prefetch=0) as client:
            first = client.fetch()
            ballast = small_disk / "ballast"
            with ballast.open("wb", buffering=0) as stream:
                try:
                    while True:
                        stream.write(b"\0" * 65536)
                except OSError:
                    pass
            reader = threading.Thread(target=lambda: read.extend(_read(client)), daemon=True)
            read: list[int] = []
            assert isinstance(first, HeldShard)
            client.done(first)
            reader.start()
            wait_for(lambda: _status(service) == 503)
            acknowledged = client.counts["accepted"]
            before = _handed_out(service)
            time.sleep(1.5)  # it is tried again each second
            assert _handed_out(service) == before < 100, "shards are handed out, and none can be kept"
            service.kill()
            ballast.unlink()
            service.start()
            reader.join(300)
            client.flush()
            assert client.counts["accepted"] + client.counts["repeated"] == 100 and acknowledged < 100
        assert sorted([*range(4), *read]) == [*range(400)]


def _status(service: Service) -> int:
    try:
        with urllib.request.urlopen(f"http://{service.http}/healthz", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _handed_out(service: Service) -> int:
    with Caller(service.address) as call:
        (progress,) = call("GetProgress").progress
    return int(progress.done + progress.leased)


def _read(client: ShardClient) -> list[int]:
    read: list[int] = []
    for shard in client:
        read += shard.records
        client.done(shard)
    return read
