"""A stand-in for S3, GCS and Azure on the loopback that answers HEAD rightly, and GET as a test
wants it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import re
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import fsspec
import google_crc32c
from s3_client import share_descriptions

KINDS = ("s3", "gs", "az")
NAMES = {"s3": "s3://b/x.tar", "gs": "gs://b/x.tar", "az": "az://b/x.tar"}
SECRETS = ("s3cr3t-t0k3n", "Authorization", "x-amz-security-token")


@dataclass
class Answer:
    """To a request for bytes; a lie changes it.

    Attributes:
        content: as the object has it there.
    """

    status: int
    headers: dict[str, str]
    content: bytes


Lie = Callable[[Answer], None]


@dataclass
class LyingStore:
    """Attributes:
    data: of the one object.
    extra: headers of it.
    stored: what its metadata say more (GCS: fields of its JSON).
    lies: of the next requests for its bytes.
    redirect: status and Location for each request of these methods.
    asked: method, range and headers of each request.
    """

    kind: str
    data: bytes
    extra: dict[str, str] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    lies: Sequence[Lie | None] = field(default_factory=list)
    redirect: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def begin(self, data: bytes) -> None:
        """Forget all that a test before this one has set."""
        self.data, self.extra, self.stored, self.lies, self.redirect, self.asked = data, {}, {}, [], {}, []

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'

    def headers(self) -> dict[str, str]:
        about = {"Last-Modified": "Tue, 06 Oct 2026 10:00:00 GMT", "Content-Type": "application/x-tar", **self.extra}
        if self.kind == "gs":
            return {"x-goog-generation": "17", **about}
        if self.kind == "az":
            about.update({"x-ms-blob-type": "BlockBlob", "x-ms-version": "2024-11-04"})
        return {"ETag": self.etag, **about}

    def answer(self, method: str, path: str, asked: dict[str, str]) -> Answer:
        if method in self.redirect:
            status, headers = self.redirect[method]
            return Answer(status, dict(headers), b"")
        if method == "HEAD":
            return Answer(200, {**self.headers(), "Content-Length": str(len(self.data))}, b"")
        if method != "GET":
            return Answer(200, self.headers(), b"")
        if self.kind == "gs" and "alt=media" not in path:
            crc32c = base64.b64encode(google_crc32c.value(self.data).to_bytes(4, "big")).decode()
            info = {"name": "x.tar", "bucket": "b", "size": len(self.data), "generation": "17", "crc32c": crc32c}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps({**info, **self.stored}).encode())
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked.get("x-ms-range", asked.get("range", "")))
        if found is None:
            return Answer(200, self.headers(), self.data)
        start, end = int(found[1]), min(int(found[2]) + 1, len(self.data))
        about = {"Content-Range": f"bytes {start}-{end - 1}/{len(self.data)}"}
        # Checksums of the whole do not come with a part.
        kept = {name: value for name, value in self.headers().items() if "checksum" not in name}
        if "Content-MD5" in kept:
            digest = hashlib.md5(self.data[start:end], usedforsecurity=False).digest()
            kept["Content-MD5"] = base64.b64encode(digest).decode()
        answer = Answer(206, {**kept, **about}, self.data[start:end])
        lie, self.lies = self.lies[0] if self.lies else None, self.lies[1:]
        if lie is not None:
            lie(answer)
        return answer


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: LyingStore

    def handle_any(self) -> None:
        asked = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(asked.get("content-length", 0)))
        self.store.asked.append((self.command, self.path, {**asked, "(body)": body.decode("latin-1")}))
        answer = self.store.answer(self.command, self.path, asked)
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close the connection of an answer that it does not want.

        What else fails is shown.
        """
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(store: LyingStore) -> Iterator[LyingStore]:
    """The server, at ``store.url``."""
    handler = type("Handler", (_Handler,), {"store": store})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def lying_store(kind: str, data: bytes) -> Iterator[LyingStore]:
    """A store of which fsspec's settings of this process are."""
    with serving(LyingStore(kind, data)) as store:
        key = base64.b64encode(b"s3cr3t-t0k3n").decode()
        settings: dict[str, dict[str, Any]] = {
            "s3": {"endpoint_url": store.url, "key": "k", "secret": "s", "token": SECRETS[0]},
            "gs": {"endpoint_url": store.url, "token": "anon"},
            "az": {
                "connection_string": "DefaultEndpointsProtocol=http;AccountName=account;"
                f"AccountKey={key};BlobEndpoint={store.url}/account;"
            },
        }
        share_descriptions()
        before = fsspec.config.conf.get(kind)
        fsspec.config.conf[kind] = settings[kind]
        try:
            yield store
        finally:
            fsspec.config.conf.pop(kind)
            if before is not None:
                fsspec.config.conf[kind] = before
            theirs = fsspec.get_filesystem_class(kind)
            for each in (theirs, *theirs.__subclasses__()):
                each.clear_instance_cache()


def host_of(url: str) -> str:
    """Host and port."""
    return urllib.parse.urlsplit(url).netloc
