"""The gRPC server of the shard service, and its answers to ``shards.proto``."""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

from tarkit.errors import TarkitError, UsageError, printable, quoted
from tarkit.extras import library
from tarkit.readers.reader import Shard
from tarkit.service import checkpoint
from tarkit.service.connection import WATCHER, Security, host_and_port, is_loopback
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.leases import (
    Lease,
    NoShard,
    NoSuchDataSetError,
    OtherDataSetError,
    Report,
    StoppingError,
    TaskRequest,
    TooManyDeadError,
    TooManyError,
    Verdict,
)
from tarkit.service.messages import Answers, Call, shard_protocol
from tarkit.service.progress import DataSetProgress

_VERDICTS = {Verdict.ACCEPTED: 0, Verdict.LATE: 1, Verdict.STALE: 2, Verdict.UNKNOWN: 3}
_log = logging.getLogger(__name__)
_KEEPALIVE = 20.0
"""Seconds after which a silent connection is probed."""
_STOP = 0.5
"""Seconds in which answers reach their callers when the service stops."""
_STATUSES = {
    NoSuchDataSetError: "NOT_FOUND",
    OtherDataSetError: "FAILED_PRECONDITION",
    TooManyDeadError: "FAILED_PRECONDITION",
    TooManyError: "RESOURCE_EXHAUSTED",
    StoppingError: "UNAVAILABLE",
    UsageError: "INVALID_ARGUMENT",
}

MakeAnswers = Callable[[Dispatcher], Answers]
"""Function that makes the answers to the calls of a protocol."""


class ShardCalls:
    """The methods that answer the calls of ``shards.proto``."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.protocol = shard_protocol()
        self._messages = self.protocol.messages

    async def Declare(self, request: Any, context: Any) -> Any:
        """Add a data set, or take part in one."""
        files = tuple(Shard(file.name, file.start, file.records, file.identity) for file in request.files)
        values = {each.name: getattr(request, each.name) for each in fields(DataSet)}
        size, kind = request.size or sum(file.records for file in files), request.task_type or 1
        # A loop whose client cannot ask for strict epochs runs with them.
        known = self._dispatcher.ledgers.get(request.name)
        strict = request.strict_epochs or (known is not None and known.dataset.strict_epochs)
        dataset = DataSet(**values | {"files": files, "size": size, "task_type": kind, "strict_epochs": strict})
        made = await self._dispatcher.declare(dataset)
        return self._messages.Declared(shards=dataset.shards, made=made, heartbeat=self._heartbeat)

    async def Exchange(self, request: Any, context: Any) -> Any:
        """Take reports, and answer with shards."""
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
        wanted = TaskRequest(request.want, request.wait or None) if request.want else None
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
        """Keep a worker attached for as long as the call is open."""
        with self._dispatcher.attend(request.worker):
            while True:
                ceiling = self._dispatcher.rules.ceiling
                yield self._messages.Attending(heartbeat=self._heartbeat, ceiling=ceiling)
                await asyncio.sleep(self._heartbeat)

    async def GetProgress(self, request: Any, context: Any) -> Any:
        """Answer with the counts of one data set or of all."""
        progress = self._dispatcher.progress(*[request.name] if request.name else ())
        if name := dict(context.invocation_metadata() or ()).get(WATCHER):
            self._dispatcher.heartbeats.watched(str(name), over=bool(progress) and all(each.over for each in progress))
        return self._messages.ProgressReply(progress=map(self._progress, progress))

    def _progress(self, progress: DataSetProgress) -> Any:
        dead = [vars(each) | {"reason": printable(each.reason)} for each in progress.dead_shards]
        return self._messages.Progress(**vars(progress) | {"dead_shards": dead})

    async def Save(self, request: Any, context: Any) -> Any:
        """Answer with a checkpoint."""
        ledger = self._dispatcher.ledger(request.name)
        return self._messages.Checkpoint(name=ledger.dataset.name, content=checkpoint.checkpoint(ledger))

    async def Restore(self, request: Any, context: Any) -> Any:
        """Restore the state from a checkpoint."""
        ledger = self._dispatcher.ledger(request.name)
        await self._dispatcher.restore(ledger, request.content)
        return self._messages.Restored(todo=ledger.progress().todo)

    async def Reset(self, request: Any, context: Any) -> Any:
        """Restart a data set."""
        ledger = self._dispatcher.ledger(request.name)
        await self._dispatcher.reset(ledger)
        return self._messages.Restored(todo=ledger.dataset.shards)


@asynccontextmanager
async def serving(
    dispatcher: Dispatcher,
    listen: str,
    *,
    protocols: Sequence[MakeAnswers] = (ShardCalls,),
    security: Security | None = None,
    insecure: bool = False,
    before: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[int]:
    """Answer calls on a port for as long as the context lasts, and yield the port.

    Args:
        listen: ``HOST:PORT``; port 0 takes a free one.
        protocols: a factory of the answers for each supported protocol.
        insecure: allow addresses other than loopback without TLS or without a token.
        before: awaited when the port is open, before the first call is answered.

    Raises:
        UsageError: ``listen`` is not HOST:PORT, the port is taken, or the address is not a loopback
            one and there is no TLS or no token.
        MissingExtraError: grpcio is not installed.
    """
    security = security or Security()
    grpc = library("grpc", "the shard service", "service")
    aio = library("grpc.aio", "the shard service", "service")
    _check_address(listen, security, insecure)
    limit = dispatcher.limits.message
    server = aio.server(
        maximum_concurrent_rpcs=dispatcher.limits.calls,
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.keepalive_time_ms", int(_KEEPALIVE * 1000)),
            ("grpc.keepalive_timeout_ms", int(_KEEPALIVE * 500)),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
            ("grpc.so_reuseport", 0),
        ],
    )
    handlers: dict[str, Any] = {}
    for answers in (make(dispatcher) for make in protocols):
        handlers |= {call.path: _handler(grpc, call, getattr(answers, call.name)) for call in answers.protocol.calls}
    server.add_generic_rpc_handlers((_guarded(grpc, handlers, security.token),))
    try:
        if security.certificate:
            pair = [(security.key, security.certificate)]
            bound = server.add_secure_port(listen, grpc.ssl_server_credentials(pair))
        else:
            bound = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise UsageError(f"{quoted(listen)}: the service cannot listen there: {printable(str(error))}") from error
    try:
        if before is not None:
            await before()
        await server.start()
        yield bound
    finally:
        dispatcher.close()
        await server.stop(_STOP)


def _check_address(listen: str, security: Security, insecure: bool) -> None:
    parts = host_and_port(listen)
    if parts is None:
        raise UsageError(f"{quoted(listen)} is not HOST:PORT, such as localhost:50001")
    host, port = parts
    if not (insecure or is_loopback(host) or (security.token and security.certificate)):
        raise UsageError(
            f"{quoted(listen)} can be reached from other machines; give TLS and a token, or allow it without them "
            "(--insecure)"
        )
    # gRPC does not say why an address cannot be had.
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        raise UsageError(f"{quoted(listen)}: the service cannot listen there: {error.strerror or error}") from error


def _guarded(grpc: Any, handlers: dict[str, Any], token: str) -> Any:
    """Wrap the handlers of methods, so that they reject callers without the token.

    They are rejected before their message is read, since it may be large.
    """
    wanted = f"Bearer {token}".encode()

    async def refuse(requests: Any, context: Any) -> None:
        reason = "the service needs a bearer token, and this call has none, or a wrong one"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)

    class Guarded(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            if token:
                given = str(dict(details.invocation_metadata or ()).get("authorization", "")).encode()
                if not hmac.compare_digest(given, wanted):
                    return grpc.stream_stream_rpc_method_handler(refuse)
            return handlers.get(details.method)

    return Guarded()


def _handler(grpc: Any, call: Call, answer: Callable[..., Any]) -> Any:
    """Make the gRPC handler of a call, which converts errors to statuses."""

    def read(message: bytes) -> Any:
        try:
            return call.request.FromString(message)
        except Exception:  # each release of protobuf has its own
            raise UsageError(f"the message is not a {call.request.DESCRIPTOR.name}") from None

    async def refuse(error: Exception, context: Any) -> None:
        code, reason = _status(call.name, error)
        await context.abort(getattr(grpc.StatusCode, code), reason)

    async def unary(message: bytes, context: Any) -> Any:
        try:
            return await answer(read(message), context)
        except Exception as error:
            await refuse(error, context)

    async def stream(message: bytes, context: Any) -> AsyncIterator[Any]:
        try:
            async for reply in answer(read(message), context):
                yield reply
        except Exception as error:
            await refuse(error, context)

    make = grpc.unary_stream_rpc_method_handler if call.stream else grpc.unary_unary_rpc_method_handler
    return make(stream if call.stream else unary, response_serializer=call.reply.SerializeToString)


def _status(call: str, error: Exception) -> tuple[str, str]:
    """Return the status and the message for an error, as sent to the caller."""
    if isinstance(error, TarkitError):
        found = (code for kind, code in _STATUSES.items() if isinstance(error, kind))
        return next(found, "INTERNAL"), str(error)
    _log.error("%s: unexpected %s: %s; this is a bug in tarkit", call, type(error).__name__, printable(str(error)))
    return "INTERNAL", f"unexpected {type(error).__name__} in the service, which is a bug in tarkit"
