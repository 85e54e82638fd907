"""The shard service on a port: gRPC, one protocol or several side by side."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tarkit.errors import TarkitError, UsageError, printable, quoted
from tarkit.extras import library
from tarkit.service.credentials import Security, host_and_port, is_loopback
from tarkit.service.dispatcher import Dispatcher, NoSuchDataSetError, OtherDataSetError, TooManyError
from tarkit.service.ledger import TooManyDeadError
from tarkit.service.messages import Answers, Call
from tarkit.service.pendingcalls import StoppingError
from tarkit.service.shardcalls import ShardCalls

_log = logging.getLogger(__name__)
_KEEPALIVE = 20.0
"""Seconds after which a connection on which nothing comes is tried."""
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
"""Makes the answers to the calls of a protocol."""


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
    """Answer calls on a port for as long as it lasts; what it yields is the port.

    Args:
        listen: ``HOST:PORT``; port 0 takes a free one.
        protocols: for each protocol that is spoken, what makes its answers.
        insecure: listen elsewhere than on loopback without TLS or without a token.
        before: is awaited when the port is had, before the first call is answered.

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
    """The handlers of methods, for callers with the token.

    Others are refused before their message is read: it may be large.
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
    """How gRPC calls a method: errors become statuses."""

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
    """The status and the sentence that a caller gets."""
    if isinstance(error, TarkitError):
        found = (code for kind, code in _STATUSES.items() if isinstance(error, kind))
        return next(found, "INTERNAL"), str(error)
    _log.error("%s: unexpected %s: %s; this is a bug in tarkit", call, type(error).__name__, printable(str(error)))
    return "INTERNAL", f"unexpected {type(error).__name__} in the service, which is a bug in tarkit"
