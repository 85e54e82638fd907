"""Select the pods of a Job whose logs are wanted.

Also report which pods were deleted, why, and what the done records say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobstatus import pod_selectors
from tarkit.k8s.cluster.jobview import job_plan
from tarkit.k8s.cluster.runrecords import RecordSource, is_per_shard, run_shards
from tarkit.names.outputnames import done_record_url, output_name
from tarkit.names.url import display_name
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import read_record
from tarkit.specs.inputslice import plan_slice

_MOST_SHARDS = 20
_DELETED = "were deleted: by hand, with their node, or since the cluster keeps only so many that have ended"


def pods_with_logs(cluster: Cluster, job: Object, indexes: Collection[int] | None, *, failed: bool) -> list[Object]:
    """List the pods of a Job whose logs are wanted, as :func:`chosen_pods` selects them."""
    pods = cluster.list("pods", **pod_selectors([job], indexes, succeeded=not failed))
    # Pods that succeeded are not in the list; an index that one of them has completed is known from
    # the Job.
    done = api.indexes_of(job, "completedIndexes") if failed else set()
    return chosen_pods([pod for pod in pods if api.index_of(pod) not in done], indexes=indexes, failed=failed)


def chosen_pods(pods: Iterable[Object], *, indexes: Collection[int] | None, failed: bool) -> list[Object]:
    """Return the last pod of each index, in order of the indexes, and all pods without an index.

    Args:
        indexes: only pods of these indexes.
        failed: only pods that failed, and no pod of an index that succeeded later.
    """
    last: dict[Any, Object] = {}
    for pod in sorted(pods, key=lambda pod: (api.created(pod), api.name_of(pod))):
        index = api.index_of(pod)
        if indexes is None or index in indexes:
            last[api.name_of(pod) if index is None else index] = pod
    found = [pod for pod in last.values() if not failed or api.phase_of(pod) == "Failed"]
    return sorted(found, key=lambda pod: (api.index_of(pod) is None, api.index_of(pod) or 0, api.name_of(pod)))


def has_pods(cluster: Cluster, job: Object) -> bool:
    """Return True if any pod of the Job exists, ended or not."""
    return bool(cluster.list("pods", **pod_selectors([job], succeeded=True)))


def why_gone(job: Object, indexes: Collection[int] = ()) -> str:
    """Explain why a Job, or some of its indexes, has no pods."""
    status, failed = api.status_of(job), api.condition_of(job, "Failed")
    if api.is_true(job, "Suspended") or api.spec_of(job).get("suspend"):
        return "it is suspended, and its pods are deleted for that"
    ended = api.indexes_of(job, "completedIndexes") | api.indexes_of(job, "failedIndexes")
    if indexes and ended.issuperset(indexes):
        return f"they have ended, and {_DELETED}"
    if failed is not None and failed.get("status") == "True":
        reason = printable(str(failed.get("reason")))
        time = ", as it ran out of its time (--deadline)" if reason == "DeadlineExceeded" else ""
        return f"it has failed ({reason}){time}, and the pods that ran then were deleted"
    if not any(status.get(each) for each in ("active", "succeeded", "failed", "terminating")):
        return "none was made yet"
    return f"they {_DELETED}"


def index_of_shard(cluster: Cluster, job: Object, shard: str) -> int:
    """Return the index of the Job that processes a shard.

    Args:
        shard: its URL, or its name alone.

    Raises:
        UsageError: the Job does not have the shard, or it is not known which shards it has.
    """
    plan, name = job_plan(job), output_name(shard)
    if not is_per_shard(job) or not plan.outdir:
        raise UsageError(f"--shard: Job {api.name_of(job)} does not run tarproc over slices; use --index")
    names = list(run_shards(plan, RecordSource().specs_of(cluster, job), plan.outdir, own=True))
    if name not in names:
        raise UsageError(f"--shard {printable(display_name(shard))}: Job {api.name_of(job)} has no such shard")
    slices = int(api.spec_of(job)["completions"])
    # That of even slices; of a list that was cut by bytes, any other.
    likely = -(-(names.index(name) + 1) * slices // len(names)) - 1
    found: int
    for found in [likely, *range(slices)]:
        if name in (output_name(url) for url, _ in _shards_of(cluster, job, found)):
            return found
    raise UsageError(f"--shard {printable(display_name(shard))}: no index of Job {api.name_of(job)} has it")


def record_lines(cluster: Cluster, job: Object, index: int, shard: str | None) -> Iterator[str]:
    """Return the done records' lines about an index's shards, or about one shard.

    The list is empty if the place of the records is not known from the Job.
    """
    shards = _shards_of(cluster, job, index)
    chosen = [pair for pair in shards if shard is None or output_name(pair[0]) == output_name(shard)]
    for url, output in chosen[:_MOST_SHARDS]:
        record, name = read_record(done_record_url(output)), output_name(url)
        if record is not None and record.state == "done":
            yield f"{name}: done; {Counts.of(record)}"
        else:
            yield f"{name}: " + ("no done record" if record is None else f"failed: {printable(record.error or '')}")
    if len(chosen) > _MOST_SHARDS:
        yield f"… and {len(chosen) - _MOST_SHARDS} more shards"


def _shards_of(cluster: Cluster, job: Object, index: int) -> list[tuple[str, str]]:
    """List (input, output) of each shard of an index."""
    plan = job_plan(job)
    if not is_per_shard(job) or not plan.outdir:
        return []
    specs, slices = RecordSource().specs_of(cluster, job), int(api.spec_of(job)["completions"])
    return plan_slice(specs, plan.outdir, index, slices, list_sha256=plan.list_sha256)[0]
