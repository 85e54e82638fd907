"""The REST server of an OpenPAI cluster: jobs submitted, looked at, stopped, and their logs.

Source: OpenPAI's description of its API (2.2.7), and of version 1 (0.14).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

from tarkit.errors import (
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    UsageError,
    printable,
    shortened,
)
from tarkit.redaction import redact

_MOST_BYTES = 64 << 20
ENDED = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 1}
"""States in which a job stays."""


class JobTask(NamedTuple):
    """role, number: which. state: as OpenPAI has it. exit_code: None as long as it runs. log: where it is, by API 1."""

    role: str
    number: int
    state: str
    exit_code: int | None
    log: str | None


class Job(NamedTuple):
    """state: WAITING, RUNNING, STOPPING, SUCCEEDED, STOPPED, FAILED, UNKNOWN. attempt: the last one, from 0."""

    name: str
    state: str
    attempt: int
    tasks: list[JobTask]


class RestServer:
    """A cluster, as one user sees it.

    Args:
        url: of the REST server: ``https://HOST/rest-server``, or ``http://HOST:9186``.
        token: of the portal's profile page, or an application token; it is in no message.
        version: of the API: 1 on YARN, 2 on Kubernetes.
        seconds: how long one call may take.

    Raises, in each call:
        ClusterDeniedError: the token is not known, or may not. NoSuchObjectError: there is no such job.
        ClusterError: the server refused it; the message has its reason. ClusterUnreachableError: no answer.
    """

    def __init__(self, url: str, user: str, token: str | None, *, version: int = 2, seconds: float = 30.0) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"{printable(redact(url))}: the address of a cluster begins with http:// or https://")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("the token has characters that no token has; was a wrong file named?")
        self._url, self._user, self._token = url.rstrip("/"), user, token
        self._version, self._seconds = version, seconds

    def submit(self, text: str) -> None:
        """Submit a job: JSON to API 1, YAML to API 2. Its name must be new, and else it is a ClusterError."""
        if self._version == 1:
            self._call("POST", self._job_path(None), text, "application/json")
        else:
            self._call("POST", "/api/v2/jobs", text, "text/yaml")

    def job(self, name: str) -> Job:
        """What the server knows of a job."""
        found = self._json("GET", self._job_path(name))
        status = found.get("jobStatus") or {}
        tasks = [
            JobTask(role, task.get("taskIndex", 0), str(task.get("taskState")), task.get("containerExitCode"), log)
            for role, group in (found.get("taskRoles") or {}).items()
            for task in group.get("taskStatuses") or []
            for log in [task.get("containerLog")]
        ]
        return Job(str(found.get("name", name)), str(status.get("state", "UNKNOWN")), status.get("retries") or 0, tasks)

    def stop(self, name: str) -> None:
        """Ask for the end of a job."""
        self._call("PUT", f"{self._job_path(name)}/executionType", '{"value": "STOP"}', "application/json")

    def log(self, job: Job, task: JobTask) -> Iterator[str]:
        """The text of a task's logs; of API 1, the address at which it is."""
        if self._version == 1:
            yield f"{task.log or 'it has no log yet'}\n"
            return
        path = (
            f"{self._job_path(job.name.rpartition('~')[2])}/attempts/{job.attempt}/taskRoles/{_quoted(task.role)}"
            f"/taskIndex/{task.number}/attempts/0/logs"
        )
        text = self._call("GET", path)
        try:
            places = json.loads(text)["locations"]
        except (ValueError, KeyError, TypeError):
            yield text
            return
        for place in places:
            yield f"==> {printable(str(place.get('name')))} <==\n"
            yield self._call("GET", "", url=urllib.parse.urljoin(f"{self._url}/", str(place.get("uri"))))

    def _job_path(self, name: str | None) -> str:
        user = _quoted(self._user)
        if self._version == 1:
            return f"/api/v1/user/{user}/jobs" + ("" if name is None else f"/{_quoted(name)}")
        return f"/api/v2/jobs/{user}~{_quoted(name or '')}"

    def _json(self, method: str, path: str) -> dict[str, Any]:
        try:
            found = json.loads(self._call(method, path))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterError(
                f"{redact(self._url)}{path}: the answer is not a JSON object; is it OpenPAI's REST server?"
            )
        return found

    def _call(self, method: str, path: str, body: str | None = None, kind: str = "", *, url: str | None = None) -> str:
        address = f"{self._url}{path}" if url is None else url
        request = urllib.request.Request(address, None if body is None else body.encode(), method=method)  # noqa: S310
        if body is not None:
            request.add_header("Content-Type", kind)
        here, there = (urllib.parse.urlsplit(each)[:2] for each in (self._url, address))
        if self._token is not None and here == there:
            # Not for another server, to which this one may send us.
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        where = f"{method} {redact(address)}"
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as answer:  # noqa: S310 (see __init__)
                content: bytes = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(where, error.code, error.read(1 << 16)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ClusterUnreachableError(f"{where}: {printable(str(reason))}") from None
        return content.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _refusal(where: str, status: int, body: bytes) -> Exception:
    """The error of an answer; OpenPAI explains itself as ``{"code": …, "message": …}``."""
    try:
        answer = json.loads(body)
        reason = f"{answer['code']}: {answer['message']}"
    except (ValueError, KeyError, TypeError):
        reason = body.decode("utf-8", "replace").strip()
    message = f"{where}: {status} {printable(shortened(reason, 1000))}"
    if status in (401, 403):
        return ClusterDeniedError(f"{message}; the token may be missing, or too old", status)
    if status == 404:
        return NoSuchObjectError(message, status)
    if status == 429 or status >= 500:
        return ClusterUnreachableError(message, status)
    return ClusterError(message, status)
