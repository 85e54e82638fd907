"""A loopback HTTP proxy in front of an S3 server that does what networks and servers do on bad
days.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Answer = tuple[int, list[tuple[str, str]], bytes]
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"


@dataclass
class Fault:
    """What happens to some requests.

    operation: put, create, part, complete, abort or head. part: which part, any if None. times: how
    often, then the requests pass; -1 always. hook: called before the request is passed on. action:
      a status (500, 503, …): the answer, with ``body`` or error ``code``; the server sees nothing.
      reset: the connection is reset before the body is read. cut: after half of the body was sent.
      break: reset after half of the body of the answer. slow: passes after ``seconds``.
      lose: the server does it, but the connection is reset instead of an answer.
      twice: the server gets it two times, and the second answer counts.
      stale: the answer that the first such request of this path got; 404 if there was none.
      length, etag: the answer names another one.
    """

    operation: str
    action: int | str = "pass"
    part: int | None = None
    times: int = 1
    seconds: float = 0.0
    code: str = "InternalError"
    text: str = "because"
    body: bytes | None = None
    hook: Callable[[], object] | None = None


@dataclass
class S3Proxy:
    """Attributes:
    endpoint: its URL.
    seen: (operation, part) of every request.
    faults: added and removed by tests.
    busy: how many requests are under way.
    conditional: held while the server puts or completes an object on a condition.
    """

    upstream: str
    endpoint: str = ""
    seen: list[tuple[str, int | None]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    most_parts_at_once: int = 0
    parts_now: int = 0
    busy: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    conditional: threading.Lock = field(default_factory=threading.Lock)
    first_answers: dict[tuple[str, str], Answer] = field(default_factory=dict)

    def fault(self, operation: str, part: int | None) -> Fault | None:
        with self.lock:
            self.seen.append((operation, part))
            for each in self.faults:
                if each.operation == operation and each.part in (None, part) and each.times:
                    each.times -= 1
                    return each
        return None

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.seen)


def operation_of(method: str, path: str) -> tuple[str, int | None]:
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query, keep_blank_values=True)
    if "uploads" in query:
        return ("create" if method == "POST" else "list"), None
    if "uploadId" in query:
        part = int(query["partNumber"][0]) if "partNumber" in query else None
        names = {"PUT": "part", "POST": "complete", "DELETE": "abort", "GET": "parts"}
        return names[method], part
    return {"PUT": "put", "HEAD": "head", "DELETE": "delete", "GET": "get"}.get(method, "other"), None


def handler(proxy: S3Proxy) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            operation, part = operation_of(self.command, self.path)
            fault = proxy.fault(operation, part)
            with proxy.lock:
                proxy.busy += 1
                proxy.parts_now += operation == "part"
                proxy.most_parts_at_once = max(proxy.most_parts_at_once, proxy.parts_now)
            try:
                self.treat(operation, fault)
            finally:
                with proxy.lock:
                    proxy.busy -= 1
                    proxy.parts_now -= operation == "part"

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def treat(self, operation: str, fault: Fault | None) -> None:
            action = fault.action if fault else "pass"
            if action == "reset":
                self.reset()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if fault and fault.hook:
                fault.hook()
            if isinstance(action, int) and fault:
                content = ERROR.format(**vars(fault)).encode() if fault.body is None else fault.body
                self.answer(action, [("Content-Type", "application/xml")], content)
                return
            if action == "slow" and fault:
                time.sleep(fault.seconds)
            if action == "stale":
                self.answer(*proxy.first_answers.get((self.command, self.path), (404, [], b"")))
                return
            if action == "twice":
                self.ask(body, "pass")
            # SeaweedFS 4.48 looks at the condition of a completion first and completes then: of
            # four that come together all four succeed. It puts an object under a lock, which ends
            # after some seconds, whether or not the object is there by then. S3 does both in one
            # step.
            with proxy.conditional if "If-None-Match" in self.headers else contextlib.nullcontext():
                answer = self.ask(body, str(action))
            if answer is None or action == "lose":
                self.reset()
                return
            proxy.first_answers.setdefault((self.command, self.path), answer)
            status, headers, content = answer
            lies = {"length": ("Content-Length", "1"), "etag": ("ETag", '"another"')}
            if action in lies:
                name, value = lies[str(action)]
                headers = [(each, value if each.lower() == name.lower() else was) for each, was in headers]
            self.answer(status, headers, content, whole=action != "break")

        def ask(self, body: bytes, action: str) -> Answer | None:
            """What the server says; None if the request is cut."""
            connection = http.client.HTTPConnection(proxy.upstream, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("expect", "connection"):
                        connection.putheader(name, value)
                connection.endheaders(body[: len(body) // 2] if action == "cut" else body)
                if action == "cut":
                    return None
                response = connection.getresponse()
                return response.status, response.getheaders(), response.read()
            finally:
                connection.close()

        def answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, whole: bool = True) -> None:
            self.send_response_only(status)
            length = str(len(content))
            for name, value in headers:
                if self.command == "HEAD" and name.lower() == "content-length":
                    length = value
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content if whole else content[: len(content) // 2])
            if not whole:
                self.reset()

        def reset(self) -> None:
            # Closed with something unread and no lingering, a socket sends RST.
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().finish()

        def handle(self) -> None:
            # The client may go away at any moment, as the tests want it to.
            with contextlib.suppress(OSError, ValueError):
                super().handle()

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def s3_proxy(endpoint: str) -> Iterator[S3Proxy]:
    """A proxy before the S3 server at ``endpoint``, without faults at first."""
    proxy = S3Proxy(urllib.parse.urlsplit(endpoint).netloc)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(proxy)) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
