"""What ``kubetpl status`` was asked for, and the answer: from the cluster, else from the done records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import (
    ClusterError,
    ClusterUnreachableError,
    MissingExtraError,
    NoSuchObjectError,
    TarkitError,
    UsageError,
    printable,
)

from .clusteroptions import UNANSWERED, job_in, open_cluster
from .jobwork import read_records

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobstatus import JobStatus

    Answer = tuple[list[JobStatus], int]


class Wanted(NamedTuple):
    """What is asked for: a Job or run, or Jobs with some labels; and where else the answer may be."""

    name: str | None
    selector: str | None
    documents: list[dict[str, Any]]
    options: dict[str, Any]
    no_records: bool


def ask(wanted: Wanted) -> Answer:
    """The Jobs, and how many of a run there are besides for which a retry counts."""
    try:
        cluster, jobs = jobs_asked_for(wanted)
    except (ClusterError, MissingExtraError, UsageError) as error:
        return from_records(wanted, error), 0
    return answer(wanted, cluster, jobs)


def jobs_asked_for(wanted: Wanted) -> tuple[Cluster, list[dict[str, Any]]]:
    """The cluster, and the Jobs that it has.

    Raises:
        NoSuchObjectError: it has none; or retries only, and the records can tell more.
    """
    from tarkit.k8s.cluster.jobfind import find_jobs

    from .runjobs import only_retries

    cluster = open_cluster(wanted.options)
    if wanted.name is None:
        return cluster, _selected(cluster, wanted.selector or "")
    jobs = find_jobs(cluster, wanted.name)
    if only_retries(jobs, wanted.name) and (wanted.documents or (wanted.options["outdir"] and wanted.options["specs"])):
        # Of these shards the retries have a part only.
        there = ", ".join(str(job["metadata"]["name"]) for job in jobs)
        raise NoSuchObjectError(f"no job {wanted.name} in namespace {cluster.namespace}; its retries: {there}", 404)
    return cluster, jobs


def answer(
    wanted: Wanted, cluster: Cluster, jobs: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None,
    siblings: list[dict[str, Any]] | None = None,
) -> Answer:  # fmt: skip
    """As ``ask``, of Jobs that the cluster has. pods, siblings: if they are known."""
    from tarkit.k8s.cluster.jobstatus import look
    from tarkit.k8s.cluster.runstate import run_state
    from tarkit.k8s.cluster.surroundings import ask_around

    from .runjobs import is_run, only_retries, refuse_for_many

    retried, gone = 0, wanted.name is not None and only_retries(jobs, wanted.name)
    if wanted.name is None or is_run(jobs, wanted.name):
        siblings = jobs
    if len(jobs) > 1 and wanted.name is not None:
        run = run_state(jobs)
        jobs, retried = run.jobs, len(run.retried)
    if len(jobs) > 1:
        refuse_for_many(wanted.options)

    def read(job: Any) -> Any:
        return None if wanted.no_records else read_records(cluster, job, wanted.options, wanted.documents)

    around = ask_around(cluster, jobs, pods=pods, siblings=siblings)
    found = look(jobs, around, now=time.time(), read_records=read)
    if gone:
        note = f"Job {wanted.name} is gone, and this is of its retries alone; -f MANIFEST tells of all its shards"
        for each in found:
            each.notes.insert(0, note)
    if retried and len(found) == 1:
        found[0].notes.insert(0, f"{retried} of the run's Jobs failed before, and this one counts instead")
    return found, retried


def _selected(cluster: Cluster, selector: str) -> list[dict[str, Any]]:
    """The Jobs with some labels.

    Raises:
        UsageError: the server cannot read the selector. NoSuchObjectError: there are none.
    """
    from tarkit.k8s.cluster.jobfind import namespace_exists
    from tarkit.k8s.cluster.jobview import name_of

    try:
        found = sorted(cluster.list("jobs", labels=selector), key=name_of)
    except ClusterError as error:
        if error.status == 400:
            raise UsageError(f"-l {printable(selector)}: write for example team=vision,stage!=test; {error}") from None
        raise
    if not found:
        space = "" if namespace_exists(cluster) else "; there is no such namespace"
        raise NoSuchObjectError(f"no Job in namespace {cluster.namespace} has the labels {selector}{space}", 404)
    return found


def from_records(wanted: Wanted, why: TarkitError) -> list[JobStatus]:
    """What the done records say, since the cluster says nothing.

    Raises:
        TarkitError: why, if it is not said where they are.
    """
    from tarkit.k8s.cluster.jobstatus import JobStatus

    name, documents, options = wanted.name, wanted.documents, wanted.options
    if name is None or not (documents or options["outdir"]):
        hint = f"; {UNANSWERED}" if name is not None and isinstance(why, ClusterUnreachableError) else ""
        raise ClusterUnreachableError(f"{why}{hint}") if hint else why
    job = job_in(documents, name) or {"metadata": {"name": name}}
    records = read_records(None, job, options, documents)
    if records is None:
        raise UsageError(
            f"the manifest of {name} does not say where its records are (--raw?), and {why}; name it: -O OUT"
        )
    found = JobStatus(name, records=records, notes=[str(why)])
    if records.shards is None:
        found.notes.append("which shards there should be is not known; --shards names them")
    return [found]
