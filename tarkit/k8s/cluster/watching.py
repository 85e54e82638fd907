"""Objects at each change: listed once, then watched, through lost connections and restarts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.apiobject import Object, Objects, name_of, part_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended
from tarkit.k8s.cluster.runjobs import RunState, run_state
from tarkit.k8s.durations import in_words
from tarkit.k8s.wellknown import RUN

T = TypeVar("T")

PATIENCE = 300.0
"""Default of the seconds for which a cluster may be unreachable."""
_ONE_WATCH = 30.0
"""Seconds after which a watch is restarted. Proxies cut connections that are silent for minutes,
and the list shows changes that the watch missed.
"""
_ONE_LOOK = 5.0
"""Seconds between two lists of many Jobs, or of objects that may not be watched."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class Watching:
    """Duration of a watch, and its reports on outages of the cluster: once each, and their end.

    Args:
        report: called with a line.
        seconds: duration of the watch, None: no limit.
        patience: seconds for which the cluster may be unreachable.
        clock: function that returns seconds.
        sleep: function that waits for seconds.
    """

    def __init__(
        self, report: Callable[[str], None], seconds: float | None = None, patience: float = PATIENCE, *,
        clock: Callable[[], float] | None = None, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.report = report
        self.clock = clock or time.monotonic
        self._sleep = sleep
        self._patience = patience
        self._until = math.inf if seconds is None else self.clock() + seconds

    @property
    def goes_on(self) -> bool:
        """Return True while there is time left."""
        return self._until == math.inf or self.clock() < self._until

    def at_most(self, seconds: float) -> float:
        """Return the given seconds, or the remaining ones if they are fewer."""
        return seconds if self._until == math.inf else max(0.0, min(seconds, self._until - self.clock()))

    def sleep(self, seconds: float) -> None:
        """Sleep for this time, or until the time is up."""
        self._sleep(self.at_most(seconds))

    def ask(self, question: Callable[[], T]) -> T | None:
        """Call a function until the cluster answers or the time is up; call it at least once.

        Returns:
            The answer, or None if the time is up.

        Raises:
            ClusterUnreachableError: the cluster was unreachable for too long.
        """
        begun, pause = self.clock(), _SHORTEST_PAUSE
        while True:
            try:
                found = question()
            except ClusterUnreachableError as error:
                if self.clock() - begun > self._patience:
                    raise
                if pause == _SHORTEST_PAUSE:
                    most = "" if self._patience == math.inf else f", for {in_words(self._patience)} at most"
                    self.report(f"{error}; asking again{most}")
            else:
                if pause > _SHORTEST_PAUSE:
                    self.report("the cluster answers again")
                return found
            self.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            if not self.goes_on:
                return None


def watched(
    cluster: Cluster, kind: str, watching: Watching, seconds: float, *, labels: str = "", fields: str = ""
) -> Iterator[Objects]:
    """Yield the selected objects of a kind: first the list, then the list after each change.

    A list is yielded at least once in ``seconds``. The iterator ends when the time is up, but not
    before one list: so a Job that has ended in time is not reported as still running. A kind that
    may not be watched is listed repeatedly.
    """
    known: dict[str, Object] = {}
    version = ""
    while True:
        if not version:
            answer = watching.ask(lambda: cluster.list_at(kind, labels=labels, fields=fields))
            if answer is None:
                return
            known, version = {uid_of(each): each for each in answer[0]}, answer[1]
        yield [*known.values()]
        if not watching.goes_on:
            return
        begun, last, version = watching.clock(), version, ""
        pause = _SHORTEST_PAUSE
        try:
            events = cluster.watch(
                kind, version=last, seconds=watching.at_most(seconds), labels=labels, fields=fields
            )  # fmt: skip
            # The connection must not stay open when nothing more is read.
            with closing(events):
                for change, thing in events:
                    if change == "ERROR":
                        break
                    last = str(part_of(thing, "metadata").get("resourceVersion") or last)
                    if change == "BOOKMARK":
                        continue
                    known.pop(uid_of(thing), None)
                    if change != "DELETED":
                        known[uid_of(thing)] = thing
                    yield [*known.values()]
                else:
                    # A watch that the server ends early may have missed something.
                    version = last if watching.clock() - begun >= seconds / 2 else ""
        except ClusterUnreachableError:
            # If that lasts, the list shows it.
            pass
        except ClusterError:
            pause = min(seconds, _ONE_LOOK)
        if not version:
            watching.sleep(pause)


def run_states(cluster: Cluster, name: str, watching: Watching, *, of_run: bool) -> Iterator[RunState]:
    """Yield the state of the Jobs of a run, or of one Job: at once, and after each change.

    It ends when the time is up.

    Raises:
        NoSuchObjectError: no such Job exists, or the one Job was deleted, even if a new Job has its
            name.
    """
    selector = {"labels": f"{RUN}={name}"} if of_run else {"fields": f"metadata.name={name}"}
    seen: dict[str, Object] = {}
    shown: float | None = None
    for jobs in watched(cluster, "jobs", watching, _ONE_LOOK if of_run else _ONE_WATCH, **selector):
        there = {uid_of(job): job for job in jobs}
        ended = all(map(has_ended, jobs))
        if of_run and shown is not None and not ended and watching.clock() - shown < _SHORTEST_PAUSE:
            # Of many changes at once, some are enough: the next look comes in any case.
            continue
        shown = watching.clock()
        if not of_run and seen and seen.keys() != there.keys():
            anew = ", and another one has its name" if there else ""
            raise NoSuchObjectError(f"Job {name} was deleted meanwhile{anew}", 404)
        seen |= there
        if not seen:
            none = f"no Job in namespace {cluster.namespace} is of run {name}"
            raise NoSuchObjectError(none if of_run else f"no job {name} in namespace {cluster.namespace}", 404)
        # What was removed after its end (--ttl) has ended all the same.
        kept = {uid: job for uid, job in seen.items() if uid in there or has_ended(job)}
        yield run_state(kept.values(), [name_of(job) for uid, job in seen.items() if uid not in kept])
