"""Everything that a cluster says of a Job, and the done records of its shards, in one view."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tarkit.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_SET_ASIDE,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    TarkitError,
    printable,
)
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.failures import Failure, group_failures
from tarkit.k8s.cluster.jobview import JobView, Plan, index_of, job_view, name_of, plan_of
from tarkit.k8s.cluster.runplan import RunRecords, ShardMap, listed_specs, records_of, shard_map
from tarkit.k8s.cluster.whynot import Reason, why_not
from tarkit.k8s.indexset import parse_indexes
from tarkit.k8s.names import dns_subdomain, label_value
from tarkit.k8s.plan.shardlist import LIST_SPEC
from tarkit.k8s.wellknown import CONTROLLER, QUEUE, RUN

Object = Mapping[str, Any]
_ASKED_PODS = 10
"""Pods that wait whose events are looked at; the others wait for the same, nearly always."""

T = TypeVar("T")


@dataclass
class JobStatus:
    """A Job and its shards. view: None if the cluster does not know the Job, or is not there. records: None if there
    are none to be read. retries: other Jobs of the same run. notes: what could not be looked at, and why."""

    name: str
    view: JobView | None = None
    failures: list[Failure] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    records: RunRecords | None = None
    retries: list[JobView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 complete or not ended yet, 3 complete but samples were set aside, else 1. Records outweigh the Job."""
        if self.view is not None and not self.view.finished:
            return EXIT_OK
        records = self.records
        if records is None:
            return EXIT_OK if self.view is not None and self.view.state == "complete" else EXIT_FAILED
        whole = records.complete or (
            records.shards is None
            and not records.found.unfinished
            # Of records alone nobody knows whether they are all.
            and self.view is not None
            and self.view.state == "complete"
        )
        if not whole:
            return EXIT_FAILED
        return EXIT_SET_ASIDE if records.found.lost_samples else EXIT_OK

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        records = None
        if self.records is not None:
            records = {"outdir": self.records.outdir, "total": self.records.total, **self.records.found.as_dict()}
        return {
            "name": self.name,
            "exit_code": self.exit_code,
            "job": None if self.view is None else self.view.as_dict(),
            "failures": [each.as_dict() for each in self.failures],
            "reasons": [each.as_dict() for each in self.reasons],
            "shards": records,
            "retries": [each.as_dict() for each in self.retries],
            "notes": self.notes,
        }


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


def pods_of(cluster: Cluster, job: Object, *, succeeded: bool = False) -> Iterator[dict[str, Any]]:
    """The pods of a Job; without those that succeeded, of which there may be 100,000."""
    yield from cluster.list(
        "pods",
        labels=f"{CONTROLLER}={job['metadata']['uid']}",
        fields="" if succeeded else "status.phase!=Succeeded",
    )


def plan_source(cluster: Cluster | None, job: Object, documents: Sequence[Object] = ()) -> tuple[Plan, Sequence[str]]:
    """(plan, shard specs) of a Job: from its annotations, and the ConfigMap with its list if it has one.

    documents: manifests in which such a ConfigMap may be, before the cluster is asked.

    Raises:
        ClusterError: the ConfigMap can not be read. UsageError: annotations or list are not kubetpl's.
    """
    plan = plan_of(job)
    specs = plan.inputs or ()
    if LIST_SPEC in specs and plan.list_name is not None:
        local = (each for each in documents if each.get("kind") == "ConfigMap" and name_of(each) == plan.list_name)
        source = next(local, None)
        if source is None and cluster is not None:
            source = cluster.get("configmaps", plan.list_name)
        if source is not None:
            listed = listed_specs(source)
            return plan, [each for spec in specs for each in (listed if spec == LIST_SPEC else [spec])]
    return plan, specs


def look(
    cluster: Cluster, job: Object, *, now: float, read_records: Callable[[Object], RunRecords | None]
) -> JobStatus:
    """A Job that the cluster has just given.

    now: seconds since 1970. read_records: the done records of a Job's shards; what it raises becomes a note.

    Raises:
        ClusterUnreachableError: the cluster does not answer any more.
    """
    found = JobStatus(name_of(job))
    pods = _allowed(found, "pods", lambda: list(pods_of(cluster, job)))
    view = found.view = job_view(job, pods, now)
    try:
        found.records = read_records(job)
    except ClusterUnreachableError:
        raise
    except TarkitError as error:
        found.notes.append(f"no done records: {error}")
    shards = None if found.records is None else found.records.shards
    unfinished = None if found.records is None else found.records.unfinished_names()
    found.failures = group_failures(pods or (), _names(shards, unfinished))
    _excuse(found.failures, set(parse_indexes(view.completed_indexes)), view.state == "complete")
    gone = _gone(view, pods)
    if gone:
        found.failures.append(gone)
    if not view.finished:
        events = _allowed(found, "events", lambda: _events_of(cluster, job, pods or ()))
        found.reasons = why_not(job, pods, events, now, _workload(cluster, job))
    found.retries = _allowed(found, "retries", lambda: _retries(cluster, view, now)) or []
    return found


def read_run(
    cluster: Cluster | None,
    job: Object,
    documents: Sequence[Object],
    outdir: str | None,
    specs: Sequence[str],
    check_inputs: bool,
    work: str | None = None,
) -> RunRecords | None:
    """The done records of a Job's shards; None if it is not said where they are.

    outdir, specs: what to take instead of the Job's own, if given. work: as its done records name what the Job does.

    Raises:
        As ``plan_source``, ``shard_map`` and ``records_of``.
    """
    plan, wanted = (plan_of(job), specs) if specs else plan_source(cluster, job, documents)
    folder = outdir or plan.outdir
    if folder is None:
        return None
    shards = shard_map(plan, wanted, folder, own=not specs) if wanted else None
    return records_of(folder, shards, check_inputs=check_inputs, work=work, own_urls=not specs)


def _names(shards: ShardMap | None, unfinished: set[str] | None) -> Callable[[int], Sequence[str]] | None:
    if shards is None or unfinished is None:
        return None
    return lambda index: [name for name in shards.of_index(index) if name in unfinished]


def _excuse(failures: Iterable[Failure], done: set[int], complete: bool) -> None:
    """Nothing is to be done about failures of indexes, or of a Job, that went well later."""
    for each in failures:
        if each.kind != "disrupted" and (done.issuperset(each.indexes) if each.indexes else complete):
            each.advice = "went well when it was tried again"


def _gone(view: JobView, pods: Iterable[Object] | None) -> Failure | None:
    """Failed indexes without a pod that could tell why."""
    seen = {index_of(pod) for pod in pods or () if (pod.get("status") or {}).get("phase") == "Failed"}
    lost = [index for index in parse_indexes(view.failed_indexes) if index not in seen]
    if not lost:
        return None
    return Failure(
        "gone",
        None,
        "",
        "their pods are gone, or may not be read",
        "see the done records; kubetpl retry",
        len(lost),
        lost,
    )


def _allowed(found: JobStatus, what: str, ask: Callable[[], T]) -> T | None:
    """What may be read; a note, and None, of what may not."""
    try:
        return ask()
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        found.notes.append(f"{what} can not be read: {error}")
        return None


def _events_of(cluster: Cluster, job: Object, pods: Iterable[Object]) -> list[dict[str, Any]]:
    uids = [job["metadata"]["uid"]]
    uids += [pod["metadata"]["uid"] for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"][
        :_ASKED_PODS
    ]
    return [event for uid in uids for event in cluster.list("events", fields=f"involvedObject.uid={uid}")]


def _workload(cluster: Cluster, job: Object) -> Object | None:
    """Kueue's object for a suspended Job; None if there is none that may be read."""
    metadata = job["metadata"]
    if not (job.get("spec") or {}).get("suspend") or QUEUE not in (metadata.get("labels") or {}):
        return None
    for version in ("workloads", "workloads@v1beta1"):
        try:
            return next(cluster.list(version, labels=f"kueue.x-k8s.io/job-uid={metadata['uid']}"), None)
        except NoSuchObjectError:
            continue
        except ClusterUnreachableError:
            raise
        except ClusterError:
            break
    # why_not says that it can not be read, or is not there.
    return None


def _retries(cluster: Cluster, view: JobView, now: float) -> list[JobView]:
    """Other Jobs of the same run that were made to finish it."""
    views = (job_view(job, None, now) for job in cluster.list("jobs", labels=f"{RUN}={view.run}"))
    return [each for each in views if each.retry_of and each.name != view.name]
