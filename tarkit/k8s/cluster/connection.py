"""A cluster's API, as plain JSON objects: get, list, watch, create, patch, delete, and logs of pods.

The official client brings the configuration, the credentials and the connections. Its model
classes are not used: what the API answers is passed on as it is, as dicts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

from tarkit.errors import ClusterError, ClusterUnreachableError, printable
from tarkit.extras import library
from tarkit.k8s.cluster.apicall import BUSY, ApiCall, http_errors, one
from tarkit.k8s.cluster.config import Access, login_errors

Object = dict[str, Any]
Objects = list[Object]

_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}
"""Of verbs; the others only read."""
_PAGE = 500
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 60.0
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
        return self._object(self._json(one("get", kind, name)))

    def list(self, kind: str, *, labels: str = "", fields: str = "") -> Objects:
        """All objects of a kind. labels, fields: selectors in the API's notation."""
        return self.list_at(kind, labels=labels, fields=fields)[0]

    def list_at(self, kind: str, *, labels: str = "", fields: str = "") -> tuple[Objects, str]:
        """(all objects of a kind, the version after which a watch goes on), asked for in pages.

        Pages are of one moment, which the server keeps for minutes: a list that takes longer is begun anew (410).
        """
        for _ in range(_TRIES):
            try:
                return self._pages(kind, labels, fields)
            except ClusterError as error:
                if error.status != 410:
                    raise
        raise ClusterUnreachableError(f"{self.where}: a list of {kind} takes longer than the server keeps it", 410)

    def _pages(self, kind: str, labels: str, fields: str) -> tuple[Objects, str]:
        query = {"limit": str(_PAGE), **_selectors(labels, fields)}
        found: Objects = []
        while True:
            page = self._json(ApiCall("list", kind), query)
            found += map(self._object, page.get("items") or [])
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    def create(self, kind: str, body: Mapping[str, Any]) -> Object:
        """A new object, as the server has stored it. A field that the server does not know is an error."""
        return self._json(ApiCall("create", kind), {"fieldValidation": "Strict", "fieldManager": "kubetpl"}, body)

    def patch(self, kind: str, name: str, changes: Mapping[str, Any]) -> Object:
        """Merge changes into an object: None removes a field."""
        return self._json(one("patch", kind, name), {"fieldManager": "kubetpl"}, changes)

    def delete(self, kind: str, name: str, uid: str, *, foreground: bool = False) -> None:
        """Remove this object, and not another one of its name; what it owns follows.

        foreground: the object stays until what it owns is gone.
        """
        policy = "Foreground" if foreground else "Background"
        body = {"propagationPolicy": policy, "preconditions": {"uid": uid}}
        self._json(one("delete", kind, name), body=body)

    def log(
        self,
        pod: str,
        *,
        container: str | None = None,
        tail: int | None = None,
        follow: bool = False,
        stamped: bool = False,
        since: str | None = None,
    ) -> Iterator[bytes]:
        """Lines of a container's log, without their ends.

        follow: until the container has ended. stamped: each line begins with its time. since: only lines from that
        time on, in seconds: a server ignores what is smaller.
        """
        query = {"follow": "true"} if follow else {}
        query.update({"container": container} if container else {})
        query.update({"tailLines": str(tail)} if tail is not None else {})
        query.update({"timestamps": "true"} if stamped else {})
        query.update({"sinceTime": since} if since else {})
        read_seconds = None if follow else _READ_SECONDS
        response = self._send(one("get", "pods", pod, "log"), query, read_seconds=read_seconds)
        yield from self._lines(response)

    def watch(
        self, kind: str, *, version: str, seconds: float, labels: str = "", fields: str = ""
    ) -> Generator[tuple[str, Object], None, None]:
        """(ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; object) as they come, for so many seconds at most.

        version: the resourceVersion after which to begin. It ends when the server wants so, too. What is raised at
        once says that there is no watch; what is raised later, that it was cut.
        """
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query.update(_selectors(labels, fields))
        query["timeoutSeconds"] = str(max(1, int(seconds)))
        # The server ends it; more than that is a connection that died without a word.
        return self._events(self._send(ApiCall("watch", kind), query, read_seconds=seconds + 15))

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
            raise ClusterUnreachableError(
                f"{self.where} answers what has no metadata.name; is it a Kubernetes API server?"
            )
        return dict(answer)

    def _json(
        self, call: ApiCall, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Object:
        response = self._send(call, query or {}, body)
        try:
            content = response.data
            answer = json.loads(content)
        except http_errors() as error:
            raise self._unreachable(error) from error
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # A page of a proxy, or an answer that was cut.
            raise ClusterUnreachableError(
                f"{self.where} answers what is not a JSON object; is it a Kubernetes API server?"
            )
        return answer

    def _send(
        self,
        call: ApiCall,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        read_seconds: float | None = _READ_SECONDS,
    ) -> Any:
        """The response, its body not yet read; busy servers are asked again."""
        errors = http_errors()
        timeout = library("urllib3", "talking to a Kubernetes cluster", "k8s").Timeout(_CONNECT_SECONDS, read_seconds)
        method = _METHODS.get(call.verb, "GET")
        url = f"{self._host}{call.path(self.namespace)}" + (f"?{urlencode(query)}" if query else "")
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
                problem = call.refusal(response, self.where, self.namespace, self._login_problems)
                again = response.status == 429 or (response.status in BUSY and method != "POST")
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

    def _lines(self, response: Any) -> Generator[bytes, None, None]:
        rest = b""
        try:
            for piece in response.stream(65536, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                yield from lines
        except http_errors() as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
        if rest:
            yield rest

    def _unreachable(self, error: BaseException) -> ClusterUnreachableError:
        why = _POOL.sub("", " ".join(str(_root(error)).split()))
        return ClusterUnreachableError(f"{self.where} cannot be reached: {printable(why)}")


def _selectors(labels: str, fields: str) -> dict[str, str]:
    found = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in found.items() if value}


def _root(error: BaseException) -> BaseException:
    reason = getattr(error, "reason", None)
    return _root(reason) if isinstance(reason, BaseException) else error


def _is_momentary(error: BaseException) -> bool:
    """Whether the connection broke, rather than never came about."""
    return type(error).__name__ in ("ProtocolError", "ReadTimeoutError", "IncompleteRead")


def _asked_pause(response: Any, pause: float) -> float:
    asked = response.headers.get("Retry-After") or ""
    return min(float(asked), _LONGEST_PAUSE) if asked.isascii() and asked.isdigit() else pause
