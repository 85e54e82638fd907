"""The REST server of an OpenPAI cluster: jobs submitted, looked at, stopped, and their logs.

Source: OpenPAI's description of its API (2.2.7), and of version 1 (0.14).
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
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

MOST_BYTES = 64 << 20
"""Of one answer."""
ENDED = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 1}
"""States in which a job stays."""


class JobTask(NamedTuple):
    """role, number: which. state: as OpenPAI has it. exit_code: None as long as it runs. log: where it is, by API 1.
    attempt: the last one, from 0."""

    role: str
    number: int
    state: str
    exit_code: int | None
    log: str | None
    attempt: int = 0


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
        seconds: how long one call may take; of a log, how long the server may be silent.

    Raises, in each call:
        ClusterDeniedError: the token is not known, or may not. NoSuchObjectError: there is no such job.
        ClusterError: the server refused it, the message has its reason; or it
            sends on to another address; or what it answers is not of OpenPAI. ClusterUnreachableError: no answer.
    """

    def __init__(self, url: str, user: str, token: str | None, *, version: int = 2, seconds: float = 30.0) -> None:
        if not _is_address(url):
            # It is not shown: what is wrong may be a password.
            raise UsageError("the address of a cluster begins with http:// or https://, and has no user, ? or #")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError("the token has characters that no token has; was a wrong file named?")
        self.user, self.version = user, version
        self._url, self._token, self._seconds = url.rstrip("/"), token, seconds

    def submit(self, text: str) -> None:
        """Submit a job: JSON to API 1, YAML to API 2. Its name must be new, and else it is a ClusterError."""
        self._order("POST", self._job_path(None), text, "application/json" if self.version == 1 else "text/yaml")

    def job(self, name: str) -> Job:
        """What the server knows of a job."""
        path = self._job_path(name)
        try:
            return _job_of(json.loads(self._call("GET", path)), name)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            reason = "the answer is not a job of OpenPAI; is this the address of its REST server?"
            raise ClusterError(f"{redact(self._url)}{path}: {reason}") from None

    def stop(self, name: str) -> None:
        """Ask for the end of a job."""
        self._order("PUT", f"{self._job_path(name)}/executionType", '{"value": "STOP"}', "application/json")

    def _order(self, method: str, path: str, body: str, kind: str) -> None:
        """A call that is to change something. The page of a portal, say, does not show that it did."""
        try:
            taken = isinstance(json.loads(self._call(method, path, body, kind)), dict)
        except (ValueError, RecursionError):
            taken = False
        if not taken:
            reason = "the answer is not one of OpenPAI; is this the address of its REST server?"
            raise ClusterError(f"{method} {redact(self._url)}{path}: {reason}")

    def log(self, job: Job, task: JobTask) -> Iterator[str]:
        """The text of a task's logs; of API 1, the address at which it is."""
        if self.version == 1:
            yield f"{task.log or 'it has no log yet'}\n"
            return
        path = (
            f"{self._job_path(job.name.rpartition('~')[2])}/attempts/{job.attempt}/taskRoles/{_quoted(task.role)}"
            f"/taskIndex/{task.number}/attempts/{task.attempt}/logs"
        )
        text = self._call("GET", path, allow_cut=True)
        try:
            places = [(str(place["name"]), str(place["uri"])) for place in json.loads(text)["locations"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            yield text
            return
        for name, uri in places:
            yield f"==> {printable(name)} <==\n"
            try:
                url = urllib.parse.urljoin(f"{self._url}/", uri)
                is_http = urllib.parse.urlsplit(url).scheme in ("http", "https")
            except ValueError:
                url, is_http = uri, False
            if not is_http:
                raise ClusterError(
                    f"{printable(redact(url))}: the server names this as the place of a log; it is not HTTP"
                )
            yield self._call("GET", "", url=url, allow_cut=True)

    def _job_path(self, name: str | None) -> str:
        user = _quoted(self.user)
        if self.version == 1:
            return f"/api/v1/user/{user}/jobs" + ("" if name is None else f"/{_quoted(name)}")
        return "/api/v2/jobs" + ("" if name is None else f"/{user}~{_quoted(name)}")

    def _call(
        self, method: str, path: str, body: str | None = None, kind: str = "", *,
        url: str | None = None, allow_cut: bool = False,
    ) -> str:  # fmt: skip
        """The text of an answer. allow_cut: of one that is too long, its beginning, and a line that says so."""
        address = f"{self._url}{path}" if url is None else url
        request = urllib.request.Request(address, None if body is None else body.encode(), method=method)  # noqa: S310
        if body is not None:
            request.add_header("Content-Type", kind)
        here, there = (urllib.parse.urlsplit(each)[:2] for each in (self._url, address))
        if self._token is not None and here == there:
            # Not for another server, to which this one may send us.
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        where = f"{method} {printable(redact(address))}"
        try:
            with _OPENER.open(request, timeout=self._seconds) as answer:
                content = self._content(answer, where, allow_cut)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(where, error, self._url, self._hidden) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            shown = self._hidden(str(reason)) or type(error).__name__
            raise ClusterUnreachableError(f"{where}: {printable(shown)}") from None
        return self._hidden(content.decode("utf-8", "replace"))

    def _hidden(self, text: str) -> str:
        """What a server says, without the token: some repeat it."""
        return text.replace(self._token, "…") if self._token and len(self._token) > 7 else text

    def _content(self, answer: http.client.HTTPResponse, where: str, allow_cut: bool) -> bytes:
        # The time-out of a socket begins anew with each byte.
        end, content = time.monotonic() + self._seconds, bytearray()
        while block := answer.read1(1 << 16):
            content += block
            if len(content) > MOST_BYTES:
                if allow_cut:
                    return (
                        bytes(content[:MOST_BYTES])
                        + b"\n(the rest is left out: it has more than %d bytes)\n" % MOST_BYTES
                    )
                raise ClusterError(f"{where}: the answer has more than {MOST_BYTES} bytes")
            if time.monotonic() > end and not allow_cut:
                raise ClusterUnreachableError(f"{where}: the answer was not complete after {self._seconds:g} s")
        if answer.length:
            raise ClusterUnreachableError(f"{where}: the connection ended {answer.length} bytes before the answer did")
        return bytes(content)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, and its answer would look as if the job was submitted."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _job_of(found: Any, name: str) -> Job:
    """Raises: KeyError, TypeError, AttributeError, ValueError: it is not what the server gives."""
    status = found["jobStatus"]
    tasks = []
    for role, group in (found.get("taskRoles") or {}).items():
        for task in group.get("taskStatuses") or []:
            code, log = task.get("containerExitCode"), task.get("containerLog")
            exit_code = None if code is None else int(code)
            place = None if log is None else printable(str(log))
            number, attempt = int(task.get("taskIndex", 0)), int(task.get("attemptId") or task.get("retries") or 0)
            state = printable(str(task.get("taskState")))
            tasks.append(JobTask(printable(role), number, state, exit_code, place, attempt))
    shown = printable(str(found.get("name", name)))
    return Job(shown, printable(str(status.get("state", "UNKNOWN"))), int(status.get("retries") or 0), tasks)


def _is_address(url: str) -> bool:
    """Whether a path can be put behind it."""
    try:
        parts = urllib.parse.urlsplit(url)
        return (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
                and not set("@?# ") & set(url))  # fmt: skip
    except ValueError:
        return False


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _refusal(where: str, error: urllib.error.HTTPError, url: str, hidden: Callable[[str], str]) -> Exception:
    """The error of an answer; OpenPAI explains itself as ``{"code": …, "message": …}``."""
    status = error.code
    if 300 <= status < 400:
        place = printable(redact(hidden(error.headers.get("Location") or "another place")))
        hint = "use the address of the REST server itself"
        return ClusterError(f"{where}: {status}, {redact(url)} sends on to {shortened(place, 300)}; {hint}", status)
    try:
        body = error.read(1 << 16)
    except (OSError, http.client.HTTPException):
        body = b""
    try:
        answer = json.loads(body)
        reason = f"{answer['code']}: {answer['message']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = body.decode("utf-8", "replace").strip()
    message = f"{where}: {status} {printable(shortened(hidden(reason), 1000))}"
    if status in (401, 403):
        return ClusterDeniedError(f"{message}; the token may be missing, or too old", status)
    if status == 404:
        return NoSuchObjectError(message, status)
    if status == 429 or status >= 500:
        return ClusterUnreachableError(message, status)
    return ClusterError(message, status)
