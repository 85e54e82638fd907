"""``kubetpl status``: how far a run is, what failed, and why nothing runs."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tarkit.k8s.cluster.jobview import name_of, uid_of

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
from .._common import verbose_option, version_option
from .._jobwork import read_records
from .._results import Results
from .._runjobs import is_run
from .._watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobstatus import JobStatus
    from tarkit.k8s.cluster.livelist import LiveList

    _Answer = tuple[list[JobStatus], int]

_PROGRAM = "kubetpl status"
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
    wanted = _Wanted(name, selector, read_manifest(options["manifest"]), options, no_records)
    pause = _pause(watch)
    if pause is None:
        return _show(*_ask(wanted), as_json, options["verbose"])
    return _watch(wanted, pause, as_json, options["verbose"])


class _Wanted(NamedTuple):
    """What is asked for: a Job or run, or Jobs with some labels; and where else the answer may be."""

    name: str | None
    selector: str | None
    documents: list[dict[str, Any]]
    options: dict[str, Any]
    no_records: bool


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


def _ask(wanted: _Wanted) -> _Answer:
    """The Jobs, and how many of a run there are besides for which a retry counts."""
    try:
        cluster, jobs = _jobs(wanted)
    except (ClusterError, MissingExtraError, UsageError) as error:
        return _from_records(wanted, error), 0
    return _answer(wanted, cluster, jobs)


def _jobs(wanted: _Wanted) -> tuple[Cluster, list[dict[str, Any]]]:
    """The cluster, and the Jobs that it has.

    Raises:
        NoSuchObjectError: it has none; or retries only, and the records can tell more.
    """
    from tarkit.k8s.cluster.jobfind import find_jobs

    from .._runjobs import only_retries

    cluster = open_cluster(wanted.options)
    if wanted.name is None:
        return cluster, _selected(cluster, wanted.selector or "")
    jobs = find_jobs(cluster, wanted.name)
    if only_retries(jobs, wanted.name) and (wanted.documents or (wanted.options["outdir"] and wanted.options["specs"])):
        # Of these shards the retries have a part only.
        there = ", ".join(str(job["metadata"]["name"]) for job in jobs)
        raise NoSuchObjectError(f"no job {wanted.name} in namespace {cluster.namespace}; its retries: {there}", 404)
    return cluster, jobs


def _answer(
    wanted: _Wanted, cluster: Cluster, jobs: list[dict[str, Any]], pods: list[dict[str, Any]] | None = None,
    siblings: list[dict[str, Any]] | None = None,
) -> _Answer:  # fmt: skip
    """As ``_ask``, of Jobs that the cluster has. pods, siblings: if they are known."""
    from tarkit.k8s.cluster.jobstatus import look
    from tarkit.k8s.cluster.runstate import run_state
    from tarkit.k8s.cluster.surroundings import ask_around

    from .._runjobs import is_run, only_retries, refuse_for_many

    retried, gone = 0, wanted.name is not None and only_retries(jobs, wanted.name)
    if wanted.name is None or is_run(jobs, wanted.name):
        siblings = jobs
    if len(jobs) > 1 and wanted.name is not None:
        run = run_state(jobs)
        jobs, retried = run.jobs, len(run.retried)
    if len(jobs) > 1:
        refuse_for_many(wanted.options)

    def read(job: Any) -> Any:
        return None if wanted.no_records else read_records(cluster, job, wanted.options, wanted.documents)

    around = ask_around(cluster, jobs, pods=pods, siblings=siblings)
    found = look(jobs, around, now=time.time(), read_records=read)
    if gone:
        note = f"Job {wanted.name} is gone, and this is of its retries alone; -f MANIFEST tells of all its shards"
        for each in found:
            each.notes.insert(0, note)
    if retried and len(found) == 1:
        found[0].notes.insert(0, f"{retried} of the run's Jobs failed before, and this one counts instead")
    return found, retried


def _selected(cluster: Cluster, selector: str) -> list[dict[str, Any]]:
    """The Jobs with some labels.

    Raises:
        UsageError: the server cannot read the selector. NoSuchObjectError: there are none.
    """
    from tarkit.k8s.cluster.jobfind import namespace_exists
    from tarkit.k8s.cluster.jobview import name_of

    try:
        found = sorted(cluster.list("jobs", labels=selector), key=name_of)
    except ClusterError as error:
        if error.status == 400:
            raise UsageError(f"-l {printable(selector)}: write for example team=vision,stage!=test; {error}") from None
        raise
    if not found:
        space = "" if namespace_exists(cluster) else "; there is no such namespace"
        raise NoSuchObjectError(f"no Job in namespace {cluster.namespace} has the labels {selector}{space}", 404)
    return found


def _from_records(wanted: _Wanted, why: TarkitError) -> list[JobStatus]:
    """What the done records say, since the cluster says nothing.

    Raises:
        TarkitError: why, if it is not said where they are.
    """
    from tarkit.k8s.cluster.jobstatus import JobStatus

    name, documents, options = wanted.name, wanted.documents, wanted.options
    if name is None or not (documents or options["outdir"]):
        hint = f"; {UNANSWERED}" if name is not None and isinstance(why, ClusterUnreachableError) else ""
        raise ClusterUnreachableError(f"{why}{hint}") if hint else why
    job = job_in(documents, name) or {"metadata": {"name": name}}
    records = read_records(None, job, options, documents)
    if records is None:
        raise UsageError(
            f"the manifest of {name} does not say where its records are (--raw?), and {why}; name it: -O OUT"
        )
    found = JobStatus(name, records=records, notes=[str(why)])
    if records.shards is None:
        found.notes.append("which shards there should be is not known; --shards names them")
    return [found]


def _show(found: list[JobStatus], retried: int, as_json: bool, verbose: bool) -> int:
    from .._jobtext import status_lines, table_lines
    from .._runjobs import sum_line

    with Results() as results:
        if as_json:
            documents = [each.as_dict() for each in found]
            results.line(json.dumps(documents[0] if len(documents) == 1 else {"jobs": documents, "retried": retried}))
        elif len(found) > 1:
            for line in table_lines(found, verbose):
                results.line(line)
            states = [each.view.state for each in found if each.view is not None]
            results.line(sum_line(states, {"retried": retried}))
        else:
            for line in status_lines(found[0], None) if verbose else status_lines(found[0]):
                results.line(line)
    return _worst([each.exit_code for each in found])


def _worst(codes: list[int]) -> int:
    """1 before 3 before 0."""
    return min((code for code in codes if code), default=EXIT_OK)


def _watch(wanted: _Wanted, pause: float, as_json: bool, verbose: bool) -> int:
    """Lists once, then watches: what is asked of the cluster does not depend on how many Jobs there are."""
    from tarkit.k8s.cluster.jobview import ENDED, state_of
    from tarkit.k8s.cluster.jobwatch import looks

    try:
        cluster, jobs = _jobs(wanted)
    except (ClusterError, MissingExtraError, UsageError) as error:
        return _show(_from_records(wanted, error), 0, as_json, verbose)
    live, pods = _live(wanted, cluster, jobs)
    uid = None if wanted.name is None or is_run(jobs, wanted.name) else uid_of(jobs[0])
    shown: float | None = None
    for _ in looks(
        [live] if pods is None else [live, pods], watching(_PROGRAM, patience=math.inf), pause, at_once=True
    ):
        jobs = sorted((job for job in live.things if uid in (None, uid_of(job))), key=name_of)
        if not jobs:
            raise NoSuchObjectError(f"{wanted.name or 'all of them'}: deleted meanwhile", 404)
        over = all(state_of(job)[0] in ENDED for job in jobs)
        if shown is not None and not over and time.monotonic() - shown < pause:
            continue
        try:
            found, retried = _answer(wanted, cluster, jobs, None if pods is None else pods.things, live.things)
        except ClusterUnreachableError:
            # If that lasts, the next look says so.
            continue
        if not as_json:
            _separate(first=shown is None)
        code = _show(found, retried, as_json, verbose)
        if all(each.view is None or each.view.finished for each in found):
            return code
        shown = time.monotonic()
    return EXIT_OK


def _live(wanted: _Wanted, cluster: Cluster, jobs: list[dict[str, Any]]) -> tuple[LiveList, LiveList | None]:
    """These Jobs with their retries, and their pods; None if they may not be read."""
    from tarkit.k8s.cluster.jobview import run_of
    from tarkit.k8s.cluster.livelist import LiveList
    from tarkit.k8s.cluster.surroundings import live_pods
    from tarkit.k8s.wellknown import RUN

    labelled = RUN in (jobs[0]["metadata"].get("labels") or {})
    if wanted.selector is not None:
        live = LiveList(cluster, "jobs", labels=wanted.selector)
    elif labelled:
        live = LiveList(cluster, "jobs", labels=f"{RUN}={run_of(jobs[0])}")
    else:
        live = LiveList(cluster, "jobs", fields=f"metadata.name={name_of(jobs[0])}")
    pods = live_pods(cluster, jobs)
    try:
        pods.list_anew()
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return live, None
    return live, pods


def _separate(first: bool) -> None:
    if not first:
        with Results() as results:
            results.line("")
            results.line(time.strftime("%H:%M:%S"))
    if os.isatty(1):
        click.clear()
