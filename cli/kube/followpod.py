"""Which pod's log is followed: waited for, until its container has started."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tarkit.errors import ClusterUnreachableError, UsageError

from ..shared.program import say
from ..shared.results import counted
from .watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster

_ONE_WATCH = 10.0


def pod_to_follow(
    cluster: Cluster, job: dict[str, Any], wanted: Collection[int] | None, program: str
) -> dict[str, Any] | None:
    """The one pod, once its container has started; None if there will be none any more.

    wanted: indexes, of which there may be one. program: what is said on stderr begins with it.

    Raises:
        UsageError: several pods are meant.
    """
    from tarkit.k8s.cluster.joblogs import chosen_pods, has_ended, has_log, pods_with_logs
    from tarkit.k8s.cluster.jobview import name_of
    from tarkit.k8s.cluster.jobwatch import looks

    spec = job.get("spec") or {}
    if (len(wanted) if wanted is not None else int(spec.get("completions") or 1)) != 1:
        raise UsageError(f"--follow goes with one index: --index N; Job {name_of(job)} has {spec.get('completions')}")
    live = pods_with_logs(cluster, job, indexes=wanted)
    said = False
    for _ in looks([live], watching(program), _ONE_WATCH, at_once=True):
        pods = chosen_pods(live.things, indexes=wanted, failed=False)
        if len(pods) > 1:
            raise UsageError(f"--follow goes with one pod; this is {counted(len(pods), 'pod')}")
        if pods and (has_log(pods[0]) or has_ended(pods[0])):
            return dict(pods[0])
        if not pods and _is_over(cluster, name_of(job), wanted):
            return None
        if not said:
            said = True
            say(program, f"its pod has not started; waiting for it (kubetpl status {name_of(job)} says why)")
    return None


def _is_over(cluster: Cluster, name: str, wanted: Collection[int] | None) -> bool:
    """Whether no pod will be made any more for the Job, or for the index."""
    from tarkit.k8s.cluster.jobview import state_of
    from tarkit.k8s.indexset import parse_indexes

    try:
        job = cluster.get("jobs", name)
    except ClusterUnreachableError:
        return False
    status = job.get("status") or {}
    over = {index for key in ("completedIndexes", "failedIndexes") for index in parse_indexes(status.get(key) or "")}
    return state_of(job)[0] in ("complete", "failed", "ending") or bool(over & set(wanted or ()))
