"""``kubetpl cancel``: stop a Job, or all Jobs of a run, until ``--undo``.

Completed work is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import EXIT_OK, ClusterError, ClusterUnreachableError, NoSuchObjectError, UsageError, counted
from tarkit.k8s.apiobject import Object, active_pods, labels_of, name_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import find_jobs, run_state
from tarkit.k8s.wellknown import JOBSET_NAME, QUEUE

from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster

_EPILOG = """\b
To delete a Job or a run with all that was printed with it, once its pods have ended:
  kubectl delete job,configmap,service,networkpolicy -l tarkit.dev/run=NAME --cascade=foreground

\b
Exit codes: 0 it is so now, or was; 2 it cannot be; 66 no such Job; 75 the cluster cannot be reached.
"""


@click.command("cancel", epilog=_EPILOG)
@job_argument
@click.option("--undo", is_flag=True, help="Resume a cancelled Job.")
@cluster_options
def command(name: str, undo: bool, verbose: bool, **access: Any) -> int:
    """Suspend Job NAME: stop its pods, and keep its finished indexes and all done records.

    NAME may also be a run of kubetpl jobs: then all its Jobs are suspended.
    """
    cluster = open_cluster(**access)
    done = suspend_jobs(cluster, name, find_jobs(cluster, name), undo=undo)
    with Results(only_messages=True) as results:
        results.line(done)
    return EXIT_OK


def suspend_jobs(cluster: Cluster, name: str, jobs: Sequence[Object], *, undo: bool) -> str:
    """Suspend the Jobs that have not ended, or resume suspended ones; return a summary.

    Args:
        name: name of the Job or of the run. If a queue manages one of the Jobs, none is suspended.
    """
    alive = [job for job in jobs if not has_ended(job)]
    if not alive:
        states = ", ".join(sorted({state_of(job) for job in jobs}))
        return f"{name} has ended already ({states})"
    queued = [job for job in alive if QUEUE in labels_of(job)]
    if queued:
        raise UsageError(
            f"{name}: {counted(len(queued), 'Job is', 'Jobs are')} in the Kueue queue {labels_of(queued[0])[QUEUE]}, "
            f"which decides when to run; kubectl delete job {name_of(queued[0])} ends one"
        )
    of_set = next((job for job in alive if labels_of(job).get(JOBSET_NAME)), None)
    if of_set is not None:
        jobset = labels_of(of_set)[JOBSET_NAME]
        raise UsageError(
            f"{name_of(of_set)} is of a JobSet, which decides when to run it; kubectl patch jobset {jobset} "
            f'--type merge -p \'{{"spec":{{"suspend":{json.dumps(not undo)}}}}}\' does it for all its Jobs'
        )
    # A Job goes on beside its retry only if the user names it.
    chosen = [job for job in run_state(jobs).jobs if state_of(job) == "suspended"] if undo else alive
    number = _suspend(cluster, chosen, not undo)
    over = f"; {len(jobs) - len(alive)} of {len(jobs)} had ended" if len(alive) < len(jobs) else ""
    if undo:
        return f"{name}: {counted(number, 'Job goes', 'Jobs go')} on{over}"
    stopped = counted(sum(map(active_pods, alive)), "pod is", "pods are")
    is_suspended = f"{counted(number, 'Job is', 'Jobs are')} suspended; {stopped} stopped{over}"
    return f"{name}: {is_suspended}. To go on: kubetpl cancel {name} --undo"


def _suspend(cluster: Cluster, jobs: Sequence[Object], suspend: bool) -> int:
    """Suspend or resume Jobs, and return how many of them still existed.

    If a request fails, the error has the number of Jobs that were changed before.
    """
    number = 0
    for job in jobs:
        try:
            cluster.patch("jobs", name_of(job), {"spec": {"suspend": suspend}})
            number += 1
        except NoSuchObjectError:
            continue
        except (ClusterError, ClusterUnreachableError) as error:
            text = f"{error}; done with {number} of {counted(len(jobs), 'Job')} before, the same again does the rest"
            raise type(error)(text, error.status) from None
    return number
