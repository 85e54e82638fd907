"""The variables of a container, as a kubelet would compute them; and which ones of this machine come with them.

Source of the rules: ``makeEnvironmentVariables`` in Kubernetes' pkg/kubelet/kubelet_pods.go: envFrom comes
first, then env in order; ``$(NAME)`` takes what is known so far. Downward API: ``ExtractFieldPathAsString`` in
pkg/fieldpath and ``ExtractContainerResourceValue`` in pkg/api/v1/resource, which rounds up."""

from __future__ import annotations

import base64
import math
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, name_of, part_of
from tarkit.k8s.podfields import substitute
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
class LocalNode:
    """This machine as the node of the pods.
    memory, storage: bytes. env: its variables that pods see. volumes: name of a volume -> folder to use in its
    stead."""

    name: str = "localhost"
    cpus: int = 1
    memory: int = 0
    storage: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)


def host_env(environ: Mapping[str, str], *, everything: bool = False) -> dict[str, str]:
    """What of this machine's environment pods see: ALLOWED, and where credentials are; or all of it.
    Manifests set HOME to a scratch folder, so what lies in the real one is pointed to."""
    found = {name: value for name, value in environ.items() if everything or ALLOWED.fullmatch(name)}
    home = environ.get("HOME")
    if home:
        found["HOME"] = home
        for name, path in _CREDENTIALS:
            full = os.path.join(home, path)
            if name not in found and os.path.exists(full):
                found[name] = full
    return found


class Sources:
    """The ConfigMaps, Secrets, Services and claims among documents."""

    def __init__(self, documents: Sequence[Object]) -> None:
        self._found: dict[tuple[str, str], dict[str, bytes]] = {}
        for each in (each for each in documents if each.get("kind") in ("ConfigMap", "Secret")):
            kind, name, content = each["kind"], name_of(each), _content(each)
            if self._found.setdefault((kind, name), content) != content:
                raise UsageError(f"two {kind}s with different content are called {printable(name)}; rename one of them")
        self._addresses: dict[str, str] = {}
        self.claims = {name_of(each) for each in documents if each.get("kind") == "PersistentVolumeClaim"}
        """Names of the claims; the volume of each is a folder of the run."""
        headless = []
        for service in (each for each in documents if each.get("kind") == "Service"):
            if part_of(service, "spec").get("clusterIP") == "None":
                headless.append(re.escape(name_of(service)))
            for entry in part_of(service, "spec").get("ports") or ():
                port, target = entry.get("port"), entry.get("targetPort")
                self._addresses[f"{name_of(service)}:{port}"] = (
                    f"localhost:{target if isinstance(target, int) else port}"
                )

        self._pods = re.compile(rf"(?<![\w.-])[a-z0-9-]+\.(?:{'|'.join(headless)})(?![\w.-])") if headless else None

    def address(self, text: str) -> str:
        """Where a service is, if the text is NAME:PORT of one: its pods run on this machine; and so do those of a
        headless service, which are called POD.NAME in a text without blanks."""
        if self._pods is not None and not re.search(r"\s", text):
            text = self._pods.sub("localhost", text)
        return self._addresses.get(text, text)

    def content(self, kind: str, name: str, reference: Object, wanted_by: str) -> dict[str, bytes]:
        """Keys and values of a ConfigMap or Secret; none if it is optional and not there."""
        found = self._found.get((kind, name))
        if found is None and not reference.get("optional"):
            raise UsageError(
                f"{wanted_by} needs the {kind} {printable(name)}, which is not in this manifest: put its document "
                f"before or after the others in the file"
                + (", or give a volume's folder with --volume NAME=FOLDER" if " volume " in wanted_by else "")
            )
        return found or {}

    def value(self, kind: str, reference: Object, wanted_by: str) -> str | None:
        """The text under one key; None if it is optional and not there."""
        name, key = str(reference.get("name")), str(reference.get("key"))
        content = self.content(kind, name, reference, wanted_by)
        if key not in content and not reference.get("optional"):
            raise UsageError(f"{wanted_by} needs the key {printable(key)} of the {kind} {printable(name)}: it has none")
        return None if key not in content else _text(content[key], f"{wanted_by}: {kind} {name}, key {key}")


def _content(document: Object) -> dict[str, bytes]:
    kind, found = document["kind"], {}
    for part in ("binaryData", "data", "stringData"):
        for key, value in part_of(document, part).items():
            where = f"{kind} {printable(name_of(document))}: {part}.{printable(key)}"
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


def container_env(pod: Object, container: Object, sources: Sources, node: LocalNode, where: str) -> dict[str, str]:
    """The variables of one container of a pod, in order. where: the container, for messages."""
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
        wanted_by = f"{where}: env {printable(name)}"
        found: str | None
        if entry.get("value") or source is None:
            found = substitute(entry.get("value") or "", env)
        elif (reference := source.get("configMapKeyRef")) is not None:
            found = sources.value("ConfigMap", reference, wanted_by)
        elif (reference := source.get("secretKeyRef")) is not None:
            found = sources.value("Secret", reference, wanted_by)
        else:
            found = _downward_value(pod, container, source, node, wanted_by)
        if found is not None:
            env[name] = found
    return env


def _downward_value(pod: Object, container: Object, source: Object, node: LocalNode, where: str) -> str:
    """What a fieldRef gives, where what the pod does not have is empty; or a resourceFieldRef."""
    metadata = pod["metadata"]
    path = str(part_of(source, "fieldRef").get("fieldPath"))
    reference = part_of(source, "resourceFieldRef")
    kind, _, resource = str(reference.get("resource")).partition(".")
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str(part_of(metadata, subscript[1]).get(subscript[2], ""))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "spec.nodeName": node.name,
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        **dict.fromkeys(("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"), "127.0.0.1"),
    }
    if path in known:
        return str(known[path])
    if kind not in ("requests", "limits") or reference.get("containerName") not in (None, container.get("name")):
        raise UsageError(
            f"{where}: valueFrom {printable(str(source))} is not known here; use a value, a field such as "
            "metadata.name, or a resource of this container such as limits.memory"
        )
    # Unset limits are the machine's, unset requests the limits: the API's defaults.
    limit = part_of(container, "resources", "limits").get(resource)
    whole = {"cpu": node.cpus, "memory": node.memory, "ephemeral-storage": node.storage}
    if kind == "limits":
        value = whole.get(resource, 0) if limit is None else limit
    else:
        value = part_of(container, "resources", "requests").get(resource, limit or 0)
    divisor = parse_quantity(str(reference.get("divisor") or "1")) or 1
    return str(math.ceil(Fraction(parse_quantity(str(value))) / Fraction(divisor)))
