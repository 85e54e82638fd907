"""The Jobs of a verb of tarkit with several stages: which waits for which."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import UsageError
from tarkit.k8s.apiobject import Object, labels_of, name_of, next_stage_of, run_of, stage_of
from tarkit.k8s.cluster.jobview import state_of
from tarkit.k8s.wellknown import JOBSET_NAME, RUN


def misses_stage(jobs: Sequence[Object]) -> bool:
    """Return True if a stage is complete, and the Job of the next one does not exist yet.

    The controller of a JobSet makes it a moment later.
    """
    there = {(run_of(job), stage_of(job)) for job in jobs}
    return any(
        next_stage_of(job) and state_of(job) == "complete" and (run_of(job), next_stage_of(job)) not in there
        for job in jobs
    )


def stage_advice(jobs: Sequence[Object]) -> str:
    """Return advice if a stage has failed for which others wait; "" if there is none."""
    for job in jobs:
        if next_stage_of(job) and state_of(job) == "failed":
            run = run_of(job)
            if labels_of(job).get(JOBSET_NAME):
                return f"the stages after {name_of(job)} do not begin: {_again(job)}"
            return (
                f"the stages after {name_of(job)} wait for it: kubetpl retry {run} | kubectl apply -f - goes on, and "
                f"kubectl delete job -l {RUN}={run} ends them"
            )
    return ""


def refuse_set_retry(jobs: Sequence[Object]) -> None:
    """Refuse to retry a Job of a JobSet, whose later Jobs would not begin.

    Raises:
        UsageError: one of the Jobs belongs to a JobSet.
    """
    for job in jobs:
        if labels_of(job).get(JOBSET_NAME):
            raise UsageError(f"{name_of(job)} is of a JobSet: {_again(job)}")


def _again(job: Object) -> str:
    name = labels_of(job).get(JOBSET_NAME)
    return (
        f"kubectl delete jobset {name} --cascade=foreground, then apply its manifest again; what is done is not done "
        "again"
    )
