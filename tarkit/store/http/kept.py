"""Read ranges by http(s) over connections that stay open, one for each thread and server.

An answer is used only if it proves to be the requested bytes of the known object: its status, its
Content-Range with the size of the object, its length and its validators. All other answers, and
errors, are None: the caller asks again by the reader that explains and retries. A connection is
kept only if the whole of such an answer was read, and nothing follows it.
"""

from __future__ import annotations

import http.client
import os
import select
import threading
import urllib.request
from typing import Any, NamedTuple

from tarkit.errors import MissingInputError, StreamError
from tarkit.store import waits
from tarkit.store.http.answer import Marks, content_range, encoding_of, follow, marks_of, status_text
from tarkit.store.http.connection import Connection, SecureConnection, new_request, opener
from tarkit.store.place import Identity
from tarkit.store.retry import DEFAULT_RETRY

_PIECE = 1 << 18
_MOST_KEPT = 8


class RangeContent(NamedTuple):
    """A range of an object.

    Attributes:
        data: its bytes.
        marks: validators of the object.
        size: size of the object in bytes.
    """

    data: bytes
    marks: Marks
    size: int


class _Connections(dict[tuple[str, str], http.client.HTTPConnection]):
    """Connections by scheme and server, which are closed at the end of their thread."""

    def __del__(self) -> None:
        for connection in self.values():
            connection.close()


class _Kept(threading.local):
    """Connections of this thread that wait for a request, by scheme and server.

    Attributes:
        owner: process that opened them; a child that was forked must not use them.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.connections = _Connections()


_kept = _Kept()


def get_range(url: str, name: str, start: int, stop: int, headers: dict[str, str]) -> RangeContent | None:
    """Request a range once; None if the answer is not exactly that range of an object with marks.

    Args:
        name: URL for messages.
        start: first byte.
        stop: byte after the last one.
        headers: further headers of the request.

    Raises:
        MissingInputError: the server answers that there is no such object.
    """
    asked: list[_Exchange] = []

    def ask(target: str) -> tuple[http.client.HTTPResponse, str]:
        wanted = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        while asked:
            asked.pop().close()
        asked.append(_exchange(new_request(target, {**headers, **wanted})))
        return asked[0].response, target

    try:
        response, target = follow(ask, url, name)
        if response.status in (404, 410) and target == url:
            raise MissingInputError(status_text(response.status), url=name)
        found = _content(asked[0].response, start, stop)
        if found is not None:
            asked.pop().keep()
        return found
    except MissingInputError:
        raise
    except (OSError, http.client.HTTPException, ValueError, StreamError):
        return None
    finally:
        for each in asked:
            each.close()


def _content(response: http.client.HTTPResponse, start: int, stop: int) -> RangeContent | None:
    headers = response.headers
    first, end, size = content_range(headers) or (None, None, None)
    marks = marks_of(headers)
    if response.status != 206 or (first, end) != (start, stop) or size is None or not marks.values:
        return None
    if response.length != stop - start or response.chunked or encoding_of(headers) is not None:
        return None
    data = bytearray(stop - start)
    view, at = memoryview(data), 0
    while at < len(data):
        waits.raise_if_stopped()
        count = response.readinto(view[at : at + _PIECE])
        if not count:
            return None
        at += count
    return RangeContent(bytes(data), marks, size)


class _Exchange:
    """A request that was answered.

    Args:
        connection: its connection; None if that is not kept.
        server: scheme and server.
    """

    def __init__(
        self, connection: http.client.HTTPConnection | None, server: tuple[str, str], response: http.client.HTTPResponse
    ) -> None:
        self._connection, self._server = connection, server
        self.response = response

    def keep(self) -> None:
        """Keep the connection, whose answer was read to its end."""
        if self._connection is None or self.response.will_close:
            self.close()
            return
        self.response.close()
        kept = _kept.connections
        while len(kept) >= _MOST_KEPT:
            kept.pop(next(iter(kept))).close()
        kept[self._server] = self._connection

    def close(self) -> None:
        """Close the connection."""
        self.response.close()
        if self._connection is not None:
            self._connection.close()


def _exchange(request: urllib.request.Request) -> _Exchange:
    server = request.type, request.host
    if request.type in urllib.request.getproxies() and not urllib.request.proxy_bypass(request.host):
        return _Exchange(None, server, opener().open(request, timeout=DEFAULT_RETRY.timeout))
    if _kept.owner != os.getpid():
        _kept.__init__()  # type: ignore[misc]
    kept = _kept.connections.pop(server, None)
    if kept is not None and _is_idle(kept):
        try:
            return _Exchange(kept, server, _answer(kept, request))
        except (OSError, http.client.HTTPException):
            kept.close()  # the server closed it meanwhile
    kind: Any = SecureConnection if request.type == "https" else Connection
    connection = kind(request.host, timeout=DEFAULT_RETRY.timeout)
    try:
        return _Exchange(connection, server, _answer(connection, request))
    except BaseException:
        connection.close()
        raise


def _answer(connection: http.client.HTTPConnection, request: urllib.request.Request) -> http.client.HTTPResponse:
    headers = {name.title(): value for name, value in request.header_items()}  # as urllib sends them
    connection.request("GET", request.selector, headers=headers)
    return connection.getresponse()


def _is_idle(connection: http.client.HTTPConnection) -> bool:
    """Return True if nothing came over a connection since its last answer, not even its end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    if not poll.poll(0):
        return True
    connection.close()
    return False


class HttpRanges:
    """Ranges of an object whose server answers a Range with those bytes, and identifies them.

    Args:
        name: URL for messages.
        first: first byte of the object.
    """

    def __init__(self, url: str, name: str, first: RangeContent) -> None:
        self._url, self._name = url, name
        self._headers = {} if first.marks.condition is None else dict([first.marks.condition])
        self.identity = Identity(first.size, first.marks.tag)

    def read(self, start: int, stop: int) -> bytes | None:
        """Return bytes from ``start`` up to ``stop``; None if the answer is not of this object."""
        try:
            found = get_range(self._url, self._name, start, stop, self._headers)
        except MissingInputError:
            return None
        if found is None or Identity(found.size, found.marks.tag) != self.identity:
            return None
        return found.data


def open_http_ranges(url: str, name: str) -> HttpRanges | None:
    """Identify an object by its first byte; None if the server does not answer so.

    Raises:
        MissingInputError: the server answers that there is no such object.
    """
    first = get_range(url, name, 0, 1, {})
    return None if first is None else HttpRanges(url, name, first)
