"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import (
    EXIT_OK,
    EXIT_TEMPORARY,
    ClusterDeniedError,
    ClusterError,
    NoSuchObjectError,
    UsageError,
    counted,
)
from tarkit.k8s.apiobject import Object, active_pods, annotations_of, run_of
from tarkit.k8s.cluster.cancellation import delete_jobs, delete_lists, left_after, queue_of, suspend_jobs
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, orphans
from tarkit.k8s.cluster.watching import Watching
from tarkit.k8s.durations import seconds
from tarkit.k8s.names import label_value
from tarkit.k8s.wellknown import LIST, MANAGED_BY, RUN

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster

_PROGRAM = "kubetpl cancel"
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
@verbose_option
@version_option
def command(name: str, delete: bool, timeout: str, undo: bool, **options: Any) -> int:
    """Suspend Job NAME: its pods are stopped, its finished indexes are kept. Done records stay in any case.

    NAME may be a run of kubetpl jobs, too: then all its Jobs. After --delete the Job can be applied again: nothing
    of it is at work any more, and the ConfigMap with its list of shards is deleted, too.
    """
    if delete and undo:
        raise UsageError("--undo is for what was not deleted; give one of both")
    limit = seconds(timeout, "--timeout")
    cluster = open_cluster(options)
    if delete:
        return _delete(cluster, name, limit)
    done = _suspend(cluster, name, find_jobs(cluster, name), undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


def _suspend(cluster: Cluster, name: str, jobs: Sequence[Object], undo: bool) -> str:
    """What was done to a Job, or to the Jobs of a run. If one cannot be suspended, none is."""
    several = is_run(jobs, name)
    alive = [job for job in jobs if not has_ended(job)]
    over = len(jobs) - len(alive)
    if not alive:
        which = f"{name}: all {counted(over, 'Job')} of it have ended" if several else f"{name} has ended"
        states = ", ".join(sorted({state_of(job)[0] for job in jobs}))
        return f"{which} already ({states}); --delete removes what is left, with all pods"
    queued = [queue for job in alive if (queue := queue_of(job, undo=undo)) is not None]
    if queued:
        raise UsageError(
            f"{_jobs(name, len(queued), several, 'is', 'are')} in the Kueue queue {queued[0]}, which decides when to "
            "run; --delete"
        )
    number = suspend_jobs(cluster, jobs, undo=undo)
    ended = f"; {over} {'has' if over == 1 else 'have'} ended already" if over else ""
    if undo and not number:
        return f"{name}: no Job was suspended{ended}" if several else f"{name} was not suspended"
    if undo:
        return f"{_jobs(name, number, several, 'goes', 'go')} on{ended}"
    active = sum(map(active_pods, alive))
    stopped = f"; {counted(active, 'pod is', 'pods are')} stopped" if active else ""
    otherwise = "" if several else "; to do it with other settings: kubetpl retry"
    which = f"{_jobs(name, number, several, 'is', 'are')} suspended{stopped}{ended}"
    return f"{which}. To go on: kubetpl cancel {name} --undo{otherwise}"


def _jobs(name: str, number: int, several: bool, one: str, many: str) -> str:
    """``NAME is`` of a Job; ``NAME: 2 Jobs are`` of a run."""
    return f"{name}: {counted(number, f'Job {one}', f'Jobs {many}')}" if several else f"{name} {one}"


def _delete(cluster: Cluster, name: str, limit: float) -> int:
    """Delete a Job or a run, and wait for its pods, also for those of a Job of this name that was deleted before."""
    jobs: list[Object] = []
    absent: NoSuchObjectError | None = None
    try:
        jobs = find_jobs(cluster, name)
    except NoSuchObjectError as error:
        # A Job may be gone by itself (--ttl) or by kubectl; its list stays, and its pods may be at work for a while.
        absent = error
    number = delete_jobs(cluster, jobs)
    lost = _orphans(cluster, name)
    running = sum(map(active_pods, jobs)) + len(lost)
    if running and limit:
        say(_PROGRAM, f"{name}: waiting until {counted(running, 'pod has', 'pods have')} ended")
    if still := _still_there(cluster, name, jobs, lost, limit) if jobs or lost else "":
        say(_PROGRAM, f"{name} is deleted, but {still}: before you apply it again, "
                      f"wait until kubetpl cancel {name} --delete ends with 0 or 66")  # fmt: skip
        return EXIT_TEMPORARY
    with Results(only_messages=True) as results:
        if jobs:
            several = is_run(jobs, name)
            what, its = _jobs(name, number, several, "is", "are"), "their" if several else "its"
            results.line(f"{what} deleted, with {its} pods and their logs. The done records stay")
        elif lost:
            results.line(f"{name} was deleted before; its pods have ended")
    # Of a Job that is gone it is not known whether it had a list.
    runs = {run_of(job) for job in jobs if LIST in annotations_of(job)} if jobs else {name}
    lists = [_delete_lists(cluster, run) for run in sorted(runs)]
    if absent is not None and not lost and not any(lists):
        raise absent
    return EXIT_OK


def _still_there(cluster: Cluster, name: str, jobs: Sequence[Object], lost: Sequence[Object], limit: float) -> str:
    """What is not gone when the time is up; "" if everything is."""
    try:
        watching = Watching(lambda line: say(_PROGRAM, line), limit)
        left, pods = left_after(cluster, name, jobs, lost, watching)
    except ClusterDeniedError as error:
        return f"whether it is gone is not known, and pods may be at work ({error})"
    if left:
        still = f"{counted(left, 'Job')} of {len(jobs)} are" if is_run(jobs, name) else "it is"
        return f"{still} not gone, and pods may be at work"
    return f"{counted(pods, 'pod')} of an earlier Job {name} still run" if pods else ""


def _orphans(cluster: Cluster, name: str) -> list[Object]:
    """Pods at work of Jobs that were deleted before; none, and a line, if pods may not be listed."""
    try:
        return orphans(cluster, name)
    except ClusterDeniedError as error:
        say(_PROGRAM, f"{error}; whether pods of a Job {name} that was deleted before still run is not known")
        return []


def _delete_lists(cluster: Cluster, run: str) -> bool:
    """Whether there were ConfigMaps with lists of the run's shards that no Job uses; they are deleted."""
    if label_value(run):
        return False
    try:
        names = delete_lists(cluster, run)
    except ClusterError as error:
        say(_PROGRAM, f"the ConfigMap with its list of shards stays: {error}; "
                      f"kubectl delete configmaps -l {MANAGED_BY}=kubetpl,{RUN}={run}")  # fmt: skip
        return False
    with Results(only_messages=True) as results:
        for each in names:
            results.line(f"ConfigMap {each}, a list of shards, is deleted")
    return bool(names)
