"""``kubetpl cancel``: stop a Job, or all Jobs of a run, for now or for good. What is done stays done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, ClusterError, NoSuchObjectError, UsageError

from .._clusteroptions import cluster_options, job_argument, open_cluster
from .._common import verbose_option, version_option
from .._results import Results, counted

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster

_EPILOG = """\b
Exit codes: 0 it is so now, or was; 2 it can not be; 66 no such Job; 75 the cluster can not be reached.
"""


@click.command("cancel", epilog=_EPILOG)
@job_argument
@click.option("--delete", is_flag=True, help="Delete the Job with its pods and their logs.")
@click.option("--undo", is_flag=True, help="Let a cancelled Job go on.")
@cluster_options
@verbose_option
@version_option
def command(name: str, delete: bool, undo: bool, **options: Any) -> int:
    """Suspend Job NAME: its pods are stopped, its finished indexes are kept. Done records stay in any case.

    NAME may be a run of kubetpl jobs, too: then all its Jobs.
    """
    from .._runjobs import is_run, jobs_named

    if delete and undo:
        raise UsageError("--undo is for what was not deleted; give one of both")
    cluster = open_cluster(options)
    jobs = jobs_named(cluster, name)
    if is_run(jobs, name):
        done = _cancel_run(cluster, name, jobs, delete, undo)
    else:
        done = _cancel(cluster, jobs[0], delete, undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


def _cancel(cluster: Cluster, job: dict[str, Any], delete: bool, undo: bool) -> str:
    """What was done to a Job."""
    from tarkit.k8s.cluster.jobview import ENDED, name_of, state_of

    name, state = name_of(job), state_of(job)[0]
    if delete:
        cluster.delete("jobs", name)
        return f"{name} is deleted; its pods and their logs follow. The done records stay"
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


def _cancel_run(cluster: Cluster, run: str, jobs: list[dict[str, Any]], delete: bool, undo: bool) -> str:
    """What was done to the Jobs of a run. If one can not be suspended, none is."""
    from tarkit.k8s.cluster.jobview import ENDED, state_of
    from tarkit.k8s.cluster.jobwatch import run_state

    states = [state_of(job)[0] for job in jobs]
    if delete:
        number = _each(jobs, lambda name: cluster.delete("jobs", name))
        return f"{run}: {_are(number)} deleted; their pods and logs follow. The done records stay"
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
    number = _each(alive, lambda name: cluster.patch("jobs", name, _changes(cluster, undo)))
    if undo:
        going = f"{counted(number, 'Job')} {'goes' if number == 1 else 'go'} on"
        return f"{run}: {going if number else 'no Job was suspended'}{ended}"
    active = sum(map(_active, alive))
    stopped = f"; {counted(active, 'pod')} {'is' if active == 1 else 'are'} stopped" if active else ""
    return f"{run}: {_are(number)} suspended{stopped}{ended}. To go on: kubetpl cancel {run} --undo"


def _each(jobs: list[dict[str, Any]], act: Callable[[str], object]) -> int:
    """How many Jobs were there to act on; those that are gone meanwhile are not.

    Raises:
        ClusterError: as the cluster says, and with how many it was done before.
    """
    from tarkit.k8s.cluster.jobview import name_of

    number = 0
    for job in jobs:
        try:
            act(name_of(job))
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
