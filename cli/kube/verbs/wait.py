"""``kubetpl wait``: until a Job has ended, or all Jobs of a run, and how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_TEMPORARY, ClusterUnreachableError, TarkitError

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster, record_options
from ..jobwork import read_records
from ..watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.jobstatus import JobStatus
    from tarkit.k8s.cluster.jobview import JobView
    from tarkit.k8s.cluster.jobwatch import Watching
    from tarkit.k8s.cluster.runstate import RunState

_PROGRAM = "kubetpl wait"
_MOST_LEFT = 20
_EPILOG = """\b
Examples:
  kubetpl wait grey --timeout 12h --progress && kubetpl status grey
  kubetpl wait job                          # all Jobs of kubetpl jobs -n 'job{i}'

\b
Exit codes: 0 complete; 1 failed, of a run once all have ended; 3 complete, but samples were set
aside; 66 no such Job, or it was deleted; 75 the time was up, or the cluster did not answer for long.
"""


@click.command("wait", epilog=_EPILOG)
@job_argument
@click.option("--timeout", metavar="TIME", help="Give up after this time: 90, 10m, 12h.  [default: never]")
@click.option(
    "--patience", metavar="TIME", default="5m", show_default=True, help="The cluster may not answer for so long."
)
@click.option("--progress", is_flag=True, help="A line on stderr whenever numbers change.")
@record_options
@cluster_options
@verbose_option
@version_option
def command(name: str, timeout: str | None, patience: str, progress: bool, **options: Any) -> int:
    """Wait until Job NAME is complete or has failed; one line on standard output says which.

    NAME may be a run of kubetpl jobs, too: until all its Jobs have ended, with a line for each that has
    failed, and the sum. If no pod runs for 30 s, stderr says why. Lost connections and restarts of the
    API server are waited out.
    """
    from tarkit.k8s.cluster.jobwatch import patiently
    from tarkit.k8s.durations import seconds

    from ..runjobs import is_run, jobs_named, refuse_for_many

    limit = None if timeout is None else seconds(timeout, "--timeout")
    watch = watching(_PROGRAM, limit, seconds(patience, "--patience"))
    cluster = open_cluster(options)
    jobs = patiently(watch, lambda: jobs_named(cluster, name))
    ended, last = None, f"{name}: the cluster has not answered"
    if jobs is not None and not is_run(jobs, name):
        ended, last = _wait(cluster, name, watch, progress, options)
    elif jobs is not None:
        refuse_for_many(options)
        ended, last = _wait_for_run(cluster, name, watch, progress, options)
    if ended is None:
        say(_PROGRAM, f"the time is up after {_with_unit(timeout or '')}: {last or name}")
    return EXIT_TEMPORARY if ended is None else ended


def _with_unit(time: str) -> str:
    """A time as it was given; of a bare number it is said what it counts."""
    return f"{time.strip()} s" if time.strip()[-1:].isdigit() else time.strip()


def _wait(
    cluster: Cluster, name: str, watch: Watching, progress: bool, options: dict[str, Any]
) -> tuple[int | None, str]:
    """(exit code, how it stood in the end); None if the time was up."""
    from tarkit.k8s.cluster.jobview import job_view
    from tarkit.k8s.cluster.jobwatch import job_states

    from ..jobtext import short_line, status_lines
    from ..standstill import Standstill

    last = told = ""
    standstill = Standstill(cluster, lambda line: say(_PROGRAM, line), time.monotonic)
    for job in job_states(cluster, name, watch):
        view = job_view(job, None, time.time())
        last = short_line(view)
        # Without the time left, which changes with every look.
        if progress and last.partition(";")[0] != told:
            told = last.partition(";")[0]
            say(_PROGRAM, last)
        if view.finished:
            found = _ended(cluster, job, view, options)
            with Results(only_messages=True) as results:
                for line in list(status_lines(found))[: 4 if found.done_all_the_same else 3]:
                    results.line(line)
            return found.exit_code, last
        standstill.see([(job, view)])
    return None, last


def _wait_for_run(
    cluster: Cluster, run: str, watch: Watching, progress: bool, options: dict[str, Any]
) -> tuple[int | None, str]:
    """As ``_wait``, for all Jobs of a run."""
    from tarkit.k8s.cluster.jobview import job_view
    from tarkit.k8s.cluster.jobwatch import run_states

    from ..runjobs import sum_line
    from ..standstill import Standstill

    last = ""
    views: list[JobView] = []
    standstill = Standstill(cluster, lambda line: say(_PROGRAM, line), time.monotonic)
    for state in run_states(cluster, run, watch):
        views = [job_view(job, None, time.time()) for job in state.jobs]
        now = sum_line((view.state for view in views), {"retried": len(state.retried), "deleted": len(state.deleted)})
        if progress and now != last:
            say(_PROGRAM, f"{run}: {now}")
        last = now
        if state.ended:
            return _tell_run(cluster, state, views, last, options), last
        standstill.see(list(zip(state.jobs, views, strict=True)))
    return None, f"{run}: {last}{_left(views)}"


def _left(views: Sequence[JobView]) -> str:
    names = [view.name for view in views if not view.finished]
    more = f" and {len(names) - _MOST_LEFT} more" if len(names) > _MOST_LEFT else ""
    return f"; left: {', '.join(names[:_MOST_LEFT])}{more}" if names else ""


def _tell_run(cluster: Cluster, state: RunState, views: Sequence[JobView], total: str, options: dict[str, Any]) -> int:
    """A line for each Job that is not as it should be, and the sum."""
    from ..jobtext import status_lines

    codes: set[int] = {EXIT_MISSING} if state.deleted else set()
    with Results(only_messages=True) as results:
        for job, view in zip(state.jobs, views, strict=True):
            found = _ended(cluster, job, view, options)
            codes.add(found.exit_code)
            if found.exit_code or found.done_all_the_same:
                first, second, *rest = status_lines(found)
                more = [second] if found.done_all_the_same else rest[:1] if found.records is not None else []
                results.line("; ".join([first, *more]))
        for name in state.deleted:
            results.line(f"{name}: deleted before it had ended")
        results.line(total)
    # That one has failed outweighs that one is gone, or has set samples aside.
    return min(codes - {EXIT_OK}, default=EXIT_OK, key=lambda code: (code != EXIT_FAILED, -code))


def _ended(cluster: Cluster, job: dict[str, Any], view: JobView, options: dict[str, Any]) -> JobStatus:
    """What the Job's end means, with the done records where they can be read."""
    from tarkit.k8s.cluster.jobstatus import JobStatus

    found = JobStatus(view.name, view)
    try:
        found.records = read_records(cluster, job, options)
    except ClusterUnreachableError as error:
        say(_PROGRAM, str(error))
    except TarkitError as error:
        say(_PROGRAM, f"no done records: {error}")
    return found
