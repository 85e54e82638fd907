"""Which pods of a Job have the logs that are wanted, and a log as it grows, through lost connections."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from tarkit.errors import ClusterUnreachableError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import index_of, name_of, timestamp, uid_of
from tarkit.k8s.cluster.jobwatch import Watching, patiently
from tarkit.k8s.cluster.livelist import LiveList
from tarkit.k8s.wellknown import CONTROLLER, INDEX

Object = Mapping[str, Any]

_MOST_INDEXES = 50
"""In a selector: more would make an address that is too long."""
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8})(?:\.[0-9]{1,9})?(Z|[+-][0-9:]{5})")
_OUT_OF_ORDER = 1
"""Seconds by which a line may be older than the one before it."""
_BETWEEN = 0.5
"""Seconds before a log is opened again that has ended though its container has not."""


def pods_with_logs(
    cluster: Cluster, job: Object, *, indexes: Collection[int] | None = None, failed: bool = False
) -> LiveList:
    """The pods of a Job whose logs are wanted, to be listed. indexes: only these. failed: not those that succeeded."""
    labels = f"{CONTROLLER}={uid_of(job)}"
    if indexes is not None and len(indexes) <= _MOST_INDEXES:
        labels += f",{INDEX} in ({','.join(map(str, sorted(indexes)))})"
    return LiveList(cluster, "pods", labels=labels, fields="status.phase!=Succeeded" if failed else "")


def chosen_pods(pods: Iterable[Object], *, indexes: Collection[int] | None, failed: bool) -> list[Object]:
    """The last pod of each index, in the order of the indexes; pods without one, all of them.

    indexes: only these. failed: only pods that failed; of an index that failed and went well later, none.
    """
    last: dict[Any, Object] = {}
    for pod in sorted(pods, key=_age):
        index = index_of(pod)
        if indexes is None or index in indexes:
            last[name_of(pod) if index is None else index] = pod
    found = [pod for pod in last.values() if not failed or (pod.get("status") or {}).get("phase") == "Failed"]
    return sorted(found, key=lambda pod: (index_of(pod) is None, index_of(pod) or 0, name_of(pod)))


def label_of(pod: Object) -> str:
    """The label of a pod's lines: its index, or its name."""
    index = index_of(pod)
    return name_of(pod) if index is None else str(index)


def has_log(pod: Object) -> bool:
    """Whether a container of the pod has ever started."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any({"running", "terminated"} & set(each.get("state") or {}) or each.get("lastState") for each in statuses)


def has_ended(pod: Object, container: str | None = None) -> bool:
    """Whether the container, or else all of them, will write no more."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or [] if container else ():
        if each.get("name") == container and "terminated" in (each.get("state") or {}):
            return True
    return status.get("phase") in ("Succeeded", "Failed")


def followed_log(
    cluster: Cluster, pod: str, watching: Watching, *, container: str | None, tail: int | None
) -> Iterator[bytes]:
    """Lines of a log until the container has ended, each once, whatever becomes of the connections.

    Raises:
        ClusterUnreachableError: the cluster does not answer for too long. NoSuchObjectError: the pod is gone.
    """
    read = _Read()
    while True:
        # Of a log that is complete, what is left is read without waiting for more.
        ended = patiently(watching, lambda: has_ended(cluster.get("pods", pod), container))
        try:
            yield from read.new(
                cluster.log(
                    pod, container=container, tail=tail if read.since is None else None, follow=not ended,
                    stamped=True, since=read.since,
                )
            )  # fmt: skip
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
        if self._newest is None:
            return None
        return datetime.fromtimestamp(self._newest - _OUT_OF_ORDER, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def new(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Of lines that begin with their times, those that were not read before, without the times."""
        again = Counter(key for _, key in self._recent)
        for line in lines:
            stamp, _, text = line.partition(b" ")
            at = _seconds(stamp)
            if at is None:
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
            yield text


def _seconds(stamp: bytes) -> float | None:
    """Whole seconds since 1970 of a time such as 2027-01-15T07:00:00.123456789Z; None if it is none."""
    match = _STAMP.fullmatch(stamp)
    return None if match is None else timestamp((match[1] + match[2]).decode("ascii"))


def _age(pod: Object) -> tuple[str, str]:
    return str((pod.get("metadata") or {}).get("creationTimestamp") or ""), name_of(pod)
