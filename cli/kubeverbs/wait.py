"""``kubetpl wait``: until a Job has ended, and how."""

from __future__ import annotations

import time
from typing import Any

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_TEMPORARY, ClusterUnreachableError, TarkitError

from .._clusteroptions import cluster_options, open_cluster, record_options
from .._common import say, verbose_option, version_option
from .._jobwork import read_records
from .._results import Results

_PROGRAM = "kubetpl wait"
_EPILOG = """\b
Examples:
  kubetpl wait grey --timeout 12h --progress && kubetpl status grey

\b
Exit codes: 0 complete; 1 failed, told as soon as it is certain; 3 complete, but samples were set
aside; 66 no such Job, or it was deleted; 75 the time was up, or the cluster did not answer for long.
"""


@click.command("wait", epilog=_EPILOG)
@click.argument("name")
@click.option("--timeout", metavar="TIME", help="Give up after this time: 90, 10m, 12h.  [default: never]")
@click.option(
    "--patience", metavar="TIME", default="5m", show_default=True, help="A cluster may be silent for so long."
)
@click.option("--progress", is_flag=True, help="A line on stderr whenever numbers change.")
@record_options
@cluster_options
@verbose_option
@version_option
def command(name: str, timeout: str | None, patience: str, progress: bool, **options: Any) -> int:
    """Wait until Job NAME is complete or has failed; one line on standard output says which.

    Lost connections and restarts of the API server are waited out.
    """
    from tarkit.k8s.cluster.jobview import job_view
    from tarkit.k8s.cluster.jobwatch import job_states
    from tarkit.k8s.durations import seconds

    limit = None if timeout is None else seconds(timeout, "--timeout")
    cluster = open_cluster(options)
    until = None if limit is None else time.monotonic() + limit
    last = told = ""
    from .._jobtext import short_line

    for job in job_states(
        cluster, name, until=until, patience=seconds(patience, "--patience"), clock=time.monotonic, sleep=time.sleep,
        lost=lambda why: say(_PROGRAM, f"{why}; asking again"),
    ):  # fmt: skip
        view = job_view(job, None, time.time())
        last = short_line(view)
        # Without the time left, which changes with every look.
        if progress and last.partition(";")[0] != told:
            told = last.partition(";")[0]
            say(_PROGRAM, last)
        if view.finished:
            return _ended(cluster, job, view, options)
    say(_PROGRAM, f"the time is up after {timeout}: {last or name}")
    return EXIT_TEMPORARY


def _ended(cluster: Any, job: dict[str, Any], view: Any, options: dict[str, Any]) -> int:
    """What the Job's end means, with the done records where they can be read."""
    from tarkit.k8s.cluster.jobstatus import JobStatus

    from .._jobtext import status_lines

    found = JobStatus(view.name, view)
    try:
        found.records = read_records(cluster, job, options)
    except ClusterUnreachableError as error:
        say(_PROGRAM, str(error))
    except TarkitError as error:
        say(_PROGRAM, f"no done records: {error}")
    with Results() as results:
        for line in list(status_lines(found))[:3]:
            results.line(line)
    if found.records is None:
        return EXIT_OK if view.state == "complete" else EXIT_FAILED
    return found.exit_code
