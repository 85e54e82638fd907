"""HTTP connections, and the bodies of answers, more strict than http.client.

If a connection ends inside an answer's framing, the answer is incomplete; http.client takes the end
of a connection inside the headers for their end. RFC 9112: message format (2), Transfer-Encoding
and Content-Length (6), chunks (7.1).
"""

from __future__ import annotations

import base64
import functools
import http.client
import io
import os
import re
import select
import socket
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import Any

from tarkit.errors import UsageError
from tarkit.names.url import http_parts
from tarkit.store.foreign import without_secrets
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped

CONNECT_SECONDS = 10.0
"""Timeout in seconds for a connection and its TLS handshake.

Networks that lose packets answer within that, or not at all.
"""
_SURPLUS_MS = 1000
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n]*\r\n")
_LONGEST_LINE = 65536
_MOST_TRAILERS = 100


class _WholeLines(io.BufferedReader):
    """A buffered connection whose lines must be complete."""

    _begun = False

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size and (line or self._begun):
            raise http.client.HTTPException("the connection ended before the answer's head or framing did")
        self._begun = True
        return line


class Answer(http.client.HTTPResponse):
    """An answer with a complete head that states the framing of its body without contradiction."""

    def __init__(self, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = _WholeLines(self.fp.detach())

    def begin(self) -> None:
        super().begin()
        while 100 <= self.status < 200 and self.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
            # The final answer follows (RFC 9110, 15.2); http.client waits for it only after 100.
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        codings = _values(self.headers, "Transfer-Encoding")
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise http.client.UnknownTransferEncoding("a Transfer-Encoding other than chunked")
        lengths = set(_values(self.headers, "Content-Length"))
        if len(lengths) > 1 or not all(re.fullmatch(r"\d{1,18}", text, re.ASCII) for text in lengths):
            raise http.client.HTTPException("a Content-Length that is not one number")
        if self.headers.get_payload() and not lengths and not codings:
            # A line that is not a header ends the parsing, and the length may follow it.
            raise http.client.HTTPException("a head with a line that is not a header")


def _values(headers: http.client.HTTPMessage, name: str) -> list[str]:
    return [value.strip() for line in headers.get_all(name, []) for value in line.split(",")]


class Connection(http.client.HTTPConnection):
    """A connection with strict answers and a short timeout for connecting."""

    response_class = Answer

    def connect(self) -> None:
        _connect(self, super().connect)


class SecureConnection(http.client.HTTPSConnection):
    """A TLS connection with strict answers and a short timeout for connecting."""

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
    """Return an opener for http and https, also through proxies.

    Answers are returned unchanged, redirects and errors too.
    """
    director = urllib.request.OpenerDirector()
    for handler in (_Proxies, _Plain, _Secure):
        director.add_handler(handler())
    return director


def new_request(url: str, headers: dict[str, str]) -> urllib.request.Request:
    """Return a request; the user and password of the URL become a header."""
    parts = http_parts(url)
    user, at, host = parts.netloc.rpartition("@")
    # The text behind a "#" is for the user of the URL, not for the server.
    plain = urllib.parse.urlunsplit(parts._replace(netloc=host, fragment=""))
    request = urllib.request.Request(plain, headers={"User-Agent": "tarkit", **headers})
    if at:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_header("Authorization", f"Basic {token}")
    return request


class Chunks:
    """The content of a chunked body (RFC 9112, 7.1).

    It ends with the last chunk, its trailers and an empty line. http.client also takes the end of
    the connection in the middle of these for the end of the body, and accepts sizes such as ``1_0``
    and ``+5``.
    """

    def __init__(self, lines: io.BufferedReader) -> None:
        self._lines = lines
        self._left = 0
        self._begun = False
        self._ended = False

    def read1(self, count: int) -> bytes:
        """Read at most ``count`` > 0 bytes, b"" at the end.

        Raises:
            Dropped: the framing is broken.
        """
        if not self._left and not self._ended:
            self._next_chunk()
        if self._ended:
            return b""
        data = self._lines.read1(min(count, self._left))
        if not data:
            raise Dropped("the connection ended inside a chunk of the body")
        self._left -= len(data)
        return data

    def _next_chunk(self) -> None:
        if self._begun and self._line() != b"\r\n":
            raise Dropped("a chunk of the body does not have the length that it states")
        self._begun = True
        match = _CHUNK_SIZE.fullmatch(self._line())
        if match is None:
            raise Dropped("the body is chunked, and the size of a chunk is not a number")
        self._left = int(match[1], 16)
        if not self._left:
            self._skip_trailers()
            self._ended = True

    def _skip_trailers(self) -> None:
        for _ in range(_MOST_TRAILERS):
            line = self._line()
            if line == b"\r\n":
                return
            if _TRAILER.fullmatch(line) is None:
                break
        raise Dropped("the body has other bytes after its last chunk")

    def _line(self) -> bytes:
        return self._lines.readline(_LONGEST_LINE)


class HttpBody(Body):
    """The body of one answer.

    Args:
        url: URL with its secrets, which are taken out of messages.
        offset: offset in the object at which the body begins, in bytes.
        end: offset at which it ends, None if it is not announced.
        final: True if its end, if shown by more than the end of the connection, is the end of the
            object.
    """

    def __init__(self, response: http.client.HTTPResponse, url: str, offset: int, end: int | None, final: bool) -> None:
        self._response = response
        self._url = url
        self.end = end
        self.final = final and (end is not None or bool(response.chunked))
        self._left = None if end is None else end - offset
        # If the length of a part is not announced, only its end shows that it is the range in the
        # answer's head.
        self._is_part = not final and response.length is None
        # The buffered connection: http.client itself closes it at the announced end, which would
        # hide surplus bytes.
        self._buffered = response.fp
        self._content = Chunks(self._buffered) if response.chunked else self._buffered
        # A separate socket, so that another thread can end a read without racing against a close.
        self._line = socket.socket(fileno=os.dup(response.fileno()))

    def read(self, count: int) -> bytes:
        try:
            if self._left is not None:
                count = min(count, self._left)
            if not count:
                return b""
            data: bytes = self._content.read1(count)
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = without_secrets(str(error) or type(error).__name__, self._url)
            raise Dropped(f"the connection broke ({said})") from None
        if self._left is not None:
            self._left -= len(data)
            if self._left == 0 and self._is_part and self.has_surplus():
                raise Dropped("the server sends more bytes than the range that it states")
        return data

    def has_surplus(self) -> bool:
        """Return True if more bytes come than were announced.

        It is known only for servers that close the connection, as they are asked to.
        """
        if not self._response.will_close:
            return False
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        try:
            # The last chunk of a chunked body may still follow.
            return bool(poll.poll(_SURPLUS_MS)) and bool(self._content.read1(1) or self._buffered.read1(1))
        except (OSError, http.client.HTTPException, Dropped):
            return False

    def interrupt(self) -> None:
        with suppress(OSError):  # It may be down already.
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._line.close()
        self._response.close()
