"""Jobs each time they change, through lost connections and restarts of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from tarkit.errors import ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of
from tarkit.k8s.cluster.livelist import LiveList
from tarkit.k8s.cluster.runstate import RunState, run_state
from tarkit.k8s.wellknown import RUN

Object = dict[str, Any]
T = TypeVar("T")

_ONE_WATCH = 30.0
"""Seconds; then it begins anew. Proxies cut what is silent for minutes, and what stands still is looked into."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_ONE_LOOK = 5.0
"""Seconds between two looks at many Jobs, or at what may not be watched."""


@dataclass(frozen=True)
class Watching:
    """How long, and how patiently.

    until: by ``clock``, in seconds; None is for ever. patience: seconds for which the cluster may not answer, from
    the first. sleep: called with seconds. lost, back: called when the cluster stops answering, with the reason, and
    when it answers again.
    """

    until: float | None
    patience: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    lost: Callable[[str], None]
    back: Callable[[], None]

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


class _Silence:
    """How long the cluster has not answered."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._heard = watching.clock()
        self._pause = _SHORTEST_PAUSE

    def ended(self) -> None:
        """There was an answer."""
        self._heard = self._watching.clock()
        if self._pause > _SHORTEST_PAUSE:
            self._watching.back()
        self._pause = _SHORTEST_PAUSE

    def endured(self, error: ClusterUnreachableError) -> None:
        """Wait a little.

        Raises:
            ClusterUnreachableError: it has lasted too long.
        """
        if self._watching.clock() - self._heard > self._watching.patience:
            raise error
        if self._pause == _SHORTEST_PAUSE:
            self._watching.lost(str(error))
        self._watching.sleep(self._watching.at_most(self._pause))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def patiently(watching: Watching, ask: Callable[[], T]) -> T | None:
    """The answer, asked for again while the cluster does not answer; None if the time was up.

    Raises:
        ClusterUnreachableError: it did not answer for too long. As ``ask``.
    """
    silence = _Silence(watching)
    for _ in watching.looks():
        try:
            found = ask()
        except ClusterUnreachableError as error:
            silence.endured(error)
        else:
            silence.ended()
            return found
    return None


def looks(lists: Sequence[LiveList], watching: Watching, seconds: float, *, at_once: bool = False) -> Iterator[None]:
    """One as soon as all lists are there, then one at least every so many seconds. It ends when the time is up.

    However late it is, there is one: a Job that has ended is not reported as one that was waited for in vain.
    at_once: another one after each change of the first list.

    Raises:
        ClusterUnreachableError: the cluster does not answer for too long. As ``Cluster.list``.
    """
    silence = _Silence(watching)
    for number, _ in enumerate(watching.looks()):
        # The first watch takes what the others, of a second each, leave of the time.
        long = max(1.0, watching.at_most(seconds) - (len(lists) - 1))
        try:
            for each, live in enumerate(lists):
                for _ in _changes(live, watching, 1.0 if each else long) if number else ():
                    silence.ended()
                    if at_once and not each:
                        yield
                if not live.is_watchable:
                    if number:
                        watching.sleep(watching.at_most(_SHORTEST_PAUSE if live.may_watch else min(seconds, _ONE_LOOK)))
                    live.list_anew()
        except ClusterUnreachableError as error:
            silence.endured(error)
        else:
            silence.ended()
            yield


def _changes(live: LiveList, watching: Watching, seconds: float) -> Iterator[None]:
    """For so many seconds, if it can be watched. A watch that the server ends early may have missed something."""
    begun = watching.clock()
    with closing(live.changes(seconds)) as changes:
        for _ in changes if live.is_watchable else ():
            yield
            if not watching.goes_on:
                return
    if watching.clock() - begun < seconds / 2:
        live.forget()


def job_states(cluster: Cluster, name: str, watching: Watching) -> Iterator[Object]:
    """The Job as it is, then as it becomes, and once more after every watch. It ends when the time is up.

    Raises:
        NoSuchObjectError: there is no such Job, or it was deleted.
        As ``looks``.
    """
    jobs = LiveList(cluster, "jobs", fields=f"metadata.name={name}")
    uid: str | None = None
    for _ in looks([jobs], watching, _ONE_WATCH, at_once=True):
        job = next(iter(jobs.things), None)
        if job is None:
            gone = f"Job {name} was deleted meanwhile" if uid else f"no job {name} in namespace {cluster.namespace}"
            raise NoSuchObjectError(gone, 404)
        # A Job that was deleted and created anew, while nobody watched, is another one.
        if uid not in (None, str(job["metadata"].get("uid"))):
            raise NoSuchObjectError(f"Job {name} was deleted meanwhile, and another one has its name", 404)
        uid = str(job["metadata"].get("uid"))
        yield job


def run_states(cluster: Cluster, run: str, watching: Watching) -> Iterator[RunState]:
    """The Jobs with the label of a run, again and again. It ends when the time is up.

    Raises:
        NoSuchObjectError: there never was one.
        As ``looks``.
    """
    jobs = LiveList(cluster, "jobs", labels=f"{RUN}={run}")
    seen: dict[str, Object] = {}
    told: float | None = None
    for _ in looks([jobs], watching, _ONE_LOOK, at_once=True):
        ended = all(state_of(job)[0] in ENDED for job in jobs.things)
        if told is not None and not ended and watching.clock() - told < _SHORTEST_PAUSE:
            # Of many changes at once, some are enough: the next look comes in any case.
            continue
        told = watching.clock()
        there = {str(job["metadata"].get("uid")): job for job in jobs.things}
        seen.update(there)
        if not seen:
            raise NoSuchObjectError(f"no Job in namespace {cluster.namespace} is of run {run}", 404)
        # What was removed after its end (--ttl) has ended all the same.
        kept = {uid: job for uid, job in seen.items() if uid in there or state_of(job)[0] in ENDED}
        yield run_state(kept.values(), [name_of(job) for uid, job in seen.items() if uid not in kept])
