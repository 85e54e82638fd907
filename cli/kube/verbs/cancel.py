"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import (
    EXIT_OK,
    EXIT_TEMPORARY,
    ClusterError,
    NoSuchObjectError,
    UsageError,
    counted,
)
from tarkit.k8s.apiobject import Object, active_pods, annotations_of, run_of
from tarkit.k8s.cluster.cancellation import delete_jobs, delete_lists, left_after, queue_of, suspend_jobs
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run
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
    """Delete a Job or a run, and wait for its pods."""
    try:
        jobs = find_jobs(cluster, name)
    except NoSuchObjectError:
        # A Job may be gone by itself (--ttl); its list stays.
        if _delete_lists(cluster, name):
            return EXIT_OK
        raise
    several = is_run(jobs, name)
    number = delete_jobs(cluster, jobs)
    running = sum(map(active_pods, jobs))
    if running and limit:
        say(_PROGRAM, f"{name}: waiting until {counted(running, 'pod has', 'pods have')} ended")
    watching = Watching(lambda line: say(_PROGRAM, line), limit)
    selector = {"labels": f"{RUN}={name}"} if several else {"fields": f"metadata.name={name}"}
    left = left_after(cluster, jobs, watching, **selector)
    if left:
        still = f"{counted(len(left), 'Job')} of {len(jobs)} are" if several else "it is"
        say(_PROGRAM, f"{name} is deleted, but {still} not gone, and pods may be at work: before you apply it again, "
                      f"wait until kubetpl cancel {name} --delete ends with 0 or 66")  # fmt: skip
        return EXIT_TEMPORARY
    with Results(only_messages=True) as results:
        what = _jobs(name, number, several, "is", "are")
        results.line(f"{what} deleted, with {'their' if several else 'its'} pods and their logs. The done records stay")
    for run in sorted({run_of(job) for job in jobs if LIST in annotations_of(job)}):
        _delete_lists(cluster, run)
    return EXIT_OK


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
