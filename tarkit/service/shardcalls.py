"""The calls of ``shards.proto``, tarkit's own protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.readers.reader import Shard
from tarkit.service import checkpoint
from tarkit.service.connection import WATCHER
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher, Report, ShardRequest
from tarkit.service.leases import Lease, NoShard, Verdict
from tarkit.service.messages import shard_protocol
from tarkit.service.progress import DataSetProgress

_VERDICTS = {Verdict.ACCEPTED: 0, Verdict.LATE: 1, Verdict.STALE: 2, Verdict.UNKNOWN: 3}


class ShardCalls:
    """The calls of ``shards.proto``, as messages."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.protocol = shard_protocol()
        self._messages = self.protocol.messages

    async def Declare(self, request: Any, context: Any) -> Any:
        """Add a data set, or take part in one."""
        files = tuple(Shard(file.name, file.start, file.records, file.identity) for file in request.files)
        values = {each.name: getattr(request, each.name) for each in fields(DataSet)}
        size, kind = request.size or sum(file.records for file in files), request.task_type or 1
        # Loops written for ElasticDL cannot ask for strict epochs, and run with them.
        known = self._dispatcher.ledgers.get(request.name)
        strict = request.strict_epochs or (known is not None and known.dataset.strict_epochs)
        dataset = DataSet(**values | {"files": files, "size": size, "task_type": kind, "strict_epochs": strict})
        made = await self._dispatcher.declare(dataset)
        return self._messages.Declared(shards=dataset.shards, made=made, heartbeat=self._heartbeat)

    async def Exchange(self, request: Any, context: Any) -> Any:
        """Take reports, and give shards."""
        dispatcher = self._dispatcher
        if request.want < 0 or not request.wait >= 0:
            raise UsageError(f"want is {request.want} and wait is {request.wait}; both must be 0 or more")
        dispatcher.heard(request.worker)
        ledger = dispatcher.ledger(request.name)
        reports = [
            Report(each.token, [(part.first, part.end) for part in each.ranges] or None, each.error)
            for each in request.reports
        ]
        call, worker = request.call, request.worker
        if request.idle:
            dispatcher.lose_idle(ledger, worker, request.idle)
        unused = dispatcher.unanswered(ledger, worker, call, request.held) if call else []
        wanted = ShardRequest(request.want, request.wait or None) if request.want else None
        verdicts, answer = await dispatcher.exchange(ledger, request.worker, reports, unused, wanted)
        reply = self._messages.ExchangeReply(verdicts=[_VERDICTS[verdict] for verdict in verdicts])
        if isinstance(answer, NoShard):
            reply.end, reply.drain = answer is NoShard.END, answer is NoShard.DRAIN
            if not (request.want or request.reports or call):
                reply.end = dispatcher.is_over(ledger, worker)
        else:
            reply.leases.extend(self._lease(lease) for lease in answer)
        return reply

    def _lease(self, lease: Lease) -> Any:
        shard = lease.shard
        return self._messages.Lease(
            token=lease.token,
            epoch=lease.epoch,
            name=shard.name,
            start=shard.start,
            end=shard.end,
            indices=shard.indices,
            ranges=[self._messages.Range(first=first, end=end) for first, end in lease.ranges],
            seconds=lease.seconds,
            identity=shard.identity,
        )

    @property
    def _heartbeat(self) -> float:
        return self._dispatcher.rules.floor / 3

    async def Attend(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The worker is there as long as this lasts."""
        with self._dispatcher.attend(request.worker):
            while True:
                ceiling = self._dispatcher.rules.ceiling
                yield self._messages.Attending(heartbeat=self._heartbeat, ceiling=ceiling)
                await asyncio.sleep(self._heartbeat)

    async def GetProgress(self, request: Any, context: Any) -> Any:
        """Counts, of one data set or of all."""
        progress = self._dispatcher.progress(*[request.name] if request.name else ())
        if name := dict(context.invocation_metadata() or ()).get(WATCHER):
            self._dispatcher.heartbeats.watched(str(name), over=bool(progress) and all(each.over for each in progress))
        return self._messages.ProgressReply(progress=map(self._progress, progress))

    def _progress(self, progress: DataSetProgress) -> Any:
        dead = [vars(each) | {"reason": printable(each.reason)} for each in progress.dead_shards]
        return self._messages.Progress(**vars(progress) | {"dead_shards": dead})

    async def Save(self, request: Any, context: Any) -> Any:
        """A checkpoint."""
        ledger = self._dispatcher.ledger(request.name)
        return self._messages.Checkpoint(name=ledger.dataset.name, content=checkpoint.checkpoint(ledger))

    async def Restore(self, request: Any, context: Any) -> Any:
        """Take a checkpoint for the state."""
        ledger = self._dispatcher.ledger(request.name)
        await self._dispatcher.restore(ledger, request.content)
        return self._messages.Restored(todo=ledger.progress().todo)

    async def Reset(self, request: Any, context: Any) -> Any:
        """Begin anew."""
        ledger = self._dispatcher.ledger(request.name)
        await self._dispatcher.reset(ledger)
        return self._messages.Restored(todo=ledger.dataset.shards)
