"""Access to parts of an API object: names, labels, conditions, times.

A missing part is empty.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

from tarkit.k8s.indexset import parse_indexes
from tarkit.k8s.wellknown import INDEX, NEXT_STAGE, RETRY_OF, RUN, STAGE

Object = dict[str, Any]
Objects = list[Object]


def part_of(thing: Object, *keys: str) -> Object:
    """Return the mapping under these keys, or an empty one if it is missing."""
    for key in keys:
        thing = thing.get(key) or {}
    return thing


def name_of(thing: Object) -> str:
    """Return the name of an object."""
    return str(part_of(thing, "metadata").get("name"))


def uid_of(thing: Object) -> str:
    """Return the UID, which distinguishes an object from an earlier one of the same name."""
    return str(part_of(thing, "metadata").get("uid"))


def labels_of(thing: Object) -> Object:
    """Return the labels of an object."""
    return part_of(thing, "metadata", "labels")


def annotations_of(thing: Object) -> Object:
    """Return the annotations of an object."""
    return part_of(thing, "metadata", "annotations")


def spec_of(thing: Object) -> Object:
    """Return the ``spec`` of an object, or an empty mapping."""
    return part_of(thing, "spec")


def status_of(thing: Object) -> Object:
    """Return the ``status`` of an object, or an empty mapping."""
    return part_of(thing, "status")


def run_of(job: Object) -> str:
    """Return the run that a Job belongs to; without one, the Job's own name."""
    return str(labels_of(job).get(RUN) or name_of(job))


def retry_of(job: Object) -> str | None:
    """Return the name of the Job of which this one is a retry, or None."""
    found = annotations_of(job).get(RETRY_OF)
    return None if found is None else str(found)


def stage_of(job: Object) -> str | None:
    """Return the stage of a Job that runs a verb of tarkit with stages, or None."""
    return annotations_of(job).get(STAGE)


def next_stage_of(job: Object) -> str | None:
    """Return the stage that begins when this Job is complete, or None."""
    return annotations_of(job).get(NEXT_STAGE)


def active_pods(job: Object) -> int:
    """Count the pods of a Job that have neither ended nor been asked to end."""
    return int(status_of(job).get("active") or 0)


def indexes_of(job: Object, field: str) -> set[int]:
    """Return the indexes in a Job's ``completedIndexes`` or ``failedIndexes``."""
    return set(parse_indexes(str(status_of(job).get(field) or "")))


def index_of(pod: Object) -> int | None:
    """Return the completion index of a pod, or None if it has none."""
    text = str(labels_of(pod).get(INDEX) or annotations_of(pod).get(INDEX) or "")
    return int(text) if text.isascii() and text.isdigit() else None


def phase_of(pod: Object) -> str:
    """Return the phase: Pending, Running, Succeeded, Failed or Unknown."""
    return str(status_of(pod).get("phase") or "")


def container_statuses(pod: Object) -> list[Object]:
    """Return the statuses of a pod's containers, init containers first."""
    status = status_of(pod)
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def condition_of(thing: Object, kind: str) -> Object | None:
    """Return the condition of this type of a Job or pod, or None."""
    return next((each for each in status_of(thing).get("conditions") or [] if each.get("type") == kind), None)


def is_true(thing: Object, kind: str) -> bool:
    """Return True if a condition of this type is true."""
    return (condition_of(thing, kind) or {}).get("status") == "True"


def created(thing: Object) -> str:
    """Return the creation time in the notation of the API; such texts sort by time."""
    return str(part_of(thing, "metadata").get("creationTimestamp") or "")


def timestamp(text: str | None) -> float | None:
    """Convert an API time to seconds since 1970; None stays None."""
    try:
        found = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def grouped(things: Iterable[Object], key: Callable[[Object], str]) -> dict[str, list[Object]]:
    """Group objects by a key; each group keeps their order."""
    found: dict[str, list[Object]] = {}
    for each in things:
        found.setdefault(key(each), []).append(each)
    return found
