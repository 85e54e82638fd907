"""Stopping Jobs, for now or for good. Of what is deleted nothing is at work afterwards: pods go first, lists last."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError, counted
from tarkit.k8s.apiobject import Object, annotations_of, labels_of, name_of, part_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import is_run, pods_at_work, run_state
from tarkit.k8s.cluster.watching import LiveList, Watching, looks
from tarkit.k8s.plan.shardlist import FILE_NAME
from tarkit.k8s.wellknown import CANCELLED, LIST, MANAGED_BY, QUEUE, RUN

_ONE_WATCH = 10.0
_ONE_LOOK = 1.0


def suspend_jobs(cluster: Cluster, jobs: Sequence[Object], *, undo: bool) -> int:
    """Suspend the Jobs that have not ended, or let those go on that are suspended; how many there were.

    Raises:
        ClusterError: as the cluster says, and with how many it was done before.
    """
    by = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + (f" by {cluster.user}" if cluster.user else "")
    changes = {"spec": {"suspend": not undo}, "metadata": {"annotations": {CANCELLED: None if undo else by}}}
    # A Job goes on beside its retry only if the user names it.
    chosen = [job for job in run_state(jobs).jobs if state_of(job)[0] == "suspended"] if undo else [
        job for job in jobs if not has_ended(job)
    ]  # fmt: skip
    return _each(chosen, lambda job: cluster.patch("jobs", name_of(job), changes))


def queue_of(job: Object, *, undo: bool) -> str | None:
    """The Kueue queue that decides about a Job; None if there is none, or it is to undo what kubetpl did itself."""
    if undo and CANCELLED in annotations_of(job):
        return None
    queue = labels_of(job).get(QUEUE)
    return None if queue is None else str(queue)


def delete_jobs(cluster: Cluster, jobs: Sequence[Object]) -> int:
    """Delete Jobs, so that each is there until its pods have ended; how many there were.

    Raises:
        As ``suspend_jobs``.
    """
    return _each(jobs, lambda job: cluster.delete("jobs", name_of(job), uid_of(job), foreground=True))


def _each(jobs: Sequence[Object], act: Callable[[Object], object]) -> int:
    """How many Jobs were there to act on; those that are gone meanwhile are not."""
    number = 0
    for job in jobs:
        try:
            act(job)
            number += 1
        except NoSuchObjectError:
            continue
        except (ClusterError, ClusterUnreachableError) as error:
            text = f"{error}; done with {number} of {counted(len(jobs), 'Job')} before, the same again does the rest"
            raise type(error)(text, error.status) from None
    return number


def left_after(
    cluster: Cluster, name: str, deleted: Collection[Object], lost: Collection[Object], watching: Watching
) -> tuple[int, int]:
    """Numbers of the Jobs and of the lost pods that are still there when the time is up; none as soon as all are gone.

    name: of the Job or of the run. deleted: by ``delete_jobs``; a Job is gone after its pods. lost: ``orphans`` of it.
    """
    of_run = bool(deleted) and is_run([*deleted], name)
    selector = {"labels": f"{RUN}={name}"} if of_run else {"fields": f"metadata.name={name}"}
    jobs = [LiveList(cluster, "jobs", **selector)] if deleted else []
    pods = [LiveList(cluster, "pods", **selector) for selector in pods_at_work(name)] if lost else []
    left = 0, 0
    for _ in looks([*jobs, *pods], watching, _ONE_LOOK if lost else _ONE_WATCH):
        left = _still_there(deleted, jobs), _still_there(lost, pods)
        if not any(left):
            break
    return left


def _still_there(things: Iterable[Object], lists: Iterable[LiveList]) -> int:
    return len(set(map(uid_of, things)) & {uid_of(each) for live in lists for each in live.things})


def delete_lists(cluster: Cluster, run: str) -> list[str]:
    """Delete the ConfigMaps with lists of shards, made for Jobs of a run, that no Job of it names any more.

    The names of those that were there.
    """
    found = cluster.list("configmaps", labels=f"{MANAGED_BY}=kubetpl,{RUN}={run}")
    lists = [each for each in found if FILE_NAME in part_of(each, "binaryData")]
    jobs = cluster.list("jobs", labels=f"{RUN}={run}") if lists else []
    used = {annotations_of(job).get(LIST) for job in jobs}
    names = []
    for each in lists:
        if name_of(each) not in used:
            try:
                cluster.delete("configmaps", name_of(each), uid_of(each))
            except NoSuchObjectError:
                # The Job owned it, and the cluster was quicker.
                continue
            names.append(name_of(each))
    return names
