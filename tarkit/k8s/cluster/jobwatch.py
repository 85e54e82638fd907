"""A Job each time it changes, or the Jobs of a run, through lost connections and restarts of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of
from tarkit.k8s.wellknown import RETRY_OF, RUN

Object = dict[str, Any]

_ONE_WATCH = 30.0
"""Seconds; then it begins anew. Proxies cut what is silent for minutes, and of what stands still somebody wants to
tell why."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_LONGEST_LOOK = 5.0
"""Seconds between two looks at a run."""


@dataclass(frozen=True)
class Watching:
    """How long, and how patiently.

    until: by ``clock``, in seconds; None is for ever. patience: seconds for which nobody may answer, once somebody
    has. sleep: called with seconds. lost: told why, each time the cluster stops answering.
    """

    until: float | None
    patience: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    lost: Callable[[str], None]

    @property
    def goes_on(self) -> bool:
        """Whether the time is not up."""
        return self.until is None or self.clock() < self.until

    def looks(self) -> Iterator[None]:
        """One, however late it is, and others until the time is up."""
        first = True
        while self.goes_on or first:
            first = False
            yield

    def at_most(self, seconds: float) -> float:
        """These seconds, or those that are left if they are fewer."""
        return seconds if self.until is None else max(0.0, min(seconds, self.until - self.clock()))


@dataclass
class _Silence:
    """How long nobody has answered."""

    watching: Watching
    heard: float | None = None
    pause: float = _SHORTEST_PAUSE

    def ended(self) -> None:
        """A question was answered."""
        self.broken()
        self.pause = _SHORTEST_PAUSE

    def broken(self) -> None:
        """There was a sign of life."""
        self.heard = self.watching.clock()

    def endured(self, error: ClusterUnreachableError) -> None:
        """Wait a little.

        Raises:
            ClusterUnreachableError: nobody ever answered, or not for too long.
        """
        if self.heard is None or self.watching.clock() - self.heard > self.watching.patience:
            raise error
        if self.pause == _SHORTEST_PAUSE:
            self.watching.lost(str(error))
        self.watching.sleep(self.pause)
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)


def job_states(cluster: Cluster, name: str, watching: Watching) -> Iterator[Object]:
    """The Job as it is, then as it becomes; at least once after every watch. It ends when the time is up.

    However late it is, there is one look: a Job that has ended is not reported as one that was waited for in vain.

    Raises:
        NoSuchObjectError: there is no such Job, or it was deleted.
        ClusterUnreachableError: nobody answers, from the first or for too long.
    """
    uid: str | None = None
    silence = _Silence(watching)
    for _ in watching.looks():
        try:
            job = cluster.get("jobs", name)
        except ClusterUnreachableError as error:
            silence.endured(error)
            continue
        silence.ended()
        # A Job that was deleted and created anew, while nobody watched, is another one.
        if uid not in (None, job["metadata"].get("uid")):
            raise NoSuchObjectError(f"Job {name} was deleted meanwhile, and another one has its name", 404)
        uid = job["metadata"].get("uid")
        yield job
        begun = watching.clock()
        for state in _watched(cluster, job, watching):
            silence.broken()
            yield state
        if watching.clock() - begun < _SHORTEST_PAUSE:
            # Cut at once: do not ask in a tight circle.
            watching.sleep(_SHORTEST_PAUSE)


@dataclass
class RunState:
    """The Jobs of a run. jobs: as they are; those that were removed once they had ended, as they were then.
    retried: failed or suspended ones, instead of which a later Job counts: a retry, or one of the same name. deleted:
    names of those that were removed before they had ended."""

    jobs: list[Object]
    retried: list[Object]
    deleted: list[str]

    @property
    def ended(self) -> bool:
        """Whether no pod of any that counts will run again."""
        return all(state_of(job)[0] in ENDED for job in self.jobs)


def run_state(jobs: Iterable[Object], deleted: Iterable[str] = ()) -> RunState:
    """Of Jobs as the API gives them, in the order of their names."""
    ordered = sorted(jobs, key=name_of)
    retries = retries_among(ordered)
    last: dict[str, Object] = {}
    for job in sorted(ordered, key=lambda job: str(job["metadata"].get("creationTimestamp") or "")):
        last[origin(name_of(job), retries)] = job
    found = RunState([], [], sorted({*deleted} - {*retries}))
    for job in ordered:
        done_over = last[origin(name_of(job), retries)] is not job and state_of(job)[0] in ("failed", "suspended")
        (found.retried if done_over else found.jobs).append(job)
    return found


def retries_among(jobs: Iterable[Object]) -> dict[str, str | None]:
    """Of each Job by name, which one it is a retry of; None if it is none."""
    return {name_of(job): (job["metadata"].get("annotations") or {}).get(RETRY_OF) for job in jobs}


def origin(name: str, retries: Mapping[str, str | None]) -> str:
    """The name of the Job that a Job is a retry of in the end; its own if it is none. retries: ``retries_among``."""
    passed: set[str] = set()
    while (older := retries.get(name)) is not None and name not in passed:
        passed.add(name)
        name = older
    return name


def run_states(cluster: Cluster, run: str, watching: Watching) -> Iterator[RunState]:
    """The Jobs with the label of a run, by one list for each look, and one look at least. It ends when the time is up.

    Raises:
        NoSuchObjectError: there never was one.
        ClusterUnreachableError: nobody answers, from the first or for too long.
    """
    seen: dict[str, Object] = {}
    silence = _Silence(watching)
    pause = _SHORTEST_PAUSE
    for _ in watching.looks():
        try:
            there = {str(job["metadata"].get("uid")): job for job in cluster.list("jobs", labels=f"{RUN}={run}")}
        except ClusterUnreachableError as error:
            silence.endured(error)
            continue
        except ClusterError as error:
            if error.status != 410:
                raise
            # A list of many pages that took too long; the next one begins anew.
        else:
            seen.update(there)
            if not seen:
                raise NoSuchObjectError(f"no Job in namespace {cluster.namespace} is of run {run}", 404)
            # What was removed after its end (--ttl) has ended all the same.
            kept = {uid: job for uid, job in seen.items() if uid in there or state_of(job)[0] in ENDED}
            yield run_state(kept.values(), [name_of(job) for uid, job in seen.items() if uid not in kept])
        silence.ended()
        watching.sleep(watching.at_most(pause))
        pause = min(pause * 2, _LONGEST_LOOK)


def _watched(cluster: Cluster, job: Object, watching: Watching) -> Iterator[Object]:
    """The Job's states until the connection ends, however it does: what follows is asked for anew."""
    name, version = str(job["metadata"]["name"]), str(job["metadata"].get("resourceVersion") or "")
    seconds = max(1.0, watching.at_most(_ONE_WATCH))
    try:
        for kind, thing in cluster.watch("jobs", fields=f"metadata.name={name}", version=version, seconds=seconds):
            if kind == "ERROR" or not watching.goes_on:
                # Too old a version, mostly: the next one begins with what is.
                return
            if kind == "DELETED":
                raise NoSuchObjectError(f"Job {name} was deleted meanwhile", 404)
            if kind in ("ADDED", "MODIFIED"):
                yield thing
    except ClusterUnreachableError:
        return
    except ClusterError as error:
        if error.status != 410:
            raise
