"""What a Job's tarproc does to samples, as its done records name it; and those records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import TarkitError

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.runplan import RunRecords


def read_records(
    cluster: Cluster | None,
    job: Mapping[str, Any],
    options: Mapping[str, Any],
    documents: Sequence[Mapping[str, Any]] = (),
) -> RunRecords | None:
    """The done records of a Job, by the options of ``record_options``; None if it is not said where they are.

    None also of a Job that runs a command of its own, if that keeps no records.

    Raises:
        As ``jobstatus.read_run``.
    """
    from tarkit.k8s.cluster.jobstatus import read_run
    from tarkit.k8s.cluster.retry import is_per_shard

    work = expected_work(job)
    found = read_run(cluster, job, documents, options["outdir"], options["specs"], options["check_inputs"], work)
    if found is None or "spec" not in job:
        return found
    if is_per_shard(job):
        found.any_command = work is None
        return found
    return found if found.found.done or found.found.stale or found.found.failed else None


def expected_work(job: Mapping[str, Any]) -> str | None:
    """The fingerprint that the done records of a Job have; None if it cannot be told from the manifest alone.

    A record with another one is of another command over the same shards, so it is not this Job's.
    """
    from tarkit.k8s.cluster.failures import main_container
    from tarkit.k8s.expansion import expand

    from ..run.outdir import work_of
    from ..tarproc import tarproc

    template = (job.get("spec") or {}).get("template") or {}
    container = main_container(template)
    if container.get("command") != ["tarproc"]:
        return None
    env = {str(each.get("name")): each.get("value") for each in container.get("env") or []}
    # Of this machine's environment pods know nothing.
    epoch = str(env.get("SOURCE_DATE_EPOCH", "0"))
    arguments = [expand(str(each), {"TARKIT_CPUS": "1"}) for each in container.get("args") or []]
    try:
        with tarproc.make_context("tarproc", arguments, obj=[False]) as context:
            options = context.params
        if options["script"] or any(
            (options[name] or "").rpartition(":")[0].endswith(".py") for name in ("mapper", "setup")
        ):
            # Their content counts, and is in the container.
            return None
        if options["mtime"] is None:
            if not (epoch.isascii() and epoch.isdigit()):
                return None
            options["mtime"] = int(epoch)
        return work_of(options)
    except (click.ClickException, click.exceptions.Exit, TarkitError):
        return None
