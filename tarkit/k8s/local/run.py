"""A manifest's Jobs and Pods, run on this machine by the rules of the Job controller.

What went well is remembered in a state folder, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple, Protocol

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, UsageError, printable
from tarkit.k8s.apiobject import Object
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.lint.nodes import root_of
from tarkit.k8s.lint.volumes import lost_outputs
from tarkit.k8s.local.env import Machine, Sources
from tarkit.k8s.local.localjob import LocalJob, digest_of, jobs_of, notes_on, pod_view, processes_of
from tarkit.k8s.local.localpod import DEFAULT_GRACE, LocalPod, last_words
from tarkit.k8s.local.policy import Action, JobLedger, PodEnd
from tarkit.k8s.local.processes import ProcessTable, Watchdog, can_measure
from tarkit.k8s.local.state import StateFolder
from tarkit.mapping import removal

_TICK = 0.02
_MEMORY_EVERY = 0.2
_DOUBLINGS = 64
"""The longest delay before a retry, in first delays."""


@dataclass(frozen=True)
class LocalSettings:
    """How a manifest is run here.

    parallelism: pods at once, instead of the manifest's; None takes the manifest's, but no more than
    there are CPUs. indexes: only these. retry_delay: seconds before the first retry, it doubles. host: variables
    of this machine that pods see. volumes: name of a volume -> folder to use in its stead.
    """

    parallelism: int | None = None
    indexes: Collection[int] | None = None
    retry_delay: float = 1.0
    fresh: bool = False
    host: Mapping[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    volumes: Mapping[str, str] = field(default_factory=dict)


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
    """One Job of the run: its ledger, and its pods that are alive, each with its attempt, by index."""

    def __init__(self, job: LocalJob, ledger: JobLedger) -> None:
        self.job = job
        self.ledger = ledger
        self.pods: dict[int, tuple[LocalPod, int]] = {}
        self.began: float | None = None
        self.ended: float | None = None

    @property
    def set_aside_only(self) -> bool:
        """Whether all that it failed by is samples that were set aside, and every index came to its end."""
        return set(self.ledger.last_exit.values()) == {EXIT_SET_ASIDE} and not self.ledger.left

    def status(self) -> dict[str, Any]:
        """As the API's JobStatus."""
        ledger, outcome = self.ledger, self.ledger.outcome
        status: dict[str, Any] = {
            "startTime": _stamp(self.began), "active": len(ledger.running), "succeeded": len(ledger.done),
            "failed": ledger.failures,
        }  # fmt: skip
        if ledger.rules.indexed:
            status["completedIndexes"] = format_indexes(ledger.done)
        if ledger.rules.per_index is not None:
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
        bad = [job for job in self.jobs if job.ledger.outcome is None or job.ledger.outcome.type != "Complete"]
        if not bad:
            return EXIT_OK
        return EXIT_SET_ASIDE if all(job.set_aside_only for job in bad) else EXIT_FAILED


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

    Args:
        documents: manifests, as yamltext.load_documents gives them.
        folder: where the state is kept; None is NAME.kubetpl-local, of the first Job's or Pod's name.
        stop: asked often; 1 ends all pods with SIGTERM first, 2 at once.

    Raises:
        UsageError: the manifest cannot be run here; or the folder is in use, or another manifest's.
        CommandNotRunnableError: a command is not on this machine.
        StreamError: the folder cannot be written.
    """
    found = jobs_of(documents)
    _refuse_lost_outputs(documents, settings.volumes)
    if settings.indexes is not None and len(found) > 1:
        raise UsageError("--index is for one Job, and there are several in this manifest")
    folder = folder or f"{found[0].name}.kubetpl-local"
    with StateFolder(folder, digest_of(documents, settings.volumes), fresh=settings.fresh) as state:
        jobs = [JobRun(job, _ledger(job, settings, state)) for job in found]
        run = _Run(jobs, state, Sources(documents, settings.volumes), settings, report, clock)
        run.check()
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
    if settings.parallelism is None and not job.rules.parallelism:
        raise UsageError(f"{printable(job.name)}: parallelism is 0, so a cluster would run nothing; say -j 1 or more")
    at_once = settings.parallelism or min(job.rules.parallelism, settings.machine.cpus)
    return JobLedger(
        replace(job.rules, parallelism=at_once),
        base_delay=settings.retry_delay,
        longest_delay=settings.retry_delay * _DOUBLINGS,
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
        self._settings = settings
        self._report = report
        self._clock = clock
        together = sum(job.ledger.rules.parallelism for job in jobs)
        self._slots = settings.parallelism or max(1, min(together, settings.machine.cpus))
        self._memory_at = 0.0
        self._limits_memory = any(job.job.limits_memory for job in jobs)

    def check(self) -> None:
        """Find out what a manifest lacks before anything is run."""
        for job in self._jobs:
            if job.ledger.outcome is None:
                view = pod_view(job.job, 0, 1, self._settings.machine)
                own = self._state.pod_folder(view.name)
                processes_of(view, own, self._state.folder, self._sources, self._settings.host)
                removal.remove_folder(own)

    def differences(self) -> Iterator[str]:
        """What differs here from the cluster, and what was done before: a sentence each."""
        containers = [each for job in self._jobs for each in job.job.containers]
        if any(each.get("image") or each.get("securityContext") for each in containers):
            yield "images, users and security contexts are a cluster's; here commands run as you, with what you have"
        if self._limits_memory and not can_measure():
            yield "this system has no /proc, so memory is not limited"
        for job in self._jobs:
            yield from notes_on(job.job)
        asked = sum(job.job.rules.parallelism for job in self._jobs)
        if self._settings.parallelism is None and self._slots < asked:
            slots = self._slots
            yield f"{slots} pods at once, as there are that many CPUs; the manifest has {asked} (change it with -j)"
        before, wanted = sum(len(job.ledger.done) for job in self._jobs), sum(job.ledger.wanted for job in self._jobs)
        if before:
            yield f"going on in {self._state.folder}: {before} of {wanted} were done before; --fresh does all again"

    def loop(self, stop: Callable[[], int]) -> bool:
        """Until all is over; whether it was stopped."""
        watchdog = Watchdog(self._state.lock, os.path.abspath(self._state.path("pods")))
        asked = 0
        try:
            while True:
                asked = max(asked, stop())
                now = self._clock()
                for job in self._jobs:
                    self._poll(job, now, asked)
                if not asked:
                    self._fill(now, watchdog)
                self._report.progress(self._jobs)
                over = all(job.ledger.outcome for job in self._jobs)
                if (asked or over) and not any(job.pods for job in self._jobs):
                    return not over
                self._check_memory(now)
                time.sleep(_TICK)
        finally:
            for job in self._jobs:
                for pod, _ in job.pods.values():
                    pod.close()
            watchdog.close()

    def _fill(self, now: float, watchdog: Watchdog) -> None:
        """Start as many pods as there is room for."""
        free = self._slots - sum(len(job.pods) for job in self._jobs)
        for job in self._jobs:
            while free > 0 and (index := job.ledger.take(now)) is not None:
                self._start(job, index, now, watchdog)
                free -= 1

    def _start(self, job: JobRun, index: int, now: float, watchdog: Watchdog) -> None:
        job.began = job.began or time.time()
        attempt = self._state.started(job.job.name, index)
        view = pod_view(job.job, index, attempt, self._settings.machine)
        own = self._state.pod_folder(view.name)
        processes = processes_of(view, own, self._state.folder, self._sources, self._settings.host)

        def log_of(container: str) -> str:
            several = f"-{container}" if len(processes) > 1 else ""
            folder = (job.job.name,) if len(self._jobs) > 1 else ()
            return self._state.path("logs", *folder, f"{index}-{attempt}{several}.log")

        grace = view.spec.get("terminationGracePeriodSeconds")
        pod = LocalPod(
            view.name, processes, log_of, watchdog, now=now, grace=DEFAULT_GRACE if grace is None else float(grace),
            deadline=view.spec.get("activeDeadlineSeconds"),
        )  # fmt: skip
        job.pods[index] = pod, attempt
        pod.poll(now)

    def _poll(self, job: JobRun, now: float, asked: int) -> None:
        """Look after the pods of a Job."""
        over = job.ledger.check(now) is not None
        for index, (pod, attempt) in list(job.pods.items()):
            # A Job that is over ends its pods; so does a run that is stopped.
            ending = over or asked > 0
            if ending:
                pod.terminate(now)
            if asked > 1:
                pod.kill()
            end = pod.poll(now)
            if end is None:
                continue
            if ending:
                job.ledger.stop(index)
            elif self._ended(job, index, attempt, pod, end, now) is Action.RESTART:
                continue
            over = job.ledger.outcome is not None
            pod.close()
            del job.pods[index]
            removal.remove_folder(self._state.path("pods", pod.name))
        if over and not job.pods and job.ended is None:
            job.ended = time.time()

    def _ended(self, job: JobRun, index: int, attempt: int, pod: LocalPod, end: PodEnd, now: float) -> Action:
        name, action = job.job.name, job.ledger.finish(index, end, now)
        bad = pod.failed if end.failed else None
        reason = "Completed" if bad is None else bad.reason
        self._state.ended(name, index, end.exit_code, reason, action.value)
        if bad is not None:
            self._report.pod_failed(
                PodFailure(name, index, attempt, end.exit_code, reason, action.value, last_words(bad.log))
            )
        if action is Action.RESTART:
            pod.restart(now, job.ledger.restart_delay(index))
        return action

    def _check_memory(self, now: float) -> None:
        if not self._limits_memory or now < self._memory_at or not can_measure():
            return
        self._memory_at = now + _MEMORY_EVERY
        processes = ProcessTable()
        for job in self._jobs:
            for pod, _ in job.pods.values():
                for container in pod.containers:
                    container.check_memory(processes)
