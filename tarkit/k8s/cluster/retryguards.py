"""No retry beside pods that are at work on the same shards: they are waited for, or it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tarkit.errors import UsageError, counted
from tarkit.k8s.apiobject import Object, active_pods, labels_of, name_of, status_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import origin, orphans
from tarkit.k8s.cluster.watching import Watching, run_states
from tarkit.k8s.wellknown import JOB_NAME, RUN

_SETTLING_SECONDS = 60.0


def settled(cluster: Cluster, job: Object, report: Callable[[str], None]) -> Object:
    """The Job; if it is ending, once its last pods are gone, or the time is up. report: called with a line."""
    if not _is_ending(job):
        return job
    name = name_of(job)
    report(f"Job {name}: its last pods are ending; waiting for them, for {_SETTLING_SECONDS:.0f} s at most")
    for state in run_states(cluster, name, Watching(report, _SETTLING_SECONDS), of_run=False):
        (job,) = state.jobs
        if not _is_ending(job):
            break
    return job


def refuse_running(name: str, known: Mapping[str, Object], report: Callable[[str], None]) -> None:
    """Refuse a retry if the Job, or another one of its shards, is at work. known: all Jobs, by name."""
    job = known.get(name)
    if job is not None and _is_at_work(job):
        raise UsageError(
            f"Job {name} still runs; wait for it (kubetpl wait {name}) or stop it (kubetpl cancel {name}), then retry"
        )
    if job is not None and state_of(job)[0] == "suspended":
        report(f"Job {name} is suspended: do not let it go on beside the retry; kubetpl cancel {name} --delete")
    run = name if job is None else labels_of(job).get(RUN, name)
    for other, each in known.items():
        first = origin(other, known)
        # All Jobs of kubetpl jobs are of one run, and have shards of their own. But of a retry of what is gone,
        # it is not known whose shards it has.
        lost = first not in known and labels_of(each).get(RUN) == run
        if other != name and (first == origin(name, known) or lost) and _is_at_work(each):
            raise UsageError(f"{other}, of the same shards, still runs; kubetpl wait {other}, then retry that")


def refuse_orphans(cluster: Cluster, name: str, report: Callable[[str], None]) -> None:
    """Refuse a retry while pods of a Job, or of Jobs of a run, that were deleted are at work on the same shards."""
    left = orphans(cluster, name, report)
    if left:
        of = labels_of(left[0]).get(JOB_NAME)
        raise UsageError(
            f"{counted(len(left), 'pod')} of a Job {of} that was deleted still run: retry once they have ended, "
            f"or delete them (kubectl delete pods -l {JOB_NAME}={of})"
        )


def _has_pods(job: Object) -> bool:
    return bool(active_pods(job) or status_of(job).get("terminating"))


def _is_ending(job: Object) -> bool:
    return state_of(job)[0] == "ending" or (has_ended(job) and _has_pods(job))


def _is_at_work(job: Object) -> bool:
    return _has_pods(job) or state_of(job)[0] in ("waiting", "ending")
