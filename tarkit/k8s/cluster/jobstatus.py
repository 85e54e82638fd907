"""The status of Jobs from a cluster's objects and the done records of their shards.

Each kind of object is listed once, for any number of Jobs, and only if it is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, ClusterUnreachableError, TarkitError, UsageError
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.failures import FailureGroup, group_failures
from tarkit.k8s.cluster.jobview import JobView, job_view
from tarkit.k8s.cluster.runjobs import only_retries, run_state
from tarkit.k8s.cluster.runrecords import RecordSource, RunRecords
from tarkit.k8s.cluster.trainjobs import advice as train_advice
from tarkit.k8s.cluster.trainjobs import train_role
from tarkit.k8s.cluster.whynot import Reason, events_wanted, subject_of, why_not
from tarkit.k8s.wellknown import CONTROLLER, INDEX

T = TypeVar("T")

_MOST_INDEXES = 50
_DEAD_SHARDS = f" failed with exit code {EXIT_SET_ASIDE} matching FailJob rule"
# Without those that say that all is well, of which there are many.
_ROUTINE = ("Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "Completed", "SuccessfulDelete")
_TELLING = ",".join(f"reason!={each}" for each in _ROUTINE)


@dataclass
class JobStatus:
    """A Job and its shards.

    Attributes:
        view: view of the Job; None if the cluster does not know the Job, or was not asked.
        records: summary of its done records; None if there are none to read.
        notes: sentences on what could not be read, and why.
    """

    name: str
    view: JobView | None = None
    failures: list[FailureGroup] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    records: RunRecords | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Exit code: 0 complete or running, 3 complete with failed or without samples, else 1.

        The done records outweigh the status of the Job.
        """
        if self.view is not None and not self.view.finished:
            return EXIT_OK
        complete = self.view is not None and self.view.state == "complete"
        if self.records is None:
            # A shard service ends so when shards are dead, and all others done.
            dead = self.view is not None and self.view.is_service and _DEAD_SHARDS in self.view.message
            return EXIT_OK if complete else EXIT_SET_ASIDE if dead else EXIT_FAILED
        # Records alone do not say whether they are all.
        is_known = self.records.shards is not None or bool(self.records.found.runs)
        if self.records.found.unfinished or not (is_known or complete):
            return EXIT_FAILED
        return EXIT_SET_ASIDE if self.records.found.lost_samples or self.records.is_empty else EXIT_OK

    @property
    def done_all_the_same(self) -> bool:
        """Return True if the Job has failed, but every shard is done, usually by a retry.

        The exit code is not 1 then.
        """
        return self.view is not None and self.view.state == "failed" and self.exit_code != EXIT_FAILED

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        records = None
        if self.records is not None:
            records = {"outdir": self.records.outdir, "total": self.records.total, **self.records.found.as_dict()}
        return {
            "name": self.name,
            "exit_code": self.exit_code,
            "job": None if self.view is None else asdict(self.view),
            "failures": [each.as_dict() for each in self.failures],
            "reasons": [asdict(each) for each in self.reasons],
            "shards": records,
            "notes": self.notes,
        }


def look(cluster: Cluster, jobs: Sequence[Object], source: RecordSource | None, *, now: float) -> list[JobStatus]:
    """Return the status of Jobs, with their pods and done records.

    Args:
        jobs: Jobs as the cluster returned them just now.
        source: source of the done records; None leaves them out. A part that may not be read
            becomes a note.
        now: seconds since 1970.
    """
    notes: list[str] = []
    listed = _allowed(notes, "pods", lambda: cluster.list("pods", **pod_selectors(jobs)))
    by_job = api.grouped(listed or (), lambda pod: str(api.labels_of(pod).get(CONTROLLER)))
    own = {api.uid_of(job): None if listed is None else by_job.get(api.uid_of(job), []) for job in jobs}
    events: list[Object] | None = []
    if any(events_wanted(job, own[api.uid_of(job)]) for job in jobs):
        events = _allowed(notes, "events", lambda: cluster.list("events", fields=_TELLING))
    about = None if events is None else api.grouped(events, subject_of)
    found, said = [], set[str]()
    for job in jobs:
        uid = api.uid_of(job)
        view = job_view(job, own[uid], now)
        status = JobStatus(view.name, view, notes=list(notes))
        if source is not None:
            status.records = _allowed(status.notes, "done records", partial(source.read, cluster, job))
            # Of Jobs with one folder, it is said once.
            status.notes = [each for each in status.notes if each in notes or each not in said]
            said.update(status.notes)
        status.failures = _failures(job, view, own[uid] or ())
        status.reasons = why_not(job, own[uid], about, now)
        found.append(status)
    return found


def run_status(
    cluster: Cluster, name: str, jobs: Sequence[Object], source: RecordSource, *, read_records: bool = True
) -> tuple[list[JobStatus], int]:
    """Return the statuses of a run's Jobs that count, and the number of those that were retried.

    Args:
        read_records: read the done records even if the cluster answers.
    """
    notes = []
    if only_retries(jobs, name):
        notes.append(f"Job {name} is gone, and this is of its retries alone; -f MANIFEST shows all its shards")
    state = run_state(jobs)
    if len(state.jobs) > 1:
        source.refuse_many()
    elif state.retried:
        notes.insert(0, f"{len(state.retried)} of the run's Jobs failed before, and this one counts instead")
    records = source if read_records else None
    found = look(cluster, state.jobs, records, now=time.time())
    for each in found:
        each.notes[:0] = notes
    return found, len(state.retried)


def status_from_records(name: str, source: RecordSource, why: TarkitError) -> JobStatus:
    """Return the status from the done records alone, without the cluster.

    ``why``, the error of the cluster, is raised if no done records are named.
    """
    if not (source.documents or source.outdir):
        if isinstance(why, ClusterUnreachableError):
            raise ClusterUnreachableError(f"{why}; -O OUT or -f MANIFEST answers from the done records alone")
        raise why
    records = source.read(None, source.job(name) or {"metadata": {"name": name}})
    if records is None:
        raise UsageError(
            f"the manifest of {name} does not say where its records are (--raw?), and {why}; name it: -O OUT"
        )
    found = JobStatus(name, records=records, notes=[str(why)])
    if records.shards is None and records.found.runs:
        found.notes.append("the shards are those of all runs that have a record in the folder")
    elif records.shards is None:
        found.notes.append("which shards there should be is not known; --shards names them")
    return found


def pod_selectors(
    jobs: Sequence[Object], indexes: Collection[int] | None = None, *, succeeded: bool = False
) -> dict[str, str]:
    """Return the selectors for the pods of Jobs, or for the pods of some indexes of one Job.

    Args:
        succeeded: select pods that succeeded, too; there may be 100,000.
    """
    # What is longer would make an address that is too long.
    labels = f"{CONTROLLER}={api.uid_of(jobs[0])}" if len(jobs) == 1 else CONTROLLER
    if indexes is not None and len(indexes) <= _MOST_INDEXES:
        labels += f",{INDEX} in ({','.join(map(str, sorted(indexes)))})"
    return {"labels": labels, "fields": "" if succeeded else "status.phase!=Succeeded"}


def _failures(job: Object, view: JobView, pods: Collection[Object]) -> list[FailureGroup]:
    """Return the reasons why pods failed, and the failed indexes without a pod."""
    found = group_failures(pods)
    done = api.indexes_of(job, "completedIndexes")
    for each in found:
        went_well = done.issuperset(each.indexes) if each.indexes else view.state == "complete"
        if each.is_free:
            continue
        if went_well:
            each.advice = "went well when it was tried again"
        elif train_role(job):
            each.advice = train_advice(job, memory=each.is_memory)
    lost = api.indexes_of(job, "failedIndexes") - {api.index_of(pod) for pod in pods if api.phase_of(pod) == "Failed"}
    if lost:
        why, advice = "their pods are gone, or may not be read", "see the done records; kubetpl retry"
        found.append(FailureGroup("gone", why, advice, count=len(lost), indexes=sorted(lost)))
    return found


def _allowed(notes: list[str], what: str, ask: Callable[[], T]) -> T | None:
    """Return the result of a read; or if it is forbidden, return None and add a note.

    If the cluster does not answer, the error is left to the caller.
    """
    try:
        return ask()
    except ClusterUnreachableError:
        raise
    except TarkitError as error:
        notes.append(f"{what} cannot be read: {error}")
        return None
