"""Call HDFS over HTTP: the REST interface of Hadoop's NameNodes, DataNodes, HttpFS and Knox.

Every answer is checked. Source: "WebHDFS REST API" of Apache Hadoop 3.3.6. Reads and writes take
two requests: the NameNode redirects to a DataNode. Redirects are followed here, because the status
of each answer matters, and a DataNode that fails must be avoided by name (``excludedatanodes``).
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from email.message import Message
from typing import Any, NoReturn

from tarkit.errors import MissingInputError, StreamError
from tarkit.names.url import http_parts, server_of
from tarkit.store.faults import is_temporary_status
from tarkit.store.foreign import without_secrets
from tarkit.store.hdfs.client import HdfsClient, HdfsWriter, Status, raise_java
from tarkit.store.hdfs.resturl import Address
from tarkit.store.hdfs.restwrite import ChunkedPut, Redirected
from tarkit.store.http.answer import MOST_REDIRECTS, follow, redirect_target, retry_after, status_text
from tarkit.store.http.connection import Connection, HttpBody, SecureConnection
from tarkit.store.resume import read_up_to
from tarkit.store.retry import Dropped, Retry

_LONGEST_JSON = 256 << 20
_CONTENT_TYPE = {"Content-Type": "application/octet-stream"}


class _NodeDropped(Dropped):
    """An attempt failed at this DataNode (host:port of its HTTP server)."""

    def __init__(self, reason: str, node: str, answered: bool) -> None:
        super().__init__(reason, answered=answered)
        self.node = node


def _body_problem(headers: Message) -> str | None:
    """Return why the body of an answer cannot be the bytes of a file; None if it can."""
    kind = headers.get_content_type()
    if "Content-Type" in headers and kind.startswith("text/"):
        return f"{kind} in place of the file's bytes"
    encoding = headers.get("Content-Encoding", "identity").strip().lower() or "identity"
    return None if encoding == "identity" else "the bytes in a Content-Encoding that was not asked for"


class WebHdfsClient(HdfsClient):
    """A client of one cluster.

    With several NameNodes, ``webhdfs://A:9870,B:9870/…``, the active one answers.
    """

    def __init__(self, address: Address, retry: Retry) -> None:
        self._address = address
        self.retry = retry
        self._first = 0
        self._avoid: list[str] = []
        self._node: str | None = None

    def shown(self, path: str) -> str:
        return self._address.shown(path)

    def status(self, path: str) -> Status:
        return self._status(self._json("GET", path, "GETFILESTATUS", "FileStatus"), path)

    def listing(self, path: str) -> list[Status]:
        answer = self._json("GET", path, "LISTSTATUS", "FileStatuses")
        items = answer.get("FileStatus")
        if not isinstance(items, list):
            self._raise_invalid(path, "LISTSTATUS")
        return [self._status(item, path) for item in items]

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        # Without renameoptions the server does not report why a rename failed.
        options = {"destination": target, "renameoptions": "OVERWRITE" if overwrite else "NONE"}
        self._json("PUT", source, "RENAME", None, options, shown=target)

    def delete(self, path: str, recursive: bool) -> bool:
        answer = self._json("DELETE", path, "DELETE", None, {"recursive": "true" if recursive else "false"})
        if not isinstance(answer.get("boolean"), bool):
            self._raise_invalid(path, "DELETE")
        return bool(answer["boolean"])

    def checksum(self, path: str) -> str:
        """Return the checksum of a file as ``ALGORITHM:HEX``.

        It depends on the block size, so it distinguishes copies on one cluster, but not all files.
        """
        answer = self._json("GET", path, "GETFILECHECKSUM", "FileChecksum")
        return f"{answer.get('algorithm')}:{answer.get('bytes')}"

    def open(self, path: str, offset: int, stop: int) -> HttpBody:
        """Open a file to read from ``offset`` up to ``stop``.

        DataNodes at which an earlier body of this file broke are avoided.
        """
        if self._node is not None:
            # The file is opened again, so the earlier body broke.
            node, self._node = self._node, None
            found = self._exclusion(node, path, offset)
            if found is not None and found not in self._avoid:
                self._avoid.append(found)
        options = {"offset": str(offset), "length": str(stop - offset)}
        if self._avoid:
            options["excludedatanodes"] = ",".join(self._avoid)
        try:
            response, node = self._follow("GET", self._address.url(path, "OPEN", options), path)
            if response.status != 200 or "json" in response.headers.get("Content-Type", ""):
                self._raise_for_status(response, path)
            problem = _body_problem(response.headers)
            if response.length not in (None, stop - offset):
                problem = f"{response.length} bytes, but {stop - offset} were asked for"
            if problem:
                response.close()
                raise Dropped(f"the server sends {problem}")
            body = HttpBody(response, self._address.secrets, offset, stop, True)
        except _NodeDropped as drop:
            self._node = drop.node
            raise
        except Dropped:
            # No other DataNode has the block, or none of them is running: the avoided ones are
            # tried again.
            self._avoid.clear()
            raise
        self._node = node
        return body

    def create(self, path: str) -> HdfsWriter:
        url = self._address.url(path, "CREATE", {"overwrite": "true", "createparent": "true"})
        response, hop = self._ask("PUT", url, path, _CONTENT_TYPE)
        location = redirect_target(response, hop, self.shown(path))
        if location is None:
            if response.status >= 300:
                self._raise_for_status(response, path)
            response.close()
            raise StreamError(f"{status_text(response.status)}, without a target for the data", url=self.shown(path))
        for _ in range(MOST_REDIRECTS):
            headers = {**self._headers(location), **_CONTENT_TYPE}
            try:
                return ChunkedPut(*self._connection(location, path), headers, lambda r: self._raise_for_status(r, path))
            except Redirected as redirect:
                location = redirect_target(redirect.response, location, self.shown(path)) or location
        raise StreamError(f"the server redirected {MOST_REDIRECTS} times", url=self.shown(path))

    def _exclusion(self, node: str, path: str, offset: int) -> str | None:
        """Return the value of ``excludedatanodes`` for a DataNode, or None.

        It is the address of its data transfer, from the locations of the block; without them its IP
        address.

        Args:
            node: host:port of its HTTP server.
            offset: offset in the file, of a block on that DataNode.
        """
        host, _, port = node.rpartition(":")
        with suppress(Dropped, StreamError, MissingInputError, TypeError, ValueError, AttributeError):
            options = {"offset": str(offset), "length": "1"}
            answer = self._json("GET", path, "GET_BLOCK_LOCATIONS", "LocatedBlocks", options)
            for block in answer.get("locatedBlocks") or []:
                for found in block["locations"]:
                    ports = (str(found.get("infoPort")), str(found.get("infoSecurePort")))
                    if host in (found.get("hostName"), found.get("ipAddr")) and port in ports:
                        return f"{found['ipAddr']}:{found['xferPort']}"
        with suppress(OSError):
            return socket.gethostbyname(host)
        return None

    # --- answers ---

    def _status(self, item: Any, path: str) -> Status:
        try:
            number = int(item.get("fileId", 0))
            kind, size, mtime = item["type"], int(item["length"]), int(item["modificationTime"])
            return Status(str(item["pathSuffix"]), kind == "DIRECTORY", size, mtime, number)
        except (TypeError, KeyError, ValueError, AttributeError):
            self._raise_invalid(path, "a status")

    def _raise_invalid(self, path: str, what: str) -> NoReturn:
        raise StreamError(f"the server's answer to {what} is not that of WebHDFS", url=self.shown(path))

    def _json(
        self,
        method: str,
        path: str,
        op: str,
        part: str | None,
        options: dict[str, str] | None = None,
        shown: str | None = None,
    ) -> dict[str, Any]:
        """Return the object in an answer, {} if it is empty.

        Args:
            path: path on the cluster.
            part: name of an object in the answer, which is returned instead.
            shown: path that errors name; None: ``path``.
        """
        about = shown or path
        response, _ = self._follow(method, self._address.url(path, op, options or {}), about)
        with response:
            if response.status != 200:
                self._raise_for_status(response, about)
            text = self._text(response)
        answer = self._parsed(text, about) if text.strip() else {}
        inner = answer.get(part) if part and isinstance(answer, dict) else answer
        if not isinstance(inner, dict):
            self._raise_invalid(about, op)
        return inner

    def _parsed(self, text: str, path: str) -> Any:
        """Parse the JSON of an answer; None if it is not JSON.

        An exception of Hadoop in it is raised.
        """
        try:
            answer = json.loads(text)
        except ValueError:
            return None
        error = answer.get("RemoteException") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            kind = str(error.get("javaClassName") or error.get("exception") or "RemoteException")
            raise_java(kind, str(error.get("message")), self._address.secrets, self.shown(path))
        return answer

    def _text(self, response: http.client.HTTPResponse) -> str:
        body = HttpBody(response, self._address.secrets, 0, response.length, False)
        try:
            text = read_up_to(body, _LONGEST_JSON)
        finally:
            body.close()
        if body.end is not None and len(text) < min(body.end, _LONGEST_JSON):
            raise Dropped(f"the answer was cut after {len(text)} of {body.end} bytes")
        return text.decode("utf-8", "replace")

    def _raise_for_status(self, response: http.client.HTTPResponse, path: str) -> NoReturn:
        with response:
            status, text = response.status, self._text(response)
            wait = retry_after(response.headers, self.retry.now())
            negotiate = "negotiate" in response.headers.get("WWW-Authenticate", "").lower()
        self._parsed(text, path)
        name = self.shown(path)
        reason = status_text(status) + (" and JSON in place of the file's bytes" if status == 200 else "")
        if is_temporary_status(status):
            raise Dropped(reason, wait)
        if status == 404:
            raise MissingInputError(reason, url=name)
        hint = "for Kerberos use hdfs://, or a delegation token, ?delegation=…" if negotiate else None
        raise StreamError(reason, url=name, hint=hint)

    # --- requests ---

    def _follow(self, method: str, url: str, path: str) -> tuple[http.client.HTTPResponse, str]:
        """Return the answer at the end of all redirects, and the host:port of its server."""
        response, asked = follow(lambda target: self._ask(method, target, path, {}), url, self.shown(path))
        return response, server_of(asked)

    def _ask(self, method: str, url: str, path: str, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, str]:
        """Send one request; return its answer and the URL that answered.

        A URL of the address is sent to each NameNode in turn.
        """
        bases = self._address.bases if url.startswith("/") else ("",)
        problem: Dropped = Dropped("no answer")
        for turn in range(len(bases)):
            index = (self._first + turn) % len(bases)
            full = bases[index] + url
            connection, target = self._connection(full, path)
            try:
                connection.request(method, target, headers={**self._headers(full), **headers})
                response = connection.getresponse()
                if connection.sock is not None:
                    # The answer holds the socket as well: it closes with the answer, even if the
                    # server would keep it open.
                    connection.sock.close()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                node = server_of(full)
                said = without_secrets(str(error) or type(error).__name__, self._address.secrets)
                problem = _NodeDropped(f"no answer from {node} ({said})", node, not url.startswith("/"))
                continue
            if len(bases) > 1 and response.status in (403, 404, 500, 503) and turn < len(bases) - 1:
                try:
                    self._raise_for_status(response, path)
                except Dropped as error:
                    problem = error
                    continue
            if url.startswith("/"):
                self._first = index
            return response, full
        raise problem

    def _connection(self, url: str, path: str) -> tuple[http.client.HTTPConnection, str]:
        """Return a connection to the server of a URL, and the target of the request."""
        parts = http_parts(url)
        if parts.scheme == "http" and self._address.bases[0].startswith("https:"):
            raise StreamError("the server redirects from https to http", url=self.shown(path))
        kind = SecureConnection if parts.scheme == "https" else Connection
        connection = kind(parts.hostname or "", parts.port, timeout=self.retry.timeout)
        return connection, f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _headers(self, url: str) -> dict[str, str]:
        headers = {"User-Agent": "tarkit", "Accept-Encoding": "identity", "Connection": "close"}
        if self._address.authorization and server_of(url) in map(server_of, self._address.bases):
            headers["Authorization"] = self._address.authorization
        return headers
