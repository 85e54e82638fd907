"""The done records of a Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.runplan import RunRecords


def read_records(
    cluster: Cluster | None,
    job: dict[str, Any],
    options: Mapping[str, Any],
    documents: Sequence[dict[str, Any]] = (),
) -> RunRecords | None:
    """The done records of a Job, by the options of ``record_options``; None if it is not said where they are.

    None also of a Job that runs a command of its own, if that keeps no records.

    Raises:
        As ``runplan.read_run``.
    """
    from tarkit.k8s.cluster.retry import is_per_shard
    from tarkit.k8s.cluster.runplan import read_run
    from tarkit.k8s.tarprocwork import expected_fingerprint

    work = expected_fingerprint(job)
    found = read_run(cluster, job, documents, options["outdir"], options["specs"], options["check_inputs"], work)
    if found is None or "spec" not in job:
        return found
    if is_per_shard(job):
        found.any_command = work is None
        return found
    return found if found.found.done or found.found.stale or found.found.failed else None
