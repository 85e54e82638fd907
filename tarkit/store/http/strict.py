"""http.client without its leniency: where a connection ends inside an answer's framing, the answer is not whole.

http.client takes the end of a connection inside the headers for their end. RFC 9112: message format (2),
Transfer-Encoding and Content-Length (6). The module is imported where a connection is made, since http.client is large.
"""

from __future__ import annotations

import functools
import http.client
import io
import re
import urllib.request
from typing import Any

from tarkit.errors import UsageError
from tarkit.store.url import http_parts

CONNECT_SECONDS = 10.0
"""Seconds for a connection and its TLS handshake. Networks that lose packets answer within that, or not at all."""


class _WholeLines(io.BufferedReader):
    """Bytes of a connection, whose lines must have their end."""

    _begun = False

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size and (line or self._begun):
            raise http.client.HTTPException("the connection ended before the answer's head or framing did")
        self._begun = True
        return line


class Answer(http.client.HTTPResponse):
    """An answer whose head is whole and says without contradiction how its body is framed."""

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = _WholeLines(self.fp.detach())

    def begin(self) -> None:
        super().begin()
        while 100 <= self.status < 200 and self.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
            # The answer is still to come (RFC 9110, 15.2); http.client waits for it after 100 alone.
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        codings = _values(self.headers, "Transfer-Encoding")
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise http.client.UnknownTransferEncoding("a Transfer-Encoding other than chunked")
        lengths = set(_values(self.headers, "Content-Length"))
        if len(lengths) > 1 or not all(re.fullmatch(r"\d{1,18}", text, re.ASCII) for text in lengths):
            raise http.client.HTTPException("a Content-Length that is not one number")
        if self.headers.get_payload() and not lengths and not codings:
            # A line that is not a header ends the parsing, and the length may be behind it.
            raise http.client.HTTPException("a head with a line that is not a header")


def _values(headers: http.client.HTTPMessage, name: str) -> list[str]:
    return [value.strip() for line in headers.get_all(name, []) for value in line.split(",")]


class Connection(http.client.HTTPConnection):
    """A connection whose answers are strict, and that is given up early while it is being made."""

    response_class = Answer

    def connect(self) -> None:
        _connect(self, super().connect)


class SecureConnection(http.client.HTTPSConnection):
    """The same with TLS."""

    response_class = Answer

    def connect(self) -> None:
        _connect(self, super().connect)


def _connect(connection: http.client.HTTPConnection, connect: Any) -> None:
    patience: Any = connection.timeout
    connection.timeout = min(CONNECT_SECONDS, patience)
    connect()
    connection.timeout = patience
    connection.sock.settimeout(patience)


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(Connection, req)


class _Secure(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        # The default context verifies certificate and host name.
        return self.do_open(SecureConnection, req)


class _Proxies(urllib.request.ProxyHandler):
    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> http.client.HTTPResponse | None:
        if not urllib.request.proxy_bypass(req.host):
            try:
                http_parts(proxy if "://" in proxy else f"http://{proxy}")
            except ValueError as error:
                raise UsageError(f"{type}_proxy of the environment is not a URL: {error}") from None
        return super().proxy_open(req, proxy, type)


@functools.cache
def opener() -> urllib.request.OpenerDirector:
    """http and https, also through proxies. Answers come as they are, redirects and errors too."""
    director = urllib.request.OpenerDirector()
    for handler in (_Proxies, _Plain, _Secure):
        director.add_handler(handler())
    return director
