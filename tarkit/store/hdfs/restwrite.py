"""Send the body of one PUT of unknown length, in pieces as they come (RFC 9112, 7.1)."""

from __future__ import annotations

import http.client
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from tarkit.errors import LocatedError
from tarkit.store.retry import Dropped

_EARLY_ANSWER_SECONDS = 10.0
_EARLY = "before any data was sent"


class Redirected(Exception):
    """The server redirects the data; none of it was sent. Never leaves the package."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        super().__init__()
        self.response = response


class ChunkedPut:
    """A file that is being written on a DataNode.

    Args:
        connection: connection to the DataNode.
        target: path and query of the request.
        refused: function that raises the error for an answer that is not a success.
    """

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        headers: dict[str, str],
        refused: Callable[[http.client.HTTPResponse], NoReturn],
    ) -> None:
        self._connection = connection
        self._refused = refused
        try:
            connection.putrequest("PUT", target, skip_accept_encoding=True)
            for name, value in {**headers, "Transfer-Encoding": "chunked", "Expect": "100-continue"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            self._await_consent()
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) and not isinstance(error, LocatedError):
                raise Dropped(f"the connection broke ({type(error).__name__})") from None
            raise

    def _await_consent(self) -> None:
        """Wait for 100 Continue, which a DataNode sends when the file exists.

        Some proxies drop it.
        """
        line = self._connection.sock
        poll = select.poll()
        poll.register(line, select.POLLIN)
        if type(line) is not socket.socket or not poll.poll(int(_EARLY_ANSWER_SECONDS * 1000)):
            return
        if b" 100" not in line.recv(12, socket.MSG_PEEK):
            self._answer(_EARLY)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if size := memoryview(data).nbytes:
            self._send(b"%x\r\n" % size, data, b"\r\n")

    def close(self) -> None:
        self._send(b"0\r\n\r\n")
        self._answer(None)

    def _send(self, *pieces: bytes | bytearray | memoryview) -> None:
        try:
            for piece in pieces:
                self._connection.send(piece)
        except OSError as error:
            # The server may have sent the reason before it closed.
            self._answer(f"the connection broke while writing ({type(error).__name__})")

    def _answer(self, problem: str | None) -> None:
        """Read the answer.

        Args:
            problem: reason to read it before the end, in which case it is an error without any
                answer; None at the end.
        """
        try:
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Dropped(problem or f"no answer after the last byte ({type(error).__name__})") from None
        if problem == _EARLY and 300 <= response.status < 400:
            raise Redirected(response)
        if response.status not in (200, 201):
            self._refused(response)
        response.close()
        self._connection.close()
        if problem is not None:
            raise Dropped(f"the server answers {response.status} too early: {problem}")

    def abort(self) -> None:
        with suppress(OSError):
            self._connection.close()
