"""Deleting Jobs so that nothing of them is at work afterwards: their pods go first, and their lists of shards last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarkit.errors import NoSuchObjectError
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import name_of, uid_of
from tarkit.k8s.cluster.jobwatch import Watching, looks
from tarkit.k8s.cluster.livelist import LiveList
from tarkit.k8s.plan.shardlist import FILE_NAME
from tarkit.k8s.wellknown import LIST, MANAGED_BY, RUN

Object = Mapping[str, Any]

_ONE_WATCH = 10.0


def left_after(cluster: Cluster, deleted: Iterable[Object], live: LiveList, watching: Watching) -> list[str]:
    """Names of the Jobs that are still there when the time is up; none as soon as all are gone, their pods before them.

    deleted: in the foreground. live: a list in which they are.
    """
    uids = {uid_of(job) for job in deleted}
    left: list[str] = []
    for _ in looks([live], watching, _ONE_WATCH, at_once=True):
        left = sorted(name_of(job) for job in live.things if uid_of(job) in uids)
        if not left:
            break
    return left


def unused_lists(cluster: Cluster, run: str) -> list[dict[str, Any]]:
    """The ConfigMaps with lists of shards, made for Jobs of a run, that no Job of it names any more."""
    found = cluster.list("configmaps", labels=f"{MANAGED_BY}=kubetpl,{RUN}={run}")
    lists = [each for each in found if FILE_NAME in (each.get("binaryData") or {})]
    jobs = cluster.list("jobs", labels=f"{RUN}={run}") if lists else []
    named = {(job["metadata"].get("annotations") or {}).get(LIST) for job in jobs}
    return [each for each in lists if name_of(each) not in named]


def delete_lists(cluster: Cluster, lists: Sequence[Object]) -> list[str]:
    """Delete ConfigMaps; the names of those that were there."""
    names = []
    for each in lists:
        try:
            cluster.delete("configmaps", name_of(each), uid_of(each))
        except NoSuchObjectError:
            # The Job owned it, and the cluster was quicker.
            continue
        names.append(name_of(each))
    return names
