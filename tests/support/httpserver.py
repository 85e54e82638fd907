"""An HTTP server on the loopback that fails as it is told to."""

from __future__ import annotations

import hashlib
import http.server
import random
import re
import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

KINDS = (
    "cut",
    "frame",
    "reset",
    "stall",
    "drip",
    "status",
    "drop",
    "replace",
    "longer",
    "shorter",
    "no-range",
    "error-body",
    "wrong-range",
    "part",
    "no-validator",
)

REPLACED = "Mon, 14 Sep 2020 00:00:00 GMT"
"""Last-Modified of an object that replaced another."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    kind: one of KINDS; "" is none.
      cut, reset, stall, drip: after ``at`` bytes of the body, counted from its beginning, the
        connection is closed, is reset, falls silent, or goes on byte by byte for 20 bytes and then
        as usual.
      frame: a cut after ``at`` bytes of what is sent, in which chunked bodies have their sizes and
        ends.
      status: the answer is ``status``, with ``headers``. drop: closed before any answer.
      replace: another object of the same length is there from now on. longer, shorter: ``at`` more,
        or fewer, bytes are announced than sent. no-range: Range is ignored. error-body: an error
        page of status 200. wrong-range: 206 with the bytes ``at`` further on. part: 206 with at
        most ``at`` bytes of what was asked for. no-validator: neither ETag nor Last-Modified.
      hang-up: the right answer, and then the connection is closed, which was not announced.
    """

    kind: str = ""
    at: int = 0
    status: int = 503
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Stored:
    """One object.

    ``etag`` and ``modified``: as sent, "" for none. ``headers``: more of them, with every 200.
    ``length``: whether it is announced; without, the body ends with the connection, or is chunked.
    """

    content: bytes
    etag: str = ""
    modified: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    length: bool = True
    chunked: bool = False
    conditions: bool = True
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None


def strong_etag(content: bytes) -> str:
    """An ETag made of the content."""
    return f'"{hashlib.sha256(content).hexdigest()[:20]}"'


def random_fault(draw: random.Random, size: int, first: bool) -> Fault:
    """Any fault, but no error page of status 200 as the first answer: nobody can tell it from an
    object.
    """
    kinds = [kind for kind in KINDS if not (first and kind in ("error-body", "no-validator"))]
    status = draw.choice([408, 425, 429, 500, 502, 503, 504])
    wait = ((("Retry-After", str(draw.randrange(3)))),) if draw.random() < 0.3 else ()
    return Fault(draw.choice(kinds), draw.choice([0, 1, 511, draw.randrange(1, size)]), status, wait)


class FaultServer:
    """Context manager: serves ``objects`` (path -> Stored) until it is left.

    Each request for a path takes the first of its ``faults``; when none is left, ``always``, or
    nothing, goes wrong.

    Attributes:
        requests: (path, headers) of all requests so far.
        connections: number of connections so far.
        sent: bytes of bodies that went into connections.
    """

    def __init__(self, certificate: str | None = None, *, keeps: bool = False) -> None:
        """``certificate``: path of a PEM file with key and certificate, for https.

        ``keeps``: connections stay open after an answer without a fault.
        """
        self.keeps = keeps
        self.connections = 0
        self.open: list[socket.socket] = []
        self.objects: dict[str, Stored] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent = 0
        self.lock = threading.Lock()
        self.leaving = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler, bind_and_activate=True)
        self._server.daemon_threads = False
        self.scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.faults = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def put(self, path: str, content: bytes, *faults: Fault, **more: object) -> str:
        """Store an object; its URL.

        It has a strong ETag unless ``etag`` says otherwise.
        """
        more.setdefault("etag", strong_etag(content))
        self.objects[path] = Stored(content, faults=list(faults), **more)  # type: ignore[arg-type]
        return f"{self.scheme}://{self.host}/{path}"

    def asked(self, path: str) -> list[dict[str, str]]:
        """The headers of every request for this path."""
        with self.lock:
            return [headers for seen, headers in self.requests if seen == path]

    def __enter__(self) -> FaultServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leaving.set()
        self._server.shutdown()
        for connection in self.open:  # which clients keep
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()


def _chunk(data: bytes) -> bytes:
    return b"%08x\r\n%s\r\n" % (len(data), data)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        home: FaultServer = self.server.faults  # type: ignore[attr-defined]
        with home.lock:
            home.connections += 1
            home.open.append(self.connection)

    def do_GET(self) -> None:
        home: FaultServer = self.server.faults  # type: ignore[attr-defined]
        path = self.path.partition("?")[0].lstrip("/")
        with home.lock:
            home.requests.append((path, dict(self.headers.items())))
            stored = home.objects.get(path)
            if stored is None:
                fault = Fault("status", status=404)
            elif stored.faults:
                fault = stored.faults.pop(0)
            else:
                fault = stored.always or Fault()
            if stored is not None and fault.kind == "replace":
                stored.content = bytes(255 - byte for byte in stored.content)
                stored.etag = stored.etag and strong_etag(stored.content)
                stored.modified = stored.modified and REPLACED
        asked = self.headers.get("Connection", "").lower()
        self.close_connection = asked == "close" or not home.keeps or fault.kind not in ("", "hang-up")
        try:
            if fault.kind == "drop":
                return
            if stored is None or fault.kind == "status":
                self._plain(fault.status, fault.headers, b"")
            elif fault.kind == "error-body":
                self._plain(200, (), b"<html>503 Service Unavailable</html>")
            else:
                self._object(stored, fault, home)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The client left: that is its right.

    def _plain(self, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        # The reason repeats what was asked, as some servers do: no error may show it.
        self.send_response(status, f"because of {self.path} {self.headers.get('Authorization', '')}")
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _range(self, stored: Stored, fault: Fault) -> tuple[int, int] | None:
        """The first byte that is asked for, and the one behind the last.

        None if the answer has been given.
        """
        total = len(stored.content)
        if stored.conditions and self.headers.get("If-Match", stored.etag) != stored.etag:
            self._plain(412, (), b"")
            return None
        if stored.conditions and self.headers.get("If-Unmodified-Since", stored.modified) != stored.modified:
            self._plain(412, (), b"")
            return None
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None or fault.kind == "no-range":
            return 0, total
        start = int(wanted[1])
        if start >= total:
            self._plain(416, (("Content-Range", f"bytes */{total}"),), b"")
            return None
        return start, min(total, int(wanted[2]) + 1) if wanted[2] else total

    def _object(self, stored: Stored, fault: Fault, home: FaultServer) -> None:
        asked = self._range(stored, fault)
        if asked is None:
            return
        start, end = asked
        total, ranged = len(stored.content), "Range" in self.headers and fault.kind != "no-range"
        if ranged and fault.kind == "wrong-range":
            start, end = min(start + fault.at, total - 1), min(end + fault.at, total)
        if ranged and fault.kind == "part":
            end = min(start + max(1, fault.at), end)
        body = stored.content[start:end]
        announced = len(body) + {"longer": fault.at, "shorter": -fault.at}.get(fault.kind, 0)
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{total}")
        if stored.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif stored.length or ranged:
            self.send_header("Content-Length", str(max(0, announced)))
        validators = (("ETag", stored.etag), ("Last-Modified", stored.modified))
        for name, value in (*(() if fault.kind == "no-validator" else validators), *stored.headers):
            if value:
                self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self._send(body, fault, home, stored.chunked)
        self.close_connection |= fault.kind == "hang-up"

    def _send(self, body: bytes, fault: Fault, home: FaultServer, chunked: bool) -> None:
        def write(data: bytes) -> None:
            self.wfile.write(_chunk(data) if chunked and data else data)
            with home.lock:
                home.sent += len(data)

        if fault.kind == "frame":
            if chunked:
                body = b"".join(_chunk(body[at : at + 997]) for at in range(0, len(body), 997)) + _chunk(b"")
            self.wfile.write(body[: fault.at % (len(body) or 1)])
            return
        if fault.kind in ("cut", "reset", "stall", "drip"):
            write(body[: fault.at])
            body = body[fault.at :]
        if fault.kind == "cut":
            return
        if fault.kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        if fault.kind == "stall":
            self.connection.settimeout(0.05)
            while not home.leaving.is_set():
                try:
                    if not self.connection.recv(1):
                        return
                except TimeoutError:
                    continue
            return
        if fault.kind == "drip":
            for at in range(min(20, len(body))):
                write(body[at : at + 1])
                home.leaving.wait(0.001)
            body = body[20:]
        write(body)
        if chunked:
            self.wfile.write(_chunk(b""))

    def handle(self) -> None:
        with suppress(ConnectionResetError):  # of a connection that was kept, and whose client was killed
            super().handle()

    def finish(self) -> None:
        # The connection may have been reset on purpose.
        with suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *args: object) -> None:
        """Nothing: the tests look at ``requests``."""
