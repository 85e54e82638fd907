"""Which cluster, and which done records: the options that status, wait, logs, retry, scale and cancel share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tarkit.errors import UsageError
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.config import load_access
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.runrecords import RecordSource
from tarkit.k8s.names import dns_subdomain, label_value

from .manifestfile import manifest_documents, refuse_wrong_types

F = TypeVar("F", bound=Callable[..., Any])


def job_argument(function: F) -> F:
    """``NAME``: of a Job, or of a run."""
    return click.argument("name", callback=_job_name)(function)


def _job_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if name is not None:
        refuse_name(name)
    return name


def refuse_name(name: str) -> None:
    """Refuse what neither a Job nor a run can be called: it would be a path or a selector of the API.

    Raises:
        UsageError: it is one of these.
    """
    wrong = dns_subdomain(name)
    if wrong and (not name or label_value(name)):
        unset = "" if name else "; is it a variable that is not set?"
        raise UsageError(f"NAME: the name of a Job or run {wrong}{unset}")


def not_empty(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The value of an option; an empty one is not taken for an option that is not given.

    Raises:
        UsageError: it is empty.
    """
    if value == "":
        raise UsageError(f"{max(parameter.opts, key=len)} must not be empty; is it a variable that is not set?")
    return value


def cluster_options(function: F) -> F:
    """``--kubeconfig``, ``--context`` and ``--namespace``, as those of kubectl."""
    for words, metavar, about in (
        (["--kubeconfig"], "FILE", "[default: KUBECONFIG, or ~/.kube/config, or a pod's own]"),
        (["--context"], "NAME", "Of the kubeconfig.  [default: the current one]"),
        (["-N", "--namespace"], "NAME", "[default: the context's]"),
    ):
        function = click.option(*words, metavar=metavar, callback=not_empty, help=about)(function)
    return function


def record_options(function: F) -> F:
    """Where the done records are, if the Job cannot say so."""
    for option in (
        click.option("--check-inputs", is_flag=True, help="Ask every input whether it changed since it was done."),
        click.option("--shards", "specs", multiple=True, metavar="SPEC", help="The inputs; else the Job's own."),
        click.option("-O", "--outdir", metavar="OUT", help="The output folder as seen from here; else the Job's own."),
    ):
        function = option(function)
    return function


def manifest_option(function: F) -> F:
    """``-f``: what was applied, for when the cluster does not have it any more."""
    return click.option(
        "-f", "--file", "manifest", metavar="MANIFEST", help="Of the Job, if the cluster does not have it any more."
    )(function)


def open_cluster(options: dict[str, Any]) -> Cluster:
    """The cluster that the options name.

    Raises:
        UsageError: none is configured. MissingExtraError: the client is not installed.
    """
    files = options["kubeconfig"] or os.environ.get("KUBECONFIG")
    return Cluster(load_access(files, options["context"], options["namespace"]), time.sleep)


def read_manifest(path: str | None) -> list[Object]:
    """The documents of ``-f``; none without it.

    Raises:
        As ``manifest_documents`` and ``refuse_wrong_types``.
    """
    if path is None:
        return []
    documents = manifest_documents(path)
    refuse_wrong_types(documents)
    return documents


def record_source(options: Mapping[str, Any], documents: Sequence[Object] = ()) -> RecordSource:
    """The done records that the options of ``record_options`` name."""
    return RecordSource(options["outdir"], options["specs"], options["check_inputs"], documents)
