"""Stopping Jobs, for now or for good. Of what is deleted nothing is at work afterwards: pods go first, lists last."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from tarkit.errors import (
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    UsageError,
    counted,
)
from tarkit.k8s.apiobject import Object, active_pods, annotations_of, labels_of, name_of, part_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import is_run, pods_at_work, run_state
from tarkit.k8s.cluster.watching import LiveList, Watching, looks
from tarkit.k8s.names import label_value
from tarkit.k8s.plan.shardlist import FILE_NAME
from tarkit.k8s.wellknown import CANCELLED, LIST, MANAGED_BY, QUEUE, RUN

_ONE_WATCH = 10.0
_ONE_LOOK = 1.0


def suspend_jobs(cluster: Cluster, name: str, jobs: Sequence[Object], *, undo: bool) -> str:
    """Suspend the Jobs that have not ended, or let those go on that are suspended; what was done, in a line.

    name: of the Job or of the run. If a queue decides about one of them, none is suspended.
    """
    several = is_run(jobs, name)
    alive = [job for job in jobs if not has_ended(job)]
    over = len(jobs) - len(alive)
    if not alive:
        which = f"{name}: all {counted(over, 'Job')} of it have ended" if several else f"{name} has ended"
        states = ", ".join(sorted({state_of(job) for job in jobs}))
        return f"{which} already ({states}); --delete removes what is left, with all pods"
    # A Job that kubetpl itself has suspended may go on: its queue had admitted it.
    queued = [job for job in alive if QUEUE in labels_of(job) and not (undo and CANCELLED in annotations_of(job))]
    if queued:
        raise UsageError(
            f"{named_jobs(name, len(queued), several, 'is', 'are')} in the Kueue queue {labels_of(queued[0])[QUEUE]}, "
            "which decides when to run; --delete"
        )
    # A Job goes on beside its retry only if the user names it.
    chosen = [job for job in run_state(jobs).jobs if state_of(job) == "suspended"] if undo else alive
    by = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + (f" by {cluster.user}" if cluster.user else "")
    changes = {"spec": {"suspend": not undo}, "metadata": {"annotations": {CANCELLED: None if undo else by}}}
    number = _each(chosen, lambda job: cluster.patch("jobs", name_of(job), changes))
    ended = f"; {over} {'has' if over == 1 else 'have'} ended already" if over else ""
    if undo and not number:
        return f"{name}: no Job was suspended{ended}" if several else f"{name} was not suspended"
    if undo:
        return f"{named_jobs(name, number, several, 'goes', 'go')} on{ended}"
    active = sum(map(active_pods, alive))
    stopped = f"; {counted(active, 'pod is', 'pods are')} stopped" if active else ""
    otherwise = "" if several else "; to do it with other settings: kubetpl retry"
    which = f"{named_jobs(name, number, several, 'is', 'are')} suspended{stopped}{ended}"
    return f"{which}. To go on: kubetpl cancel {name} --undo{otherwise}"


def named_jobs(name: str, number: int, several: bool, one: str, many: str) -> str:
    """``NAME is`` of a Job; ``NAME: 2 Jobs are`` of a run."""
    return f"{name}: {counted(number, f'Job {one}', f'Jobs {many}')}" if several else f"{name} {one}"


def delete_jobs(cluster: Cluster, jobs: Sequence[Object]) -> int:
    """Delete Jobs, so that each is there until its pods have ended; how many there were."""
    return _each(jobs, lambda job: cluster.delete("jobs", name_of(job), uid_of(job), foreground=True))


def _each(jobs: Sequence[Object], act: Callable[[Object], object]) -> int:
    """How many Jobs were there to act on; those that are gone meanwhile are not. An error has that number, too."""
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
    cluster: Cluster, name: str, deleted: Sequence[Object], lost: Collection[Object], watching: Watching
) -> str:
    """What is still there when the time is up, in words; "" as soon as all is gone.

    name: of the Job or of the run. deleted: by ``delete_jobs``; a Job is gone after its pods. lost: ``orphans`` of it.
    """
    of_run = bool(deleted) and is_run(deleted, name)
    selector = {"labels": f"{RUN}={name}"} if of_run else {"fields": f"metadata.name={name}"}
    jobs = [LiveList(cluster, "jobs", **selector)] if deleted else []
    pods = [LiveList(cluster, "pods", **selector) for selector in pods_at_work(name)] if lost else []
    left = ""
    try:
        for _ in looks([*jobs, *pods], watching, _ONE_LOOK if lost else _ONE_WATCH):
            if number := _still_there(deleted, jobs):
                what = f"{counted(number, 'Job')} of {len(deleted)} are" if of_run else "it is"
                left = f"{what} not gone, and pods may be at work"
            else:
                number = _still_there(lost, pods)
                left = f"{counted(number, 'pod')} of an earlier Job {name} still run" if number else ""
            if not left:
                break
    except ClusterDeniedError as error:
        return f"whether it is gone is not known, and pods may be at work ({error})"
    return left


def _still_there(things: Iterable[Object], lists: Iterable[LiveList]) -> int:
    return len(set(map(uid_of, things)) & {uid_of(each) for live in lists for each in live.things})


def delete_lists(cluster: Cluster, run: str, report: Callable[[str], None]) -> list[str]:
    """Delete the ConfigMaps with lists of shards, made for Jobs of a run, that no Job of it names any more.

    The names of those that were there. report: called with a line if they stay.
    """
    names: list[str] = []
    if label_value(run):
        return names
    owner = f"{MANAGED_BY}=kubetpl,{RUN}={run}"
    try:
        lists = [each for each in cluster.list("configmaps", labels=owner) if FILE_NAME in part_of(each, "binaryData")]
        jobs = cluster.list("jobs", labels=f"{RUN}={run}") if lists else []
        used = {annotations_of(job).get(LIST) for job in jobs}
        for each in lists:
            # The Job may have owned it, and the cluster been quicker.
            with suppress(NoSuchObjectError):
                if name_of(each) not in used:
                    cluster.delete("configmaps", name_of(each), uid_of(each))
                    names.append(name_of(each))
    except ClusterError as error:
        report(f"the ConfigMap with its list of shards stays: {error}; kubectl delete configmaps -l {owner}")
    return names
