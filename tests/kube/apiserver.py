"""A stand-in for a Kubernetes API server, for the real kubectl and the official Python client.

By hand:  python tests/kube/apiserver.py --kubeconfig FILE      (then: kubectl --kubeconfig FILE get pods)

Own HTTP on http.server and not the mock server kmock (PyPI): that one serves no OpenAPI (kubectl apply asks for it),
gives objects no resourceVersion that advances, has no selectors, no validation and no strategic merge, and needs
Python 3.11; what would be left for it is the reading of HTTP.

Not there: protobuf (so `kubectl create job NAME ...` gets 415; manifests, apply, get, logs, wait, delete are JSON),
users and permissions, exec, attach, port-forward, Services that forward, other groups than core and batch.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlsplit

from apierrors import ApiError
from apistore import Json, Store

if TYPE_CHECKING:
    from apiroutes import Router

_LARGEST = 3 * 1024 * 1024


class Answer:
    """A whole body (JSON or bytes), or parts that come one by one."""

    def __init__(
        self,
        body: Json | bytes | None = None,
        code: int = 200,
        parts: Iterable[bytes] | None = None,
        content: str = "application/json",
        warnings: list[str] | None = None,
    ) -> None:
        self.body, self.code, self.parts, self.content = body, code, parts, content
        self.warnings = warnings or []


class Request:
    """What came in, parsed."""

    def __init__(self, handler: _Handler) -> None:
        split = urlsplit(handler.path)
        self.verb = handler.command
        self.path = split.path
        self.query = dict(parse_qsl(split.query, keep_blank_values=True))
        self.accept = handler.headers.get("Accept", "")
        self.content = handler.headers.get("Content-Type", "application/json").partition(";")[0].strip()
        self.body = handler.read_body()
        self.gone = handler.client_is_gone

    def json(self) -> Any:
        if not self.body:
            return {}
        if "yaml" in self.content:
            import yaml

            return yaml.safe_load(self.body)
        if self.content not in ("application/json", "", "text/plain") and not self.content.endswith("+json"):
            raise ApiError(
                415, "UnsupportedMediaType", f"the body of the request was in an unknown format - {self.content}"
            )
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ApiError(400, "BadRequest", f"couldn't get version/kind; json parse error: {error}") from None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "standin"
    disable_nagle_algorithm = True
    wbufsize = 65536

    def log_message(self, *args: Any) -> None:
        pass

    def read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST:
            self.close_connection = True
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_LARGEST}")
        return self.rfile.read(length) if length else b""

    def client_is_gone(self) -> bool:
        """True when the other side has closed the connection."""
        try:
            # select() knows no descriptors above 1023, and of one it would be said that the client is gone.
            poll = select.poll()
            poll.register(self.connection, select.POLLIN)
            return bool(poll.poll(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def _serve(self) -> None:
        server = cast(_Server, self.server)
        try:
            answer = server.router.answer(Request(self))
        except ApiError as error:
            answer = Answer(error.status(), error.code)
        except ConnectionError:
            # The client went away while it sent its request.
            self.close_connection = True
            return
        except Exception as error:
            server.failures.append(f"{self.command} {self.path}: {type(error).__name__}: {error}")
            answer = Answer(ApiError(500, "InternalError", f"stand-in: {type(error).__name__}: {error}").status(), 500)
        with contextlib.suppress(ConnectionError, ValueError):
            self._send(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content)
        for said in answer.warnings:
            escaped = said.replace("\\", "\\\\").replace('"', '\\"')
            self.send_header("Warning", f'299 - "{escaped}"')
        if answer.parts is None:
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for part in answer.parts:
            if part:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, router: Router, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.router = router
        self.failures: list[str] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        # Here and not in its thread, which may begin only after hang_up() and then wait for a request for ever.
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no failure; what fails inside a request is kept by the handler."""


class ApiServer:
    """The listening side; starts at once, ends with stop()."""

    def __init__(self, store: Store, router: Router, port: int = 0) -> None:
        self.store = store
        self._server = _Server(router, port)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def failures(self) -> list[str]:
        """Requests at which the stand-in itself broke; a test run with any is worth nothing."""
        return self._server.failures

    def stop(self) -> None:
        """Ends every watch, hangs up on every client, and waits for all threads."""
        self.store.close()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


def lines(events: Iterator[Json]) -> Iterator[bytes]:
    """Events as a watch sends them, one JSON text a line."""
    for event in events:
        yield json.dumps(event).encode() + b"\n"


if __name__ == "__main__":
    import runstandin

    runstandin.main()
