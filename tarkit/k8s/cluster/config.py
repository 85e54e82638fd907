"""Connection settings, from kubeconfig files or from inside a pod, as for the official client."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tarkit.errors import ClusterDeniedError, UsageError, printable
from tarkit.extras import library
from tarkit.k8s.names import dns_label
from tarkit.store import waits

DEFAULT_FILE = "~/.kube/config"
_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
NEEDED_FOR = "talking to a Kubernetes cluster"
# What the client raises on files that are no kubeconfig, beside its own exception.
_MALFORMED = (TypeError, AttributeError, KeyError, ValueError, OSError)


class Access(NamedTuple):
    """A client of a cluster, with its namespace and context.

    Attributes:
        client: a kubernetes ApiClient.
        namespace: namespace to use.
        context: name of the context, for messages.
    """

    client: Any
    namespace: str
    context: str


def load_access(kubeconfig: str | None, context: str | None, namespace: str | None) -> Access:
    """Load the access to a cluster, without sending anything.

    ClusterDeniedError is raised if there are no credentials.

    Args:
        kubeconfig: files, separated by os.pathsep; None is the user's own.
        context: None is the current one.
        namespace: None is the context's.
    """
    files = kubeconfig or DEFAULT_FILE
    there = [path for path in files.split(os.pathsep) if path and os.path.exists(os.path.expanduser(path))]
    if there:
        found = _from_files(os.pathsep.join(there), context)
        where = f"kubeconfig {printable(os.pathsep.join(there))}, context {printable(found.context)}"
    elif context is None and not kubeconfig and os.path.exists(_IN_POD):
        found, where = _from_pod(), _IN_POD
    else:
        raise UsageError(
            f"no cluster is configured: {printable(files)} does not exist, and this is not a pod; "
            "name a kubeconfig with --kubeconfig or KUBECONFIG"
        )
    if namespace is not None:
        found, where = found._replace(namespace=namespace), "--namespace"
    if wrong := dns_label(found.namespace):
        raise UsageError(f"{where}: the name of a namespace {wrong}")
    return found


def _from_files(files: str, context: str | None) -> Access:
    module = library("kubernetes.config.kube_config", NEEDED_FOR, "k8s")
    client = library("kubernetes.client", NEEDED_FOR, "k8s")
    yaml = library("yaml", NEEDED_FOR, "k8s")
    configuration = client.Configuration()
    try:
        merged = module.KubeConfigMerger(files).config
        loader = module.KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
        with login_errors() as problems:
            # It may ask for a token; see waits.
            waits.call(loader.load_and_set, configuration)
        chosen = loader.current_context
        name, space = str(chosen["name"]), str(chosen["context"].get("namespace") or "default")
    except (module.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        why = " ".join(str(error).split())
        raise UsageError(
            f"kubeconfig {printable(files)} cannot be used: {printable(why)}; --context names another context"
        ) from error
    if problems:
        # Without it the user would be anonymous to the server.
        raise ClusterDeniedError(f"cannot log in to context {printable(name)}: {problems[0]}; log in again")
    return Access(client.ApiClient(configuration), space, name)


@contextmanager
def login_errors() -> Iterator[list[str]]:
    """Collect the lines that the client logs about failed login programs of a kubeconfig.

    The client raises no error for these, and continues without credentials.
    """
    problems: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.module == "kube_config":
                problems.append(printable(" ".join(record.getMessage().split())))

    listener = Listener(logging.ERROR)
    logging.root.addHandler(listener)
    try:
        yield problems
    finally:
        logging.root.removeHandler(listener)


def _from_pod() -> Access:
    config = library("kubernetes.config", NEEDED_FOR, "k8s")
    client = library("kubernetes.client", NEEDED_FOR, "k8s")
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        with open(_IN_POD, encoding="utf-8") as file:
            own = file.read().strip()
    except (config.ConfigException, OSError) as error:
        raise UsageError(f"this pod's service account cannot be used: {printable(str(error))}") from error
    return Access(client.ApiClient(configuration), own or "default", "in-cluster")
