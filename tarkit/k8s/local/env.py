"""The environment of a container, as a kubelet would compute it; and what of this machine's comes with it.

Source of the rules: ``makeEnvironmentVariables`` in Kubernetes' pkg/kubelet/kubelet_pods.go: envFrom comes
first, then env in order; ``$(NAME)`` takes what is known so far. Downward API: ``ExtractFieldPathAsString`` in
pkg/fieldpath and ``ExtractContainerResourceValue`` in pkg/api/v1/resource, which rounds up.
"""

from __future__ import annotations

import base64
import math
import os.path
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, name_of, part_of
from tarkit.k8s.expansion import substitute
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


@dataclass(frozen=True)
class Machine:
    """This machine as the node of the pods. memory and storage: bytes."""

    name: str = "localhost"
    cpus: int = 1
    memory: int = 0
    storage: int = 0


class PodView(NamedTuple):
    """A pod as it would be in the cluster: metadata and spec, with what the Job controller adds; and its node."""

    metadata: Object
    spec: Object
    machine: Machine

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.metadata["name"])


class Sources:
    """The ConfigMaps and Secrets among documents. folders: name of a volume -> folder to use in its stead."""

    def __init__(self, documents: Iterable[Object], folders: Mapping[str, str] | None = None) -> None:
        self.folders = dict(folders or {})
        self._found: dict[tuple[str, str], dict[str, bytes]] = {}
        for document in documents:
            kind, name = str(document.get("kind")), name_of(document)
            if kind in ("ConfigMap", "Secret"):
                self._found[kind, name] = _content(kind, name, document)

    def content(self, kind: str, name: str, reference: Object, wanted_by: str) -> dict[str, bytes]:
        """Keys and values of a ConfigMap or Secret; none if it is optional and not there.

        Raises:
            UsageError: it is not among the documents.
        """
        found = self._found.get((kind, name))
        if found is None and not reference.get("optional"):
            raise UsageError(
                f"{wanted_by} needs the {kind} {printable(name)}, which is not in this manifest: put its document "
                f"before or after the others in the file"
                + (", or give a volume's folder with --volume NAME=FOLDER" if " volume " in wanted_by else "")
            )
        return found or {}

    def value(self, kind: str, reference: Object, wanted_by: str) -> str | None:
        """The text under one key; None if it is optional and not there.

        Raises:
            UsageError: it is not there, or is not a text.
        """
        name, key = str(reference.get("name")), str(reference.get("key"))
        content = self.content(kind, name, reference, wanted_by)
        if key not in content and not reference.get("optional"):
            raise UsageError(f"{wanted_by} needs the key {printable(key)} of the {kind} {printable(name)}: it has none")
        return None if key not in content else _text(content[key], f"{wanted_by}: {kind} {name}, key {key}")


def _content(kind: str, name: str, document: Object) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in ("binaryData", "data", "stringData"):
        for key, value in part_of(document, part).items():
            where = f"{kind} {printable(name)}: {part}.{printable(key)}"
            if not isinstance(value, str):
                raise UsageError(f"{where} is not a text; put it in quotes")
            if part == "binaryData" or (kind, part) == ("Secret", "data"):
                try:
                    found[key] = base64.b64decode("".join(value.split()), validate=True)
                except ValueError:
                    raise UsageError(f"{where} is not base64; texts of a Secret go into stringData") from None
            else:
                found[key] = value.encode("utf-8")
    return found


def _text(value: bytes, where: str) -> str:
    """The text of a value that goes to an environment."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{printable(where)}: this is not UTF-8, or has a NUL, so no variable can hold it")
    return text


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


def container_env(pod: PodView, container: Object, sources: Sources) -> dict[str, str]:
    """The variables of one container, in order.

    Raises:
        UsageError: a ConfigMap or Secret, or a key in it, is not among the documents; a field is unknown.
    """
    where = f"container {printable(str(container.get('name')))} of {printable(pod.name)}"
    env: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        prefix = str(entry.get("prefix") or "")
        for field_name, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if reference := entry.get(field_name):
                name = str(reference.get("name"))
                for key, value in sources.content(kind, name, reference, f"{where}: envFrom").items():
                    # The API refuses other names only in env; a kubelet leaves these out.
                    if key and "=" not in key:
                        env[prefix + key] = _text(value, f"{where}: envFrom {name}.{key}")
    for entry in container.get("env") or ():
        name, source = str(entry.get("name")), entry.get("valueFrom")
        if entry.get("value") or source is None:
            env[name] = substitute(entry.get("value") or "", env)
        elif (found := _value_from(source, pod, container, sources, f"{where}: env {printable(name)}")) is not None:
            env[name] = found
    return env


def _value_from(source: Object, pod: PodView, container: Object, sources: Sources, where: str) -> str | None:
    for name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if (reference := source.get(name)) is not None:
            return sources.value(kind, reference, where)
    return downward_value(pod, {None: container}, source, where)


def downward_value(pod: PodView, containers: Mapping[str | None, Object], source: Object, where: str) -> str:
    """What a fieldRef or a resourceFieldRef gives. containers: by name; None is the one that asks.

    Raises:
        UsageError: no such field or resource in the downward API.
    """
    if (reference := source.get("fieldRef")) is not None:
        return _field_value(pod, str(reference.get("fieldPath")), where)
    if (reference := source.get("resourceFieldRef")) is not None:
        return _resource_value(pod.machine, containers.get(reference.get("containerName"), {}), reference, where)
    raise UsageError(f"{where}: valueFrom {printable(', '.join(source))} is not known here; use value, or fieldRef")


def _field_value(pod: PodView, path: str, where: str) -> str:
    """What a fieldRef gives; what the pod does not have is empty."""
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str(part_of(pod.metadata, subscript[1]).get(subscript[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = part_of(pod.metadata, path.removeprefix("metadata."))
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.metadata.get("namespace", "default"),
        "metadata.uid": pod.metadata.get("uid", ""),
        "spec.nodeName": pod.machine.name,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        **dict.fromkeys(("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"), "127.0.0.1"),
    }
    if path not in known:
        raise UsageError(f"{where}: no field {printable(path)} in the downward API")
    return str(known[path])


def _resource_value(machine: Machine, container: Object, reference: Object, where: str) -> str:
    """What a resourceFieldRef gives: requests or limits, divided and rounded up. Unset limits are the machine's."""
    kind, _, resource = str(reference.get("resource")).partition(".")
    if kind not in ("requests", "limits") or not resource:
        raise UsageError(
            f"{where}: {printable(str(reference.get('resource')))} is not a resource; write for example limits.memory"
        )
    whole = {"cpu": machine.cpus, "memory": machine.memory, "ephemeral-storage": machine.storage}
    limit = part_of(container, "resources", "limits").get(resource)
    if kind == "limits":
        value = whole.get(resource, 0) if limit is None else limit
    else:
        # The API's defaults: a request that is missing is the limit.
        value = part_of(container, "resources", "requests").get(resource, limit or 0)
    divisor = parse_quantity(str(reference.get("divisor") or "1")) or 1
    return str(math.ceil(Fraction(parse_quantity(str(value))) / Fraction(divisor)))
