"""Everything that a cluster says of a Job, and the done records of its shards, in one view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, ClusterUnreachableError, TarkitError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.failures import Failure, group_failures
from tarkit.k8s.cluster.jobview import JobView, Plan, index_of, job_view, name_of, plan_of, uid_of
from tarkit.k8s.cluster.runplan import RunRecords, ShardMap, listed_specs, records_of, shard_map
from tarkit.k8s.cluster.runstate import retries_of
from tarkit.k8s.cluster.surroundings import Surroundings
from tarkit.k8s.cluster.whynot import Reason, why_not
from tarkit.k8s.indexset import parse_indexes
from tarkit.k8s.plan.shardlist import LIST_SPEC

Object = Mapping[str, Any]


@dataclass
class JobStatus:
    """A Job and its shards. view: None if the cluster does not know the Job, or is not there. records: None if there
    are none to be read. retries: Jobs that were made to finish it. notes: what could not be looked at, and why."""

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
            # Records alone do not say whether they are all.
            and self.view is not None
            and self.view.state == "complete"
        )
        if not whole:
            return EXIT_FAILED
        return EXIT_SET_ASIDE if records.found.lost_samples else EXIT_OK

    @property
    def done_all_the_same(self) -> bool:
        """Whether the Job has failed and every shard is done, by a retry mostly: so the exit code is not 1."""
        return self.view is not None and self.view.state == "failed" and self.exit_code != EXIT_FAILED

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


def plan_source(cluster: Cluster | None, job: Object, documents: Sequence[Object] = ()) -> tuple[Plan, Sequence[str]]:
    """(plan, shard specs) of a Job: from its annotations, and the ConfigMap with its list if it has one.

    documents: manifests in which such a ConfigMap may be, before the cluster is asked.

    Raises:
        ClusterError: the ConfigMap cannot be read. UsageError: annotations or list are not kubetpl's.
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
    jobs: Sequence[Object],
    around: Surroundings,
    *,
    now: float,
    read_records: Callable[[Object], RunRecords | None],
) -> list[JobStatus]:
    """Jobs that the cluster has just given, with what is around them.

    now: seconds since 1970. read_records: the done records of a Job's shards; what it raises becomes a note.

    Raises:
        ClusterUnreachableError: the cluster does not answer any more.
    """
    retries = retries_of(jobs, around.siblings)
    found = []
    for job in jobs:
        pods = around.pods_of(job)
        view = job_view(job, pods, now)
        status = JobStatus(view.name, view, notes=list(around.notes))
        status.retries = [job_view(each, None, now) for each in retries.get(uid_of(job), ())]
        _add_records(status, job, read_records)
        _add_failures(status, view, pods)
        if not view.finished:
            status.reasons = why_not(job, pods, around.events_of(job), now, around.workloads.get(uid_of(job)))
        found.append(status)
    return found


def _add_records(found: JobStatus, job: Object, read_records: Callable[[Object], RunRecords | None]) -> None:
    try:
        found.records = read_records(job)
    except ClusterUnreachableError:
        raise
    except TarkitError as error:
        found.notes.append(f"no done records: {error}")


def _add_failures(found: JobStatus, view: JobView, pods: Sequence[Object] | None) -> None:
    shards = None if found.records is None else found.records.shards
    unfinished = None if found.records is None else found.records.unfinished_names()
    found.failures = group_failures(pods or (), _names(shards, unfinished))
    _excuse(found.failures, set(parse_indexes(view.completed_indexes)), view.state == "complete")
    gone = _gone(view, pods)
    if gone:
        found.failures.append(gone)


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
