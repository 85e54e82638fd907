"""The Jobs that a name stands for: of a Job, or of a run; and what may be meant by a name that there is not."""

from __future__ import annotations

import difflib
from typing import Any

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError, printable
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.names import dns_subdomain, label_value
from tarkit.k8s.wellknown import RUN


def find_jobs(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The Job of a name; if there is none, the Jobs of the run that is called so.

    Raises:
        NoSuchObjectError: neither; it names the nearest names, or says that there is no such namespace.
    """
    absent = NoSuchObjectError(f"no run {name} in namespace {cluster.namespace} of {cluster.where}", 404)
    try:
        # What only a run can be called is not asked for as a Job.
        if dns_subdomain(name) is None:
            return [cluster.get("jobs", name)]
    except NoSuchObjectError as error:
        absent = error
    try:
        found = list(cluster.list("jobs", labels=f"{RUN}={name}")) if label_value(name) is None else []
        if found:
            return sorted(found, key=lambda job: str(job["metadata"]["name"]))
        hint = _hint(cluster, name)
    except ClusterUnreachableError:
        raise
    except ClusterError:
        # Who may not list them gets no hints.
        raise absent from None
    raise NoSuchObjectError(f"{absent}; {hint}", 404) from None


def _hint(cluster: Cluster, name: str) -> str:
    """What may be meant by a name that no Job and no run has."""
    known = list(cluster.list("jobs"))
    if not known and not namespace_exists(cluster):
        return "there is no such namespace; -N names another"
    near = difflib.get_close_matches(name, [str(job["metadata"]["name"]) for job in known], n=3, cutoff=0.4)
    there = "no Jobs" if not known else "one Job" if len(known) == 1 else f"{len(known)} Jobs"
    elsewhere = f"it has {there}; -N names another namespace"
    return f"did you mean {', '.join(map(printable, near))}?" if near else elsewhere


def namespace_exists(cluster: Cluster) -> bool:
    """Whether there is such a namespace; True also if that may not be asked."""
    try:
        cluster.get("namespaces", cluster.namespace)
    except NoSuchObjectError:
        return False
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return True
    return True
