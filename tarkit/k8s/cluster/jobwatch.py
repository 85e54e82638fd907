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


@dataclass
class _Silence:
    """How long nobody has answered; the arguments are those of ``job_states``."""

    patience: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    lost: Callable[[str], None]
    heard: float | None = None
    pause: float = _SHORTEST_PAUSE

    def ended(self) -> None:
        """A question was answered."""
        self.broken()
        self.pause = _SHORTEST_PAUSE

    def broken(self) -> None:
        """There was a sign of life."""
        self.heard = self.clock()

    def endured(self, error: ClusterUnreachableError) -> None:
        """Wait a little.

        Raises:
            ClusterUnreachableError: nobody ever answered, or not for too long.
        """
        if self.heard is None or self.clock() - self.heard > self.patience:
            raise error
        if self.pause == _SHORTEST_PAUSE:
            self.lost(str(error))
        self.sleep(self.pause)
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)


def job_states(
    cluster: Cluster,
    name: str,
    *,
    until: float | None,
    patience: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    lost: Callable[[str], None],
) -> Iterator[Object]:
    """The Job as it is, then as it becomes; at least once after every watch. It ends at the time ``until``.

    Args:
        until: by ``clock``; None is never. patience: seconds for which nobody may answer, once somebody has.
        lost: told why, each time the cluster stops answering.

    Raises:
        NoSuchObjectError: there is no such Job, or it was deleted.
        ClusterUnreachableError: nobody answers, from the first or for too long.
    """
    uid: str | None = None
    silence = _Silence(patience, clock, sleep, lost)
    while until is None or clock() < until:
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
        begun = clock()
        for state in _watched(cluster, job, until, clock):
            silence.broken()
            yield state
        if clock() - begun < _SHORTEST_PAUSE:
            # Cut at once: do not ask in a tight circle.
            sleep(_SHORTEST_PAUSE)


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


def run_states(
    cluster: Cluster,
    run: str,
    *,
    until: float | None,
    patience: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    lost: Callable[[str], None],
) -> Iterator[RunState]:
    """The Jobs with the label of a run, by one list for each look. It ends at the time ``until``.

    Args: as of ``job_states``.

    Raises:
        NoSuchObjectError: there never was one.
        ClusterUnreachableError: nobody answers, from the first or for too long.
    """
    seen: dict[str, Object] = {}
    silence = _Silence(patience, clock, sleep, lost)
    pause = _SHORTEST_PAUSE
    while until is None or clock() < until:
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
        sleep(pause if until is None else max(0.0, min(pause, until - clock())))
        pause = min(pause * 2, _LONGEST_LOOK)


def _watched(cluster: Cluster, job: Object, until: float | None, clock: Callable[[], float]) -> Iterator[Object]:
    """The Job's states until the connection ends, however it does: what follows is asked for anew."""
    name, version = str(job["metadata"]["name"]), str(job["metadata"].get("resourceVersion") or "")
    rest = _ONE_WATCH if until is None else min(_ONE_WATCH, until - clock())
    try:
        for kind, thing in cluster.watch(
            "jobs", fields=f"metadata.name={name}", version=version, seconds=max(1.0, rest)
        ):
            if kind == "ERROR" or (until is not None and clock() >= until):
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
