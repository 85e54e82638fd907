"""The HTTP port of a service: a status page, ``/metrics`` for Prometheus, ``/healthz``. It only reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from tarkit.errors import UsageError, printable, quoted
from tarkit.service.address import host_and_port, is_loopback

_log = logging.getLogger(__name__)
_HEAD = 16 << 10
_SECONDS = 10.0
_CONNECTIONS = 200
_HEADERS = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "Connection: close\r\n"
)


@dataclass(frozen=True)
class Page:
    """An answer. kind: its media type."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200


@asynccontextmanager
async def serving_http(listen: str, pages: dict[str, Callable[[], Page]], *, insecure: bool) -> AsyncIterator[str]:
    """Answer GET and HEAD for as long as it lasts; what it yields is the address.

    Args:
        listen: ``[HOST:]PORT``; without a host, loopback.
        pages: path -> what makes the answer.
        insecure: listen elsewhere than on loopback.

    Raises:
        UsageError: ``listen`` is not ``[HOST:]PORT``, the port is taken, or the address is not a loopback one.
    """
    parts = host_and_port(listen if ":" in listen else f":{listen}")
    if parts is None:
        raise UsageError(f"{quoted(listen)} is not [HOST:]PORT, such as 8080")
    host, port = parts[0] or "127.0.0.1", parts[1]
    if not (insecure or is_loopback(host)):
        raise UsageError(f"{quoted(listen)} can be read from other machines, without TLS or a token: see --insecure")
    connections: dict[asyncio.StreamWriter, None] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[writer] = None
        if len(connections) > _CONNECTIONS:
            # An answer takes milliseconds: the oldest is of a caller that keeps connections open.
            oldest = next(iter(connections))
            del connections[oldest]
            oldest.transport.abort()
        try:
            # A caller that goes, is slow, or sends too much gets no answer; the next one does.
            with suppress(OSError, asyncio.TimeoutError, EOFError, asyncio.LimitOverrunError):
                await asyncio.wait_for(_answer(reader, writer, pages), _SECONDS)
        finally:
            connections.pop(writer, None)
            # close() alone keeps a connection until the caller has read all.
            writer.transport.abort()

    try:
        server = await asyncio.start_server(answer, host.strip("[]"), port, limit=_HEAD)
    except OSError as error:
        raise UsageError(f"{quoted(listen)}: HTTP cannot listen there: {printable(str(error))}") from error
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: dict[str, Callable[[], Page]]
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].decode("latin-1").split(" ")
    page = _page(words, pages)
    status = f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
    length = f"Content-Type: {page.kind}\r\nContent-Length: {len(page.body)}\r\n"
    writer.write(f"{status}{length}{_HEADERS}\r\n".encode() + (b"" if words[0] == "HEAD" else page.body))
    writer.close()
    await writer.wait_closed()


def _page(words: list[str], pages: dict[str, Callable[[], Page]]) -> Page:
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Page(b"this is not HTTP/1\n", status=400)
    if words[0] not in ("GET", "HEAD"):
        return Page(b"only GET and HEAD are answered\n", status=405)
    make = pages.get(words[1].partition("?")[0])
    if make is None:
        return Page(f"the pages are {', '.join(pages)}\n".encode(), status=404)
    try:
        return make()
    except Exception as error:
        _log.error("unexpected %s: %s; this is a bug in tarkit", type(error).__name__, error)
        return Page(b"this is a bug in tarkit; see the messages of the service\n", status=500)
