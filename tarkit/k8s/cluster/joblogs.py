"""Which pods of a Job have the logs that somebody wants to read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tarkit.k8s.cluster.jobview import index_of, name_of

Object = Mapping[str, Any]


def chosen_pods(pods: Iterable[Object], *, indexes: Collection[int] | None, failed: bool) -> list[Object]:
    """The last pod of each index, in the order of the indexes; pods without one, all of them.

    indexes: only these. failed: only pods that failed; of an index that failed and went well later, none.
    """
    last: dict[Any, Object] = {}
    for pod in sorted(pods, key=_age):
        index = index_of(pod)
        if indexes is None or index in indexes:
            last[name_of(pod) if index is None else index] = pod
    found = [pod for pod in last.values() if not failed or (pod.get("status") or {}).get("phase") == "Failed"]
    return sorted(found, key=lambda pod: (index_of(pod) is None, index_of(pod) or 0, name_of(pod)))


def label_of(pod: Object) -> str:
    """What stands before the lines of a pod: its index, or its name."""
    index = index_of(pod)
    return name_of(pod) if index is None else str(index)


def has_log(pod: Object) -> bool:
    """Whether a container of the pod has ever started."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any({"running", "terminated"} & set(each.get("state") or {}) or each.get("lastState") for each in statuses)


def _age(pod: Object) -> tuple[str, str]:
    return str((pod.get("metadata") or {}).get("creationTimestamp") or ""), name_of(pod)
