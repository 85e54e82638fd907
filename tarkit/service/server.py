"""The shard service on a port: gRPC, tarkit's protocol and that of ElasticDL's clients side by side."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tarkit.errors import TarkitError, UsageError, library, printable, quoted
from tarkit.readers.reader import Shard
from tarkit.service import checkpoint
from tarkit.service.credentials import Security
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher, NoSuchDataSetError, OtherDataSetError, Report, ShardRequest
from tarkit.service.elasticdl import ElasticDLCalls
from tarkit.service.heldcalls import StoppingError, TooManyError
from tarkit.service.ledger import Lease, Ledger, NoShard, Verdict
from tarkit.service.messages import Call, protocol
from tarkit.service.progress import progress_of_ledger

_log = logging.getLogger(__name__)
_VERDICTS = {Verdict.ACCEPTED: 0, Verdict.LATE: 1, Verdict.STALE: 2, Verdict.UNKNOWN: 3}
_KEEPALIVE = 20.0
"""Seconds after which a connection without a call is tried."""


@asynccontextmanager
async def serving(
    dispatcher: Dispatcher, listen: str, *, security: Security | None = None, insecure: bool = False
) -> AsyncIterator[int]:
    """Answer calls on a port for as long as it lasts; what it yields is the port.

    Args:
        listen: ``HOST:PORT``; port 0 takes a free one.
        insecure: listen elsewhere than on loopback without TLS and without a token.

    Raises:
        UsageError: ``listen`` is not HOST:PORT, the port is taken, or the address is not a loopback one and there is
            no TLS or no token.
        MissingExtraError: grpcio is not installed.
    """
    security = security or Security()
    grpc = library("grpc", "the shard service", "service")
    aio = library("grpc.aio", "the shard service", "service")
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(f"{quoted(listen)} is not HOST:PORT, such as localhost:50001")
    if not (insecure or _is_loopback(host) or (security.token and security.certificate)):
        raise UsageError(
            f"{quoted(listen)} can be reached from other machines; give TLS and a token, or allow it without them"
        )
    limit = dispatcher.limits.message
    server = aio.server(
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.keepalive_time_ms", int(_KEEPALIVE * 1000)),
            ("grpc.keepalive_timeout_ms", int(_KEEPALIVE * 500)),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
            ("grpc.so_reuseport", 0),
        ]
    )
    for service, name, calls in (
        ("tarkit.shards.v1.ShardService", "shards", ShardCalls(dispatcher)),
        ("proto.Master", "elasticdl", ElasticDLCalls(dispatcher)),
    ):
        handlers = {
            call.name: _handler(grpc, call, getattr(calls, call.name), security.token) for call in protocol(name).calls
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        if security.certificate:
            pair = [(security.key, security.certificate)]
            bound = server.add_secure_port(listen, grpc.ssl_server_credentials(pair))
        else:
            bound = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise UsageError(f"{quoted(listen)}: the service can not listen there; is the port taken?") from error
    await server.start()
    try:
        yield bound
    finally:
        dispatcher.close()
        await server.stop(0.5)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _handler(grpc: Any, call: Call, answer: Callable[..., Any], token: str) -> Any:
    """How gRPC calls a method: with the token looked at, and errors as statuses."""
    statuses = {
        NoSuchDataSetError: grpc.StatusCode.NOT_FOUND,
        OtherDataSetError: grpc.StatusCode.FAILED_PRECONDITION,
        TooManyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
        StoppingError: grpc.StatusCode.UNAVAILABLE,
        UsageError: grpc.StatusCode.INVALID_ARGUMENT,
    }
    wanted = f"Bearer {token}".encode()

    async def admit(context: Any) -> None:
        metadata = dict(context.invocation_metadata() or ())
        if token and not hmac.compare_digest(str(metadata.get("authorization", "")).encode(), wanted):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this service needs a bearer token, and the right one")

    async def refuse(context: Any, error: TarkitError) -> None:
        await context.abort(statuses.get(type(error), grpc.StatusCode.INTERNAL), str(error))

    async def unary(request: Any, context: Any) -> Any:
        await admit(context)
        try:
            return await answer(request, context)
        except TarkitError as error:
            await refuse(context, error)

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        await admit(context)
        try:
            async for reply in answer(request, context):
                yield reply
        except TarkitError as error:
            await refuse(context, error)

    make = grpc.unary_stream_rpc_method_handler if call.stream else grpc.unary_unary_rpc_method_handler
    return make(
        stream if call.stream else unary,
        request_deserializer=call.request.FromString,
        response_serializer=call.reply.SerializeToString,
    )


class ShardCalls:
    """The calls of ``shards.proto``, as messages."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._messages = protocol("shards")

    async def Declare(self, request: Any, context: Any) -> Any:
        """Add a data set, or take part in one."""
        files = tuple(Shard(file.name, file.start, file.records) for file in request.files)
        dataset = DataSet(
            request.name,
            request.size or sum(file.records for file in files),
            request.records_per_shard,
            request.epochs,
            files,
            request.shuffle_shards,
            request.shuffle_records,
            request.seed,
            request.remainder,
            request.strict_epochs,
            request.task_type or 1,
        )
        made = await self._dispatcher.declare(dataset)
        return self._messages.Declared(shards=dataset.shards, made=made, heartbeat=self._heartbeat)

    async def Exchange(self, request: Any, context: Any) -> Any:
        """Take reports, and give shards."""
        dispatcher = self._dispatcher
        if request.want < 0 or not request.wait >= 0:
            raise UsageError(f"want is {request.want} and wait is {request.wait}; both must be 0 or more")
        ledger = dispatcher.ledger(request.name)
        reports = [
            Report(each.token, [(part.first, part.end) for part in each.ranges] or None, each.error)
            for each in request.reports
        ]
        unused = [*request.unused]
        if request.call:
            unused += dispatcher.unanswered(ledger, request.worker, request.call, request.held)
        if request.blocked:
            dispatcher.held.block(request.worker)
        wanted = ShardRequest(request.want, request.wait or None) if request.want else None
        verdicts, answer = await dispatcher.exchange(ledger, request.worker, reports, unused, wanted)
        reply = self._messages.ExchangeReply(verdicts=[_VERDICTS[verdict] for verdict in verdicts])
        if isinstance(answer, NoShard):
            reply.end, reply.drain = answer is NoShard.END, answer is NoShard.DRAIN
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
        )

    @property
    def _heartbeat(self) -> float:
        return self._dispatcher.rules.floor / 3

    async def Attend(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The worker is there as long as this lasts."""
        with self._dispatcher.attend(request.worker):
            while True:
                yield self._messages.Attending(heartbeat=self._heartbeat)
                await asyncio.sleep(self._heartbeat)

    async def GetProgress(self, request: Any, context: Any) -> Any:
        """Counts, of one data set or of all."""
        ledgers = [self._dispatcher.ledger(request.name)] if request.name else self._dispatcher.ledgers.values()
        self._dispatcher.presence.looked(context.peer(), self._dispatcher.ended)
        return self._messages.ProgressReply(progress=[self._progress(ledger) for ledger in ledgers])

    def _progress(self, ledger: Ledger) -> Any:
        progress = progress_of_ledger(ledger)
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
