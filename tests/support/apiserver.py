"""A stand-in for a Kubernetes API server, for kubetpl, kubectl and the official client: no
controller, no kubelet.

It answers what kubetpl's verbs and ``kubectl apply, get, delete, logs, wait`` ask about a few kinds
of objects. It is not there for protobuf, strategic merge patches, server-side apply, users and
their roles.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from apiobjects import GROUPS, KINDS, Json, Objects, Refused, selector

VERSION = "v1.36.2"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    def is_gone(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            # select() knows no descriptors above 1023.
            poll = select.poll()
            poll.register(self.connection, select.POLLIN)
            return bool(poll.poll(0)) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def serve(self) -> None:
        server = cast(_Server, self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer, code = server.answer(self, body), 201 if self.command == "POST" else 200
        except Refused as error:
            answer, code = error.status, error.code
        except Exception as error:
            server.failures.append(f"{self.command} {self.path}: {type(error).__name__}: {error}")
            answer, code = Refused(500, "InternalError", f"stand-in: {error}").status, 500
        with contextlib.suppress(ConnectionError, ValueError):
            self.send(answer, code)

    do_GET = do_POST = do_PATCH = do_DELETE = serve

    def send(self, answer: Json | Iterator[bytes], code: int) -> None:
        """A whole object, or parts that come one by one."""
        self.send_response(code)
        if isinstance(answer, dict):
            content = json.dumps(answer).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in answer:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, objects: Objects) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.seen: list[str] = []
        self.failures: list[str] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
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
        """A client that went away is no failure."""

    def answer(self, request: _Handler, body: bytes) -> Json | Iterator[bytes]:
        """By the path and the verb."""
        split = urlsplit(request.path)
        query = dict(parse_qsl(split.query))
        self.seen.append(f"{request.command} {split.path}" + ("?" + "&".join(query) if query else ""))
        path = split.path.strip("/")
        if (fixed := _document(path)) is not None:
            return fixed
        prefix = next((each for each in GROUPS.values() if path.startswith(f"{each}/")), None)
        parts = path.removeprefix(f"{prefix}/").split("/")
        space = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            space, parts = parts[1], parts[2:]
        plural, name, part = (*parts, "", "")[:3]
        known = KINDS.get(plural)
        if known is None or GROUPS[known[0]] != prefix or len(parts) > 3 or part not in ("", "status", "log"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if part == "log":
            return self.objects.read_log(space, name, query)
        if request.command == "GET":
            return self._read(request, plural, space, name, query)
        return self._write(request, plural, space, name, part, query, json.loads(body or b"{}"))

    def _read(self, request: _Handler, plural: str, space: str, name: str, query: dict[str, str]) -> Any:
        if name and "watch" not in query:
            return self.objects.get(plural, space, name)
        test = selector(plural, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        if "sendInitialEvents" in query:
            # As by a server without that feature; clients fall back.
            raise Refused(422, "Invalid", "sendInitialEvents is forbidden for watch unless WatchList is enabled")
        if "watch" in query:
            events = self.objects.watch(plural, space, test, query, request.is_gone)
            return (json.dumps(event).encode() + b"\n" for event in events)
        items, metadata = self.objects.page(plural, space, test, query)
        if plural == "pods" and "as=Table" in request.headers.get("Accept", ""):
            return _table(items, metadata)
        group, kind = KINDS[plural]
        return {"kind": f"{kind}List", "apiVersion": _version(group), "metadata": metadata, "items": items}

    def _write(
        self, request: _Handler, plural: str, space: str, name: str, part: str, query: dict[str, str], body: Json
    ) -> Json:
        if request.command == "POST":
            if query.get("fieldValidation") == "Strict":
                _validate(body)
            return self.objects.create(plural, space, body)
        if request.command == "DELETE":
            test = selector(plural, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            named = [name] if name else [each["metadata"]["name"] for each in self.objects.items(plural, space, test)]
            gone = [self.objects.delete(plural, space, each, {**query, **body}) for each in named]
            return gone[0] if name else {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": gone}
        content = request.headers.get("Content-Type", "")
        if content != "application/merge-patch+json":
            why = f"the body of the request was in an unknown format - {content}"
            raise Refused(415, "UnsupportedMediaType", why)
        return self.objects.change(plural, space, name, body, part)


class ApiServer:
    """Starts at once; stop() leaves no thread behind.

    Attributes:
        seen: what was asked, as ``GET PATH?NAME&NAME``.
    """

    def __init__(self) -> None:
        self.objects = Objects()
        self._server = _Server(self.objects)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.seen = self._server.seen
        self.failures = self._server.failures
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Ends every watch, hangs up, and waits for all threads."""
        self.objects.close()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


def kubeconfig(url: str, namespace: str = "default") -> str:
    """A kubeconfig file for a server without certificates and without users."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "standin", "cluster": {"server": url}}],
            "contexts": [
                {"name": "standin", "context": {"cluster": "standin", "user": "standin", "namespace": namespace}}
            ],
            "current-context": "standin",
            "users": [{"name": "standin", "user": {"token": "standin"}}],
        }
    )


def _version(group: str) -> str:
    return f"{group}/v1" if group else "v1"


def _validate(body: Json) -> None:
    """Against the published schema."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(body, "1.36", strict=True)
    except kubernetes_validate.ValidationError as error:
        raise Refused(400, "BadRequest", f"strict decoding error: {error.message}") from None


@lru_cache
def _document(path: str) -> Json | None:
    """What clients ask first: which groups, kinds and options there are."""
    groups = [
        {"name": group, "versions": [version], "preferredVersion": version}
        for group in filter(None, GROUPS)
        for version in [{"groupVersion": _version(group), "version": "v1"}]
    ]
    if path == "version":
        return {"major": "1", "minor": "36", "gitVersion": VERSION}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "openapi/v3":
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in GROUPS.values()}}
    group = next((group for group, prefix in GROUPS.items() if path.removeprefix("openapi/v3/") == prefix), None)
    if group is None:
        return None
    kinds = {plural: kind for plural, (its, kind) in KINDS.items() if its == group}
    if path.startswith("openapi"):
        return _openapi(group, kinds)
    rows = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural != "namespaces",
            "kind": kind,
            "verbs": _VERBS,
        }
        for plural, kind in kinds.items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _version(group), "resources": rows}


def _openapi(group: str, kinds: dict[str, str]) -> Json:
    """The options by which kubectl knows that the server validates fields; no types."""
    names = ("dryRun", "fieldManager", "fieldValidation")
    parameters = [{"name": each, "in": "query", "schema": {"type": "string"}} for each in names]
    paths: Json = {}
    for plural, kind in kinds.items():
        words = {
            "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": kind},
            "x-kubernetes-action": "patch",
            "parameters": parameters,
            "responses": {},
        }
        paths[f"/{GROUPS[group]}/namespaces/{{namespace}}/{plural}/{{name}}"] = {"patch": words}
    info = {"title": "Kubernetes", "version": VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _table(pods: list[Json], metadata: Json) -> Json:
    """As ``kubectl get pods`` asks for it."""
    words = {"Succeeded": "Completed", "Failed": "Error"}
    rows = [
        {
            "cells": [each["metadata"]["name"], "0/1", words.get(phase, phase), 0, "1s"],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": each["metadata"]},
        }
        for each in pods
        for phase in [each["status"]["phase"]]
    ]
    columns = [
        {"name": name, "type": "string", "format": "", "description": "", "priority": 0}
        for name in ("Name", "Ready", "Status", "Restarts", "Age")
    ]
    about = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {**about, "columnDefinitions": columns, "rows": rows}
