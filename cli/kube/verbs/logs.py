"""``kubetpl logs``: print pods' logs, and what is known of shards whose pods were deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import click

from tarkit.errors import EXIT_OK, ClusterError, MissingInputError, NoSuchObjectError, TarkitError, UsageError
from tarkit.k8s.apiobject import Object, index_of, indexes_of, name_of, spec_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.failures import deciding_container
from tarkit.k8s.cluster.joblogs import has_pods, index_of_shard, pods_with_logs, record_lines, why_gone
from tarkit.k8s.cluster.jobview import state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, not_one
from tarkit.k8s.indexset import format_indexes, parse_indexes

from ...shared.program import say
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster

_MOST_PODS = 100
_EPILOG = """\b
Examples:
  kubetpl logs grey --failed --tail 20
  kubetpl logs grey --index 3,7-9 | grep Error
  kubetpl logs grey --shard raw-000017.tar

\b
Exit codes: 0 something was shown; 2 options that do not go together, or more pods than can be shown;
66 no such Job or index, or nothing to show; 75 the cluster cannot be reached.
"""
_say = partial(say, "kubetpl logs")


@click.command("logs", epilog=_EPILOG)
@job_argument
@click.option(
    "--failed",
    is_flag=True,
    help="Show only indexes whose last pod failed; the default for a failed Job without --index and --shard.",
)
@click.option("--index", "indexes", metavar="SET", help="Show only these indexes: 3,7-9.")
@click.option("--shard", metavar="URL", help="Show only the index that processes this shard: a URL, or its name.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Show the last N lines of each log.")
@click.option("--container", metavar="NAME", help="[default: main, or the pod's first]")
@cluster_options
def command(
    name: str, failed: bool, indexes: str | None, shard: str | None, tail: int | None, container: str | None,
    verbose: bool, **access: Any,
) -> int:  # fmt: skip
    """Print the log of the last pod of each index of Job NAME; each line begins with [INDEX].

    For indexes whose pods are gone, it prints the reason and the done records of their shards. To
    follow one pod, use kubectl logs -f.
    """
    if indexes is not None and shard is not None:
        raise UsageError("--shard and --index both say which index; leave one out")
    wanted = None if indexes is None else set(parse_indexes(indexes))
    cluster = open_cluster(**access)
    jobs = find_jobs(cluster, name)
    if is_run(jobs, name):
        raise not_one(name, jobs, "and logs are those of one")
    job = jobs[0]
    if shard is not None:
        wanted = {index_of_shard(cluster, job, shard)}
    if wanted is not None:
        _refuse_absent(job, wanted)
    failed = failed or (wanted is None and state_of(job) == "failed")
    pods = pods_with_logs(cluster, job, wanted, failed=failed)
    if wanted is None and not failed and len(pods) > _MOST_PODS:
        raise UsageError(f"{name} has {len(pods)} pods; say which: --failed or --index SET")
    # Indexes that were asked for, or have failed, and have no pod any more.
    lost = (wanted or (indexes_of(job, "failedIndexes") if failed else set())) - set(map(index_of, pods))
    lost -= indexes_of(job, "completedIndexes") if failed else set()
    shown = 0
    with Results() as results:
        for line in _log_lines(cluster, pods, container, tail, lost):
            results.line(line)
            shown += 1
        if lost:
            what = "index" if len(lost) == 1 else "indexes"
            _say(f"{name} has no pods of {what} {format_indexes(lost)}, and no logs: {why_gone(job, lost)}")
        try:
            for index in sorted(lost):
                for line in record_lines(cluster, job, index, shard):
                    results.line(f"[{index}] {line}")
                    shown += 1
        except TarkitError as error:
            _say(f"done records cannot be read: {error}")
    if not shown:
        of = "" if wanted is None else f" of index {format_indexes(wanted)}"
        which = "failed " if failed else ""
        none = f"its {which}pods{of} have written nothing" if pods else f"there are no {which}pods{of}"
        none += f": {why_gone(job)}" if not pods and not lost and not has_pods(cluster, job) else ""
        raise MissingInputError(f"{name}: {none}")
    return EXIT_OK


def _refuse_absent(job: Object, wanted: set[int]) -> None:
    """Refuse indexes that the Job never had."""
    if not wanted:
        raise UsageError("--index must not be empty; write for example 3,7-9")
    if spec_of(job).get("completionMode") != "Indexed":
        raise MissingInputError(f"Job {name_of(job)} has no indexes: it is not an Indexed Job; leave out --index")
    number, absent = int(spec_of(job).get("completions") or 0), max(wanted)
    if absent >= number:
        raise MissingInputError(f"Job {name_of(job)} has the indexes 0 to {number - 1}; no index {absent}")


def _log_lines(
    cluster: Cluster, pods: Collection[Object], container: str | None, tail: int | None, lost: set[int]
) -> Iterator[str]:
    """Yield the log lines of pods.

    Args:
        lost: the indexes of pods that were deleted meanwhile are added to it.
    """
    for pod in pods:
        index = index_of(pod)
        label = name_of(pod) if index is None else str(index)
        prefix = f"[{label}] " if len(pods) > 1 or index is not None else ""
        try:
            # For a pod with several containers, a server needs the name of one.
            chosen = container or deciding_container(pod).get("name")
            for line in cluster.log(name_of(pod), container=chosen, tail=tail):
                yield prefix + line.decode("utf-8", "replace").rstrip("\r")
        except NoSuchObjectError:
            lost.update(() if index is None else (index,))
        except ClusterError as error:
            if error.status == 403:
                raise
            _say(f"{label}: {error}")
