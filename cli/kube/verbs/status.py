"""``kubetpl status``: print a run's progress, its failures, and why nothing runs."""

from __future__ import annotations

import json
from typing import Any

import click

from tarkit.errors import EXIT_OK, ClusterError, ClusterUnreachableError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.k8s.cluster.jobstatus import run_status, status_from_records
from tarkit.k8s.cluster.runjobs import find_jobs

from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, manifest_option, open_cluster, record_options, record_source
from ..jobtext import show_status

_EPILOG = """\b
Examples:
  kubetpl status grey
  watch -n 30 kubetpl status grey
  kubetpl status grey -f grey.yaml          # the cluster is gone
  kubetpl status grey -O s3://bucket/grey --shards 's3://bucket/raw-{000000..001281}.tar'

\b
Exit codes: 0 complete, or not ended yet; 1 failed, or ended with shards left to do; 3 complete, but
samples were set aside, or none came out; 66 no such Job; 75 the cluster cannot be reached, and no records were named.
"""


@click.command("status", epilog=_EPILOG)
@job_argument
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
@click.option("--no-records", is_flag=True, help="Do not read the done records, of which there may be millions.")
@manifest_option
@record_options
@cluster_options
def command(
    name: str, as_json: bool, no_records: bool, verbose: bool, manifest: str | None, outdir: str | None,
    specs: tuple[str, ...], check_inputs: bool, **access: Any,
) -> int:  # fmt: skip
    """Show the progress of Job NAME, why its pods failed, and why nothing runs.

    NAME may also be a run of kubetpl jobs. The done records say what is done; so the status needs
    neither the pods, nor the Job, nor the cluster, if -f MANIFEST or -O OUT names the output
    folder.
    """
    source = record_source(outdir, specs, check_inputs, manifest)
    retried = 0
    try:
        cluster = open_cluster(**access)
        # Of these shards the retries of a Job that is gone have a part only.
        jobs = find_jobs(cluster, name, retries_alone=not (source.documents or (source.outdir and source.specs)))
    except (ClusterError, ClusterUnreachableError, MissingExtraError, UsageError) as error:
        found = [status_from_records(name, source, error)]
    else:
        found, retried = run_status(cluster, name, jobs, source, read_records=not no_records)
    with Results(only_messages=True) as results:
        if as_json:
            documents = [each.as_dict() for each in found]
            results.line(json.dumps(documents[0] if len(documents) == 1 else {"jobs": documents, "retried": retried}))
        else:
            show_status(results, found, retried, verbose=verbose)
    # 1 outweighs 3.
    return min((each.exit_code for each in found if each.exit_code), default=EXIT_OK)
