"""Small manifests for the tests here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubecluster import Cluster

Json = dict[str, Any]


def job(name: str, command: str, **spec: Any) -> Json:
    """A Job with one container `main` that runs a shell command; `pod` and `container` are merged into those."""
    pod, container = spec.pop("pod", {}), spec.pop("container", {})
    main = {"name": "main", "image": "busybox:1", "command": ["sh", "-c", command], **container}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [main], **pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def indexed(name: str, command: str, completions: int, **spec: Any) -> Json:
    """The same with indexes; four at once unless told."""
    spec = {"parallelism": 4, **spec}
    return job(name, command, completionMode="Indexed", completions=completions, **spec)


def condition(thing: Json, kind: str) -> Json | None:
    """A condition that is True, or None."""
    for one in thing.get("status", {}).get("conditions", []):
        if one["type"] == kind and one["status"] == "True":
            found: Json = one
            return found
    return None


def has_ended(cluster: Cluster, name: str) -> bool:
    """Whether a Job is complete or has failed."""
    thing = next(one for one in cluster.peek("jobs") if one["metadata"]["name"] == name)
    return any(condition(thing, kind) for kind in ("Complete", "Failed"))


POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [64, 78, 126, 127]}},
        {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [65, 66]}},
    ]
}
