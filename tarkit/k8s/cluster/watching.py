"""Objects each time they change: listed once, then watched, through lost connections and restarts of the API server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TypeVar

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.apiobject import Object, name_of, part_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended
from tarkit.k8s.cluster.runjobs import RunState, run_state
from tarkit.k8s.durations import in_words
from tarkit.k8s.wellknown import RUN

T = TypeVar("T")

PATIENCE = 300.0
"""Seconds for which a cluster may not answer, unless the user says otherwise."""
_ONE_WATCH = 30.0
"""Seconds; then it begins anew. Proxies cut what is silent for minutes, and what does not change is looked into."""
_ONE_LOOK = 5.0
"""Seconds between two looks at many Jobs, or at what may not be watched."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class Watching:
    """How long a cluster is watched, and what is reported about the cluster itself: an outage, once, and its end.
    report: called with a line. seconds: of all of it, None is for ever. patience: seconds for which the cluster may not
    answer, from the first. clock, sleep: of seconds."""

    def __init__(
        self, report: Callable[[str], None], seconds: float | None = None, patience: float = PATIENCE, *,
        clock: Callable[[], float] | None = None, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.report = report
        self.clock = clock or time.monotonic
        self._sleep = sleep
        self._patience = patience
        self._until = math.inf if seconds is None else self.clock() + seconds
        self._heard = self.clock()
        self._pause = _SHORTEST_PAUSE

    @property
    def goes_on(self) -> bool:
        """Whether the time is not up."""
        return self._until == math.inf or self.clock() < self._until

    def looks(self) -> Iterator[None]:
        """One, however late it is, and others until the time is up."""
        self._heard, self._pause = self.clock(), _SHORTEST_PAUSE
        yield
        while self.goes_on:
            yield

    def at_most(self, seconds: float) -> float:
        """These seconds, or those that are left if they are fewer."""
        return seconds if self._until == math.inf else max(0.0, min(seconds, self._until - self.clock()))

    def sleep(self, seconds: float) -> None:
        """So long, or until the time is up."""
        self._sleep(self.at_most(seconds))

    def answered(self) -> None:
        """The cluster has answered."""
        self._heard = self.clock()
        if self._pause > _SHORTEST_PAUSE:
            self.report("the cluster answers again")
        self._pause = _SHORTEST_PAUSE

    def unanswered(self, error: ClusterUnreachableError) -> None:
        """The cluster has not answered: wait a little; the error is raised once it has lasted too long."""
        if self.clock() - self._heard > self._patience:
            raise error
        if self._pause == _SHORTEST_PAUSE:
            most = "" if self._patience == math.inf else f", for {in_words(self._patience)} at most"
            self.report(f"{error}; asking again{most}")
        self.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def patiently(watching: Watching, ask: Callable[[], T]) -> T | None:
    """The answer, asked for again while the cluster does not answer; None if the time was up."""
    for _ in watching.looks():
        try:
            found = ask()
        except ClusterUnreachableError as error:
            watching.unanswered(error)
        else:
            watching.answered()
            return found
    return None


class LiveList:
    """What selectors choose among the objects of a kind, kept up to date. labels, fields: in the API's notation."""

    def __init__(self, cluster: Cluster, kind: str, *, labels: str = "", fields: str = "") -> None:
        self._cluster, self._kind = cluster, kind
        self._selectors = {"labels": labels, "fields": fields}
        self._things: dict[str, Object] = {}
        self._version = ""
        """After which a watch goes on; "" if the next look has to be a list."""
        self._may_watch = True

    @property
    def things(self) -> list[Object]:
        """As they are known now, in no order."""
        return list(self._things.values())

    def list_anew(self) -> list[Object]:
        """``things``, by a list. What is known stays as it was if that fails."""
        found, version = self._cluster.list_at(self._kind, **self._selectors)
        self._things = {uid_of(each): each for each in found}
        self._version = version
        return found

    def refresh(self, watching: Watching, seconds: float) -> Iterator[None]:
        """Bring it up to date, by a watch of so many seconds or a list; one after each change that was seen."""
        known, begun = bool(self._version), watching.clock()
        if known and self._may_watch:
            yield from self._changes(watching, seconds)
            if watching.clock() - begun < seconds / 2:
                # A watch that the server ends early may have missed something.
                self._version = ""
        if not self._version or not self._may_watch:
            if known:
                watching.sleep(_SHORTEST_PAUSE if self._may_watch else min(seconds, _ONE_LOOK))
            self.list_anew()

    def _changes(self, watching: Watching, seconds: float) -> Iterator[None]:
        """By a watch. Where it cannot go on, the next look is a list: it was cut, is forbidden, or what changed since
        is too long ago (410)."""
        version, self._version = self._version, ""
        try:
            events = self._cluster.watch(self._kind, version=version, seconds=seconds, **self._selectors)
        except ClusterError as error:
            if error.status not in (403, 410):
                raise
            self._may_watch = error.status == 410
            return
        # The connection must not stay open when nothing more is read.
        with suppress(ClusterUnreachableError), closing(events):
            for kind, thing in events:
                if kind == "ERROR":
                    return
                version = str(part_of(thing, "metadata").get("resourceVersion") or version)
                uid = uid_of(thing)
                if kind == "DELETED":
                    self._things.pop(uid, None)
                elif kind != "BOOKMARK":
                    self._things[uid] = thing
                if kind != "BOOKMARK":
                    yield
                if not watching.goes_on:
                    break
            self._version = version


def looks(lists: Sequence[LiveList], watching: Watching, seconds: float) -> Iterator[None]:
    """One as soon as all lists are there, then one after each change of the first list, and one at least every so many
    seconds. It ends when the time is up.

    However late it is, there is one: a Job that has ended is not reported as one that was waited for in vain. If the
    cluster does not answer for too long, its ClusterUnreachableError ends it."""
    for _ in watching.looks():
        # The first watch takes what the others, of a second each, leave of the time.
        long = max(1.0, watching.at_most(seconds) - (len(lists) - 1))
        try:
            for number, live in enumerate(lists):
                for _ in live.refresh(watching, 1.0 if number else long):
                    watching.answered()
                    if not number:
                        yield
        except ClusterUnreachableError as error:
            watching.unanswered(error)
        else:
            watching.answered()
            yield


def run_states(cluster: Cluster, name: str, watching: Watching, *, of_run: bool) -> Iterator[RunState]:
    """The Jobs with the label of a run, or the one Job of a name: as they are, then as they become, and once more
    after every watch. It ends when the time is up, and with a NoSuchObjectError if there never was one, or the one Job
    was deleted, whether or not another one has its name."""
    selector = {"labels": f"{RUN}={name}"} if of_run else {"fields": f"metadata.name={name}"}
    live = LiveList(cluster, "jobs", **selector)
    seen: dict[str, Object] = {}
    shown: float | None = None
    for _ in looks([live], watching, _ONE_LOOK if of_run else _ONE_WATCH):
        there = {uid_of(job): job for job in live.things}
        ended = all(map(has_ended, there.values()))
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
