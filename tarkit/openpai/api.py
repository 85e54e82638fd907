"""The REST server of an OpenPAI cluster, which takes jobs.

Source: OpenPAI's description of its API (2.2.7), and of version 1 (0.14).
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from tarkit.errors import ClusterDeniedError, ClusterError, ClusterUnreachableError, UsageError, printable, shortened
from tarkit.names.redaction import redact

_MOST_BYTES = 1 << 20
"""Largest size of an answer in bytes."""


def submit(url: str, user: str, token: str | None, text: str, *, version: int = 2, seconds: float = 30.0) -> None:
    """Submit a job to a cluster; its name must be new.

    Args:
        url: URL of the REST server: ``https://HOST/rest-server``, or ``http://HOST:9186``.
        user: whose job it is.
        token: token from the portal's profile page, or an application token; no message shows it.
        text: text of the job: JSON for version 1, YAML for version 2.
        version: version of the API: 1 on YARN, 2 on Kubernetes.
        seconds: timeout for an answer of the server.

    Raises:
        UsageError: the address or the token is not valid.
        ClusterDeniedError: the token is not known, or may not.
        ClusterUnreachableError: the server did not answer, or not completely.
        ClusterError: the server refused the job, the message has its reason; or it sends on to
            another address; or what it answers is not of OpenPAI.
    """
    if not _is_address(url):
        # It is not shown: what is wrong may be a password.
        raise UsageError("the address of a cluster begins with http:// or https://, and has no user, ? or #")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("the token has characters that no token has; was a wrong file named?")
    path = "/api/v2/jobs" if version == 2 else f"/api/v1/user/{urllib.parse.quote(user, safe='')}/jobs"
    address = f"{url.rstrip('/')}{path}"
    headers = {"Content-Type": "text/yaml" if version == 2 else "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    where = f"POST {printable(redact(address))}"

    def hidden(said: str) -> str:
        """Return a message of the server without the token, which some servers repeat."""
        return printable(said.replace(token, "…") if token and len(token) > 7 else said)

    try:
        with _OPENER.open(urllib.request.Request(address, text.encode(), headers), timeout=seconds) as answer:
            content = answer.read(_MOST_BYTES)
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(where, error, hidden) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = hidden(str(getattr(error, "reason", error))) or type(error).__name__
        raise ClusterUnreachableError(f"{where}: {reason}") from None
    if not isinstance(_json(content), dict):
        # The page of a portal, say, does not show that the job was taken.
        raise ClusterError(f"{where}: the answer is not one of OpenPAI; is this the address of its REST server?")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: a redirected POST would become a GET, and look like a submitted job."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _is_address(url: str) -> bool:
    """Return True if a path can be appended to the URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        return (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
                and not set("@?# ") & set(url))  # fmt: skip
    except ValueError:
        return False


def _json(content: bytes) -> Any:
    """Return the value of a JSON text; None if the text is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _refusal(where: str, error: urllib.error.HTTPError, hidden: Callable[[str], str]) -> Exception:
    """Return the error for an answer; OpenPAI sends ``{"code": …, "message": …}``."""
    status = error.code
    if 300 <= status < 400:
        place = shortened(redact(hidden(error.headers.get("Location") or "another place")), 300)
        return ClusterError(f"{where}: {status}, it sends on to {place}; use the address of the REST server itself")
    try:
        body = error.read(1 << 16)
    except (OSError, http.client.HTTPException):
        body = b""
    match _json(body):
        case {"code": code, "message": message}:
            reason = f"{code}: {message}"
        case _:
            reason = body.decode("utf-8", "replace").strip()
    said = f"{where}: {status} {hidden(shortened(reason, 1000))}"
    if status in (401, 403):
        return ClusterDeniedError(f"{said}; the token may be missing, or too old", status)
    return (ClusterUnreachableError if status == 429 or status >= 500 else ClusterError)(said, status)
