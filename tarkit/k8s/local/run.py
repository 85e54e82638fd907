"""A manifest's Jobs and Pods, run on this machine by the rules of the Job controller.

What went well is remembered in a state folder, so that a run that was killed goes on where it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple, Protocol

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, UsageError, printable
from tarkit.k8s.apiobject import Object
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.lint.nodes import root_of
from tarkit.k8s.lint.pods import lost_outputs
from tarkit.k8s.local.env import LocalNode, Sources
from tarkit.k8s.local.kubelet import LocalPod, Process, process_of
from tarkit.k8s.local.localjob import digest_of, jobs_of, local_pod, notes_on
from tarkit.k8s.local.policy import Action, JobLedger, LocalJob, PodEnd
from tarkit.k8s.local.processes import Watchdog, can_measure, process_table
from tarkit.k8s.local.state import StateFolder
from tarkit.mapping import removal

_TICK = 0.02
_MEMORY_EVERY = 0.2


@dataclass(frozen=True)
class LocalSettings:
    """How a manifest is run here.
    parallelism: pods at once, instead of the manifest's; None takes the manifest's, but no more than there are CPUs.
    indexes: only these. retry_delay: seconds before the first retry, it doubles. fresh: forget what an earlier run has
    done. together: when one Job has failed, the others are ended."""

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


class JobRun:
    """One Job of the run: its ledger, and its pods that are alive, by index."""

    def __init__(self, ledger: JobLedger) -> None:
        self.job = ledger.job
        self.ledger = ledger
        self.pods: dict[int, LocalPod] = {}
        self.began: float | None = None
        self.ended: float | None = None

    @property
    def exit_code(self) -> int:
        """0 if it is complete; 3 if it failed only since samples were set aside, and every index came to its end."""
        outcome = self.ledger.outcome
        if outcome is not None and outcome.type == "Complete":
            return EXIT_OK
        set_aside = set(self.ledger.last_exit.values()) == {EXIT_SET_ASIDE} and not self.ledger.left
        return EXIT_SET_ASIDE if set_aside else EXIT_FAILED

    def status(self) -> dict[str, Any]:
        """As the API's JobStatus."""
        ledger, outcome = self.ledger, self.ledger.outcome
        status: dict[str, Any] = {
            "startTime": _stamp(self.began), "active": len(ledger.running), "succeeded": len(ledger.done),
            "failed": ledger.failures,
        }  # fmt: skip
        if self.job.indexed:
            status["completedIndexes"] = format_indexes(ledger.done)
        if self.job.per_index is not None:
            status["failedIndexes"] = format_indexes(ledger.failed)
        if outcome is not None:
            first = "FailureTarget" if outcome.type == "Failed" else "SuccessCriteriaMet"
            end = {"lastTransitionTime": _stamp(self.ended), "reason": outcome.reason, "message": outcome.message}
            status["conditions"] = [{"type": kind, "status": "True", **end} for kind in (first, outcome.type)]
            if outcome.type == "Complete":
                status["completionTime"] = _stamp(self.ended)
        return {key: value for key, value in status.items() if value is not None}


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class LocalResult(NamedTuple):
    """The end of a run. logs: their folder. interrupted: it was stopped before all was over."""

    jobs: Sequence[JobRun]
    logs: str
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """0 if all Jobs are complete, 3 if all that failed did so with 3, else 1."""
        codes = {job.exit_code for job in self.jobs} - {EXIT_OK}
        return codes.pop() if len(codes) == 1 else EXIT_FAILED if codes else EXIT_OK


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
    _refuse_lost_outputs(documents, volumes)
    if settings.indexes is not None and len(found) > 1:
        raise UsageError("--index is for one Job, and there are several in this manifest")
    folder = folder or f"{found[0].name}.kubetpl-local"
    with StateFolder(folder, digest_of(documents, volumes), fresh=settings.fresh) as state:
        jobs = [JobRun(_ledger(job, settings, state)) for job in found]
        run = _Run(jobs, state, Sources(documents), settings, report, clock)
        for note in run.differences():
            report.note(note)
        return LocalResult(jobs, state.logs, run.loop(stop))


def _refuse_lost_outputs(documents: Sequence[Object], volumes: Mapping[str, str]) -> None:
    """Refuse a run whose outputs would go with its pods: nothing else would report that they are lost."""
    for number, document in enumerate(documents, 1):
        root = root_of(document, number, "1.33")
        spec = root.at("spec") if document.get("kind") == "Pod" else root.at("spec", "template", "spec")
        # A folder that is in no volume is one of this machine, and stays.
        found = next((each for each in lost_outputs(spec, kept=volumes) if each.unusable), None)
        if found is not None:
            raise UsageError(str(found))


def _ledger(job: LocalJob, settings: LocalSettings, state: StateFolder) -> JobLedger:
    if settings.parallelism is None and not job.parallelism:
        raise UsageError(f"{printable(job.name)}: parallelism is 0, so a cluster would run nothing; say -j 1 or more")
    return JobLedger(
        job,
        parallelism=settings.parallelism or min(job.parallelism, settings.node.cpus),
        retry_delay=settings.retry_delay,
        only=settings.indexes,
        done_before=state.completed.get(job.name, ()),
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
        return pod, process_of(pod, own, self._state.folder, self._sources, self._node)

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
                asked = max(asked, stop(), int(failed))
                now = self._clock()
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
        for index, pod in list(job.pods.items()):
            # A Job that is over ends its pods; so does a run that is stopped.
            ending = over or asked > 0 or index >= job.ledger.end
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

    def _ended(self, job: JobRun, index: int, pod: LocalPod, end: PodEnd, now: float) -> Action:
        name, action = job.job.name, job.ledger.finish(index, end, now)
        how = end.exit_code, pod.reason, action.value
        attempt = self._state.ended(name, index, *how)
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
