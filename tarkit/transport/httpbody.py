"""The body of one HTTP answer, in pieces as large as the system has them."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from tarkit.transport.pipes import without_secrets
from tarkit.transport.retry import Dropped

if TYPE_CHECKING:
    import http.client

_SURPLUS_MS = 1000


class HttpBody:
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
        # Of its own, so that another thread can end a read without racing against a close.
        self._line = socket.socket(fileno=os.dup(response.fileno()))

    def read(self, count: int) -> bytes:
        import http.client

        try:
            if self._left is not None:
                count = min(count, self._left)
            if not count:
                return b""
            data = self._response.read1(count) if self._response.chunked else self._buffered.read1(count)
        except (OSError, http.client.HTTPException, ValueError) as error:
            said = without_secrets(str(error) or type(error).__name__, self._url)
            raise Dropped(f"the connection broke ({said})") from None
        if self._left is not None:
            self._left -= len(data)
        return data

    def has_surplus(self) -> bool:
        """Whether more comes than was announced. Known only of servers that close, as they are asked to."""
        if not self._response.will_close or self._response.chunked:
            return False
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        try:
            return bool(poll.poll(_SURPLUS_MS)) and bool(self._buffered.read1(1))
        except OSError:
            return False

    def interrupt(self) -> None:
        with suppress(OSError):  # It may be down already.
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._line.close()
        self._response.close()


class NoBody:
    """The body at the very end of an object."""

    def read(self, count: int) -> bytes:
        return b""

    def interrupt(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """There is nothing open."""
