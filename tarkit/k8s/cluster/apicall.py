"""One call of the Kubernetes API: its path, and what a refusal of it means.

Source of paths, verbs and status codes: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from tarkit.errors import (
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    UsageError,
    printable,
)
from tarkit.extras import library
from tarkit.k8s.names import dns_subdomain

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
BUSY = (429, 500, 502, 503, 504)


class ApiCall(NamedTuple):
    """verb: as roles name it. kind: of ``GROUPS``. name: of an object, "" for all of a kind. part: a subresource."""

    verb: str
    kind: str
    name: str = ""
    part: str = ""

    def path(self, namespace: str) -> str:
        """Of the URL."""
        words = [self.kind.partition("@")[0], self.name, self.part]
        if self.kind != "namespaces":
            words[:0] = ["namespaces", namespace]
        return GROUPS[self.kind] + "".join(f"/{quote(word, safe='')}" for word in words if word)

    def refusal(self, response: Any, where: str, namespace: str, login_problems: Sequence[str]) -> ClusterError:
        """What an answer that is not a success means."""
        said = _message(response)
        what = f"{self.kind.removesuffix('s')} {self.name}" if self.name else self.kind
        resource = f"{self.kind}/{self.part}" if self.part else self.kind
        status = int(response.status)
        if status == 401:
            why = "".join(f": {each}" for each in login_problems[:1])
            return ClusterDeniedError(f"{where} does not know who you are (401): log in again{said}{why}", 401)
        if status == 403:
            return ClusterDeniedError(
                f"{where}: you may not {self.verb} {resource} in namespace {namespace} (403); have a role "
                f"with the verb {self.verb} on {resource} bound to you{said}",
                403,
            )
        if status == 404:
            return NoSuchObjectError(f"no {what} in namespace {namespace} of {where}", 404)
        if status == 409 and self.verb == "create":
            return ClusterError(f"{where} has such an object already (409){said}", 409)
        if status in BUSY:
            return ClusterUnreachableError(f"{where} is busy ({status}){said}; try again later", status)
        return ClusterError(f"{where} refuses to {self.verb} {what} ({status}){said}", status)


def one(verb: str, kind: str, name: str, part: str = "") -> ApiCall:
    """A call about an object.

    Raises:
        UsageError: no object can have this name: it would be another path of the API.
    """
    wrong = dns_subdomain(name)
    if wrong:
        raise UsageError(f"the name of a {kind.removesuffix('s')} {wrong}")
    return ApiCall(verb, kind, name, part)


def http_errors() -> tuple[type[BaseException], ...]:
    """What a connection that fails raises."""
    exceptions = library("urllib3.exceptions", "talking to a Kubernetes cluster", "k8s")
    return (exceptions.HTTPError, OSError)


def _message(response: Any) -> str:
    """The server's own words, behind a colon; "" if it has none."""
    try:
        said = json.loads(response.data).get("message")
    except (ValueError, AttributeError):
        return ""
    except http_errors():
        return ""
    return f": {printable(str(said))}" if said else ""
