"""``kubetpl scale``: change the number of pods that run at once."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import EXIT_OK, UsageError
from tarkit.k8s.apiobject import annotations_of, spec_of
from tarkit.k8s.cluster.jobview import has_ended, state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, not_one
from tarkit.k8s.cluster.trainjobs import train_role
from tarkit.k8s.indexset import INDEXES
from tarkit.k8s.wellknown import ELASTIC

from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, not_empty, open_cluster


@click.command("scale")
@job_argument
@click.option(
    "-j",
    "--parallelism",
    type=click.IntRange(0),
    required=True,
    metavar="P",
    help="Number of pods that run at once; 0 pauses the Job.",
)
@click.option(
    "--state", metavar="DIR", callback=not_empty, help="State folder of a kubetpl local train, instead of a cluster."
)
@cluster_options
def command(name: str, parallelism: int, state: str | None, verbose: bool, **access: Any) -> int:
    """Set the number of pods of Job NAME that run at once.

    Pods beyond P are stopped, and run again later.

    With the workers of kubetpl train, P is the new number of workers, and new ones get records at
    once.

    \b
    Exit codes: 0 set; 2 the Job has ended, or P is not valid; 66 no such Job; 75 the cluster
    cannot be reached.
    """
    if state is not None:
        from tarkit.k8s.local.state import ask_to_scale

        if not parallelism:
            raise UsageError("-j 0: a run of kubetpl local cannot be paused; stop it; the same command resumes it")
        if parallelism > INDEXES:
            raise UsageError(f"-j {parallelism}: an Indexed Job takes {INDEXES} at most")
        ask_to_scale(state, name, parallelism)
        return EXIT_OK
    cluster = open_cluster(**access)
    jobs = find_jobs(cluster, name)
    if is_run(jobs, name):
        why = f"which run side by side: kubetpl cancel {name} stops all of them, and --undo lets them go on"
        raise not_one(name, jobs, why)
    job = jobs[0]
    if has_ended(job):
        # Those of kubetpl train go on with a new Job of the same name.
        more = "" if train_role(job) else "; kubetpl retry does what is left"
        raise UsageError(f"Job {name} has ended ({state_of(job)}), nothing of it runs any more{more}")
    before = spec_of(job).get("parallelism")
    elastic = ELASTIC in annotations_of(job) and parallelism > 0
    # The API takes another number of completions only together with as many pods at once.
    both = {"completions": parallelism} if elastic else {}
    cluster.patch("jobs", name, {"spec": {"parallelism": parallelism, **both}})
    with Results(only_messages=True) as results:
        if parallelism == 0:
            results.line(f"{name} is paused (parallelism {before} → 0); kubetpl scale {name} -j {before} resumes it")
        else:
            results.line(f"{name}: parallelism {before} → {parallelism}")
        if state_of(job) == "suspended":
            results.line(f"{name} is suspended all the same; kubetpl status {name} says why")
    return EXIT_OK
