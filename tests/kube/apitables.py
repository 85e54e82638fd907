"""Tables, the form in which `kubectl get` asks for lists: columns and cells come from the server."""

from __future__ import annotations

import datetime
from typing import Any

from apiresources import CONFIGMAPS, EVENTS, JOBS, NAMESPACES, NODES, PODS, QUOTAS, SECRETS, SERVICES, Resource
from apistore import Json

# Name and priority; 1 is for -o wide.
_COLUMNS: dict[str, list[tuple[str, int]]] = {
    PODS.qualified: [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ],
    JOBS.qualified: [
        ("Name", 0),
        ("Status", 0),
        ("Completions", 0),
        ("Duration", 0),
        ("Age", 0),
        ("Containers", 1),
        ("Images", 1),
        ("Selector", 1),
    ],
    EVENTS.qualified: [
        ("Last Seen", 0),
        ("Type", 0),
        ("Reason", 0),
        ("Object", 0),
        ("Subobject", 1),
        ("Source", 1),
        ("Message", 0),
        ("First Seen", 1),
        ("Count", 1),
        ("Name", 1),
    ],
    NAMESPACES.qualified: [("Name", 0), ("Status", 0), ("Age", 0)],
    NODES.qualified: [("Name", 0), ("Status", 0), ("Roles", 0), ("Age", 0), ("Version", 0)],
    CONFIGMAPS.qualified: [("Name", 0), ("Data", 0), ("Age", 0)],
    SECRETS.qualified: [("Name", 0), ("Type", 0), ("Data", 0), ("Age", 0)],
    SERVICES.qualified: [
        ("Name", 0),
        ("Type", 0),
        ("Cluster-IP", 0),
        ("External-IP", 0),
        ("Port(s)", 0),
        ("Age", 0),
        ("Selector", 1),
    ],
    QUOTAS.qualified: [("Name", 0), ("Request", 0), ("Limit", 0), ("Age", 0)],
}


def table(resource: Resource, things: list[Json], meta: Json, headed: bool = True) -> Json:
    """A Table with one row for each object; in a watch only the first event carries the columns."""
    columns = _COLUMNS.get(resource.qualified, [("Name", 0), ("Created At", 0)])
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": level,
        }
        for name, level in columns
    ]
    rows = [{"cells": _cells(resource, one), "object": _partial(one)} for one in things]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": definitions if headed else None,
        "rows": rows,
    }


def _partial(thing: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": thing["metadata"]}


def seconds_since(text: str | None, until: str | None = None) -> float:
    if not text:
        return -1
    form = "%Y-%m-%dT%H:%M:%SZ"
    end = datetime.datetime.strptime(until, form) if until else datetime.datetime.now(datetime.timezone.utc)
    start = datetime.datetime.strptime(text[:19] + "Z", form)
    return (end.replace(tzinfo=None) - start).total_seconds()


def span(seconds: float) -> str:
    """A duration as kubectl shows it: 75s, 3m20s, 2h5m, 3d."""
    if seconds < 0:
        return "<unknown>" if seconds < -0.9 else "0s"
    whole = int(seconds)
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _age(thing: Json) -> str:
    return span(seconds_since(thing["metadata"].get("creationTimestamp")))


def _cells(resource: Resource, thing: Json) -> list[Any]:
    name = thing["metadata"]["name"]
    if resource is PODS:
        return _pod(thing)
    if resource is JOBS:
        return _job(thing)
    if resource is EVENTS:
        return _event(thing)
    if resource is NAMESPACES:
        return [name, thing["status"]["phase"], _age(thing)]
    if resource is NODES:
        return [name, "Ready", "<none>", _age(thing), thing["status"]["nodeInfo"]["kubeletVersion"]]
    if resource is CONFIGMAPS:
        return [name, str(len(thing.get("data") or {}) + len(thing.get("binaryData") or {})), _age(thing)]
    if resource is SECRETS:
        return [name, thing["type"], str(len(thing.get("data") or {})), _age(thing)]
    if resource is SERVICES:
        return _service(thing)
    if resource is QUOTAS:
        hard, used = thing.get("status", {}).get("hard", {}), thing.get("status", {}).get("used", {})
        said = [f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)]
        limits = [one for one in said if one.startswith("limits.")]
        return [name, ", ".join(one for one in said if one not in limits), ", ".join(limits), _age(thing)]
    return [name, thing["metadata"].get("creationTimestamp", "")]


def _pod(pod: Json) -> list[Any]:
    status, spec = pod["status"], pod["spec"]
    containers = status.get("containerStatuses", [])
    ready = sum(1 for one in containers if one.get("ready"))
    said = status.get("reason") or status.get("phase", "")
    for one in status.get("initContainerStatuses", []):
        waiting = one["state"].get("waiting", {}).get("reason")
        code = one["state"].get("terminated", {}).get("exitCode", 0)
        if waiting and waiting != "PodInitializing":
            said = f"Init:{waiting}"
        elif code:
            said = f"Init:{one['state']['terminated'].get('reason', 'Error')}"
    for one in containers:
        state = one["state"]
        said = state.get("waiting", {}).get("reason") or state.get("terminated", {}).get("reason") or said
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        said = "Terminating"
    restarts = sum(one.get("restartCount", 0) for one in containers)
    where = [status.get("podIP") or "<none>", spec.get("nodeName") or "<none>", "<none>", "<none>"]
    shown = f"{ready}/{len(spec['containers'])}"
    return [pod["metadata"]["name"], shown, said, str(restarts), _age(pod), *where]


def _job(job: Json) -> list[Any]:
    spec, status = job["spec"], job.get("status", {})
    true = {one["type"] for one in status.get("conditions", []) if one["status"] == "True"}
    said = "Running"
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if kind in true:
            said = kind
            break
    else:
        said = "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        progress = f"{done}/{spec['completions']}"
    else:
        parallelism = spec.get("parallelism", 0)
        progress = f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"
    took = ""
    if status.get("startTime"):
        took = span(seconds_since(status["startTime"], status.get("completionTime")))
    containers = spec["template"]["spec"]["containers"]
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"].get("matchLabels", {}).items())
    names, images = ",".join(one["name"] for one in containers), ",".join(one["image"] for one in containers)
    return [job["metadata"]["name"], said, progress, took, _age(job), names, images, selector]


def _event(event: Json) -> list[Any]:
    about = event["involvedObject"]
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    first = event.get("firstTimestamp") or last
    source = event.get("source", {}).get("component") or event.get("reportingComponent", "")
    seen = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    cells = [
        span(seconds_since(last)),
        event.get("type", ""),
        event.get("reason", ""),
        seen,
        about.get("fieldPath", ""),
    ]
    count = str(event.get("count", 1))
    return [
        *cells,
        source,
        event.get("message", "").strip(),
        span(seconds_since(first)),
        count,
        event["metadata"]["name"],
    ]


def _service(service: Json) -> list[Any]:
    spec = service["spec"]
    ports = ",".join(f"{one['port']}/{one['protocol']}" for one in spec.get("ports", [])) or "<none>"
    selector = ",".join(f"{key}={value}" for key, value in (spec.get("selector") or {}).items()) or "<none>"
    cells = [service["metadata"]["name"], spec["type"], spec.get("clusterIP", "None"), "<none>", ports]
    return [*cells, _age(service), selector]
