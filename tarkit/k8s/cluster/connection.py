"""A cluster's API, as plain JSON objects: get, list, watch, patch, and logs of pods.

The official client provides the configuration, the credentials and the connections. Its model
classes are not used: answers of the API are passed on unchanged, as dicts.

Source of paths, verbs and status codes:
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from typing import Any
from urllib.parse import quote, urlencode

from tarkit.errors import (
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    UsageError,
    printable,
)
from tarkit.extras import library
from tarkit.k8s.apiobject import Object, Objects, part_of
from tarkit.k8s.cluster.config import NEEDED_FOR, Access, login_errors
from tarkit.k8s.names import dns_subdomain
from tarkit.store import waits

_GROUPS = {"jobs": "/apis/batch/v1"}
"""API groups of kinds; other kinds are in the core group."""
_BUSY = (429, 500, 502, 503, 504)
_PASSING = (*_BUSY, 410)
"""Statuses after which a retry may succeed. 410: a list or watch began too long ago."""
_PAGE = 500
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_RETRIES = 3
_BACKOFF_SECONDS = 0.25
# What urllib3 puts before the reason: the connection as Python sees it.
_POOL = re.compile(r"^(<[^>]*>|HTTPS?Connection(Pool)?\([^)]*\)): ")


class Cluster:
    """A client of one namespace of a cluster.

    All methods raise ClusterUnreachableError if the server does not answer, NoSuchObjectError on
    404, and ClusterError with the status on every other refusal. They raise UsageError, before
    anything is sent, for a name that is not valid for an object: it would be a different path of
    the API.
    """

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace
        self._client = access.client
        self._login_problems: list[str] = []
        self._host = str(access.client.configuration.host).rstrip("/")
        self.where = f"{self._host} (context {printable(access.context)})"

    def get(self, kind: str, name: str) -> Object:
        """Return one object."""
        return self._object(self._json("get", kind, name))

    def list(self, kind: str, *, labels: str = "", fields: str = "") -> Objects:
        """Return all objects of a kind.

        Args:
            labels, fields: selectors in the API's notation.
        """
        return self.list_at(kind, labels=labels, fields=fields)[0]

    def list_at(self, kind: str, *, labels: str = "", fields: str = "") -> tuple[Objects, str]:
        """Return all objects of a kind, and the version from which a watch continues.

        The pages of the list are from one point in time.
        """
        query: dict[str, object] = {"limit": _PAGE, "labelSelector": labels, "fieldSelector": fields}
        found: Objects = []
        while True:
            page = self._json("list", kind, query=query)
            found += map(self._object, page.get("items") or [])
            metadata = part_of(page, "metadata")
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    def patch(self, kind: str, name: str, changes: Object) -> Object:
        """Merge changes into an object: None removes a field."""
        return self._json("patch", kind, name, query={"fieldManager": "kubetpl"}, body=changes)

    def log(self, pod: str, *, container: str | None = None, tail: int | None = None) -> Generator[bytes, None, None]:
        """Yield the existing lines of a container's log, or its last ``tail`` lines."""
        yield from self._lines(self._send("get", "pods", pod, "log", {"container": container, "tailLines": tail}))

    def watch(
        self, kind: str, *, version: str, seconds: float, labels: str = "", fields: str = ""
    ) -> Generator[tuple[str, Object], None, None]:
        """Yield the changes of objects, as pairs of type and object.

        The type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR. The watch also ends when the server
        ends it. An error before the first change means that the server refused the watch; a later
        one, that the connection was lost.

        Args:
            version: the resourceVersion after which to begin.
        """
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "labelSelector": labels,
                 "fieldSelector": fields, "timeoutSeconds": max(1, int(seconds))}  # fmt: skip
        # The server ends it; more than that is a connection that died without a word.
        return self._events(self._send("watch", kind, query=query, read_seconds=seconds + 15))

    def _events(self, response: Any) -> Generator[tuple[str, Object], None, None]:
        with closing(self._lines(response)) as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                    found = str(event["type"]), dict(event["object"])
                except (ValueError, KeyError, TypeError):
                    raise ClusterUnreachableError(f"{self.where}: a watch was cut short") from None
                yield found

    def _object(self, answer: Any) -> Object:
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            what = "what has no metadata.name; is it a Kubernetes API server?"
            raise ClusterUnreachableError(f"{self.where} answers {what}")
        return dict(answer)

    def _json(
        self, verb: str, kind: str, name: str | None = None, *, query: Mapping[str, object] | None = None,
        body: Object | None = None,
    ) -> Object:  # fmt: skip
        response = self._send(verb, kind, name, query=query, body=body)
        try:
            answer = json.loads(response.data)
        except _http_errors() as error:
            raise self._unreachable(error) from error
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
        # A page of a proxy, or an answer that was cut.
        raise ClusterUnreachableError(f"{self.where} answers what is not a JSON object; is it a Kubernetes API server?")

    def _send(
        self, verb: str, kind: str, name: str | None = None, part: str = "", query: Mapping[str, object] | None = None,
        *, body: Object | None = None, read_seconds: float = _READ_SECONDS,
    ) -> Any:  # fmt: skip
        """Send a request, and return the response, its body unread; retry while a server is busy.

        Args:
            verb: verb as in the rules of a Role.
            kind: a key of ``_GROUPS``.
            name: name of an object, None for all of a kind.
            part: a subresource.
            query: parameters; those that are None or "" are left out.
        """
        if name is not None and (wrong := dns_subdomain(name)):
            raise UsageError(f"the name of a {kind.removesuffix('s')} {wrong}")
        urllib3 = library("urllib3", NEEDED_FOR, "k8s")
        method = "PATCH" if verb == "patch" else "GET"
        place = () if kind == "namespaces" else ("namespaces", self.namespace)
        words = [quote(word, safe="") for word in (*place, kind, name, part) if word]
        given = urlencode({key: value for key, value in (query or {}).items() if value not in (None, "")})
        url = "/".join([f"{self._host}{_GROUPS.get(kind, '/api/v1')}", *words]) + (f"?{given}" if given else "")
        # Both may arrive twice.
        retries = urllib3.Retry(
            _RETRIES, connect=0, allowed_methods=("GET", "PATCH"), status_forcelist=_BUSY,
            backoff_factor=_BACKOFF_SECONDS, raise_on_status=False, respect_retry_after_header=False,
        )  # fmt: skip

        def send() -> Any:
            return self._client.rest_client.pool_manager.request(
                method, url, body=None if body is None else json.dumps(body).encode(), headers=self._headers(method),
                timeout=urllib3.Timeout(_CONNECT_SECONDS, read_seconds), retries=retries, preload_content=False,
            )  # fmt: skip

        try:
            # No signal reaches the look-up of a host's name, nor that of a server that gives out
            # tokens.
            response = waits.call(send)
        except _http_errors() as error:
            raise self._unreachable(error) from error
        if 200 <= response.status < 300:
            return response
        raise self._refusal(response, verb, kind, name, part)

    def _refusal(
        self, response: Any, verb: str, kind: str, name: str | None, part: str
    ) -> ClusterError | ClusterUnreachableError:
        """Return the error for an answer that is not a success."""
        said = _message(response)
        what = f"{kind.removesuffix('s')} {name}" if name else kind
        status = int(response.status)
        if status == 401:
            why = "".join(f": {each}" for each in self._login_problems[:1])
            return ClusterDeniedError(f"{self.where} does not know who you are (401): log in again{said}{why}", 401)
        if status == 403:
            resource = f"{kind}/{part}" if part else kind
            return ClusterDeniedError(
                f"{self.where}: you may not {verb} {resource} in namespace {self.namespace} (403); have a role "
                f"with the verb {verb} on {resource} bound to you{said}",
                403,
            )
        if status == 404:
            return NoSuchObjectError(f"no {what} in namespace {self.namespace} of {self.where}", 404)
        if status in _PASSING:
            return ClusterUnreachableError(f"{self.where} is busy ({status}){said}; try again later", status)
        return ClusterError(f"{self.where} refuses to {verb} {what} ({status}){said}", status)

    def _headers(self, method: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kubetpl"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        # Here a token that has expired is asked for anew; the old one stays if that fails.
        with login_errors() as self._login_problems:
            settings = self._client.configuration.auth_settings()
        for setting in settings.values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers

    def _lines(self, response: Any) -> Generator[bytes, None, None]:
        """Yield the lines of a response, without line ends."""
        begun: list[bytes] = []
        try:
            for piece in response.stream(65536, decode_content=True):
                first, *lines = piece.split(b"\n")
                begun.append(first)
                if lines:
                    yield b"".join(begun)
                    begun = [lines.pop()]
                    yield from lines
        except _http_errors() as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
        if any(begun):
            yield b"".join(begun)

    def _unreachable(self, error: BaseException) -> ClusterUnreachableError:
        while isinstance(reason := getattr(error, "reason", None), BaseException):
            error = reason
        why = _POOL.sub("", " ".join(str(error).split()))
        return ClusterUnreachableError(f"{self.where} cannot be reached: {printable(why)}")


def _http_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that a failed connection raises."""
    return (library("urllib3.exceptions", NEEDED_FOR, "k8s").HTTPError, OSError)


def _message(response: Any) -> str:
    """Return the server's message after a colon, or "" if it sent none."""
    with suppress(ValueError, AttributeError, *_http_errors()):
        said = json.loads(response.data).get("message")
        return f": {printable(str(said))}" if said else ""
    return ""
