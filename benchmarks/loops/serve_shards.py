"""The shard service and its callers, as the first argument says.

All but the service answer with JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import threading
import time
from typing import Any

from tarkit.elasticdl.mastercalls import ElasticDLCalls
from tarkit.readers.tar import TarDataReader
from tarkit.service.client import NoShard, ShardClient, read_shards
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.service.leases import LeaseRules
from tarkit.service.ledger import Ledger
from tarkit.service.server import ShardCalls, serving


def answer(seconds: float, **evidence: Any) -> None:
    """The last line."""
    sys.stdout.write(json.dumps({"seconds": seconds, "evidence": evidence}) + "\n")


def begin() -> float:
    """Say that all is loaded, wait until the others have, and start the clock."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return time.perf_counter()


def service(state: str, name: str, size: str, per_shard: str, files: str = "", epochs: str = "1") -> None:
    """A service with one data set, its state on the disk; its port is the first line."""

    async def run() -> None:
        parts = tuple((path, 0, int(count)) for path, count in json.loads(files or "[]"))
        if parts:
            dataset = DataSet.of_files(name, parts, int(per_shard), epochs=int(epochs))
        else:
            dataset = DataSet(name, int(size), int(per_shard))
        journal = Journal(state)
        async with Dispatcher(journal, LeaseRules(floor=2.0, first=2.0, ceiling=2.0)) as dispatcher:
            await dispatcher.declare(dataset)
            async with serving(dispatcher, "127.0.0.1:0", protocols=(ShardCalls, ElasticDLCalls)) as port:
                sys.stdout.write(f"{port}\n")
                sys.stdout.flush()
                await asyncio.Event().wait()

    asyncio.run(run())


def pairs(address: str, one_by_one: str = "") -> None:
    """Fetch and report to the end.

    Args:
        one_by_one: each shard is on the service's disk before the next one is fetched.
    """
    with ShardClient(address, prefetch=0 if one_by_one else None) as client:
        client.connect()
        start, number = begin(), 0
        for shard in client:
            client.done(shard)
            if one_by_one:
                client.flush()
            number += 1
        client.flush()
        answer(time.perf_counter() - start, shards=number, accepted=client.counts["accepted"])


def latency(address: str, reports: str) -> None:
    """The time of a report, while 500 calls are held; all shards are with this process before."""
    client = ShardClient(address, prefetch=0)
    shards = []
    while not isinstance(shard := client.fetch(1.0), NoShard):
        shards.append(shard)
    connection = client._opened().connection
    held = [connection.start("Exchange", worker=f"held {number}", name="", want=1, wait=600.0) for number in range(500)]
    time.sleep(2)
    times = []
    for shard in shards[: int(reports)]:
        start = time.perf_counter()
        client.done(shard, [(0, 1)])
        client.flush()
        times.append(time.perf_counter() - start)
    still = sum(not each.done() for each in held)
    for each in held:
        each.cancel()
    ordered = sorted(times)
    answer(ordered[len(ordered) * 99 // 100], median=statistics.median(ordered), reports=len(ordered), held=still)


def epoch(shards: str) -> None:
    """Begin an epoch of many shards, hand one out, and look at the memory after a part of it was
    done.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    ledger = Ledger(DataSet("large", int(shards) * 10, 10, shuffle_shards=True))
    lease = ledger.lease("a", 0.0)
    seconds = time.perf_counter() - start
    for _ in range(200_000):
        ledger.complete(lease.token, 0.0)
        lease = ledger.lease("a", 0.0)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    answer(seconds, shards=ledger.dataset.shards, done=ledger.progress().done, kib=kib)


def lost(address: str) -> None:
    """How long after its lease began the shard of a worker that fell silent is handed out."""
    client = ShardClient(address, prefetch=0)
    connection = client._opened().connection
    (lease,) = connection.call("Exchange", worker="silent", name="", want=1).leases
    start = time.perf_counter()
    while True:
        shard = client.fetch()
        if shard.start == lease.start:
            break
        client.done(shard)
    answer(time.perf_counter() - start - lease.seconds, lease=lease.seconds)


def photos(spec: str, address: str, share: str, epochs: str) -> None:
    """Read samples through a service.

    Or without an address, every second file from ``share`` on, so many times.
    """
    reader = TarDataReader(spec)
    if address:
        client = ShardClient(address)
        client.connect()
        start = begin()
        samples = read_shards(client, reader)
    else:
        names = [name for name, *_ in reader.create_shards()][int(share) :: 2] * int(epochs)
        start = begin()
        samples = (sample for name in names for sample in reader.read_from(name, 0))
    number = size = 0
    for sample in samples:
        number += 1
        size += len(sample["jpg"])
    if address:
        client.close()
    answer(time.perf_counter() - start, samples=number, bytes=size)


if __name__ == "__main__":
    threading.stack_size(512 * 1024)
    {"service": service, "pairs": pairs, "latency": latency, "epoch": epoch, "lost": lost, "photos": photos}[
        sys.argv[1]
    ](*sys.argv[2:])
