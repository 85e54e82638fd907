"""A Job each time it changes, through lost connections and restarts of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError
from tarkit.k8s.cluster.connection import Cluster

_ONE_WATCH = 240.0
"""Seconds; then it begins anew. Proxies cut what is silent for five minutes."""
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


def job_states(
    cluster: Cluster,
    name: str,
    *,
    until: float | None,
    patience: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    lost: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """The Job as it is, then as it becomes; at least once after every watch. It ends at the time ``until``.

    Args:
        until: by ``clock``; None is never. patience: seconds for which nobody may answer, once somebody has.
        lost: told why, each time the cluster stops answering.

    Raises:
        NoSuchObjectError: there is no such Job, or it was deleted.
        ClusterUnreachableError: nobody answers, from the first or for too long.
    """
    heard: float | None = None
    pause = _SHORTEST_PAUSE
    while until is None or clock() < until:
        try:
            job = cluster.get("jobs", name)
        except ClusterUnreachableError as error:
            if heard is None or clock() - heard > patience:
                raise
            if pause == _SHORTEST_PAUSE:
                lost(str(error))
            sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            continue
        heard, pause = clock(), _SHORTEST_PAUSE
        yield job
        begun = clock()
        for state in _watched(cluster, job, until, clock):
            heard = clock()
            yield state
        if clock() - begun < _SHORTEST_PAUSE:
            # Cut at once: do not ask in a tight circle.
            sleep(_SHORTEST_PAUSE)


def _watched(
    cluster: Cluster, job: dict[str, Any], until: float | None, clock: Callable[[], float]
) -> Iterator[dict[str, Any]]:
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
