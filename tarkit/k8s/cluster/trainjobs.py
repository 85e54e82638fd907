"""The Jobs of ``kubetpl train`` in a cluster: which they are, and what is beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tarkit.errors import ClusterError, NoSuchObjectError, UsageError
from tarkit.k8s.apiobject import Object, labels_of, name_of, run_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.wellknown import MANAGED_BY, RUN, SERVICE


def train_role(job: Object) -> str:
    """The role of a Job that ``kubetpl train`` has made: worker, ps, chief, evaluator or shards; "" of others."""
    role = str(labels_of(job).get("role") or "")
    return role if role and name_of(job) == f"{run_of(job)}-{role}" else ""


def advice(job: Object, *, memory: bool) -> str:
    """What to do about pods of an elastic training job that failed, since its Jobs cannot be retried. memory: whether
    more of it may help."""
    role = train_role(job)
    option = f"--{'master' if role == SERVICE else role}_resource_request"
    cause = f"more memory is {option} memory=…" if memory else f"see kubetpl logs {name_of(job)} --failed"
    return f"{cause}; kubetpl cancel {run_of(job)} --delete, then apply the manifest again: it goes on from its state"


def refuse_retry(jobs: Sequence[Object]) -> None:
    """Refuse to retry a Job of an elastic training job: under another name, its pods would not be found.

    Raises:
        UsageError: one of the Jobs is.
    """
    for job in jobs:
        if train_role(job):
            run = run_of(job)
            raise UsageError(
                f"{name_of(job)} is of the elastic training job {run}, whose pods find one another by their names: "
                f"kubetpl cancel {run} --delete, then apply its manifest again; it goes on from its state"
            )


def delete_parts(cluster: Cluster, run: str, report: Callable[[str], None]) -> list[str]:
    """Delete the Services and the NetworkPolicy of an elastic training job; a line for each, and for what stays."""
    lines = []
    owner = f"{MANAGED_BY}=kubetpl,{RUN}={run}"
    for kind, word in (("services", "Service"), ("networkpolicies", "NetworkPolicy")):
        try:
            for each in cluster.list(kind, labels=owner):
                with suppress(NoSuchObjectError):
                    cluster.delete(kind, name_of(each), uid_of(each))
                    lines.append(f"{word} {name_of(each)} is deleted")
        except ClusterError as error:
            report(f"what there is of {kind} stays: {error}; kubectl delete {kind} -l {owner}")
    lines.append(
        f"its state stays, so that the same manifest goes on from it; to begin anew: kubectl delete pvc -l {owner}"
    )
    return lines
