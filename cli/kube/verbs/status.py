"""``kubetpl status``: how far a run is, what failed, and why nothing runs."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import (
    EXIT_OK,
    ClusterError,
    ClusterUnreachableError,
    MissingExtraError,
    NoSuchObjectError,
    UsageError,
)
from tarkit.k8s.cluster.jobview import name_of, uid_of

from ...shared.program import verbose_option, version_option
from ...shared.results import Results
from ..clusteroptions import cluster_options, manifest_option, not_empty, read_manifest, record_options, refuse_name
from ..runjobs import is_run
from ..statusanswer import Wanted, answer, ask, from_records, jobs_asked_for
from ..watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobstatus import JobStatus
    from tarkit.k8s.cluster.livelist import LiveList

_PROGRAM = "kubetpl status"
_WATCH_SECONDS = 5.0
_ONE_WATCH = 30.0
"""Seconds: a connection that is silent for longer may have died."""
_EPILOG = """\b
Examples:
  kubetpl status grey
  kubetpl status grey --watch
  kubetpl status grey -f grey.yaml          # the cluster is gone
  kubetpl status grey -O s3://bucket/grey --shards 's3://bucket/raw-{000000..001281}.tar'

\b
Exit codes: 0 complete, or not ended yet; 1 failed, or ended with shards left to do; 3 complete, but
samples were set aside; 66 no such Job; 75 the cluster cannot be reached, and no records were named.
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
    wanted = Wanted(name, selector, read_manifest(options["manifest"]), options, no_records)
    pause = _pause(watch)
    if pause is None:
        return _show(*ask(wanted), as_json, options["verbose"])
    return _watch(wanted, pause, as_json, options["verbose"])


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


def _show(found: list[JobStatus], retried: int, as_json: bool, verbose: bool) -> int:
    from ..jobtext import status_lines, table_lines
    from ..runjobs import sum_line

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


def _watch(wanted: Wanted, pause: float, as_json: bool, verbose: bool) -> int:
    """Lists once, then watches: what is asked of the cluster does not depend on how many Jobs there are."""
    from tarkit.k8s.cluster.jobview import ENDED, state_of
    from tarkit.k8s.cluster.jobwatch import looks

    try:
        cluster, jobs = jobs_asked_for(wanted)
    except (ClusterError, MissingExtraError, UsageError) as error:
        return _show(from_records(wanted, error), 0, as_json, verbose)
    live, pods = _live(wanted, cluster, jobs)
    uid = None if wanted.name is None or is_run(jobs, wanted.name) else uid_of(jobs[0])
    shown: float | None = None
    for _ in looks(
        [live] if pods is None else [live, pods],
        watching(_PROGRAM, patience=math.inf),
        min(pause, _ONE_WATCH),
        at_once=True,
    ):
        jobs = sorted((job for job in live.things if uid in (None, uid_of(job))), key=name_of)
        if not jobs:
            raise NoSuchObjectError(f"{wanted.name or 'all of them'}: deleted meanwhile", 404)
        over = all(state_of(job)[0] in ENDED for job in jobs)
        if shown is not None and not over and time.monotonic() - shown < pause:
            continue
        try:
            found, retried = answer(wanted, cluster, jobs, None if pods is None else pods.things, live.things)
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


def _live(wanted: Wanted, cluster: Cluster, jobs: list[dict[str, Any]]) -> tuple[LiveList, LiveList | None]:
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
