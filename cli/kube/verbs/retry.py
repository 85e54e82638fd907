"""``kubetpl retry``: print a Job for the shards that another Job left undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from tarkit.errors import EXIT_OK, ClusterDeniedError, ClusterUnreachableError, NoSuchObjectError, UsageError, counted
from tarkit.extras import MissingExtraError
from tarkit.k8s.apiobject import Object, name_of, stage_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.retryjob import Changes, refuse_orphans, refuse_running, retry_documents, with_list
from tarkit.k8s.cluster.runjobs import failed_of, find_jobs, is_run
from tarkit.k8s.cluster.runrecords import RecordSource, RunRecords, is_per_shard
from tarkit.k8s.cluster.stagejobs import refuse_set_retry
from tarkit.k8s.cluster.trainjobs import refuse_retry
from tarkit.k8s.generate import thousandths_in
from tarkit.k8s.indexset import INDEXES
from tarkit.k8s.yamltext import dump_documents

from ...shared.program import say, write_stdout
from ..clusteroptions import (
    cluster_options,
    job_argument,
    manifest_option,
    not_empty,
    open_cluster,
    record_options,
    record_source,
)

_say = partial(say, "kubetpl retry")
_EPILOG = """\b
Examples:
  kubetpl retry grey --memory 8Gi | kubectl apply -f -
  kubetpl retry grey --failed | kubectl apply -f -
  kubetpl retry grey -f grey.yaml | kubectl apply -f -     # in a different cluster
  kubetpl retry job | kubectl apply -f -    # of kubetpl jobs -n 'job{i}', those that failed

\b
Exit codes: 0 printed, or nothing is left; 2 the Job still runs, or these options do not fit it;
66 no such Job; 75 the cluster cannot be reached, and there is no -f MANIFEST.
"""


@click.command("retry", epilog=_EPILOG)
@job_argument
@click.option("--failed", is_flag=True, help="Include only shards that failed.  [default: all that are not done]")
@click.option(
    "-n",
    "--name",
    "new_name",
    metavar="NAME",
    callback=not_empty,
    help="Name of the new Job.  [default: NAME-r2, -r3, …]",
)
@click.option("-M", "--memory", metavar="QUANTITY", help="Memory of each pod, such as 8Gi.")
@click.option("-C", "--cpu", metavar="QUANTITY", help="CPUs of each pod.")
@click.option("-I", "--image", metavar="IMAGE", help="Image of each pod.")
@click.option("-j", "--parallelism", type=click.IntRange(1), metavar="P", help="Number of pods that run at once.")
@click.option(
    "--slices", type=click.IntRange(1, INDEXES), metavar="W", help="Number of pods in all, at most one for each shard."
)
@click.option("--list-url", metavar="URL", help="URL to write the list of shards to, instead of a ConfigMap.")
@manifest_option
@record_options
@cluster_options
def command(
    name: str, new_name: str | None, failed: bool, verbose: bool, kubeconfig: str | None,
    context: str | None, namespace: str | None, manifest: str | None, outdir: str | None, specs: tuple[str, ...],
    check_inputs: bool, **changed: Any,
) -> int:  # fmt: skip
    """Print the manifest of a Job for the shards that Job NAME has left undone; pipe it to kubectl.

    NAME may also be a run of kubetpl jobs: then it prints a Job for each of them that has failed.
    The done records say which shards are done. A Job that does not run tarproc (--raw) has none: it
    is printed whole, under the new name.
    """
    source, changes = record_source(outdir, specs, check_inputs, manifest), Changes(new_name, **changed)
    opened = partial(open_cluster, kubeconfig, context, namespace)
    cluster, jobs, taken = _jobs(name, source, opened, new_name)
    whole = [name_of(job) for job in jobs if not is_per_shard(job)]
    if whole:
        these = f"Job {whole[0]} does" if len(whole) == 1 else f"the Jobs {', '.join(whole)} do"
        stages = [name_of(job) for job in jobs if stage_of(job)]
        if failed or changes.slices or changes.list_url:
            raise UsageError(f"{these} not run tarproc over slices, so only a retry as a whole can be had")
        all_of = "it" if len(whole) == 1 else "each"
        if whole == stages:
            _say(f"{', '.join(whole)}: all slices are in the retry; those that are done end at once")
        else:
            _say(f"{these} not run tarproc over slices, so which shards are left is not known: all of {all_of}")
    made: list[Object] = []
    for job in jobs:
        urls = _left(source.read(cluster, job), failed) if is_per_shard(job) else None
        if urls or urls is None:
            made += retry_documents(job, urls, changes if urls is None else with_list(changes, job, urls), taken)
            taken.add(name_of(made[-1]))
    for warning in thousandths_in(memory=changes.memory) if made else ():
        _say(warning)
    write_stdout(dump_documents(made).encode("utf-8"))
    return EXIT_OK


def _jobs(
    name: str, source: RecordSource, opened: Callable[[], Cluster], new_name: str | None
) -> tuple[Cluster | None, list[Object], set[str]]:
    """Return the cluster if it answers, the Jobs to retry (from it or -f), and the names in use.

    A Job that was deleted is read from -f, and so is one with the name of a run. For a run, the
    Jobs are those that have failed.
    """
    given = source.job(name)
    try:
        cluster = opened()
        try:
            jobs = find_jobs(cluster, name)
        except NoSuchObjectError as error:
            if given is None:
                raise NoSuchObjectError(f"{error}; -f MANIFEST is what it was made from", 404) from None
            jobs = [given]
        refuse_retry(jobs)
        refuse_set_retry(jobs)
        if is_run(jobs, name):
            if given is None:
                source.refuse_many()
            jobs = failed_of(jobs, name) if given is None else [given]
        if new_name and len(jobs) > 1:
            raise UsageError(f"-n {new_name} is a name for one Job; {len(jobs)} of {name} have failed")
        known = {name_of(job): job for job in cluster.list("jobs")}
    except (ClusterUnreachableError, ClusterDeniedError, UsageError, MissingExtraError) as error:
        if given is None:
            raise
        _say(f"{error}; taken from the manifest, and whether it still runs is not known")
        return None, [given], set()
    for job in jobs:
        refuse_running(name_of(job), known, _say)
    refuse_orphans(cluster, name_of(jobs[0]) if len(jobs) == 1 else name, _say)
    return cluster, jobs, set(known)


def _left(records: RunRecords | None, failed: bool) -> list[str]:
    """Return the URLs of the shards for the retry, in order; print the reason if there are none."""
    if records is None:
        raise UsageError("the Job does not say where its done records are; name the folder: -O OUT")
    if records.shards is None:
        raise UsageError("the Job does not say what its inputs were; name them: --shards SPEC")
    found = records.found
    wanted = set(found.failed) if failed else {*found.missing, *found.stale, *found.failed}
    urls = [url for name, url in records.shards.items() if name in wanted]
    done = f"{len(found.done)} of {counted(len(records.shards), 'shard')} done"
    if urls:
        _say(f"{done}; {counted(len(urls), 'shard')} to retry")
    else:
        aside = sum(found.set_aside.values())
        more = f"; {counted(aside, 'sample')} set aside: tarproc --retry-failed" if aside else ""
        _say(f"nothing to retry: {done}, none {'failed' if failed else 'left'}{more}")
    return urls
