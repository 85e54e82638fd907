"""A cluster's API, as plain JSON objects: get, list, watch, create, patch, delete, and logs of pods.

The official client brings the configuration, the credentials and the connections. Its model
classes are not used: what the API answers is passed on as it is, as dicts.

Source of paths, verbs and status codes: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
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
from tarkit.k8s.cluster.config import Access, login_errors
from tarkit.k8s.names import dns_subdomain

Object = dict[str, Any]

GROUPS = {
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "events": "/api/v1",
    "configmaps": "/api/v1",
    "namespaces": "/api/v1",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2",
    # Before Kueue 0.15.
    "workloads@v1beta1": "/apis/kueue.x-k8s.io/v1beta1",
}
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_PAGE = 500
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
_BUSY = (429, 500, 502, 503, 504)
_TRIES = 4
_LONGEST_PAUSE = 10.0
# What urllib3 puts before the reason: the connection as Python sees it.
_POOL = re.compile(r"^(<[^>]*>|HTTPS?Connection(Pool)?\([^)]*\)): ")


class Cluster:
    """One namespace of one cluster.

    sleep: called with seconds between tries.

    All methods raise ClusterUnreachableError if the server does not answer, NoSuchObjectError on 404, ClusterError
    with the status on every other refusal, and UsageError, before anything is sent, for a name that no object can
    have: it would be another path of the API.
    """

    def __init__(self, access: Access, sleep: Callable[[float], None]) -> None:
        self.namespace = access.namespace
        self.user = access.user
        self._client = access.client
        self._sleep = sleep
        self._login_problems: list[str] = []
        self._host = str(access.client.configuration.host).rstrip("/")
        self.where = f"{self._host} (context {printable(access.context)})"

    def get(self, kind: str, name: str) -> Object:
        """One object."""
        return self._object(self._json("GET", kind, _named(kind, name)))

    def list(self, kind: str, *, labels: str = "", fields: str = "") -> Iterator[Object]:
        """Objects of a kind, a page at a time. labels, fields: selectors in the API's notation."""
        query: dict[str, str] = {"limit": str(_PAGE)}
        query.update({"labelSelector": labels} if labels else {})
        query.update({"fieldSelector": fields} if fields else {})
        while True:
            page = self._json("GET", kind, "", query, verb="list")
            yield from map(self._object, page.get("items") or [])
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return
            query["continue"] = more

    def create(self, kind: str, body: Mapping[str, Any]) -> Object:
        """A new object, as the server has stored it. A field that the server does not know is an error."""
        return self._json("POST", kind, "", {"fieldValidation": "Strict", "fieldManager": "kubetpl"}, body)

    def patch(self, kind: str, name: str, changes: Mapping[str, Any]) -> Object:
        """Merge changes into an object: None removes a field."""
        return self._json("PATCH", kind, _named(kind, name), {"fieldManager": "kubetpl"}, changes)

    def delete(self, kind: str, name: str) -> None:
        """Remove an object; what it owns follows in the background."""
        self._json("DELETE", kind, _named(kind, name), body={"propagationPolicy": "Background"})

    def log(
        self, pod: str, *, container: str | None = None, tail: int | None = None, follow: bool = False
    ) -> Iterator[bytes]:
        """Lines of a container's log, without their ends. follow: until the container has ended."""
        query = {"follow": "true"} if follow else {}
        query.update({"container": container} if container else {})
        query.update({"tailLines": str(tail)} if tail is not None else {})
        response = self._send(
            "GET", "pods", _named("pods", pod), query, part="log", read_seconds=None if follow else _READ_SECONDS
        )
        yield from self._lines(response)

    def watch(self, kind: str, *, fields: str, version: str, seconds: float) -> Iterator[tuple[str, Object]]:
        """(ADDED, MODIFIED, DELETED or ERROR; object) as they come, for so many seconds at most.

        version: the resourceVersion after which to begin. It ends when the server wants so, too.
        """
        query = {"watch": "true", "fieldSelector": fields, "resourceVersion": version}
        query["timeoutSeconds"] = str(max(1, int(seconds)))
        query["allowWatchBookmarks"] = "true"
        # The server ends it; more than that is a connection that died without a word.
        response = self._send("GET", kind, "", query, verb="watch", read_seconds=seconds + 15)
        for line in self._lines(response):
            try:
                event = json.loads(line)
                found = str(event["type"]), dict(event["object"])
            except (ValueError, KeyError, TypeError):
                raise ClusterUnreachableError(f"{self.where}: a watch was cut short") from None
            yield found

    def _object(self, answer: Any) -> Object:
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise ClusterUnreachableError(
                f"{self.where} answers what has no metadata.name; is it a Kubernetes API server?"
            )
        return dict(answer)

    def _json(
        self,
        method: str,
        kind: str,
        name: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        verb: str | None = None,
    ) -> Object:
        errors = _http_errors()
        response = self._send(method, kind, name, query or {}, body, verb)
        try:
            content = response.data
            answer = json.loads(content)
        except errors as error:
            raise self._unreachable(error) from error
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # A page of a proxy, or an answer that was cut.
            raise ClusterUnreachableError(
                f"{self.where} answers what is no JSON object; is it a Kubernetes API server?"
            )
        return answer

    def _send(
        self,
        method: str,
        kind: str,
        name: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        verb: str | None = None,
        read_seconds: float | None = _READ_SECONDS,
        part: str = "",
    ) -> Any:
        """The response, its body not yet read; busy servers are asked again."""
        errors = _http_errors()
        timeout = library("urllib3", "talking to a Kubernetes cluster", "k8s").Timeout(_CONNECT_SECONDS, read_seconds)
        path = _path(self.namespace, kind, name, part)
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        for attempt in range(_TRIES):
            pause = 0.25 * 2**attempt
            try:
                response = self._client.rest_client.pool_manager.request(
                    method, url, body=None if body is None else json.dumps(body).encode(),
                    headers=self._headers(method), timeout=timeout, retries=False, preload_content=False,
                )  # fmt: skip
            except errors as error:
                # What was sent may have arrived: only questions are asked twice.
                if method != "GET" or attempt + 1 == _TRIES or not _is_momentary(error):
                    raise self._unreachable(error) from error
            else:
                if 200 <= response.status < 300:
                    return response
                problem = self._problem(response, method, kind, name, verb or _VERBS[method], part)
                again = response.status == 429 or (response.status in _BUSY and method != "POST")
                if not again or attempt + 1 == _TRIES:
                    raise problem
                pause = _asked_pause(response, pause)
            self._sleep(pause)
        raise ClusterUnreachableError(f"{self.where} does not answer")

    def _headers(self, method: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kubetpl"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        elif method != "GET":
            headers["Content-Type"] = "application/json"
        # Here a token that has expired is asked for anew; the old one stays if that fails.
        with login_errors() as self._login_problems:
            settings = self._client.configuration.auth_settings()
        for setting in settings.values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers

    def _lines(self, response: Any) -> Iterator[bytes]:
        rest = b""
        try:
            for piece in response.stream(65536, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                yield from lines
        except _http_errors() as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
        if rest:
            yield rest

    def _problem(self, response: Any, method: str, kind: str, name: str, verb: str, part: str) -> ClusterError:
        """What a refusal means."""
        said = _message(response)
        what = f"{kind.removesuffix('s')} {name}" if name else kind
        resource = f"{kind}/{part}" if part else kind
        status = int(response.status)
        if status == 401:
            why = "".join(f": {each}" for each in self._login_problems[:1])
            return ClusterDeniedError(f"{self.where} does not know who you are (401): log in again{said}{why}", 401)
        if status == 403:
            return ClusterDeniedError(
                f"{self.where}: you may not {verb} {resource} in namespace {self.namespace} (403); have a role "
                f"with the verb {verb} on {resource} bound to you{said}",
                403,
            )
        if status == 404:
            return NoSuchObjectError(f"no {what} in namespace {self.namespace} of {self.where}", 404)
        if status == 409 and method == "POST":
            return ClusterError(f"{self.where} has such an object already (409){said}", 409)
        if status in _BUSY:
            return ClusterUnreachableError(f"{self.where} is busy ({status}){said}; try again later", status)
        return ClusterError(f"{self.where} refuses to {verb} {what} ({status}){said}", status)

    def _unreachable(self, error: BaseException) -> ClusterUnreachableError:
        why = _POOL.sub("", " ".join(str(_root(error)).split()))
        return ClusterUnreachableError(f"{self.where} can not be reached: {printable(why)}")


def _named(kind: str, name: str) -> str:
    """The name, if an object can have it.

    Raises:
        UsageError: it cannot.
    """
    wrong = dns_subdomain(name)
    if wrong:
        raise UsageError(f"the name of a {kind.removesuffix('s')} {wrong}")
    return name


def _path(namespace: str, kind: str, name: str, part: str) -> str:
    """Of the API. name: "" for all of a kind. part: a subresource."""
    words = [kind.partition("@")[0], name, part]
    if kind != "namespaces":
        words[:0] = ["namespaces", namespace]
    return GROUPS[kind] + "".join(f"/{quote(word, safe='')}" for word in words if word)


def _http_errors() -> tuple[type[BaseException], ...]:
    exceptions = library("urllib3.exceptions", "talking to a Kubernetes cluster", "k8s")
    return (exceptions.HTTPError, OSError)


def _root(error: BaseException) -> BaseException:
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else error


def _is_momentary(error: BaseException) -> bool:
    """Whether the connection broke, rather than never came about."""
    return type(error).__name__ in ("ProtocolError", "ReadTimeoutError", "IncompleteRead")


def _asked_pause(response: Any, pause: float) -> float:
    asked = response.headers.get("Retry-After") or ""
    return min(float(asked), _LONGEST_PAUSE) if asked.isascii() and asked.isdigit() else pause


def _message(response: Any) -> str:
    """The server's own words, behind a colon; "" if it has none."""
    try:
        said = json.loads(response.data).get("message")
    except (ValueError, AttributeError):
        return ""
    except _http_errors():
        return ""
    return f": {printable(str(said))}" if said else ""
