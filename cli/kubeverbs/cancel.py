"""``kubetpl cancel``: stop a Job, for now or for good. What is done stays done."""

from __future__ import annotations

import time
from typing import Any

import click

from tarkit.errors import EXIT_OK, UsageError

from .._clusteroptions import cluster_options, open_cluster
from .._common import verbose_option, version_option
from .._results import Results

_EPILOG = """\b
Exit codes: 0 it is so now, or was; 2 it can not be; 66 no such Job; 75 the cluster can not be reached.
"""


@click.command("cancel", epilog=_EPILOG)
@click.argument("name")
@click.option("--delete", is_flag=True, help="Delete the Job with its pods and their logs.")
@click.option("--undo", is_flag=True, help="Let a cancelled Job go on.")
@cluster_options
@verbose_option
@version_option
def command(name: str, delete: bool, undo: bool, **options: Any) -> int:
    """Suspend Job NAME: its pods are stopped, its finished indexes are kept. Done records stay in any case."""
    from tarkit.k8s.cluster.jobview import ENDED, state_of
    from tarkit.k8s.wellknown import CANCELLED, QUEUE

    if delete and undo:
        raise UsageError("--undo is for what was not deleted; give one of both")
    cluster = open_cluster(options)
    job = cluster.get("jobs", name)
    state = state_of(job)[0]
    metadata = job["metadata"]
    if delete:
        cluster.delete("jobs", name)
        done = f"{name} is deleted; its pods and their logs follow. The done records stay"
    elif state in ENDED:
        done = f"{name} has ended ({state}) already, nothing of it runs; --delete removes it with its pods"
    elif QUEUE in (metadata.get("labels") or {}) and not (undo and CANCELLED in (metadata.get("annotations") or {})):
        raise UsageError(
            f"{name} is in the Kueue queue {metadata['labels'][QUEUE]}, which decides when it runs; --delete"
        )
    elif undo:
        cluster.patch("jobs", name, {"spec": {"suspend": False}, "metadata": {"annotations": {CANCELLED: None}}})
        done = f"{name} goes on" if state == "suspended" else f"{name} was not suspended"
    else:
        who = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) + (f" by {cluster.user}" if cluster.user else "")
        cluster.patch("jobs", name, {"spec": {"suspend": True}, "metadata": {"annotations": {CANCELLED: who}}})
        active = int((job.get("status") or {}).get("active") or 0)
        stopped = f"; its {active} pods are stopped" if active else ""
        done = (
            f"{name} is suspended{stopped}. To go on: kubetpl cancel {name} --undo; to do it otherwise: kubetpl retry"
        )
    with Results() as results:
        results.line(done)
    return EXIT_OK
