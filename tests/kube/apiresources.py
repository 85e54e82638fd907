"""The kinds of objects that the stand-in API server keeps, and the discovery documents about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VERSION = "v1.36.2"
WORDS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True)
class Resource:
    """One kind of object and where it is served."""

    group: str
    plural: str
    kind: str
    schema: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def qualified(self) -> str:
        """As it stands in messages: jobs.batch, pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _core(plural: str, kind: str, **more: Any) -> Resource:
    return Resource("", plural, kind, f"io.k8s.api.core.v1.{kind}", **more)


NAMESPACES = _core("namespaces", "Namespace", namespaced=False, short=("ns",), subresources=("status", "finalize"))
NODES = _core("nodes", "Node", namespaced=False, short=("no",), subresources=("status",))
PODS = _core(
    "pods",
    "Pod",
    short=("po",),
    categories=("all",),
    subresources=("status", "log", "eviction", "binding"),
)
EVENTS = _core("events", "Event", short=("ev",))
CONFIGMAPS = _core("configmaps", "ConfigMap", short=("cm",))
SECRETS = _core("secrets", "Secret")
SERVICES = _core("services", "Service", short=("svc",), categories=("all",), subresources=("status",))
SERVICEACCOUNTS = _core("serviceaccounts", "ServiceAccount", short=("sa",))
QUOTAS = _core("resourcequotas", "ResourceQuota", short=("quota",), subresources=("status",))
JOBS = Resource(
    "batch",
    "jobs",
    "Job",
    "io.k8s.api.batch.v1.Job",
    categories=("all",),
    subresources=("status",),
)
RESOURCES = [NAMESPACES, NODES, PODS, EVENTS, CONFIGMAPS, SECRETS, SERVICES, SERVICEACCOUNTS, QUOTAS, JOBS]
# The kind that a POST or GET to a subresource carries, where it is not the object itself.
SUBRESOURCE_KINDS = {"eviction": ("Eviction", "policy", "v1"), "binding": ("Binding", "", "v1")}


def find(group: str, plural: str) -> Resource | None:
    return next((one for one in RESOURCES if (one.group, one.plural) == (group, plural)), None)


def version_document() -> dict[str, str]:
    major, minor, _ = VERSION[1:].split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": VERSION,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "python",
        "platform": "linux/amd64",
    }


def api_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group() -> dict[str, Any]:
    version = {"groupVersion": "batch/v1", "version": "v1"}
    return {"name": "batch", "versions": [version], "preferredVersion": version}


def api_groups() -> dict[str, Any]:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def api_group() -> dict[str, Any]:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def resource_list(group: str) -> dict[str, Any]:
    """What is served under /api/v1 or /apis/batch/v1."""
    rows: list[dict[str, Any]] = []
    for one in RESOURCES:
        if one.group != group:
            continue
        rows.append(
            {
                "name": one.plural,
                "singularName": one.kind.lower(),
                "namespaced": one.namespaced,
                "kind": one.kind,
                "verbs": WORDS,
                "shortNames": list(one.short),
                "categories": list(one.categories),
            }
        )
        for sub in one.subresources:
            kind, its_group, its_version = SUBRESOURCE_KINDS.get(sub, (one.kind, "", ""))
            verbs = {"log": ["get"], "eviction": ["create"], "binding": ["create"]}.get(sub, ["get", "patch", "update"])
            row = {
                "name": f"{one.plural}/{sub}",
                "singularName": "",
                "namespaced": one.namespaced,
                "kind": kind,
                "verbs": verbs,
            }
            if its_group:
                row.update(group=its_group, version=its_version)
            rows.append(row)
    version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}
