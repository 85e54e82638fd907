"""Which pods of a Job have the logs that are wanted, and a log as it grows, through lost connections."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from tarkit.errors import ClusterUnreachableError, UsageError, counted
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobstatus import pod_selectors
from tarkit.k8s.cluster.jobview import state_of
from tarkit.k8s.cluster.watching import Watching, watched

_STAMP = re.compile(rb"([0-9-]{10}T[0-9:]{8})(?:\.[0-9]+)?(Z|[+-][0-9:]{5})(?: |\Z)")
_OUT_OF_ORDER = 1
"""Seconds by which a line may be older than the one before it."""
_BETWEEN = 0.5
"""Seconds before a log is opened again that has ended though its container has not."""
_ONE_WATCH = 10.0


def pods_with_logs(cluster: Cluster, job: Object, indexes: Collection[int] | None, *, failed: bool) -> list[Object]:
    """The pods of a Job whose logs are wanted: ``chosen_pods`` of those that there are."""
    pods = cluster.list("pods", **pod_selectors([job], indexes, succeeded=not failed))
    # Pods that succeeded are not in the list; an index that one of them has completed is known from the Job.
    done = api.indexes_of(job, "completedIndexes") if failed else set()
    return chosen_pods([pod for pod in pods if api.index_of(pod) not in done], indexes=indexes, failed=failed)


def chosen_pods(pods: Iterable[Object], *, indexes: Collection[int] | None, failed: bool) -> list[Object]:
    """The last pod of each index, in the order of the indexes; pods without one, all of them.
    indexes: only these. failed: only pods that failed; of an index that failed and went well later, none."""
    last: dict[Any, Object] = {}
    for pod in sorted(pods, key=lambda pod: (api.created(pod), api.name_of(pod))):
        index = api.index_of(pod)
        if indexes is None or index in indexes:
            last[api.name_of(pod) if index is None else index] = pod
    found = [pod for pod in last.values() if not failed or api.phase_of(pod) == "Failed"]
    return sorted(found, key=lambda pod: (api.index_of(pod) is None, api.index_of(pod) or 0, api.name_of(pod)))


def has_log(pod: Object) -> bool:
    """Whether a container of the pod has ever started."""
    statuses = api.status_of(pod).get("containerStatuses") or []
    return any({"running", "terminated"} & set(each.get("state") or {}) or each.get("lastState") for each in statuses)


def _has_ended(pod: Object, container: str | None = None) -> bool:
    """Whether the container, or else all of them, will write no more."""
    statuses = api.status_of(pod).get("containerStatuses") or []
    ended = (each.get("name") for each in statuses if "terminated" in api.part_of(each, "state"))
    return api.phase_of(pod) in ("Succeeded", "Failed") or (container is not None and container in ended)


def pod_to_follow(cluster: Cluster, job: Object, indexes: Collection[int] | None, watching: Watching) -> list[Object]:
    """The one pod whose log is followed, once its container has started; none if no pod will start any more.
    indexes: one at most; several pods are a UsageError."""
    name, total = api.name_of(job), api.spec_of(job).get("completions")
    if (len(indexes) if indexes is not None else int(total or 1)) != 1:
        raise UsageError(f"--follow goes with one index: --index N; Job {name} has {total}")
    waits = False
    for known in watched(cluster, "pods", watching, _ONE_WATCH, **pod_selectors([job], indexes, succeeded=True)):
        pods = chosen_pods(known, indexes=indexes, failed=False)
        if len(pods) > 1:
            raise UsageError(f"--follow goes with one pod; this is {counted(len(pods), 'pod')}")
        if pods and (has_log(pods[0]) or _has_ended(pods[0])):
            return pods
        if not pods and _is_over(cluster, name, indexes):
            break
        if not waits:
            waits = True
            watching.report(f"its pod has not started; waiting for it (kubetpl status {name} says why)")
    return []


def _is_over(cluster: Cluster, name: str, indexes: Collection[int] | None) -> bool:
    """Whether no pod will be made any more for the Job, or for the index."""
    with suppress(ClusterUnreachableError):
        job = cluster.get("jobs", name)
        over = api.indexes_of(job, "completedIndexes") | api.indexes_of(job, "failedIndexes")
        return state_of(job) in ("complete", "failed", "ending") or bool(over & set(indexes or ()))
    return False


def followed_log(
    cluster: Cluster, pod: str, watching: Watching, *, container: str | None, tail: int | None
) -> Iterator[bytes]:
    """Lines of a log until the container has ended, each once, whatever becomes of the connections."""
    read = _Read()
    while True:
        # Of a log that is complete, what is left is read without waiting for more.
        ended = watching.ask(lambda: _has_ended(cluster.get("pods", pod), container))
        since = read.since
        try:
            lines = cluster.log(
                pod, container=container, tail=tail if since is None else None, follow=not ended, stamped=True,
                since=since,
            )  # fmt: skip
            yield from read.new(lines)
        except ClusterUnreachableError:
            # Whether it is more than this connection, the next question shows.
            ended = False
        if ended:
            return
        watching.sleep(_BETWEEN)


class _Read:
    """What was read of a log. A server sends again from a second on; the lines of the last seconds are remembered."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._newest: float | None = None

    @property
    def since(self) -> str | None:
        """From when on the log is to be sent again: two containers' streams may be a little out of order."""
        return api.time_text(None if self._newest is None else self._newest - _OUT_OF_ORDER)

    def new(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Of lines that begin with their times, those that were not read before, without the times."""
        again = Counter(key for _, key in self._recent)
        for line in lines:
            stamp = _STAMP.match(line)
            at = None if stamp is None else api.timestamp((stamp[1] + stamp[2]).decode("ascii"))
            if stamp is None or at is None:
                yield line
                continue
            key = hash(line)
            if again[key]:
                again[key] -= 1
                continue
            self._newest = at if self._newest is None else max(at, self._newest)
            self._recent.append((at, key))
            while self._recent[0][0] < self._newest - _OUT_OF_ORDER:
                self._recent.popleft()
            yield line[stamp.end() :]
