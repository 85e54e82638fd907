"""How far a Job, a run, or all Jobs with some labels are: answered by the cluster, else by the done records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError, TarkitError, UsageError, printable
from tarkit.k8s.apiobject import Object, labels_of, name_of, run_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobstatus import JobStatus, live_pods, look
from tarkit.k8s.cluster.jobview import has_ended
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, namespace_exists, only_retries, run_state
from tarkit.k8s.cluster.runrecords import RecordSource
from tarkit.k8s.cluster.watching import LiveList, Watching, looks
from tarkit.k8s.wellknown import RUN

_ONE_WATCH = 30.0
"""Seconds: a connection that is silent for longer may have died."""

StatusAnswer = tuple[list[JobStatus], int]
"""The Jobs, and how many of a run there are besides for which a retry counts."""


@dataclass(frozen=True)
class StatusQuestion:
    """A Job or run, or Jobs with some labels; and the done records, where else the answer may be.
    read_records: whether they are read although the cluster answers."""

    name: str | None
    selector: str | None
    source: RecordSource
    read_records: bool = True

    def jobs(self, cluster: Cluster) -> list[Object]:
        """The Jobs that the cluster has; a NoSuchObjectError also if it has retries only, and the records show more."""
        known = self.source
        if self.name is not None:
            # Of these shards the retries have a part only.
            return find_jobs(cluster, self.name, retries_alone=not (known.documents or (known.outdir and known.specs)))
        selector = self.selector or ""
        try:
            found = sorted(cluster.list("jobs", labels=selector), key=name_of)
        except ClusterError as error:
            if error.status == 400:
                raise UsageError(
                    f"-l {printable(selector)}: write for example team=vision,stage!=test; {error}"
                ) from None
            raise
        if not found:
            space = "" if namespace_exists(cluster) else "; no such namespace"
            raise NoSuchObjectError(f"no Job in namespace {cluster.namespace} has the labels {selector}{space}", 404)
        return found

    def answer(
        self, cluster: Cluster, jobs: Sequence[Object], pods: Sequence[Object] | None = None,
        siblings: Sequence[Object] | None = None,
    ) -> StatusAnswer:  # fmt: skip
        """Of Jobs that the cluster has. pods, siblings: as for ``look``."""
        retried, notes = 0, []
        if self.name is not None and only_retries(jobs, self.name):
            notes.append(f"Job {self.name} is gone, and this is of its retries alone; -f MANIFEST shows all its shards")
        if self.name is None or is_run(jobs, self.name):
            siblings = jobs
        if len(jobs) > 1 and self.name is not None:
            run = run_state(jobs)
            jobs, retried = run.jobs, len(run.retried)
        if len(jobs) > 1:
            self.source.refuse_many()
        source = self.source if self.read_records else None
        found = look(cluster, jobs, source, now=time.time(), pods=pods, siblings=siblings)
        if retried and len(found) == 1:
            notes.insert(0, f"{retried} of the run's Jobs failed before, and this one counts instead")
        for each in found:
            each.notes[:0] = notes
        return found, retried

    def answers(
        self, cluster: Cluster, jobs: Sequence[Object], watching: Watching, pause: float
    ) -> Iterator[StatusAnswer]:
        """One each ``pause`` seconds, and when all has ended. Lists once, then watches: what is asked of the cluster
        does not depend on how many Jobs there are."""
        live, pods = self._live(cluster, jobs), live_pods(cluster, jobs)
        uid = None if self.name is None or is_run(jobs, self.name) else uid_of(jobs[0])
        lists = [live, pods]
        try:
            pods.list_anew()
        except ClusterError:
            # They may not be read.
            lists = [live]
        shown: float | None = None
        for _ in looks(lists, watching, min(pause, _ONE_WATCH)):
            jobs = sorted((job for job in live.things if uid in (None, uid_of(job))), key=name_of)
            if not jobs:
                raise NoSuchObjectError(f"{self.name or 'all of them'}: deleted meanwhile", 404)
            if shown is not None and not all(map(has_ended, jobs)) and watching.clock() - shown < pause:
                continue
            try:
                answer = self.answer(cluster, jobs, pods.things if len(lists) > 1 else None, live.things)
            except ClusterUnreachableError:
                # If that lasts, the next look says so.
                continue
            yield answer
            shown = watching.clock()
            if all(each.view is None or each.view.finished for each in answer[0]):
                return

    def _live(self, cluster: Cluster, jobs: Sequence[Object]) -> LiveList:
        """These Jobs with their retries."""
        if self.selector is not None:
            return LiveList(cluster, "jobs", labels=self.selector)
        if RUN in labels_of(jobs[0]):
            return LiveList(cluster, "jobs", labels=f"{RUN}={run_of(jobs[0])}")
        return LiveList(cluster, "jobs", fields=f"metadata.name={name_of(jobs[0])}")

    def from_records(self, why: TarkitError) -> JobStatus:
        """What the done records contain, since the cluster has no answer; ``why`` is raised if they are not named."""
        if self.name is None or not (self.source.documents or self.source.outdir):
            if self.name is not None and isinstance(why, ClusterUnreachableError):
                raise ClusterUnreachableError(f"{why}; -O OUT or -f MANIFEST answers from the done records alone")
            raise why
        job = job_in(self.source.documents, self.name) or {"metadata": {"name": self.name}}
        records = self.source.read(None, job)
        if records is None:
            raise UsageError(
                f"the manifest of {self.name} does not say where its records are (--raw?), and {why}; name it: -O OUT"
            )
        found = JobStatus(self.name, records=records, notes=[str(why)])
        if records.shards is None and records.found.runs:
            found.notes.append("the shards are those of all runs that have a record in the folder")
        elif records.shards is None:
            found.notes.append("which shards there should be is not known; --shards names them")
        return found


def job_in(documents: Sequence[Object], name: str) -> Object | None:
    """The Job of a name in a manifest, which must have it; None without a manifest."""
    jobs = {name_of(each): each for each in documents if each["kind"] == "Job"}
    if name not in jobs and documents:
        there = ", ".join([*jobs][:5]) or "none"
        raise UsageError(f"-f: the manifest has no Job {name}; its Jobs: {there}")
    return jobs.get(name)
