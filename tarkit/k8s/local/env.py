"""The environment of a container, as a kubelet would compute it; and what of this machine's comes with it.

Source of the rules: ``makeEnvironmentVariables`` in Kubernetes' pkg/kubelet/kubelet_pods.go: envFrom comes
first, then env in order; ``$(NAME)`` takes what is known so far. Downward API: ``ExtractFieldPathAsString`` in
pkg/fieldpath and ``ExtractContainerResourceValue`` in pkg/api/v1/resource, which rounds up.
"""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.expansion import expand
from tarkit.k8s.local.sources import Sources, as_text
from tarkit.k8s.quantity import parse_quantity

ALLOWED = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|AWS_\w+|AZURE_\w+|GOOGLE_APPLICATION_CREDENTIALS|GOOGLE_CLOUD_PROJECT|CLOUDSDK_\w+"
    r"|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:\w+_proxy)"
)
"""Names of variables of this machine that pods see."""

_CREDENTIALS = (
    ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ("AWS_CONFIG_FILE", ".aws/config"),
    ("CLOUDSDK_CONFIG", ".config/gcloud"),
    ("AZURE_CONFIG_DIR", ".azure"),
)
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Machine:
    """This machine as the node of the pods. memory and storage: bytes."""

    name: str = "localhost"
    cpus: int = 1
    memory: int = 0
    storage: int = 0


@dataclass
class PodView:
    """A pod as it would be in the cluster: metadata and spec, with what the Job controller adds."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    machine: Machine = field(default_factory=Machine)

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.metadata["name"])


def host_env(environ: Mapping[str, str], *, everything: bool = False) -> dict[str, str]:
    """What of this machine's environment pods see: ALLOWED, and where credentials are; or all of it.

    Manifests set HOME to a scratch folder, so what lies in the real one is pointed to.
    """
    found = {name: value for name, value in environ.items() if everything or ALLOWED.fullmatch(name)}
    home = environ.get("HOME")
    if home:
        found["HOME"] = home
        for name, path in _CREDENTIALS:
            full = os.path.join(home, path)
            if name not in found and os.path.exists(full):
                found[name] = full
    return found


def container_env(pod: PodView, container: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    """The variables of one container, in order.

    Raises:
        UsageError: a ConfigMap or Secret, or a key in it, is not among the documents; a field is unknown.
    """
    where = f"container {printable(str(container.get('name')))} of {printable(pod.name)}"
    env: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        env.update(_whole_source(entry, sources, where))
    for entry in container.get("env") or ():
        name, source = str(entry.get("name")), entry.get("valueFrom")
        if entry.get("value") or source is None:
            env[name] = expand(entry.get("value") or "", env)
            continue
        found = _value_from(source, pod, container, sources, f"{where}: env {printable(name)}")
        if found is not None:
            env[name] = found
    return env


def _whole_source(entry: Mapping[str, Any], sources: Sources, where: str) -> dict[str, str]:
    prefix = str(entry.get("prefix") or "")
    found: dict[str, str] = {}
    for field_name, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        reference = entry.get(field_name)
        if reference:
            optional = bool(reference.get("optional"))
            content = sources.content(kind, str(reference.get("name")), f"{where}: envFrom", optional=optional)
            for key, value in (content or {}).items():
                # The API refuses other names only in env; a kubelet leaves these out.
                if key and "=" not in key:
                    found[prefix + key] = as_text(value, f"{where}: envFrom {reference.get('name')}.{key}")
    return found


def _value_from(
    source: Mapping[str, Any], pod: PodView, container: Mapping[str, Any], sources: Sources, where: str
) -> str | None:
    if (reference := source.get("fieldRef")) is not None:
        return field_value(pod, str(reference.get("fieldPath")), where)
    if (reference := source.get("resourceFieldRef")) is not None:
        return resource_value(pod, container, reference, where)
    for name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if (reference := source.get(name)) is not None:
            return sources.value(kind, reference, where)
    raise UsageError(f"{where}: valueFrom {printable(', '.join(source))} is not known here; use value, or fieldRef")


def field_value(pod: PodView, path: str, where: str) -> str:
    """What a fieldRef gives; what the pod has not is empty.

    Raises:
        UsageError: there is no such field in the downward API.
    """
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((pod.metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.metadata.get("namespace", "default"),
        "metadata.uid": pod.metadata.get("uid", ""),
        "spec.nodeName": pod.machine.name,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        "status.podIP": _ADDRESS,
        "status.podIPs": _ADDRESS,
        "status.hostIP": _ADDRESS,
        "status.hostIPs": _ADDRESS,
    }
    if path in known:
        return str(known[path])
    if path in ("metadata.labels", "metadata.annotations"):
        entries = pod.metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    raise UsageError(f"{where}: there is no field {printable(path)} in the downward API")


def resource_value(pod: PodView, container: Mapping[str, Any], reference: Mapping[str, Any], where: str) -> str:
    """What a resourceFieldRef gives: requests or limits, divided and rounded up. Unset limits are the machine's.

    Raises:
        UsageError: there is no such resource, or a quantity is none.
    """
    kind, _, resource = str(reference.get("resource")).partition(".")
    if kind not in ("requests", "limits") or not resource:
        raise UsageError(f"{where}: resource {printable(str(reference.get('resource')))} is none; say limits.memory")
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    # The API's defaults: a request that is missing is the limit.
    value = (resources.get("requests") or {}).get(resource, limits.get(resource)) if kind == "requests" else None
    value = limits.get(resource) if kind == "limits" else value
    if value is None:
        machine = {"cpu": pod.machine.cpus, "memory": pod.machine.memory, "ephemeral-storage": pod.machine.storage}
        value = machine.get(resource, 0) if kind == "limits" else 0
    divisor = parse_quantity(str(reference.get("divisor") or "1")) or 1
    return str(math.ceil(Fraction(parse_quantity(str(value))) / Fraction(divisor)))
