"""A small WebHDFS server in this process, whose answers can be made as nasty as those of the field.

It keeps files in memory, redirects as a NameNode does, and plays the DataNode under ``/data``.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class FakeHdfs:
    """Attributes:
    files: path -> content.
    nasty: operation (DataNode's: ``data-OPEN``) -> answers for its next calls.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.numbers: dict[str, int] = {}
        self.nasty: dict[str, list[Answer | None]] = {}
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.authority = ""
        self.counter = 0

    def put(self, path: str, content: bytes) -> None:
        """A new file, with a new number."""
        self.counter += 1
        self.files[path] = content
        self.numbers[path] = self.counter


class Handler(BaseHTTPRequestHandler):
    """Speaks for one FakeHdfs, its class attribute."""

    fake: FakeHdfs
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""

    def handle_call(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query))
        node = parts.path.startswith("/data")
        self.file = urllib.parse.unquote(parts.path.removeprefix("/data").removeprefix("/webhdfs/v1")) or "/"
        op = ("data-" if node else "") + self.query["op"]
        self.fake.calls.append(op)
        self.fake.headers.append(dict(self.headers))
        self.close_connection = True
        waiting = self.fake.nasty.get(op)
        nasty = waiting.pop(0) if waiting else None
        if nasty is not None:
            nasty(self)
        else:
            getattr(self, "call_" + op.replace("-", "_"))()

    do_GET = do_PUT = do_DELETE = do_POST = handle_call

    def reply(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, answer: Any, status: int = 200) -> None:
        self.reply(status, json.dumps(answer).encode())

    def error(self, status: int, java_class: str, message: str) -> None:
        self.reply_json({"RemoteException": {"javaClassName": java_class, "message": message}}, status)

    def redirect(self) -> None:
        target = f"http://{self.fake.authority}/data{self.path}"
        self.reply(307, Location=target)

    def call_GETFILESTATUS(self) -> None:
        if self.file in self.fake.files:
            self.reply_json({"FileStatus": self._status(self.file, "")})
        elif any(path.startswith(self.file.rstrip("/") + "/") for path in self.fake.files):
            folder = {"pathSuffix": "", "type": "DIRECTORY", "length": 0, "modificationTime": 7}
            self.reply_json({"FileStatus": folder})
        else:
            self.error(404, "java.io.FileNotFoundException", f"File does not exist: {self.file}")

    def _status(self, path: str, suffix: str) -> dict[str, Any]:
        number = self.fake.numbers[path]
        length = len(self.fake.files[path])
        times = {"modificationTime": 1000 * number, "fileId": number}
        return {"pathSuffix": suffix, "type": "FILE", "length": length, **times}

    def call_LISTSTATUS(self) -> None:
        base = self.file.rstrip("/") + "/"
        found = [self._status(p, p[len(base) :]) for p in self.fake.files if p.startswith(base)]
        self.reply_json({"FileStatuses": {"FileStatus": found}})

    def call_GETFILECHECKSUM(self) -> None:
        digest = hashlib.md5(self.fake.files[self.file], usedforsecurity=False).hexdigest()
        self.reply_json({"FileChecksum": {"algorithm": "MD5", "bytes": digest}})

    def call_OPEN(self) -> None:
        if self.file in self.fake.files:
            self.redirect()
        else:
            self.error(404, "java.io.FileNotFoundException", "no such file")

    def call_data_OPEN(self) -> None:
        self.reply(200, self.fake.files[self.file][int(self.query["offset"]) :], "application/octet-stream")

    call_CREATE = redirect

    def call_data_CREATE(self) -> None:
        self.send_response_only(100)
        self.end_headers()
        self.fake.put(self.file, self.chunks())
        self.reply(201)

    def chunks(self) -> bytes:
        """The body of a chunked request."""
        content = b""
        # A file whose writer went away is not finished here: b"" is no number.
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        return content

    def call_RENAME(self) -> None:
        target = self.query["destination"]
        if target in self.fake.files and self.query["renameoptions"] != "OVERWRITE":
            self.error(403, "org.apache.hadoop.fs.FileAlreadyExistsException", f"{target} already exists")
            return
        if self.file not in self.fake.files:
            self.error(404, "java.io.FileNotFoundException", "rename source not found")
            return
        self.fake.files[target] = self.fake.files.pop(self.file)
        self.fake.numbers[target] = self.fake.numbers.pop(self.file)
        self.reply(200)

    def call_DELETE(self) -> None:
        found = self.fake.files.pop(self.file, None) is not None
        self.reply_json({"boolean": found})

    def call_GET_BLOCK_LOCATIONS(self) -> None:
        self.error(400, "java.lang.UnsupportedOperationException", "no")


class Server(ThreadingHTTPServer):
    """Clients may hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent."""


@contextmanager
def serve() -> Iterator[FakeHdfs]:
    """A server of its own on a free port; ``authority`` is its host:port."""
    fake = FakeHdfs()
    handler = type("OneHandler", (Handler,), {"fake": fake})
    server = Server(("127.0.0.1", 0), handler)
    fake.authority = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
