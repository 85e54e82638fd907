"""``kubetpl retry``: the manifest of a Job that does what another one left undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import (
    EXIT_OK,
    EXIT_USAGE,
    ClusterDeniedError,
    ClusterError,
    ClusterUnreachableError,
    MissingExtraError,
    NoSuchObjectError,
    UsageError,
)
from tarkit.k8s.limits import INDEXES

from ...shared.program import say, verbose_option, version_option, write_stdout
from ...shared.results import Results, counted
from ..clusteroptions import (
    cluster_options,
    job_argument,
    job_in,
    manifest_option,
    not_empty,
    open_cluster,
    read_manifest,
    record_options,
)
from ..jobwork import read_records
from ..retryguards import refuse_orphans, refuse_running, settled

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.retry import Changes
    from tarkit.k8s.cluster.runplan import RunRecords

_PROGRAM = "kubetpl retry"
_EPILOG = """\b
Examples:
  kubetpl retry grey --memory 8Gi | kubectl apply -f -
  kubetpl retry grey --failed --on-demand --apply
  kubetpl retry grey -f grey.yaml | kubectl apply -f -     # the cluster is another one
  kubetpl retry job --apply                 # of kubetpl jobs -n 'job{i}', those that failed

\b
Exit codes: 0 printed, created, or nothing is left; 2 the Job still runs, or cannot be retried so;
66 no such Job; 75 the cluster cannot be reached, and there is no -f MANIFEST.
"""


@click.command("retry", epilog=_EPILOG)
@job_argument
@click.option("--failed", is_flag=True, help="Only shards that failed.  [default: all that are not done]")
@click.option("--missing", is_flag=True, help="Only shards that were not begun, or cut short.")
@click.option(
    "-n", "--name", "new_name", metavar="NAME", callback=not_empty, help="Of the new Job.  [default: NAME-r2, -r3, …]"
)
@click.option("-M", "--memory", metavar="QUANTITY", help="Memory of each pod, such as 8Gi.")
@click.option("-C", "--cpu", metavar="QUANTITY", help="CPUs of each pod.")
@click.option("-I", "--image", metavar="IMAGE", help="Image of each pod.")
@click.option("--on-demand", is_flag=True, help="Not on spot nodes.")
@click.option("-j", "--parallelism", type=click.IntRange(1), metavar="P", help="Pods at once.")
@click.option("--slices", type=click.IntRange(1, INDEXES), metavar="W", help="Pods in all; one a shard is the most.")
@click.option("--list-url", metavar="URL", help="Write the list of shards there, not into a ConfigMap.")
@click.option("--apply", "create", is_flag=True, help="Create it in the cluster, rather than print it.")
@manifest_option
@record_options
@cluster_options
@verbose_option
@version_option
def command(name: str, create: bool, **options: Any) -> int:
    """Print the manifest of a Job for the shards that Job NAME has left undone; pipe it to kubectl.

    NAME may be a run of kubetpl jobs, too: one is printed for each of its Jobs that has failed. What is
    done is read from the done records. Of a Job that does not run tarproc (--raw) it is not known what is
    left: it is printed whole, under the new name.
    """
    from tarkit.k8s.cluster.retry import Changes, is_per_shard, retry_documents
    from tarkit.k8s.lint.rules import ERROR, lint

    documents = read_manifest(options["manifest"])
    cluster, jobs, taken = _source(name, documents, options, create)
    wanted = Changes(
        options["new_name"], options["memory"], options["cpu"], options["image"], options["on_demand"],
        options["parallelism"], options["slices"], options["list_url"],
    )  # fmt: skip
    whole = [str(job["metadata"]["name"]) for job in jobs if not is_per_shard(job)]
    if whole:
        _say_whole(whole, options)
    made: list[dict[str, Any]] = []
    for job in jobs:
        urls, changes = None, wanted
        if is_per_shard(job):
            urls = _left(cluster, job, documents, options)
            if not urls:
                continue
            changes = _with_list(wanted, job, urls)
        made += retry_documents(job, urls, changes, taken)
        taken.add(str(made[-1]["metadata"]["name"]))
    refused = [finding for finding in lint(made) if finding.severity == ERROR]
    for finding in refused:
        say(_PROGRAM, f"error: {finding}")
    if refused:
        return EXIT_USAGE
    _deliver(cluster if create else None, made)
    return EXIT_OK


def _say_whole(names: Sequence[str], options: dict[str, Any]) -> None:
    """Of Jobs that do not say what is left of them."""
    these = f"Job {names[0]} does" if len(names) == 1 else f"the Jobs {', '.join(names)} do"
    if options["failed"] or options["missing"] or options["slices"] or options["list_url"]:
        raise UsageError(f"{these} not run tarproc over slices (--raw?), so only a retry as a whole can be had")
    all_of = "it" if len(names) == 1 else "each"
    say(_PROGRAM, f"{these} not run tarproc over slices, so which shards are left is not known: all of {all_of}")


def _source(
    name: str, documents: list[dict[str, Any]], options: dict[str, Any], create: bool
) -> tuple[Cluster | None, list[dict[str, Any]], set[str]]:
    """The cluster if it answers, the Jobs to be retried from it or from -f, and the names that are taken."""
    given = job_in(documents, name)
    try:
        cluster = open_cluster(options)
        jobs = _in_cluster(cluster, name, given, options)
        known = {str(job["metadata"]["name"]): job for job in cluster.list("jobs")}
    except (ClusterUnreachableError, ClusterDeniedError, UsageError, MissingExtraError) as error:
        if given is None or create:
            raise
        say(_PROGRAM, f"{error}; taken from the manifest, and whether it still runs is not known")
        return None, [given], set()
    for each in (str(job["metadata"]["name"]) for job in jobs):
        refuse_running(each, known.get(each), known, _PROGRAM)
    if len(jobs) == 1:
        refuse_orphans(cluster, str(jobs[0]["metadata"]["name"]), known)
    return cluster, jobs, set(known)


def _in_cluster(
    cluster: Cluster, name: str, given: dict[str, Any] | None, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """The Job of a name; if it is gone, what it was made from; if it is a run, its Jobs that have failed."""
    from ..runjobs import failed_of, is_run, jobs_named, refuse_for_many

    try:
        jobs = jobs_named(cluster, name)
    except NoSuchObjectError as error:
        if given is None:
            raise NoSuchObjectError(f"{error}; -f MANIFEST is what it was made from", 404) from None
        return [given]
    if is_run(jobs, name):
        if given is not None:
            return [given]
        refuse_for_many(options)
        jobs = failed_of(jobs, name)
        if options["new_name"] and len(jobs) > 1:
            raise UsageError(f"-n {options['new_name']} is a name for one Job; {len(jobs)} of {name} have failed")
    return [settled(cluster, job, _PROGRAM) for job in jobs]


def _left(
    cluster: Cluster | None, job: dict[str, Any], documents: Sequence[dict[str, Any]], options: dict[str, Any]
) -> list[str]:
    """URLs of the shards that the retry makes, in their order. None left: said."""
    records = read_records(cluster, job, options, documents)
    if records is None:
        raise UsageError("the Job does not say where its done records are; name the folder: -O OUT")
    if records.shards is None:
        raise UsageError("the Job does not say what its inputs were; name them: --shards SPEC")
    wanted = _wanted(records, failed=options["failed"], missing=options["missing"])
    urls = [url for url, each in zip(records.shards.urls, records.shards.names, strict=True) if each in wanted]
    done, total = len(records.found.done), len(records.shards.names)
    if urls:
        say(_PROGRAM, f"{done} of {counted(total, 'shard')} done; {counted(len(urls), 'shard')} to retry")
    else:
        which = "failed" if options["failed"] else "missing" if options["missing"] else "left"
        aside = sum(records.found.set_aside.values())
        more = f"; {counted(aside, 'sample')} set aside: tarproc --retry-failed" if aside else ""
        say(_PROGRAM, f"nothing to retry: {done} of {counted(total, 'shard')} done, none {which}{more}")
    return urls


def _wanted(records: RunRecords, *, failed: bool, missing: bool) -> set[str]:
    found = records.found
    if failed == missing:
        return records.unfinished_names()
    return set(found.failed) if failed else {*found.missing, *found.stale}


def _with_list(changes: Changes, job: dict[str, Any], urls: Sequence[str]) -> Changes:
    """The list written where --list-url says."""
    from dataclasses import replace

    from tarkit.k8s.cluster.jobview import plan_of
    from tarkit.k8s.cluster.retry import slices_of
    from tarkit.k8s.plan.bucketlist import content_sha256, place_of, put_list
    from tarkit.specs.slicedlist import even_counts

    if changes.list_url is None:
        return changes
    counts = even_counts(len(urls), slices_of(job, len(urls), changes))
    url = place_of(changes.list_url, content_sha256(urls, counts))
    written = put_list(url, urls, counts, plan_of(job).outdir)
    return replace(changes, list_url=url, list_sha256=written.offsets_sha256)


def _deliver(cluster: Cluster | None, documents: list[dict[str, Any]]) -> None:
    """Print the manifest; or create it, the Job last."""
    if cluster is None:
        from tarkit.k8s.yamltext import dump_documents

        write_stdout(dump_documents(documents).encode("utf-8"))
        return
    made: dict[str, dict[str, Any]] = {}
    with Results(only_messages=True) as results:
        for document in documents:
            kind = f"{document['kind'].lower()}s"
            name = document["metadata"]["name"]
            try:
                made[name] = cluster.create(kind, document)
            except ClusterError as error:
                if error.status != 409 or kind != "configmaps":
                    raise
                # The name has the content's checksum in it: it is the very list.
                say(_PROGRAM, f"ConfigMap {name} is there already")
            else:
                if kind == "jobs":
                    _own_list(cluster, made, made[name])
            results.line(f"{document['kind']} {name} is created")


def _own_list(cluster: Cluster, made: dict[str, dict[str, Any]], job: dict[str, Any]) -> None:
    """See to it that the ConfigMap with a Job's list, if it was made just now, goes when the Job goes."""
    from tarkit.k8s.wellknown import LIST

    name = (job["metadata"].get("annotations") or {}).get(LIST)
    if name not in made:
        return
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    try:
        cluster.patch("configmaps", name, {"metadata": {"ownerReferences": [owner]}})
    except ClusterError as error:
        # The Job runs all the same.
        say(_PROGRAM, f"ConfigMap {name} stays when the Job is gone: {error}")
