"""Options of status, wait, logs, retry, scale and cancel: the cluster, and the done records."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from tarkit.errors import UsageError
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.config import load_access
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.runrecords import RecordSource
from tarkit.k8s.names import dns_subdomain, label_value

from ..shared.program import option_group, standard_options
from .manifestfile import manifest_documents


def valid_name(name: str | None) -> str | None:
    """Check the name of a Job or run; other texts would be a path or a selector of the API."""
    if name is not None and (wrong := dns_subdomain(name)) and (not name or label_value(name)):
        unset = "" if name else "; is it a variable that is not set?"
        raise UsageError(f"NAME: the name of a Job or run {wrong}{unset}")
    return name


def not_empty(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of an option, or raise if it is given but empty."""
    if value == "":
        raise UsageError(f"{max(parameter.opts, key=len)} must not be empty; is it a variable that is not set?")
    return value


job_argument = click.argument("name", callback=lambda context, parameter, name: valid_name(name))
"""Argument ``NAME``: the name of a Job or of a run."""
cluster_options = option_group(
    click.option("-N", "--namespace", metavar="NAME", callback=not_empty, help="[default: the context's]"),
    click.option(
        "--context", metavar="NAME", callback=not_empty, help="Context of the kubeconfig.  [default: the current one]"
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        callback=not_empty,
        help="[default: KUBECONFIG, or ~/.kube/config, or a pod's own]",
    ),
    standard_options,
)
"""Options for the cluster, named as in kubectl, and the options of all programs."""
record_options = option_group(
    click.option("-O", "--outdir", metavar="OUT", help="Output folder as this machine names it.  [default: the Job's]"),
    click.option("--shards", "specs", multiple=True, metavar="SPEC", help="Input shards.  [default: the Job's]"),
    click.option("--check-inputs", is_flag=True, help="Check whether each input has changed since its shard was done."),
)
"""Options for the place of the done records, if the Job does not have it."""
manifest_option = click.option(
    "-f",
    "--file",
    "manifest",
    metavar="MANIFEST",
    help="Kubernetes manifest of the Job, if the cluster no longer has it.",
)


def open_cluster(kubeconfig: str | None, context: str | None, namespace: str | None) -> Cluster:
    """Return the cluster that the options of ``cluster_options`` name."""
    return Cluster(load_access(kubeconfig or os.environ.get("KUBECONFIG"), context, namespace))


def record_source(
    outdir: str | None, specs: Sequence[str], check_inputs: bool, manifest: str | None = None
) -> RecordSource:
    """Return the source of the done records that the options of ``record_options`` name.

    With ``manifest_option``, also the manifest that contains the Job.
    """
    documents: list[Object] = [] if manifest is None else manifest_documents(manifest)
    return RecordSource(outdir, specs, check_inputs, documents)
