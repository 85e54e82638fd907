"""What a Job controller needs to know about pods: how one is made, how one failed, sets of indexes."""

from __future__ import annotations

from collections.abc import Iterable

from apiservice import random_suffix
from apistore import Json, clone

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def index_of(pod: Json) -> int:
    """-1 if it has none."""
    return int(pod["metadata"].get("annotations", {}).get(INDEX, -1))


def failures_of(pod: Json) -> int:
    """How often its index had failed before, not counting what was ignored."""
    return int(pod["metadata"].get("annotations", {}).get(FAILURES, 0))


def is_tracked(pod: Json) -> bool:
    return FINALIZER in pod["metadata"].get("finalizers", [])


def is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_going(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_over(pod)


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def make_pod(job: Json, index: int, failures: int, ignored: int) -> Json:
    """The pod for an index (-1: a Job without indexes), named and labelled as the real controller does."""
    meta, template = job["metadata"], clone(job["spec"]["template"])
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": template.get("metadata", {}), "spec": template["spec"]}
    base = f"{meta['name']}-" if index < 0 else f"{meta['name']}-{index}-"
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    pod["metadata"].update(
        name=base[:58] + random_suffix(),
        generateName=base,
        namespace=meta["namespace"],
        finalizers=[FINALIZER],
        ownerReferences=[{**reference, "controller": True, "blockOwnerDeletion": True}],
    )
    if index >= 0:
        _indexed(job, pod, index, failures, ignored)
    return pod


def _indexed(job: Json, pod: Json, index: int, failures: int, ignored: int) -> None:
    pod["metadata"].setdefault("labels", {})[INDEX] = str(index)
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations[INDEX] = str(index)
    if job["spec"].get("backoffLimitPerIndex") is not None:
        annotations[FAILURES] = str(failures)
        if ignored:
            annotations[IGNORED] = str(ignored)
    pod["spec"].setdefault("hostname", f"{job['metadata']['name']}-{index}")
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for kind in ("initContainers", "containers"):
        for container in pod["spec"].get(kind, []):
            environment = container.setdefault("env", [])
            if not any(one["name"] == "JOB_COMPLETION_INDEX" for one in environment):
                environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})


def match_policy(job: Json, pod: Json) -> tuple[str, str]:
    """The action of the first rule that matches a failed pod ("Count" without one), and what FailJob says."""
    place = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for number, rule in enumerate(job["spec"].get("podFailurePolicy", {}).get("rules", [])):
        tail = f"matching {rule['action']} rule at index {number}"
        if rule.get("onExitCodes") is not None:
            found = _exit_code(pod, rule["onExitCodes"])
            if found:
                name, code = found
                return rule["action"], f"Container {name} for pod {place} failed with exit code {code} {tail}"
        else:
            kind = _condition(pod, rule.get("onPodConditions", []))
            if kind:
                return rule["action"], f"Pod {place} has condition {kind} {tail}"
    return "Count", ""


def _exit_code(pod: Json, wanted: Json) -> tuple[str, int] | None:
    status = pod["status"]
    for one in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        code = one["state"].get("terminated", {}).get("exitCode", 0)
        if wanted.get("containerName") not in (None, one["name"]) or code == 0:
            continue
        if (code in wanted["values"]) is (wanted["operator"] == "In"):
            return one["name"], code
    return None


def _condition(pod: Json, patterns: list[Json]) -> str:
    for pattern in patterns:
        for one in pod["status"].get("conditions", []):
            if (one["type"], one["status"]) == (pattern["type"], pattern["status"]):
                return str(pattern["type"])
    return ""


def parse_indexes(text: str) -> set[int]:
    """0-2,4 as a set."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """A set as 0-2,4; two in a row are written 0,1, as the real controller does."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and index is not None and index == run[-1] + 1:
            run.append(index)
            continue
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += [str(one) for one in run]
        run = [] if index is None else [index]
    return ",".join(parts)
