"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_TEMPORARY, ClusterError, ClusterUnreachableError, NoSuchObjectError, UsageError
from tarkit.k8s.wellknown import LIST

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results, counted
from ..clusteroptions import cluster_options, job_argument, open_cluster
from ..watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster

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
    from tarkit.k8s.durations import seconds

    from ..runjobs import is_run, jobs_named

    if delete and undo:
        raise UsageError("--undo is for what was not deleted; give one of both")
    limit = seconds(timeout, "--timeout")
    cluster = open_cluster(options)
    if delete:
        return _delete(cluster, name, limit)
    jobs = jobs_named(cluster, name)
    done = _cancel_run(cluster, name, jobs, undo) if is_run(jobs, name) else _cancel(cluster, jobs[0], undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


def _delete(cluster: Cluster, name: str, limit: float) -> int:
    """Delete a Job or a run, and wait for its pods."""
    from tarkit.k8s.cluster.deletion import left_after
    from tarkit.k8s.cluster.jobview import name_of, run_of, uid_of
    from tarkit.k8s.cluster.livelist import LiveList
    from tarkit.k8s.wellknown import RUN

    from ..runjobs import is_run, jobs_named

    try:
        jobs = jobs_named(cluster, name)
    except NoSuchObjectError:
        # A Job may be gone by itself (--ttl); its list stays.
        if _delete_lists(cluster, name):
            return EXIT_OK
        raise
    several = is_run(jobs, name)
    what = f"{name}: {_are(len(jobs))}" if several else f"{name} is"
    number = _each(jobs, lambda job: cluster.delete("jobs", name_of(job), uid_of(job), foreground=True))
    running = sum(map(_active, jobs))
    if running and limit:
        say(_PROGRAM, f"{name}: waiting until {counted(running, 'pod')} {'has' if running == 1 else 'have'} ended")
    selector = {"labels": f"{RUN}={name}"} if several else {"fields": f"metadata.name={name}"}
    live = LiveList(cluster, "jobs", **selector)
    left = left_after(cluster, jobs, live, watching(_PROGRAM, limit))
    if left:
        still = f"{counted(len(left), 'Job')} of {len(jobs)} are" if several else "it is"
        say(_PROGRAM, f"{name} is deleted, but {still} not gone, and pods may be at work: before you apply it again, "
                      f"wait until kubetpl cancel {name} --delete ends with 0 or 66")  # fmt: skip
        return EXIT_TEMPORARY
    with Results(only_messages=True) as results:
        if several:
            what = f"{name}: {_are(number)}"
        results.line(f"{what} deleted, with {'their' if several else 'its'} pods and their logs. The done records stay")
    for run in sorted({run_of(job) for job in jobs if LIST in (job["metadata"].get("annotations") or {})}):
        _delete_lists(cluster, run)
    return EXIT_OK


def _delete_lists(cluster: Cluster, run: str) -> bool:
    """Whether there were ConfigMaps with lists of the run's shards that no Job uses; they are deleted."""
    from tarkit.k8s.cluster.deletion import delete_lists, unused_lists
    from tarkit.k8s.names import label_value
    from tarkit.k8s.wellknown import MANAGED_BY, RUN

    if label_value(run):
        return False
    try:
        names = delete_lists(cluster, unused_lists(cluster, run))
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        say(_PROGRAM, f"the ConfigMap with its list of shards stays: {error}; "
                      f"kubectl delete configmaps -l {MANAGED_BY}=kubetpl,{RUN}={run}")  # fmt: skip
        return False
    with Results(only_messages=True) as results:
        for each in names:
            results.line(f"ConfigMap {each}, a list of shards, is deleted")
    return bool(names)


def _cancel(cluster: Cluster, job: dict[str, Any], undo: bool) -> str:
    """What was done to a Job."""
    from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of

    name, state = name_of(job), state_of(job)[0]
    if state in ENDED:
        return f"{name} has ended ({state}) already, nothing of it runs; --delete removes it with its pods"
    queue = _queue_of(job, undo)
    if queue is not None:
        raise UsageError(f"{name} is in the Kueue queue {queue}, which decides when it runs; --delete")
    cluster.patch("jobs", name, _changes(cluster, undo))
    if undo:
        return f"{name} goes on" if state == "suspended" else f"{name} was not suspended"
    active = _active(job)
    stopped = f"; its {active} pods are stopped" if active else ""
    return f"{name} is suspended{stopped}. To go on: kubetpl cancel {name} --undo; to do it otherwise: kubetpl retry"


def _cancel_run(cluster: Cluster, run: str, jobs: list[dict[str, Any]], undo: bool) -> str:
    """What was done to the Jobs of a run. If one cannot be suspended, none is."""
    from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of
    from tarkit.k8s.cluster.runstate import run_state

    states = [state_of(job)[0] for job in jobs]
    alive = [job for job, state in zip(jobs, states, strict=True) if state not in ENDED]
    ended = f"; {_have(len(jobs) - len(alive))} ended already" if len(alive) < len(jobs) else ""
    if not alive:
        return f"{run}: all {counted(len(jobs), 'Job')} of it have ended already; --delete removes them with their pods"
    queued = [queue for job in alive if (queue := _queue_of(job, undo)) is not None]
    if queued:
        raise UsageError(
            f"{run}: {_are(len(queued))} in the Kueue queue {queued[0]}, which decides when they run; --delete"
        )
    if undo:
        # A Job goes on beside its retry only if somebody names it.
        alive = [job for job in run_state(jobs).jobs if state_of(job)[0] == "suspended"]
    number = _each(alive, lambda job: cluster.patch("jobs", name_of(job), _changes(cluster, undo)))
    if undo:
        going = f"{counted(number, 'Job')} {'goes' if number == 1 else 'go'} on"
        return f"{run}: {going if number else 'no Job was suspended'}{ended}"
    active = sum(map(_active, alive))
    stopped = f"; {counted(active, 'pod')} {'is' if active == 1 else 'are'} stopped" if active else ""
    return f"{run}: {_are(number)} suspended{stopped}{ended}. To go on: kubetpl cancel {run} --undo"


def _each(jobs: list[dict[str, Any]], act: Callable[[dict[str, Any]], object]) -> int:
    """How many Jobs were there to act on; those that are gone meanwhile are not.

    Raises:
        ClusterError: as the cluster says, and with how many it was done before.
    """
    number = 0
    for job in jobs:
        try:
            act(job)
            number += 1
        except NoSuchObjectError:
            continue
        except ClusterError as error:
            said = f"{error}; done with {number} of {counted(len(jobs), 'Job')} before, the same again does the rest"
            raise type(error)(said, error.status) from None
    return number


def _changes(cluster: Cluster, undo: bool) -> dict[str, Any]:
    from tarkit.k8s.wellknown import CANCELLED

    who = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + (f" by {cluster.user}" if cluster.user else "")
    return {"spec": {"suspend": not undo}, "metadata": {"annotations": {CANCELLED: None if undo else who}}}


def _queue_of(job: dict[str, Any], undo: bool) -> str | None:
    """The Kueue queue that decides about a Job; None if there is none, or this is about what we did ourselves."""
    from tarkit.k8s.wellknown import CANCELLED, QUEUE

    metadata = job["metadata"]
    if undo and CANCELLED in (metadata.get("annotations") or {}):
        return None
    queue = (metadata.get("labels") or {}).get(QUEUE)
    return None if queue is None else str(queue)


def _active(job: dict[str, Any]) -> int:
    return int((job.get("status") or {}).get("active") or 0)


def _are(number: int) -> str:
    return f"{counted(number, 'Job')} {'is' if number == 1 else 'are'}"


def _have(number: int) -> str:
    return f"{number} {'has' if number == 1 else 'have'}"
