"""No retry beside pods that are at work on the same shards: they are waited for, or it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tarkit.errors import ClusterDeniedError, UsageError

from ..shared.program import say
from ..shared.results import counted
from .watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster

_SETTLING_SECONDS = 60.0


def settled(cluster: Cluster, job: dict[str, Any], program: str) -> dict[str, Any]:
    """The Job; if it is ending, once its last pods are gone, or the time is up."""
    from tarkit.k8s.cluster.jobwatch import job_states

    if not _is_ending(job):
        return job
    name = str(job["metadata"]["name"])
    say(program, f"Job {name}: its last pods are ending; waiting for them, for {_SETTLING_SECONDS:.0f} s at most")
    for state in job_states(cluster, name, watching(program, _SETTLING_SECONDS)):
        job = state
        if not _is_ending(job):
            break
    return job


def _is_ending(job: dict[str, Any]) -> bool:
    from tarkit.k8s.cluster.jobview import ENDED, state_of

    state = state_of(job)[0]
    return state == "ending" or (state in ENDED and _has_pods(job))


def _has_pods(job: dict[str, Any]) -> bool:
    status = job.get("status") or {}
    return bool(status.get("active") or status.get("terminating"))


def refuse_running(name: str, job: dict[str, Any] | None, known: dict[str, dict[str, Any]], program: str) -> None:
    """Two Jobs on the same shards would undo each other's work."""
    from tarkit.k8s.cluster.jobview import state_of
    from tarkit.k8s.cluster.runstate import origin, retries_among
    from tarkit.k8s.wellknown import RUN

    if job is not None and _is_at_work(job):
        raise UsageError(
            f"Job {name} still runs; wait for it (kubetpl wait {name}) or stop it (kubetpl cancel {name}), then retry"
        )
    if job is not None and state_of(job)[0] == "suspended":
        say(program, f"Job {name} is suspended: do not let it go on beside the retry; kubetpl cancel {name} --delete")
    run = name if job is None else (job["metadata"].get("labels") or {}).get(RUN, name)
    retries = retries_among([*known.values(), *([] if job is None else [job])])
    for other, each in known.items():
        first = origin(other, retries)
        # All Jobs of kubetpl jobs are of one run, and have shards of their own. But of a retry of what is gone,
        # it is not known whose shards it has.
        lost = first not in retries and (each["metadata"].get("labels") or {}).get(RUN) == run
        if other != name and (first == origin(name, retries) or lost) and _is_at_work(each):
            raise UsageError(f"{other}, of the same shards, still runs; kubetpl wait {other}, then retry that")


def refuse_orphans(cluster: Cluster, name: str, known: dict[str, dict[str, Any]]) -> None:
    """Pods of a Job that was deleted may be at work for some time, on the same shards."""
    from tarkit.k8s.cluster.jobview import uid_of
    from tarkit.k8s.names import label_value
    from tarkit.k8s.wellknown import CONTROLLER, JOB_NAME

    own = uid_of(known[name]) if name in known else None
    try:
        pods = [] if label_value(name) else cluster.list(
            "pods", labels=f"{JOB_NAME}={name}", fields="status.phase!=Succeeded,status.phase!=Failed"
        )  # fmt: skip
    except ClusterDeniedError:
        return
    left = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(CONTROLLER) != own]
    if left:
        raise UsageError(
            f"{counted(len(left), 'pod')} of a Job {name} that was deleted still run: retry once they have ended, "
            f"or delete them (kubectl delete pods -l {JOB_NAME}={name})"
        )


def _is_at_work(job: dict[str, Any]) -> bool:
    from tarkit.k8s.cluster.jobview import state_of

    return _has_pods(job) or state_of(job)[0] in ("waiting", "ending")
