"""The Jobs that a name stands for: a Job, or the Jobs of a run.

It also decides which of a run's Jobs count, and which are retries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarkit.errors import ClusterError, NoSuchObjectError, UsageError, counted
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.names import dns_subdomain, label_value
from tarkit.k8s.wellknown import RUN

_NAMED = 3


def find_jobs(cluster: Cluster, name: str, *, retries_alone: bool = False) -> list[Object]:
    """Return the Job of this name, or the Jobs of the run of this name, sorted by name.

    Args:
        retries_alone: accept retries of a Job that was deleted.

    Raises:
        NoSuchObjectError: neither exists; the message also says whether the namespace exists.
    """
    absent = NoSuchObjectError(f"no run {name} in namespace {cluster.namespace} of {cluster.where}", 404)
    try:
        # What only a run can be called is not asked for as a Job.
        if dns_subdomain(name) is None:
            return [cluster.get("jobs", name)]
    except NoSuchObjectError as error:
        absent = error
    try:
        found = [] if label_value(name) else sorted(cluster.list("jobs", labels=f"{RUN}={name}"), key=api.name_of)
    except ClusterError:
        # A user who may not list them is told about the one Job.
        raise absent from None
    if found and not retries_alone and only_retries(found, name):
        names = ", ".join(map(api.name_of, found))
        raise NoSuchObjectError(f"no job {name} in namespace {cluster.namespace}; its retries: {names}", 404)
    if not found:
        space = "" if namespace_exists(cluster) else "; no such namespace"
        raise NoSuchObjectError(f"{absent}{space}; -N names another namespace", 404)
    return found


def namespace_exists(cluster: Cluster) -> bool:
    """Return True if the namespace exists, or if reading it is forbidden."""
    try:
        cluster.get("namespaces", cluster.namespace)
    except ClusterError as error:
        return error.status != 404
    return True


def is_run(jobs: Sequence[Object], name: str) -> bool:
    """Return True if these Jobs are of the run of this name, not the Job of this name."""
    return api.name_of(jobs[0]) != name


def only_retries(jobs: Sequence[Object], name: str) -> bool:
    """Return True if only retries are left of a run whose first Job was deleted."""
    return is_run(jobs, name) and all(api.retry_of(job) is not None for job in jobs)


def not_one(name: str, jobs: Sequence[Object], why: str) -> UsageError:
    """Return the error of a verb that needs one Job and was given a run."""
    return UsageError(f"{name} is a run of {counted(len(jobs), 'Job')}, {why}; name one: {_some_names(jobs)}")


def failed_of(jobs: Sequence[Object], run: str) -> list[Object]:
    """Return the Jobs of a run that have failed and were not retried.

    Raises:
        UsageError: no Job has failed.
    """
    failed = [job for job in run_state(jobs).jobs if state_of(job) == "failed"]
    if not failed:
        raise UsageError(
            f"there is no Job {run}, but a run of {counted(len(jobs), 'Job')}, of which none has failed; name one, "
            f"such as {_some_names(jobs)}; if {run} was a Job and is gone, -f MANIFEST is what it was made from"
        )
    return failed


def _some_names(jobs: Sequence[Object]) -> str:
    """Return the first names as text: ``job0000, job0001, job0002, …``."""
    return ", ".join(map(api.name_of, jobs[:_NAMED])) + (", …" if len(jobs) > _NAMED else "")


def sum_line(states: Sequence[str], retried: int, deleted: int = 0) -> str:
    """Return a summary such as ``148 Jobs: 145 complete, 3 failed, 2 retried``.

    Args:
        retried: number of retried Jobs, which are not among the states.
        deleted: number of deleted Jobs, which are not among the states.
    """
    counts = [*sorted(Counter(states).items()), ("retried", retried), ("deleted", deleted)]
    return f"{counted(len(states), 'Job')}: " + ", ".join(f"{many} {word}" for word, many in counts if many)


@dataclass
class RunState:
    """The Jobs of a run.

    Attributes:
        jobs: current objects; for Jobs that were removed after their end, the last known ones.
        retried: failed or suspended Jobs that a later Job replaces: a retry, or one of the same
            name.
        deleted: names of Jobs that were removed before they had ended.
    """

    jobs: list[Object]
    retried: list[Object]
    deleted: list[str]

    @property
    def ended(self) -> bool:
        """Return True if no pod of a Job that counts will run again."""
        return all(map(has_ended, self.jobs))


def run_state(jobs: Iterable[Object], deleted: Iterable[str] = ()) -> RunState:
    """Return the state of a run from its Jobs, in the order of their names."""
    ordered = sorted(jobs, key=api.name_of)
    known = {api.name_of(job): job for job in ordered}
    last = {origin(api.name_of(job), known): job for job in sorted(ordered, key=api.created)}
    found = RunState([], [], sorted({*deleted} - {*known}))
    for job in ordered:
        done_over = last[origin(api.name_of(job), known)] is not job and state_of(job) in ("failed", "suspended")
        (found.retried if done_over else found.jobs).append(job)
    return found


def origin(name: str, known: Mapping[str, Object]) -> str:
    """Return the name of the first Job that a chain of retries began with.

    Args:
        known: Jobs by their names.
    """
    passed: set[str] = set()
    while name in known and name not in passed and (older := api.retry_of(known[name])) is not None:
        passed.add(name)
        name = older
    return name
