"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from tarkit.errors import EXIT_OK, EXIT_TEMPORARY, NoSuchObjectError, UsageError, counted
from tarkit.k8s.apiobject import Object, active_pods, annotations_of, run_of
from tarkit.k8s.cluster.cancellation import delete_jobs, delete_lists, left_after, named_jobs, suspend_jobs
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, orphans
from tarkit.k8s.cluster.watching import Watching
from tarkit.k8s.durations import seconds
from tarkit.k8s.wellknown import LIST

from ...shared.program import say
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster

_say = partial(say, "kubetpl cancel")
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
    done = suspend_jobs(cluster, name, find_jobs(cluster, name), undo=undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


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
    lost = orphans(cluster, name, _say)
    running = sum(map(active_pods, jobs)) + len(lost)
    if running and limit:
        _say(f"{name}: waiting until {counted(running, 'pod has', 'pods have')} ended")
    if (jobs or lost) and (still := left_after(cluster, name, jobs, lost, Watching(_say, limit))):
        _say(f"{name} is deleted, but {still}: before you apply it again, "
             f"wait until kubetpl cancel {name} --delete ends with 0 or 66")  # fmt: skip
        return EXIT_TEMPORARY
    with Results(only_messages=True) as results:
        if jobs:
            several = is_run(jobs, name)
            what, its = named_jobs(name, number, several, "is", "are"), "their" if several else "its"
            results.line(f"{what} deleted, with {its} pods and their logs. The done records stay")
        elif lost:
            results.line(f"{name} was deleted before; its pods have ended")
        # Of a Job that is gone it is not known whether it had a list.
        runs = {run_of(job) for job in jobs if LIST in annotations_of(job)} if jobs else {name}
        lists = [each for run in sorted(runs) for each in delete_lists(cluster, run, _say)]
        for each in lists:
            results.line(f"ConfigMap {each}, a list of shards, is deleted")
    if absent is not None and not lost and not lists:
        raise absent
    return EXIT_OK
