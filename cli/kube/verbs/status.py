"""``kubetpl status``: how far a run is, what failed, and why nothing runs."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

import click

from tarkit.errors import EXIT_OK, ClusterError, ClusterUnreachableError, MissingExtraError, UsageError
from tarkit.k8s.cluster.jobstatus import JobStatus
from tarkit.k8s.cluster.runjobs import sum_line
from tarkit.k8s.cluster.statusquestion import StatusQuestion
from tarkit.k8s.cluster.watching import Watching

from ...shared.program import say
from ...shared.results import Results
from ..clusteroptions import (
    cluster_options,
    manifest_option,
    not_empty,
    open_cluster,
    record_options,
    record_source,
    valid_name,
)
from ..jobtext import MOST, status_lines, table_lines

_WATCH_SECONDS = 5.0
_EPILOG = """\b
Examples:
  kubetpl status grey
  kubetpl status grey --watch
  kubetpl status grey -f grey.yaml          # the cluster is gone
  kubetpl status grey -O s3://bucket/grey --shards 's3://bucket/raw-{000000..001281}.tar'

\b
Exit codes: 0 complete, or not ended yet; 1 failed, or ended with shards left to do; 3 complete, but
samples were set aside, or none came out; 66 no such Job; 75 the cluster cannot be reached, and no records were named.
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
def command(
    name: str | None, selector: str | None, as_json: bool, watch: str | None, no_records: bool, verbose: bool,
    manifest: str | None, outdir: str | None, specs: tuple[str, ...], check_inputs: bool, **access: Any,
) -> int:  # fmt: skip
    """Show how far Job NAME is: indexes, shards, speed, why pods failed, and why nothing runs.

    NAME may be a run of kubetpl jobs, too. What is done is read from the done records; so the answer
    does not need the pods, the Job or the cluster, if -f MANIFEST or -O OUT says where they are.
    """
    if name is None and selector is None and watch is not None and not watch[:1].isdigit():
        # An option with an optional value takes what follows it.
        name, watch = watch, str(_WATCH_SECONDS)
    if (name is None) == (selector is None):
        raise UsageError("name a Job or a run, or say -l SELECTOR; one of both")
    source = record_source(outdir, specs, check_inputs, manifest)
    question = StatusQuestion(valid_name(name), selector, source, read_records=not no_records)
    pause = None if watch is None else _pause(watch)
    try:
        cluster = open_cluster(**access)
        jobs = question.jobs(cluster)
    except (ClusterError, ClusterUnreachableError, MissingExtraError, UsageError) as error:
        return _show([question.from_records(error)], 0, as_json, verbose)
    if pause is None:
        return _show(*question.answer(cluster, jobs), as_json, verbose)
    code = EXIT_OK
    watching = Watching(lambda line: say("kubetpl status", line), patience=math.inf)
    for number, (found, retried) in enumerate(question.answers(cluster, jobs, watching, pause)):
        if number and not as_json:
            with Results() as results:
                results.line("")
                results.line(time.strftime("%H:%M:%S"))
        if os.isatty(1) and not as_json:
            click.clear()
        code = _show(found, retried, as_json, verbose, once=False)
    return code


def _pause(watch: str) -> float:
    try:
        pause = float(watch)
    except ValueError:
        pause = 0.0
    if not 0.1 <= pause <= 86400:
        raise UsageError(f"--watch {watch}: write seconds, 0.1 at least")
    return pause


def _show(found: list[JobStatus], retried: int, as_json: bool, verbose: bool, *, once: bool = True) -> int:
    """Print how far each Job is. The worst exit code: 1 before 3 before 0.
    once: a closed standard output leaves the exit code as it is; else it ends the watch."""
    with Results(only_messages=once) as results:
        if as_json:
            documents = [each.as_dict() for each in found]
            results.line(json.dumps(documents[0] if len(documents) == 1 else {"jobs": documents, "retried": retried}))
        elif len(found) > 1:
            for line in table_lines(found, verbose):
                results.line(line)
            results.line(sum_line([each.view.state for each in found if each.view is not None], retried))
        else:
            for line in status_lines(found[0], None if verbose else MOST):
                results.line(line)
    return min((each.exit_code for each in found if each.exit_code), default=EXIT_OK)
