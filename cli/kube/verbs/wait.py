"""``kubetpl wait``: wait until a Job, or all Jobs of a run, have ended, and print the result."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from tarkit.errors import EXIT_FAILED, EXIT_MISSING, EXIT_TEMPORARY
from tarkit.k8s.cluster.jobstatus import JobStatus, look
from tarkit.k8s.cluster.jobview import JobView, job_view
from tarkit.k8s.cluster.runjobs import RunState, find_jobs, is_run, sum_line
from tarkit.k8s.cluster.stagejobs import misses_stage, stage_advice
from tarkit.k8s.cluster.trainjobs import deletion, train_role
from tarkit.k8s.cluster.watching import Watching, run_states
from tarkit.k8s.durations import in_words, seconds

from ...shared.program import say
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster, record_options, record_source
from ..jobtext import short_line, show_status

_say = partial(say, "kubetpl wait")
_IDLE = 30.0
"""Seconds without a running pod after which a line points to the reason."""
_EPILOG = """\b
Examples:
  kubetpl wait grey --timeout 12h --progress && kubetpl status grey
  kubetpl wait job                          # all Jobs of kubetpl jobs -n 'job{i}'

\b
Exit codes: 0 complete; 1 failed, of a run once all have ended; 2 a name or time that is not valid;
3 complete, but samples were set aside, or none came out; 66 no such Job, or it was deleted; 75 the time was up, or the
cluster did not answer for long.
"""


@click.command("wait", epilog=_EPILOG)
@job_argument
@click.option("--timeout", metavar="TIME", help="Fail after this time: 90, 10m, 12h.  [default: never]")
@click.option(
    "--patience",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="Longest time for which the cluster may not answer.",
)
@click.option("--progress", is_flag=True, help="Print a line to stderr whenever the numbers change.")
@record_options
@cluster_options
def command(
    name: str, timeout: str | None, patience: str, progress: bool, verbose: bool,
    outdir: str | None, specs: tuple[str, ...], check_inputs: bool, **access: Any,
) -> int:  # fmt: skip
    """Wait until Job NAME is complete or has failed, and print the result in one line.

    NAME may also be a run of kubetpl jobs: it waits until all its Jobs have ended, and prints a
    line for each failed Job, and the totals. Of a job of kubetpl train, and of the
    stages of kubetpl shuffle and the like, it waits until one of its Jobs has failed or all have
    ended, since the others cannot end without it. If no pod runs for 30 s, it prints a line on
    stderr. It waits through lost connections and restarts of the API server.
    """
    limit = None if timeout is None else seconds(timeout, "--timeout")
    watching = Watching(_say, limit, seconds(patience, "--patience"))
    cluster = open_cluster(**access)
    jobs = watching.ask(lambda: find_jobs(cluster, name))
    last = f"{name}: the cluster has not answered"
    if jobs is not None:
        of_run, shown = is_run(jobs, name), ""
        source = record_source(outdir, specs, check_inputs)
        if of_run:
            source.refuse_many()
        hint_at = time.monotonic() + _IDLE
        for state in run_states(cluster, name, watching, of_run=of_run):
            views = [job_view(job, None, time.time()) for job in state.jobs]
            total = sum_line([view.state for view in views], len(state.retried), len(state.deleted))
            last = f"{name}: {total}" if of_run else short_line(views[0])
            # Without the time left, which changes with every look.
            if progress and last.partition(";")[0] != shown:
                shown = last.partition(";")[0]
                _say(last)
            ended = state.ended and not (of_run and misses_stage(state.jobs))
            in_vain = not state.ended and _is_in_vain(state, views)
            if ended or in_vain:
                found = watching.ask(partial(look, cluster, state.jobs, source, now=time.time()))
                if found is None:
                    break
                codes = {each.exit_code for each in found} | ({EXIT_MISSING} if state.deleted else set())
                with Results(only_messages=True) as results:
                    show_status(results, found, len(state.retried), state.deleted, all_of_them=False)
                if in_vain and (advice := stage_advice(state.jobs)):
                    _say(advice)
                elif in_vain:
                    _say(f"the others run on in vain: {deletion(name)} ends them, and keeps the state")
                # That one has failed outweighs that one is gone, or has set samples aside.
                codes = {EXIT_FAILED} if EXIT_FAILED in codes else codes
                return max(codes)
            if any(view.running for view in views):
                hint_at = time.monotonic() + _IDLE
            elif time.monotonic() > hint_at:
                _say(f"no pod of {name} runs; kubetpl status {name} says why")
                hint_at = math.inf
    _say(f"the time is up after {in_words(limit or 0)}: {last}")
    return EXIT_TEMPORARY


def _is_in_vain(state: RunState, views: Sequence[JobView]) -> bool:
    """Return True if a Job of an elastic training job has failed, or a stage before another one.

    The other Jobs wait for it, and do not end by themselves, or not soon. A service that ends with
    dead shards only does not count: it has handed out all shards.
    """
    if stage_advice(state.jobs):
        return True
    return any(
        train_role(job) and view.state == "failed" and JobStatus(view.name, view).exit_code == EXIT_FAILED
        for job, view in zip(state.jobs, views, strict=True)
    )
