"""A manifest's Jobs and Pods, run on this machine by the rules of the Job controller.

What went well is remembered in a state folder, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.lint.nodes import root_of
from tarkit.k8s.lint.volumes import lost_outputs
from tarkit.k8s.local.env import Machine
from tarkit.k8s.local.job import JobRun, PodFailure, Reporter, Result
from tarkit.k8s.local.plan import Work, digest_of, limits_memory, notes_on, pod_view, processes_of, uses_image, works_of
from tarkit.k8s.local.pod import DEFAULT_GRACE, LocalPod, last_words
from tarkit.k8s.local.policy import Action, JobLedger, PodEnd
from tarkit.k8s.local.sources import Sources
from tarkit.k8s.local.state import State
from tarkit.k8s.local.watch import Processes, Watchdog, can_measure
from tarkit.mapping import removal

_TICK = 0.02
_MEMORY_EVERY = 0.2
_DOUBLINGS = 64
"""The longest delay before a retry, in first delays."""


@dataclass(frozen=True)
class Settings:
    """How a manifest is run here.

    parallelism: pods at once, in the stead of the manifest's; None takes the manifest's, but no more than
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


def run_documents(
    documents: Sequence[Mapping[str, Any]],
    folder: str | None,
    settings: Settings,
    reporter: Reporter,
    *,
    stop: Callable[[], int] = lambda: 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    wall: Callable[[], float] = time.time,
) -> Result:
    """Run all Jobs and Pods of a manifest, until each is complete or failed.

    Args:
        documents: manifests, as yamltext.load_documents gives them.
        folder: where the state is kept; None is NAME.kubetpl-local, of the first Job's or Pod's name.
        stop: asked often; 1 ends all pods with SIGTERM first, 2 at once.

    Raises:
        UsageError: the manifest can not be run here; or the folder is in use, or another manifest's.
        CommandNotRunnableError: a command is not on this machine.
        StreamError: the folder can not be written.
    """
    works = works_of(documents)
    _refuse_lost_outputs(documents, settings.volumes)
    sources = Sources(documents, settings.volumes)
    folder = folder or f"{works[0].name}.kubetpl-local"
    with State(folder, digest_of(documents, settings.volumes), fresh=settings.fresh, clock=wall, sleep=sleep) as state:
        jobs = [JobRun(work, _ledger(work, settings, state, len(works))) for work in works]
        _preflight(jobs, state, sources, settings)
        _tell_differences(jobs, settings, state, reporter)
        run = _Run(jobs, state, sources, settings, reporter, clock, wall)
        interrupted = run.loop(stop, sleep)
        return Result(jobs, state.logs, interrupted)


def _refuse_lost_outputs(documents: Sequence[Mapping[str, Any]], volumes: Mapping[str, str]) -> None:
    """Refuse a run whose outputs would go with its pods: nothing else would tell that they are lost."""
    for number, document in enumerate(documents, 1):
        root = root_of(document, number, "1.33")
        spec = root.at("spec") if document.get("kind") == "Pod" else root.at("spec", "template", "spec")
        # A folder that is in no volume is one of this machine, and stays.
        found = next((each for each in lost_outputs(spec, kept=volumes) if each.unusable), None)
        if found is not None:
            raise UsageError(str(found))


def _ledger(work: Work, settings: Settings, state: State, works: int) -> JobLedger:
    rules = work.rules
    if settings.parallelism is None and not rules.parallelism:
        raise UsageError(f"{printable(work.name)}: parallelism is 0, so a cluster would run nothing; say -j 1 or more")
    if settings.indexes is not None and works > 1:
        raise UsageError("--index is for one Job, and there are several in this manifest")
    at_once = settings.parallelism or min(rules.parallelism, settings.machine.cpus)
    return JobLedger(
        replace(rules, parallelism=at_once),
        base_delay=settings.retry_delay,
        longest_delay=settings.retry_delay * _DOUBLINGS,
        only=settings.indexes,
        done_before=state.completed.get(work.name, ()),
    )


def _preflight(jobs: Sequence[JobRun], state: State, sources: Sources, settings: Settings) -> None:
    """Find out what a manifest lacks before anything is run."""
    for job in jobs:
        if job.ledger.outcome is None:
            view = pod_view(job.work, 0, 1, settings.machine)
            own = state.pod_folder(view.name)
            processes_of(view, own, state.folder, sources, settings.host)
            removal.remove(own)


def _tell_differences(jobs: Sequence[JobRun], settings: Settings, state: State, reporter: Reporter) -> None:
    works = [job.work for job in jobs]
    if uses_image(works):
        reporter.note(
            "images, users and security contexts are a cluster's; here commands run as you, with what you have"
        )
    if limits_memory(works) and not can_measure():
        reporter.note("this system has no /proc, so memory is not limited")
    for work in works:
        for text in notes_on(work):
            reporter.note(text)
    asked = sum(work.rules.parallelism for work in works)
    at_once = _slots(jobs, settings)
    if settings.parallelism is None and at_once < asked:
        reporter.note(
            f"{at_once} pods at once, as there are that many CPUs; the manifest has {asked} (change it with -j)"
        )
    before, wanted = sum(len(job.ledger.done) for job in jobs), sum(job.ledger.wanted for job in jobs)
    if state.resumed and before:
        reporter.note(f"going on in {state.folder}: {before} of {wanted} were done before; --fresh does all again")


def _slots(jobs: Sequence[JobRun], settings: Settings) -> int:
    together = sum(job.ledger.rules.parallelism for job in jobs)
    return settings.parallelism or max(1, min(together, settings.machine.cpus))


class _Run:
    """The loop."""

    def __init__(
        self,
        jobs: Sequence[JobRun],
        state: State,
        sources: Sources,
        settings: Settings,
        reporter: Reporter,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._jobs = jobs
        self._state = state
        self._sources = sources
        self._settings = settings
        self._reporter = reporter
        self._clock = clock
        self._wall = wall
        self._slots = _slots(jobs, settings)
        self._memory_at = 0.0
        self._measures = can_measure() and limits_memory([job.work for job in jobs])

    def loop(self, stop: Callable[[], int], sleep: Callable[[float], None]) -> bool:
        """Until all is over; whether it was told to stop."""
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
                self._reporter.progress(self._jobs)
                if not any(job.pods for job in self._jobs) and (asked or all(job.ledger.outcome for job in self._jobs)):
                    return bool(asked) and not all(job.ledger.outcome for job in self._jobs)
                self._check_memory(now)
                sleep(_TICK)
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
        if job.began is None:
            job.began = self._wall()
        attempt = self._state.started(job.work.name, index)
        view = pod_view(job.work, index, attempt, self._settings.machine)
        own = self._state.pod_folder(view.name)
        processes = processes_of(view, own, self._state.folder, self._sources, self._settings.host)

        def log_of(container: str) -> str:
            several = f"-{container}" if len(processes) > 1 else ""
            folder = (job.work.name,) if len(self._jobs) > 1 else ()
            return self._state.path("logs", *folder, f"{index}-{attempt}{several}.log")

        grace = view.spec.get("terminationGracePeriodSeconds")
        pod = LocalPod(
            view.name,
            processes,
            log_of,
            now=now,
            grace=DEFAULT_GRACE if grace is None else float(grace),
            deadline=view.spec.get("activeDeadlineSeconds"),
            watchdog=watchdog,
        )
        job.pods[index] = pod, attempt
        pod.poll(now)

    def _poll(self, job: JobRun, now: float, asked: int) -> None:
        """Look after the pods of a Job."""
        over = job.ledger.check(now) is not None
        for index, (pod, attempt) in list(job.pods.items()):
            # A Job that is over ends its pods; so does whoever stops the run.
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
            removal.remove(self._state.path("pods", pod.name))
        if over and not job.pods and job.ended is None:
            job.ended = self._wall()

    def _ended(self, job: JobRun, index: int, attempt: int, pod: LocalPod, end: PodEnd, now: float) -> Action:
        action = job.ledger.finish(index, end, now)
        bad = pod.failed if end.failed else None
        reason = bad.reason if bad is not None else "Completed"
        self._state.ended(job.work.name, index, end.exit_code, reason, action.value)
        if bad is not None:
            self._reporter.pod_failed(
                PodFailure(
                    job.work.name,
                    index,
                    attempt,
                    end.exit_code,
                    reason,
                    action.value,
                    os.path.abspath(bad.log),
                    last_words(bad.log),
                )
            )
        if action is Action.RESTART:
            pod.restart(now, job.ledger.restart_delay(index))
        return action

    def _check_memory(self, now: float) -> None:
        if not self._measures or now < self._memory_at or not any(job.pods for job in self._jobs):
            return
        self._memory_at = now + _MEMORY_EVERY
        processes = Processes()
        for job in self._jobs:
            for pod, _ in job.pods.values():
                for container in pod.containers:
                    container.check_memory(processes)
