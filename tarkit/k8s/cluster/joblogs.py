"""Which pods of a Job have the logs that are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobstatus import pod_selectors


def pods_with_logs(cluster: Cluster, job: Object, indexes: Collection[int] | None, *, failed: bool) -> list[Object]:
    """The pods of a Job whose logs are wanted: ``chosen_pods`` of those that there are."""
    pods = cluster.list("pods", **pod_selectors([job], indexes, succeeded=not failed))
    # Pods that succeeded are not in the list; an index that one of them has completed is known from the Job.
    done = api.indexes_of(job, "completedIndexes") if failed else set()
    return chosen_pods([pod for pod in pods if api.index_of(pod) not in done], indexes=indexes, failed=failed)


def chosen_pods(pods: Iterable[Object], *, indexes: Collection[int] | None, failed: bool) -> list[Object]:
    """The last pod of each index, in the order of the indexes; pods without one, all of them.
    indexes: only these. failed: only pods that failed; of an index that failed and went well later, none."""
    last: dict[Any, Object] = {}
    for pod in sorted(pods, key=lambda pod: (api.created(pod), api.name_of(pod))):
        index = api.index_of(pod)
        if indexes is None or index in indexes:
            last[api.name_of(pod) if index is None else index] = pod
    found = [pod for pod in last.values() if not failed or api.phase_of(pod) == "Failed"]
    return sorted(found, key=lambda pod: (api.index_of(pod) is None, api.index_of(pod) or 0, api.name_of(pod)))
