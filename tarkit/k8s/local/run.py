"""A manifest's Jobs and Pods, run on this machine by the rules of the Job controller.

What went well is remembered in a state folder, so that a run that was killed goes on where it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tarkit.errors import EXIT_TERMINATED, TarkitError, UsageError, printable
from tarkit.k8s.apiobject import Object, spec_of
from tarkit.k8s.local.env import LocalNode, Sources
from tarkit.k8s.local.jobrun import JobRun, LocalResult
from tarkit.k8s.local.kubelet import LocalPod, PodFolders, Process, process_of
from tarkit.k8s.local.localjob import digest_of, jobs_of, local_pod, notes_on
from tarkit.k8s.local.policy import Action, JobLedger, LocalJob, PodEnd
from tarkit.k8s.local.processes import Watchdog, can_measure, process_table
from tarkit.k8s.local.state import StateFolder
from tarkit.k8s.lostoutputs import lost_outputs
from tarkit.k8s.podfields import work_in
from tarkit.mapping import removal
from tarkit.runs.status import progress_of
from tarkit.specs.shardspec import expand

_TICK = 0.02
_MEMORY_EVERY = 0.2
_SEEN = 3.0
"""Seconds in which a shard service sees that a worker is gone."""
_ALONE = 5.0
"""Seconds for which a shard service goes on without a trainer."""


@dataclass(frozen=True)
class LocalSettings:
    """How a manifest is run here.
    parallelism: pods at once, instead of the manifest's; None takes the manifest's, but no more than there are CPUs.
    indexes: only these. retry_delay: seconds before the first retry, it doubles. fresh: forget what an earlier run has
    done. together: the first Job is a service of the others; when one Job has failed, the others are ended; what is
    done counts once all are complete."""

    parallelism: int | None = None
    indexes: Collection[int] | None = None
    retry_delay: float = 1.0
    fresh: bool = False
    together: bool = False
    node: LocalNode = field(default_factory=LocalNode)


@dataclass(frozen=True)
class PodFailure:
    """A pod that failed. action: what became of it: Count, FailIndex ... message: the end of the log."""

    job: str
    index: int
    attempt: int
    exit_code: int
    reason: str
    action: str
    message: str


class LocalReport(Protocol):
    """What is called when something happens."""

    def note(self, text: str) -> None:
        """With a sentence on what is different from a cluster."""

    def pod_failed(self, failure: PodFailure) -> None:
        """When a pod failed."""

    def progress(self, jobs: Sequence[JobRun]) -> None:
        """Often."""


def run_documents(
    documents: Sequence[Object],
    folder: str | None,
    settings: LocalSettings,
    report: LocalReport,
    *,
    stop: Callable[[], int] = lambda: 0,
    clock: Callable[[], float] = time.monotonic,
) -> LocalResult:
    """Run all Jobs and Pods of a manifest, until each is complete or failed.
    folder: where the state is kept; None is NAME.kubetpl-local, of the first Job's or Pod's name. stop: asked often; 1
    ends all pods with SIGTERM first, 2 at once. What a manifest lacks is an error before anything is run."""
    found, volumes = jobs_of(documents), settings.node.volumes
    _refuse_unknown_volumes(found, volumes)
    _refuse_lost_outputs(documents, volumes)
    if settings.indexes is not None and len(found) > 1:
        raise UsageError("--index is for one Job, and there are several in this manifest")
    folder = folder or f"{found[0].name}.kubetpl-local"
    with StateFolder(folder, digest_of(documents, volumes), fresh=settings.fresh) as state:
        done = state.completed
        if settings.together and any(len(done.get(job.name, ())) < (job.completions or 1) for job in found):
            done = {}  # what is not complete waits for the others, such as a worker for the shard service
        jobs = [JobRun(_ledger(job, settings, done.get(job.name, ()))) for job in found]
        run = _Run(jobs, state, Sources(documents), settings, report, clock)
        for note in run.differences():
            report.note(note)
        interrupted = run.loop(stop)
        if not interrupted and settings.indexes is None:
            run.look_for_empty()
        return LocalResult(jobs, state.logs, interrupted)


def _refuse_unknown_volumes(jobs: Sequence[LocalJob], given: Collection[str]) -> None:
    """Refuse folders for volumes that no pod has: what was to go there would go with the pods."""
    names = {str(each.get("name")): None for job in jobs for each in spec_of(job.template).get("volumes") or ()}
    unknown = next((each for each in given if each not in names), None)
    if unknown is not None:
        known = f"volumes are {', '.join(map(printable, names))}" if names else "there are none"
        raise UsageError(f"--volume {printable(unknown)}: no pod of this manifest has it; {known}")


def _refuse_lost_outputs(documents: Sequence[Object], volumes: Mapping[str, str]) -> None:
    """Refuse a run whose outputs would go with its pods: nothing else would report that they are lost."""
    for lost in (each for document in documents for each in lost_outputs(document, kept=volumes)):
        # A folder that is in no volume is one of this machine, and stays.
        if lost.is_certain:
            raise UsageError(lost.sentence)


def _ledger(job: LocalJob, settings: LocalSettings, done_before: Collection[int]) -> JobLedger:
    if settings.parallelism is None and not job.parallelism:
        raise UsageError(f"{printable(job.name)}: parallelism is 0, so a cluster would run nothing; say -j 1 or more")
    return JobLedger(
        job,
        parallelism=settings.parallelism or min(job.parallelism, settings.node.cpus),
        retry_delay=settings.retry_delay,
        only=settings.indexes,
        done_before=done_before,
    )


class _Run:
    """The loop."""

    def __init__(
        self, jobs: Sequence[JobRun], state: StateFolder, sources: Sources, settings: LocalSettings,
        report: LocalReport, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._state = state
        self._sources = sources
        self._node = settings.node
        self._together = settings.together
        self._report = report
        self._clock = clock
        together = sum(job.ledger.at_once for job in jobs)
        self._slots = settings.parallelism or max(1, min(together, settings.node.cpus))
        self._asked = self._slots if settings.parallelism else sum(job.job.parallelism for job in jobs)
        self._memory_at = 0.0
        self._alone, self._alone_at, self._last_worker = False, 0.0, 0.0
        # What a manifest lacks is found out before anything is run.
        for job in jobs:
            if job.ledger.outcome is None:
                self._prepared(job.job, 0, 1)

    def _prepared(self, job: LocalJob, index: int, attempt: int) -> tuple[Object, Process]:
        """A pod and its process, with its folder."""
        pod = local_pod(job, index, attempt)
        own = self._state.path("pods", pod["metadata"]["name"])
        removal.remove_folder(own)
        os.mkdir(own, 0o700)
        folders = PodFolders(own, self._state.path("volumes", job.name), self._state.path("claims"))
        return pod, process_of(pod, folders, self._sources, self._node)

    def differences(self) -> Iterator[str]:
        """What differs here from the cluster, and what was done before: a sentence each."""
        if any(job.job.container.get(key) for job in self._jobs for key in ("image", "securityContext")):
            yield "images, users and security contexts are a cluster's; here commands run as you, with what you have"
        if not can_measure():
            yield "this system has no /proc, so memory is not limited"
        for job in self._jobs:
            yield from notes_on(job.job)
        if self._slots < self._asked:
            slots, asked = self._slots, self._asked
            yield f"{slots} pods at once, as there are that many CPUs; the manifest has {asked} (change it with -j)"
        for port in self._jobs[0].job.container.get("ports", ()) if self._together else ():
            if port.get("name") == "http":
                yield f"how far it is: http://127.0.0.1:{port['containerPort']}/"
        before, wanted = sum(len(job.ledger.done) for job in self._jobs), sum(job.ledger.wanted for job in self._jobs)
        if before:
            yield f"going on in {self._state.folder}: {before} of {wanted} were done before; --fresh does all again"

    def loop(self, stop: Callable[[], int]) -> bool:
        """Until all is over; whether it was stopped."""
        self._state.offer(job.job.name for job in self._jobs if job.job.elastic)
        watchdog = Watchdog(self._state.lock, os.path.abspath(self._state.path("pods")))
        asked = 0
        try:
            while True:
                outcomes = [job.ledger.outcome for job in self._jobs]
                failed = self._together and any(each is not None and each.type == "Failed" for each in outcomes)
                now = self._clock()
                failed = failed or self._is_alone(now)
                asked = max(asked, stop(), int(failed))
                for job in self._jobs:
                    self._poll(job, now, asked)
                self._rescale()
                if not asked:
                    self._fill(now, watchdog)
                self._report.progress(self._jobs)
                over = all(job.ledger.outcome for job in self._jobs)
                if (asked or over) and not any(job.pods for job in self._jobs):
                    return not (over or failed)
                self._check_memory(now)
                time.sleep(_TICK)
        finally:
            for job in self._jobs:
                for pod in job.pods.values():
                    pod.close()
            watchdog.close()

    def look_for_empty(self) -> None:
        """Note Jobs of which no sample came out: a slice may be empty, and so its pod does not fail for that."""
        for job in self._jobs:
            if job.ledger.outcome is None or job.ledger.outcome.type != "Complete":
                continue
            pod, process = self._prepared(job.job, 0, 1)
            removal.remove_folder(self._state.path("pods", pod["metadata"]["name"]))
            program, *args = process.words
            work = work_in({"command": [program], "args": args})
            if work is None or work.slice is None or work.outdir is None or work.allow_empty:
                continue
            try:
                # Of this Job alone: in the folder there may be shards of others.
                found = progress_of(work.outdir, expand(work.inputs), check_inputs=False)
            except TarkitError as error:
                self._report.note(f"{printable(job.job.name)}: whether samples came out is not known: {error}")
                continue
            if found.empty:
                job.samples_lost = found.counts.read

    def _is_alone(self, now: float) -> bool:
        """Whether all trainers have ended, as after so many steps, and the service has not handed out everything. It
        ends once they have, and those that look at how far it is had time to see the end."""
        if not self._together or not all(job.ledger.outcome for job in self._jobs if job.job.trains):
            self._alone_at = now
        for pod in self._jobs[0].pods.values() if now - self._alone_at > _ALONE else ():
            if pod.age(now) > _ALONE:
                pod.terminate(now)
        return self._alone

    def _rescale(self) -> None:
        """Give elastic Jobs as many indexes as was asked for since."""
        for name, number in self._state.scaled().items():
            for job in self._jobs:
                if job.job.name == name and job.job.elastic and job.ledger.outcome is None:
                    self._slots += number - job.ledger.wanted
                    job.ledger.resize(number)
                    self._report.note(f"{printable(name)}: {number} pods from now on")

    def _fill(self, now: float, watchdog: Watchdog) -> None:
        """Start as many pods as there is room for."""
        free = self._slots - sum(len(job.pods) for job in self._jobs)
        for job in self._jobs:
            while free > 0 and (index := job.ledger.take(now)) is not None:
                free -= 1
                job.began = job.began or time.time()
                attempt = self._state.started(job.job.name, index)
                pod, process = self._prepared(job.job, index, attempt)
                folder = (job.job.name,) if len(self._jobs) > 1 else ()
                log = self._state.path("logs", *folder, f"{index}-{attempt}.log")
                job.pods[index] = LocalPod(pod, process, log, watchdog, now)
                job.pods[index].poll(now)

    def _poll(self, job: JobRun, now: float, asked: int) -> None:
        """Look after the pods of a Job."""
        over = job.ledger.check(now) is not None
        if asked == 1 and self._together and job is self._jobs[0] and self._waits(now):
            asked = 0
        for index, pod in list(job.pods.items()):
            # A Job that is over ends its pods; so does a run that is stopped, and a Job that was made smaller.
            ending = over or asked > 0 or index in job.ledger.leaving
            if ending:
                pod.terminate(now)
            if asked > 1:
                pod.kill()
            end = pod.poll(now)
            if end is None:
                continue
            if ending:
                job.ledger.stop(index)
            elif self._ended(job, index, pod, end, now) is Action.RESTART:
                continue
            over = job.ledger.outcome is not None
            pod.close()
            del job.pods[index]
            removal.remove_folder(self._state.path("pods", pod.name))
        if over and not job.pods and job.ended is None:
            job.ended = time.time()

    def _waits(self, now: float) -> bool:
        """Whether a shard service goes on in a run that is stopped: it is to see that its workers are gone, so that
        what they held is not theirs when the run goes on."""
        if any(job.pods for job in self._jobs[1:]):
            self._last_worker = now
        return now - self._last_worker < _SEEN

    def _ended(self, job: JobRun, index: int, pod: LocalPod, end: PodEnd, now: float) -> Action:
        name, action = job.job.name, job.ledger.finish(index, end, now)
        how = end.exit_code, pod.reason, action.value
        attempt = self._state.ended(name, index, *how)
        if end.exit_code == EXIT_TERMINATED and job is self._jobs[0] and now - self._alone_at > _ALONE:
            self._alone = True
            self._report.note(
                "the trainers have ended, and the shard service has not: nothing takes the rest of the data"
            )
        if end.exit_code:
            self._report.pod_failed(PodFailure(name, index, attempt, *how, pod.last_words()))
        if action is Action.RESTART:
            pod.restart(now, job.ledger.restart_delay(index))
        return action

    def _check_memory(self, now: float) -> None:
        pods = [pod for job in self._jobs for pod in job.pods.values() if pod.memory_limit is not None]
        if pods and now >= self._memory_at and can_measure():
            self._memory_at = now + _MEMORY_EVERY
            table = process_table()
            for pod in pods:
                pod.check_memory(table)
