"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done.

Of what is deleted nothing is at work afterwards: pods go first, lists last."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import click

from tarkit.errors import (
    EXIT_OK,
    EXIT_TEMPORARY,
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    NoSuchObjectError,
    UsageError,
    counted,
)
from tarkit.k8s.apiobject import Object, active_pods, annotations_of, labels_of, name_of, part_of, run_of, uid_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, orphans, run_state
from tarkit.k8s.cluster.trainjobs import delete_parts, train_role
from tarkit.k8s.cluster.watching import Watching
from tarkit.k8s.durations import seconds
from tarkit.k8s.names import label_value
from tarkit.k8s.plan.shardlist import FILE_NAME
from tarkit.k8s.wellknown import CANCELLED, CONTROLLER, LIST, MANAGED_BY, QUEUE, RUN

from ...shared.program import say
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster

_say = partial(say, "kubetpl cancel")
_PAUSE = 1.0
"""Seconds between two looks at what is being deleted."""
_EPILOG = """\b
Exit codes: 0 it is so now, or was; 2 it cannot be; 66 no such Job; 75 the cluster cannot be reached,
or pods of what is deleted have not ended in time.
"""


@click.command("cancel", epilog=_EPILOG)
@job_argument
@click.option(
    "--delete", is_flag=True, help="Delete the Job with its pods and their logs, and wait until they are gone."
)
@click.option(
    "--timeout", metavar="TIME", default="5m", show_default=True, help="--delete waits for so long; 0: not at all."
)
@click.option("--undo", is_flag=True, help="Let a cancelled Job go on.")
@cluster_options
def command(name: str, delete: bool, timeout: str, undo: bool, verbose: bool, **access: Any) -> int:
    """Suspend Job NAME: its pods are stopped, its finished indexes are kept. Done records stay in any case.

    NAME may be a run of kubetpl jobs, too: then all its Jobs. After --delete the Job can be applied again: nothing
    of it is at work any more, and the ConfigMap with its list of shards is deleted, too; of a job of kubetpl train,
    its services and their policy. The claim of its state stays.
    """
    if delete and undo:
        raise UsageError("--undo is for what was not deleted; give one of both")
    limit = seconds(timeout, "--timeout")
    cluster = open_cluster(**access)
    if delete:
        return _delete(cluster, name, limit)
    done = suspend_jobs(cluster, name, find_jobs(cluster, name), undo=undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


def suspend_jobs(cluster: Cluster, name: str, jobs: Sequence[Object], *, undo: bool) -> str:
    """Suspend the Jobs that have not ended, or let those go on that are suspended; what was done, in a line.
    name: of the Job or of the run. If a queue decides about one of them, none is suspended."""
    alive = [job for job in jobs if not has_ended(job)]
    if not alive:
        states = ", ".join(sorted({state_of(job) for job in jobs}))
        return f"{name} has ended already ({states}); --delete removes what is left, with all pods"
    # A Job that kubetpl itself has suspended may go on: its queue had admitted it.
    queued = [job for job in alive if QUEUE in labels_of(job) and not (undo and CANCELLED in annotations_of(job))]
    if queued:
        raise UsageError(
            f"{name}: {counted(len(queued), 'Job is', 'Jobs are')} in the Kueue queue {labels_of(queued[0])[QUEUE]}, "
            "which decides when to run; --delete"
        )
    # A Job goes on beside its retry only if the user names it.
    chosen = [job for job in run_state(jobs).jobs if state_of(job) == "suspended"] if undo else alive
    by = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + (f" by {cluster.user}" if cluster.user else "")
    changes = {"spec": {"suspend": not undo}, "metadata": {"annotations": {CANCELLED: None if undo else by}}}
    number = _each(chosen, lambda job: cluster.patch("jobs", name_of(job), changes))
    over = f"; {len(jobs) - len(alive)} of {len(jobs)} had ended" if len(alive) < len(jobs) else ""
    if undo:
        return f"{name}: {counted(number, 'Job goes', 'Jobs go')} on{over}"
    stopped = counted(sum(map(active_pods, alive)), "pod is", "pods are")
    is_suspended = f"{counted(number, 'Job is', 'Jobs are')} suspended; {stopped} stopped{over}"
    return f"{name}: {is_suspended}. To go on: kubetpl cancel {name} --undo"


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


def _delete(cluster: Cluster, name: str, limit: float) -> int:
    """Delete a Job or a run, and wait for its pods, also for those of a Job of this name that was deleted before."""
    jobs: list[Object] = []
    absent: NoSuchObjectError | None = None
    try:
        jobs = find_jobs(cluster, name)
    except NoSuchObjectError as error:
        # A Job may be gone by itself (--ttl) or by kubectl; its list stays, and its pods may be at work for a while.
        absent = error
    # Each is there until its pods have ended.
    number = _each(jobs, lambda job: cluster.delete("jobs", name_of(job), uid_of(job), foreground=True))
    # A Job that goes while they are asked for leaves some of its pods among them, which it has counted itself.
    ours = set(map(uid_of, jobs))
    lost = [pod for pod in orphans(cluster, name, _say) if labels_of(pod).get(CONTROLLER) not in ours]
    running = sum(map(active_pods, jobs)) + len(lost)
    if running and limit:
        _say(f"{name}: waiting until {counted(running, 'pod has', 'pods have')} ended")
    if (jobs or lost) and (still := _left_after(cluster, name, jobs, Watching(_say, limit))):
        _say(f"{name} is deleted, but {still}: before you apply it again, "
             f"wait until kubetpl cancel {name} --delete ends with 0 or 66")  # fmt: skip
        return EXIT_TEMPORARY
    with Results(only_messages=True) as results:
        if jobs:
            deleted = counted(number, "Job is", "Jobs are")
            results.line(f"{name}: {deleted} deleted, with all pods and their logs. The done records stay")
        elif lost:
            results.line(f"{name} was deleted before; its pods have ended")
        # Of a Job that is gone it is not known whether it had a list.
        runs = {run_of(job) for job in jobs if LIST in annotations_of(job)} if jobs else {name}
        lists = [each for run in sorted(runs) for each in _delete_lists(cluster, run)]
        for run in sorted({run_of(job) for job in jobs if is_run(jobs, name) and train_role(job)}):
            for line in delete_parts(cluster, run, _say):
                results.line(line)
        for each in lists:
            results.line(f"ConfigMap {each}, a list of shards, is deleted")
    if absent is not None and not lost and not lists:
        raise absent
    return EXIT_OK


def _left_after(cluster: Cluster, name: str, deleted: Sequence[Object], watching: Watching) -> str:
    """What is still there when the time is up, in words; "" as soon as all is gone.
    name: of the Job or of the run. deleted: a Job is gone after its pods."""
    of_run = bool(deleted) and is_run(deleted, name)
    selector = {"labels": f"{RUN}={name}"} if of_run else {"fields": f"metadata.name={name}"}

    def look() -> str:
        jobs = cluster.list("jobs", **selector) if deleted else []
        if number := len(set(map(uid_of, deleted)) & set(map(uid_of, jobs))):
            what = f"{counted(number, 'Job')} of {len(deleted)} are" if of_run else "it is"
            return f"{what} not gone, and pods may be at work"
        lost = orphans(cluster, name, lambda line: None)
        return f"{counted(len(lost), 'pod')} of an earlier Job {name} still run" if lost else ""

    try:
        while (left := watching.ask(look)) and watching.goes_on:
            watching.sleep(_PAUSE)
    except ClusterDeniedError as error:
        return f"whether it is gone is not known, and pods may be at work ({error})"
    return "the cluster has not answered, and pods may be at work" if left is None else left


def _delete_lists(cluster: Cluster, run: str) -> list[str]:
    """Delete the ConfigMaps with lists of shards, made for Jobs of a run, that no Job of it names any more.
    The names of those that were there. A line reports it if they stay."""
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
        _say(f"the ConfigMap with its list of shards stays: {error}; kubectl delete configmaps -l {owner}")
    return names
