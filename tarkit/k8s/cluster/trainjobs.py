"""The Jobs of ``kubetpl train`` in a cluster, and their roles."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import UsageError
from tarkit.k8s.apiobject import Object, labels_of, name_of, run_of
from tarkit.k8s.wellknown import RUN, SERVICE


def deletion(run: str) -> str:
    """Return the command that deletes an elastic training job, except the claim of its state."""
    return f"kubectl delete job,service,networkpolicy -l {RUN}={run} --cascade=foreground"


def train_role(job: Object) -> str:
    """Return the role of a Job of ``kubetpl train``: worker, ps, chief, evaluator or shards.

    "" for other Jobs.
    """
    role = str(labels_of(job).get("role") or "")
    return role if role and name_of(job) == f"{run_of(job)}-{role}" else ""


def advice(job: Object, *, memory: bool) -> str:
    """Return advice about failed pods of an elastic training job, whose Jobs cannot be retried.

    Args:
        memory: True if more memory may help.
    """
    role = train_role(job)
    option = f"--{'master' if role == SERVICE else role}_resource_request"
    cause = f"more memory is {option} memory=…" if memory else f"see kubetpl logs {name_of(job)} --failed"
    return f"{cause}; {deletion(run_of(job))}, then apply the manifest again: it goes on from its state"


def refuse_retry(jobs: Sequence[Object]) -> None:
    """Refuse to retry a Job of an elastic training job.

    Under another name, its pods would not be found.

    Raises:
        UsageError: one of the Jobs belongs to an elastic training job.
    """
    for job in jobs:
        if train_role(job):
            run = run_of(job)
            raise UsageError(
                f"{name_of(job)} is of the elastic training job {run}, whose pods find one another by their names: "
                f"{deletion(run)}, then apply its manifest again; it goes on from its state"
            )
