"""A stand-in for the Hugging Face Hub on the loopback, with the endpoints that huggingface_hub and
readers ask.

As there, a large file is redirected to a store at another host, with its SHA-256 in
``X-Linked-ETag``, and a small one to another path of the Hub; a private repository is not there for
those without a token; a gated one is seen, not read. The API: https://huggingface.co/docs/hub/api.
The stores are those of ``httpserver.py``.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from types import TracebackType
from typing import Any

from httpserver import Fault, FaultServer

TOKEN = "hf_CANARYtokenOfTheTests"
PAGE = 3
SMALL = 512
"""Files of fewer bytes are in git itself."""


class Hub:
    """Context manager.

    Repositories are ``datasets/OWNER/NAME``, or ``OWNER/NAME`` of models.

    Attributes:
        answers: what the next requests to the Hub itself get: (status, headers).
        requests: (method, path, headers) of all.
        store: the server that has the large files; its requests and faults are its own.
        private, gated: repositories.
    """

    def __init__(self) -> None:
        self.store = FaultServer()
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.private: set[str] = set()
        self.gated: set[str] = set()
        self.lock = threading.Lock()
        self._refs: dict[str, dict[str, str]] = {}
        self._trees: dict[tuple[str, str], dict[str, bytes]] = {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.hub = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """The endpoint.

        By name, since the store is by number: another host.
        """
        return f"http://localhost:{self._server.server_address[1]}"

    def commit(self, repository: str, files: dict[str, bytes], *refs: str) -> str:
        """Put exactly these files under the branches or tags; the commit."""
        sha = hashlib.sha1(f"{repository}{len(self._trees)}".encode(), usedforsecurity=False).hexdigest()
        self._trees[repository, sha] = dict(files)
        for ref in refs or ("main",):
            self._refs.setdefault(repository, {})[ref] = sha
        for data in files.values():
            self.store.put(hashlib.sha256(data).hexdigest(), data)
        return sha

    def damage(self, data: bytes, *faults: Fault) -> None:
        """What the store does with the next requests for a large file."""
        self.store.objects[hashlib.sha256(data).hexdigest()].faults.extend(faults)

    def tree(self, repository: str, revision: str) -> dict[str, bytes] | None:
        sha = self._refs.get(repository, {}).get(revision, revision)
        return self._trees.get((repository, sha))

    def sha(self, repository: str, revision: str) -> str:
        return self._refs.get(repository, {}).get(revision, revision)

    def has(self, repository: str) -> bool:
        return repository in self._refs

    def asked(self, part: str) -> list[tuple[str, str, dict[str, str]]]:
        """The requests to the Hub whose path has this in it."""
        with self.lock:
            return [each for each in self.requests if part in each[1]]

    def __enter__(self) -> Hub:
        self.store.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.store.__exit__(kind, error, traceback)


def _entries(tree: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path, data in sorted(tree.items()):
        if folder and not path.startswith(f"{folder}/"):
            continue
        parts = path[len(folder) :].strip("/").split("/")
        for depth in range(1, len(parts)):
            name = "/".join(filter(None, (folder, *parts[:depth])))
            if recursive or depth == 1:
                found[name] = {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
        if recursive or len(parts) == 1:
            found[path] = _file(path, data)
    return list(found.values())


def _git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _file(path: str, data: bytes) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _git(data)}
    if len(data) >= SMALL:
        sha256 = hashlib.sha256(data).hexdigest()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(data)}\n".encode()
        about |= {"oid": _git(pointer), "lfs": {"oid": sha256, "size": len(data), "pointerSize": len(pointer)}}
    return about


_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?")
_RESOLVE = re.compile(r"/(?:api/resolve-cache/)?((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.close_connection = True
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path, _, query = self.path.partition("?")
        with hub.lock:
            hub.requests.append((self.command, self.path, dict(self.headers.items())))
            planned = hub.answers.pop(0) if hub.answers else None
        if planned is not None:
            self._send(planned[0], b"{}", planned[1])
            return
        options = urllib.parse.parse_qs(query or body)
        if match := _API.fullmatch(path):
            kind, repository, verb, revision, inner = match.groups()
            name = f"datasets/{repository}" if kind == "datasets" else repository
            self._api(
                hub, name, verb, urllib.parse.unquote(revision or "main"), urllib.parse.unquote(inner or ""), options
            )
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(hub, match[1], urllib.parse.unquote(match[2]), urllib.parse.unquote(match[3]))
        else:
            self._send(404, b"{}")

    def _refused(self, hub: Hub, name: str, revision: str, reads: bool) -> bool:
        """Whether the answer has been given: not there, not seen, or not to be read."""
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {TOKEN}"):
            self._send(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif not hub.has(name) or (name in hub.private and given is None):
            self._send(404 if given else 401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif reads and name in hub.gated and given is None:
            self._send(401, b"{}", {"X-Error-Code": "GatedRepo"})
        elif hub.tree(name, revision) is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        else:
            return False
        return True

    def _api(
        self, hub: Hub, name: str, verb: str | None, revision: str, inner: str, options: dict[str, list[str]]
    ) -> None:
        if self._refused(hub, name, revision, False):
            return
        tree = hub.tree(name, revision) or {}
        if verb in (None, "revision"):
            repository = name.removeprefix("datasets/")
            about = {"id": repository, "sha": hub.sha(name, revision), "private": name in hub.private, "siblings": []}
            self._json({**about, "tags": [], "downloads": 0, "likes": 0})
        elif verb == "paths-info":
            self._json([_file(path, tree[path]) for path in options.get("paths", ()) if path in tree])
        else:
            found = _entries(tree, inner, options.get("recursive", ["false"])[0].lower() == "true")
            if inner and not found:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            first = int(options.get("cursor", ["0"])[0])
            more = {}
            if first + PAGE < len(found):
                kept = {key: values[0] for key, values in options.items()} | {"cursor": str(first + PAGE)}
                target = f"{hub.url}{self.path.partition('?')[0]}?{urllib.parse.urlencode(kept)}"
                more = {"Link": f'<{target}>; rel="next"'}
            self._json(found[first : first + PAGE], more)

    def _resolve(self, hub: Hub, name: str, revision: str, path: str) -> None:
        if self._refused(hub, name, revision, True):
            return
        data = (hub.tree(name, revision) or {}).get(path)
        if data is None:
            self._send(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": hub.sha(name, revision)}
        if len(data) >= SMALL:
            sha256 = hashlib.sha256(data).hexdigest()
            linked = {"X-Linked-ETag": f'"{sha256}"', "X-Linked-Size": str(len(data))}
            location = f"http://{hub.store.host}/{sha256}?Signature=CANARYsignature"
            self._send(302, b"Found", {**headers, **linked, "Location": location})
        elif not self.path.startswith("/api/"):
            self._send(307, b"", {**headers, "Location": f"/api/resolve-cache{self.path}"})
        else:
            self._send(200, data, {**headers, "ETag": f'"{_git(data)}"'})

    def _json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for header, value in {**(headers or {}), "Content-Length": str(len(body)), "Connection": "close"}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing: the tests look at ``requests``."""
