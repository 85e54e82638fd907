"""The body of one HTTP answer, in pieces as large as the system has them."""

from __future__ import annotations

import os
import re
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from tarkit.store.foreign import without_secrets
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped

if TYPE_CHECKING:
    import http.client
    import io

_SURPLUS_MS = 1000
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n]*\r\n")
_LONGEST_LINE = 65536
_MOST_TRAILERS = 100


class Chunks:
    """The content of a chunked body (RFC 9112, 7.1).

    It ends with the last chunk, its trailers and an empty line. http.client also takes the end of the connection in
    the middle of these for the end of the body, and reads sizes such as ``1_0`` and ``+5``.
    """

    def __init__(self, lines: io.BufferedReader) -> None:
        self._lines = lines
        self._left = 0
        self._begun = False
        self._ended = False

    def read1(self, count: int) -> bytes:
        """At most ``count`` > 0 bytes, b"" at the end. Raises Dropped where the framing is broken."""
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
            raise Dropped("a chunk of the body is not as long as its size says")
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
        raise Dropped("what follows the last chunk of the body is not its end")

    def _line(self) -> bytes:
        return self._lines.readline(_LONGEST_LINE)


class HttpBody(Body):
    """The body of one answer.

    end: offset in the object at which it ends, None if it is not announced. final: whether its end, if
    told by more than the end of the connection, is the end of the object.
    """

    def __init__(self, response: http.client.HTTPResponse, url: str, offset: int, end: int | None, final: bool) -> None:
        self._response = response
        self._url = url
        self.end = end
        self.final = final and (end is not None or bool(response.chunked))
        self._left = None if end is None else end - offset
        # The buffered connection: http.client's own way closes it at the announced end, and so hides what follows.
        self._buffered = response.fp
        self._content = Chunks(self._buffered) if response.chunked else self._buffered
        # Of its own, so that another thread can end a read without racing against a close.
        self._line = socket.socket(fileno=os.dup(response.fileno()))

    def read(self, count: int) -> bytes:
        import http.client

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
        return data

    def has_surplus(self) -> bool:
        """Whether more comes than was announced. Known only of servers that close, as they are asked to."""
        if not self._response.will_close:
            return False
        import http.client

        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        try:
            # Of a chunked body the last chunk may still be to come.
            return bool(poll.poll(_SURPLUS_MS)) and bool(self._content.read1(1) or self._buffered.read1(1))
        except (OSError, http.client.HTTPException, Dropped):
            return False

    def interrupt(self) -> None:
        with suppress(OSError):  # It may be down already.
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._line.close()
        self._response.close()
