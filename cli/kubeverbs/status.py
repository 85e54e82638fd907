"""``kubetpl status``: how far a run is, what failed, and why nothing runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import (
    EXIT_OK,
    ClusterError,
    ClusterUnreachableError,
    MissingExtraError,
    NoSuchObjectError,
    TarkitError,
    UsageError,
    printable,
)

from .._clusteroptions import (
    UNANSWERED,
    cluster_options,
    job_in,
    manifest_option,
    not_empty,
    open_cluster,
    read_manifest,
    record_options,
    refuse_name,
)
from .._common import say, verbose_option, version_option
from .._jobwork import read_records
from .._results import Results

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobstatus import JobStatus

    _Answer = tuple[list[JobStatus], int]

_WATCH_SECONDS = 5.0
_EPILOG = """\b
Examples:
  kubetpl status grey
  kubetpl status grey --watch
  kubetpl status grey -f grey.yaml          # the cluster is gone
  kubetpl status grey -O s3://bucket/grey --shards 's3://bucket/raw-{000000..001281}.tar'

\b
Exit codes: 0 complete, or not ended yet; 1 failed, or ended with shards left to do; 3 complete, but
samples were set aside; 66 no such Job; 75 the cluster can not be reached, and no records were named.
"""


@click.command("status", epilog=_EPILOG)
@click.argument("name", required=False)
@click.option(
    "-l", "--selector", metavar="LABELS", callback=not_empty, help="All Jobs with these labels, instead of NAME."
)
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON document.")
@click.option(
    "--watch", "watch", is_flag=False, flag_value=str(_WATCH_SECONDS), metavar="[SECONDS]",
    help="Again and again, until it has ended.  [default: every 5]",
)  # fmt: skip
@click.option("--no-records", is_flag=True, help="Do not read the done records; there may be millions.")
@manifest_option
@record_options
@cluster_options
@verbose_option
@version_option
def command(
    name: str | None, selector: str | None, as_json: bool, watch: str | None, no_records: bool, **options: Any
) -> int:
    """Tell how far Job NAME is: indexes, shards, speed, why pods failed, and why nothing runs.

    NAME may be a run of kubetpl jobs, too. What is done is read from the done records; so the answer
    does not need the pods, the Job or the cluster, if -f MANIFEST or -O OUT says where they are.
    """
    if name is None and selector is None and watch is not None and not watch[:1].isdigit():
        # An option with an optional value takes what follows it.
        name, watch = watch, str(_WATCH_SECONDS)
    if (name is None) == (selector is None):
        raise UsageError("name a Job or a run, or say -l SELECTOR; one of both")
    if name is not None:
        refuse_name(name)
    documents = read_manifest(options["manifest"])
    pause = _pause(watch)

    def ask() -> _Answer:
        return _ask(name, selector, documents, options, no_records)

    if pause is None:
        return _show(*ask(), as_json, options["verbose"])
    return _watch(ask, pause, as_json, options["verbose"])


def _pause(watch: str | None) -> float | None:
    if watch is None:
        return None
    try:
        pause = float(watch)
    except ValueError:
        pause = 0.0
    if not 0.1 <= pause <= 86400:
        raise UsageError(f"--watch {watch}: write seconds, 0.1 at least")
    return pause


def _ask(
    name: str | None, selector: str | None, documents: list[dict[str, Any]], options: dict[str, Any], no_records: bool
) -> _Answer:
    """The Jobs, and how many of a run there are besides for which a retry counts."""
    from tarkit.k8s.cluster.jobstatus import find_jobs, look, namespace_exists
    from tarkit.k8s.cluster.jobwatch import run_state

    from .._runjobs import only_retries, refuse_for_many

    gone, retried = False, 0
    try:
        cluster = open_cluster(options)
        if name is not None:
            jobs = find_jobs(cluster, name)
            if len(jobs) > 1:
                run = run_state(jobs)
                jobs, retried = run.jobs, len(run.retried)
            gone = only_retries(jobs, name)
            if gone and (documents or (options["outdir"] and options["specs"])):
                # Of these shards the retries have a part only.
                there = ", ".join(str(job["metadata"]["name"]) for job in jobs)
                raise NoSuchObjectError(f"no job {name} in namespace {cluster.namespace}; its retries: {there}", 404)
        else:
            jobs = _selected(cluster, selector or "")
            if not jobs:
                space = "" if namespace_exists(cluster) else "; there is no such namespace"
                said = f"no Job in namespace {cluster.namespace} has the labels {selector}{space}"
                raise NoSuchObjectError(said, 404)
    except (ClusterError, MissingExtraError, UsageError) as error:
        if name is None or not (documents or options["outdir"]):
            hint = f"; {UNANSWERED}" if name is not None and isinstance(error, ClusterUnreachableError) else ""
            raise ClusterUnreachableError(f"{error}{hint}") if hint else error from None
        return [_from_records(name, documents, options, error)], 0
    if len(jobs) > 1:
        refuse_for_many(options)

    def read(job: Any) -> Any:
        return None if no_records else read_records(cluster, job, options, documents)

    found = [look(cluster, job, now=time.time(), read_records=read) for job in jobs]
    if gone:
        note = f"Job {name} is gone, and this is of its retries alone; -f MANIFEST tells of all its shards"
        for each in found:
            each.notes.insert(0, note)
    if retried and len(found) == 1:
        found[0].notes.insert(0, f"{retried} of the run's Jobs failed before, and this one counts instead")
    return found, retried


def _selected(cluster: Cluster, selector: str) -> list[dict[str, Any]]:
    """The Jobs with some labels.

    Raises:
        UsageError: the server cannot read the selector.
    """
    from tarkit.k8s.cluster.jobview import name_of

    try:
        return sorted(cluster.list("jobs", labels=selector), key=name_of)
    except ClusterError as error:
        if error.status == 400:
            raise UsageError(f"-l {printable(selector)}: write for example team=vision,stage!=test; {error}") from None
        raise


def _from_records(name: str, documents: list[dict[str, Any]], options: dict[str, Any], why: TarkitError) -> JobStatus:
    from tarkit.k8s.cluster.jobstatus import JobStatus

    job = job_in(documents, name) or {"metadata": {"name": name}}
    records = read_records(None, job, options, documents)
    if records is None:
        raise UsageError(
            f"the manifest of {name} does not say where its records are (--raw?), and {why}; name it: -O OUT"
        )
    found = JobStatus(name, records=records, notes=[str(why)])
    if records.shards is None:
        found.notes.append("which shards there should be is not known; --shards names them")
    return found


def _show(found: list[JobStatus], retried: int, as_json: bool, verbose: bool) -> int:
    from .._jobtext import status_lines

    with Results() as results:
        if as_json:
            documents = [each.as_dict() for each in found]
            results.line(json.dumps(documents[0] if len(documents) == 1 else {"jobs": documents, "retried": retried}))
        elif len(found) > 1:
            _table(found, retried, results)
        else:
            for line in status_lines(found[0], None) if verbose else status_lines(found[0]):
                results.line(line)
    return _worst([each.exit_code for each in found])


def _table(found: list[JobStatus], retried: int, results: Results) -> None:
    """A line a Job, what is wrong below it, and a sum."""
    from .._jobtext import short_line, status_lines
    from .._runjobs import sum_line

    states = [each.view.state for each in found if each.view is not None]
    for each in found:
        if each.view is None:
            continue
        results.line(short_line(each.view))
        if each.exit_code or each.failures or each.reasons or each.notes:
            for line in status_lines(each):
                if line.startswith(("failures:", "not running:", "failed shard", "note:")):
                    results.line(f"  {line}")
    results.line(sum_line(states, {"retried": retried}))


def _worst(codes: list[int]) -> int:
    """1 before 3 before 0."""
    return min((code for code in codes if code), default=EXIT_OK)


def _watch(ask: Callable[[], _Answer], pause: float, as_json: bool, verbose: bool) -> int:
    first = True
    while True:
        try:
            found, retried = ask()
        except ClusterUnreachableError as error:
            if first:
                raise
            say("kubetpl status", str(error))
            time.sleep(pause)
            continue
        if not first and not as_json:
            with Results() as results:
                results.line("")
                results.line(time.strftime("%H:%M:%S"))
        first = False
        if os.isatty(1) and not as_json:
            click.clear()
        code = _show(found, retried, as_json, verbose)
        if all(each.view is None or each.view.finished for each in found):
            return code
        time.sleep(pause)
