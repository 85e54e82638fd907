"""Run the Jobs and Pods of a manifest on this machine by the rules of the Job controller."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, spec_of
from tarkit.k8s.jobsets import with_jobs_of_sets
from tarkit.k8s.local.pods import LocalSettings, Sources, jobs_of, process_of
from tarkit.k8s.local.policy import JobLedger, LocalJob
from tarkit.k8s.local.processes import LocalPod, Process, Watchdog
from tarkit.k8s.local.state import locked_folder
from tarkit.k8s.lostoutputs import lost_outputs
from tarkit.k8s.podfields import work_in
from tarkit.k8s.wellknown import SERVICE, TRAINERS
from tarkit.mapping import removal
from tarkit.runs.status import progress_of
from tarkit.specs.shardspec import expand

_TICK = 0.02
_ALONE = 5.0
_LAST = 60.0
"""Seconds for which a shard service runs on without a trainer, or with pods only that end after it;
trainers may be about to be restarted.
"""
_DELAYS = 64
"""Largest delay before a retry, in multiples of the first."""


def run_documents(
    documents: Sequence[Object], folder: str | None, settings: LocalSettings, *, note: Callable[[str], None],
    say: Callable[[str], None],
) -> list[JobLedger]:  # fmt: skip
    """Run all Jobs and Pods of a manifest, until each is complete or failed.

    An exception ends them earlier: by SIGTERM, and by SIGKILL after the grace period. Errors in the
    manifest are raised before anything is run.

    Args:
        folder: folder of logs, claims and running pods; None is NAME.kubetpl-local, with the name
            of the first Job or Pod.
        say: called with a line for each failure, and for the end.
        note: called with other lines.
    """
    run = _Run(with_jobs_of_sets(documents), settings, note, say)
    run.folder = os.path.abspath(folder or f"{run.ledgers[0].job.name}.kubetpl-local")
    with locked_folder(run.folder) as lock:
        run.loop(lock)
        run.look_for_empty()
    for each in run.ledgers:
        say(each.summary())
    say(f"logs: {os.path.join(run.folder, 'logs')}")
    return run.ledgers


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Run:
    """The Jobs of a manifest, each with its ledger, and the running pods.

    Attributes:
        folder: folder of the run; it is locked.
    """

    folder: str

    def __init__(
        self, documents: Sequence[Object], settings: LocalSettings, note: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        jobs, at_once = jobs_of(documents), settings.parallelism
        names = [each["name"] for job in jobs for each in spec_of(job.template).get("volumes") or ()]
        unknown = next((each for each in settings.volumes if each not in names), None)
        if unknown is not None:
            # What was to go there would go with the pods.
            raise UsageError(f"--volume {printable(unknown)}: no pod of this manifest has it; volumes are {names}")
        for lost in (each for document in documents for each in lost_outputs(document, kept=settings.volumes)):
            # Nothing else would report it. A folder that is in no volume is one of this machine,
            # and stays.
            if lost.is_certain:
                raise UsageError(lost.sentence)
        self._sources, self._settings, self._note, self._say = Sources(documents), settings, note, say
        self.ledgers = [JobLedger(job, at_once or job.parallelism, settings.retry_delay) for job in jobs]
        self._pods: dict[tuple[str, int], LocalPod] = {}
        self._alone_at = time.monotonic()
        # The first Job is a shard service of the others: they wait for one another.
        self._together = jobs[0].role == SERVICE
        asked = sum(job.parallelism for job in jobs)
        self._slots = at_once or (asked if self._together else min(asked, _cpus()))
        if self._together and self._slots < asked:
            raise UsageError(f"-j {self._slots}: the {asked} pods wait for one another; leave it out")
        note("not done here: images, users, limits of memory and disk; commands run as you, with what you have")
        if self._slots < asked and not at_once:
            note(f"{self._slots} pods at once, as there are as many CPUs; the manifest has {asked} (change it with -j)")
        for port in jobs[0].container.get("ports") or () if self._together else ():
            if port.get("name") == "http":
                note(f"how far it is: http://127.0.0.1:{port['containerPort']}/")

    def _path(self, *parts: str) -> str:
        """Return a path in the folder of the run, and create the folders above it."""
        found = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(found), 0o700, exist_ok=True)
        return found

    def _prepared(self, job: LocalJob, index: int, attempt: int) -> tuple[str, Process]:
        """Return the name of a pod and its process, with its folder.

        A pod whose container is restarted keeps its folder.
        """
        name = job.name if job.is_pod else f"{job.name}-{index}" + ("" if job.restarts else f"-{attempt}")
        return name, process_of(job, index, name, self.folder, self._sources, self._settings)

    def loop(self, lock: int) -> None:
        """Run until all Jobs have ended, or one of a group of Jobs has failed.

        The Jobs of a group wait for each other. No pod is left afterwards.
        """
        # What a manifest lacks is found out before anything is run.
        for each in self.ledgers:
            self._prepared(each.job, 0, 1)
        watchdog = Watchdog(lock, self._path("pods"))
        try:
            for each in self.ledgers:
                if each.job.elastic:
                    with open(self._path("scale", each.job.name), "w", encoding="ascii") as file:
                        file.write(str(each.wanted))
            while self._pods or not all(each.outcome for each in self.ledgers):
                if self._together and any(each.outcome and each.outcome.type == "Failed" for each in self.ledgers):
                    break
                for each in self.ledgers:
                    self._rescale(each)
                    self._fill(each, watchdog)
                self._poll()
                time.sleep(_TICK)
        finally:
            if self._pods:
                self._note("ending the pods")
            while self._pods:
                self._poll(ending=True)
                time.sleep(_TICK)
            watchdog.close()

    def _rescale(self, ledger: JobLedger) -> None:
        """Apply the last requested number of indexes to an elastic Job."""
        if ledger.job.elastic and ledger.outcome is None:
            with open(self._path("scale", ledger.job.name), encoding="ascii") as file:
                number = int(file.read())
            if number != ledger.wanted:
                self._slots += number - ledger.wanted
                ledger.resize(number)
                self._note(f"{ledger.job.name}: {number} pods from now on")

    def _fill(self, ledger: JobLedger, watchdog: Watchdog) -> None:
        """Start as many pods as possible, but none before the stage before it is complete.

        In a cluster they would be started, and wait.
        """
        for before in (each for each in self.ledgers if each.job.is_before(ledger.job)):
            if before.outcome is None:
                return
            if before.outcome.type == "Failed" and ledger.outcome is None:
                ledger.fail("StageBefore", f"{before.job.name} has failed")
        name, now = ledger.job.name, time.monotonic()
        while len(self._pods) < self._slots and (index := ledger.take(now)) is not None:
            attempt = 1
            while os.path.exists(log := self._path("logs", name, f"{index}-{attempt}.log")):
                attempt += 1
            pod, process = self._prepared(ledger.job, index, attempt)
            self._pods[name, index] = LocalPod(pod, process, log, watchdog, now)

    def _poll(self, *, ending: bool = False) -> None:
        """Poll the pods, and stop those of Jobs that have ended or were scaled down."""
        now = time.monotonic()
        for ledger in self.ledgers:
            for (name, index), pod in list(self._pods.items()):
                if name != ledger.job.name:
                    continue
                alone = ledger is self.ledgers[0] and self._is_alone(pod, now)
                if ending or alone or ledger.check(now) is not None or index >= ledger.wanted:
                    pod.terminate(now)
                code = pod.poll(now)
                if code is None:
                    continue
                del self._pods[name, index]
                if alone and code:
                    ledger.fail("Alone", "the trainers have ended, and nothing takes the rest of the data")
                if pod.ending and not alone:
                    ledger.stop(index)
                elif action := ledger.finish(index, pod.name, code, now):
                    self._say(f"{pod.name}: exit code {code} ({action}): {pod.last_line()}")
                if index in ledger.done or not ledger.job.restarts:
                    removal.remove_folder(self._path("pods", pod.name))

    def _is_alone(self, service: LocalPod, now: float) -> bool:
        """Return True if all trainers of a shard service ended some time ago.

        In that time its watchers see the end of the data sets, and the service ends by itself.
        Otherwise it is ended, with 0 unless it has not handed out all shards.
        """
        if not self._together or not all(each.outcome for each in self.ledgers if each.job.role in TRAINERS):
            self._alone_at = now
        others = any(each.outcome is None for each in self.ledgers[1:])
        return min(now - self._alone_at, now - service.began) > (
            _LAST + _DELAYS * self._settings.retry_delay if others else _ALONE
        )

    def look_for_empty(self) -> None:
        """Note Jobs that have no output sample.

        A slice may be empty, so its pod does not fail for that.
        """
        for each in self.ledgers:
            program, *args = self._prepared(each.job, 0, 1)[1].words
            work = work_in({"command": [program], "args": args})
            if each.done and not each.failed and work and work.slice and work.outdir and not work.allow_empty:
                # Of this Job alone: in the folder there may be shards of others.
                found = progress_of(work.outdir, expand(work.inputs), check_inputs=False)
                each.samples_lost = found.counts.read if found.empty else 0
