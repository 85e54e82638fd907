"""Settings as fields of a pod and its container: image, command, environment, resources, files.

Source of the rules for ``$`` in commands, arguments and environment values: ``Expand`` in
Kubernetes' third_party/forked/golang/expansion: ``$$`` becomes ``$``; ``$(NAME)`` becomes the value
of NAME if the container has such a variable, and stays as it is if not; every other ``$`` stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.names import safe_label
from tarkit.k8s.quantity import canonical, parse_quantity, total, whole
from tarkit.k8s.settings import Settings
from tarkit.k8s.wellknown import GPU
from tarkit.k8s.yamltext import Document
from tarkit.mapping.shellrules import flags_of, pod_words
from tarkit.runs.work import PROGRAM, Work

POD_PATHS: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Path of the part with the pod's ``metadata`` and ``spec``, by kind."""

SCRATCH = "scratch"
_KEY_FILE = "google_application_credentials.json"
_EXPANDED = re.compile(r"\$\$|\$\(([^)]*)\)")
_AMBIGUOUS = re.compile(r"\$(?=\$)|\$\(([^)]*)\)")
_IDENTIFIER = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


def main_container(spec: Document) -> Document:
    """Return the container that the settings apply to: the one called main, or the first."""
    containers = listed(spec, "containers")
    for each in containers:
        if each.get("name") == "main":
            return each
    if not containers:
        raise UsageError("the template's pod has no container; --template needs at least one")
    return containers[0]


def dict_of(value: Any) -> Document:
    """Return the value, after a check that it is a mapping."""
    if not isinstance(value, dict):
        raise UsageError(f"the template has {printable(str(value))!r} where a mapping belongs")
    return value


def part(mapping: Document, *names: str) -> Document:
    """Return the mapping inside a mapping; create it if it is missing or null."""
    for name in names:
        if mapping.get(name) is None:
            mapping[name] = {}
        mapping = dict_of(mapping[name])
    return mapping


def listed(mapping: Document, name: str) -> list[Document]:
    """Return the list of mappings inside a mapping; create it if it is missing or null."""
    if mapping.get(name) is None:
        mapping[name] = []
    found = mapping[name]
    if not isinstance(found, list):
        raise UsageError(f"the template has {printable(str(found))!r} where the list {name} belongs")
    for each in found:
        dict_of(each)
    return found


def put_named(items: list[Document], entry: Document) -> None:
    """Put an entry into a list of named ones; it replaces an entry of the same name."""
    for number, each in enumerate(items):
        if each.get("name") == entry["name"]:
            items[number] = entry
            return
    items.append(entry)


def fill_container(spec: Document, settings: Settings) -> None:
    """Set everything but the command: image, environment, resources, ports, files."""
    container = main_container(spec)
    if settings.image is not None:
        container["image"] = settings.image
    for name, value in settings.env.items():
        put_named(listed(container, "env"), {"name": name, "value": value})
    for port in settings.port:
        number = port_number(port)
        ports = listed(container, "ports")
        if all(each.get("containerPort") != number for each in ports):
            ports.append({"containerPort": number})
    _fill_files(spec, container, settings)
    _fill_resources(container, settings)
    if settings.scratch is not None:
        _fill_scratch(spec, container, settings.scratch)
    for name in ("requests", "limits"):
        if not container["resources"][name]:
            del container["resources"][name]
    if not container["resources"]:
        del container["resources"]


def port_number(text: str) -> int:
    """Parse a port number from 1 to 65535."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise UsageError(f"--port {printable(text)}: a port is a number from 1 to 65535")
    return int(text)


def fill_script(container: Document, settings: Settings) -> None:
    """Set the command of the container to run a shell script, of exactly these bytes."""
    shell, flags, given = settings.shell, settings.shell_flags, container.get("command")
    of_template = isinstance(given, list) and given and given[-1] == "-c"
    if shell is not None or flags is not None or (settings.command is not None and not of_template):
        shell = shell or "/bin/bash"
        container["command"] = [shell, *flags_of(shell, flags, nounset=True), "-c"]
    if settings.command is not None:
        command = replace_params(settings.command, settings.param)
        start = container["command"]
        if flags is None and "pipefail" in start and (words := pod_words(command, str(start[0]))):
            container["command"] = [*start[:-1], *(escape_in(container, word) for word in words)]
        container["args"] = [escape_in(container, command)]


def substitute(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` in a text as Kubernetes does, with the variables ``env``."""
    return _EXPANDED.sub(lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


def work_in(container: Document) -> Work | None:
    """Return the Work of a container that runs tarproc, or None.

    ``$(NAME)`` is kept unchanged.

    Raises:
        UsageError: an argument is unknown to this version of tarproc.
    """
    if not runs_tarproc(container):
        return None
    return Work.from_args([str(each) for each in (*container["command"][1:], *(container.get("args") or ()))])


def runs_tarproc(container: Document) -> bool:
    """Return True if the command of a container is tarproc, in any folder."""
    return str((container.get("command") or [""])[0]).rpartition("/")[2] == PROGRAM


def folders_of_stage(container: Document) -> list[str]:
    """Return the folders that a stage of a verb of tarkit writes to: -O, and --work if it has one.

    ``$(NAME)`` is kept unchanged. The list is empty for other containers.
    """
    command = [str(each) for each in container.get("command") or ()]
    words = [*command[1:], *(str(each) for each in container.get("args") or ())]
    if not command or command[0].rpartition("/")[2] != "tarkit" or "--stage" not in words:
        return []
    return [after for word, after in pairwise(words) if word in ("-O", "--work")]


def escape_in(container: Document, text: str) -> str:
    """Return a text that ``substitute`` turns back into ``text``.

    Only ``$$`` and ``$(NAME)`` of a known NAME are changed, so manifests stay readable.
    """
    names = {str(dict_of(each).get("name")) for each in container.get("env") or []} | {"JOB_COMPLETION_INDEX"}
    if container.get("envFrom"):
        # Their names are not known here.
        names |= set(_IDENTIFIER.findall(text))
    return _AMBIGUOUS.sub(lambda found: f"${found[0]}" if found[1] is None or found[1] in names else found[0], text)


def replace_params(command: str, params: dict[str, str]) -> str:
    """Return the command with ``{K}`` of declared names replaced.

    Values are not searched for names again. ``${K}`` is a variable of the shell, and stays.
    """
    if not params:
        return command
    names = "|".join(map(re.escape, sorted(params, key=len, reverse=True)))
    return re.sub(rf"(?<!\$)\{{({names})\}}", lambda match: params[match[1]], command)


def _fill_files(spec: Document, container: Document, settings: Settings) -> None:
    if settings.config_map is not None:
        if not settings.config_map:
            raise UsageError("--config-map: write the ConfigMap's name")
        source = {"configMap": {"name": settings.config_map}}
        mount(spec, container, f"config-{settings.config_map}", source, settings.config_map_path or "/files")
    secrets: dict[str, list[str]] = {}
    for text in settings.secret:
        name, _, path = text.partition(":")
        if not name or (path and not path.startswith("/")):
            raise UsageError(f"--secret {printable(text)}: write NAME or NAME:/PATH")
        secrets.setdefault(name, []).append(path or f"/secrets/{name}")
    for name, paths in secrets.items():
        mount(spec, container, f"secret-{name}", {"secret": {"secretName": name}}, *paths)
    if settings.gac not in (None, "none"):
        value = _credentials(settings.gac or "", [path for paths in secrets.values() for path in paths])
        put_named(listed(container, "env"), {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": value})


def _credentials(gac: str, secrets: list[str]) -> str:
    if gac != "default":
        return gac
    if not secrets:
        raise UsageError(
            "--gac default takes the key from a Secret, never from a ConfigMap, which all users of the namespace can "
            f"read: kubectl create secret generic gac --from-file={_KEY_FILE}=KEYFILE, then add --secret gac; "
            "or use --service-account"
        )
    return f"{secrets[0].rstrip('/')}/{_KEY_FILE}"


def mount(spec: Document, container: Document, name: str, source: Document, *paths: str) -> None:
    """Mount a volume, read only.

    Args:
        name: text from which the volume's name is made, since names of objects may be longer.
    """
    name = safe_label(name)
    put_named(listed(spec, "volumes"), {"name": name, **source})
    mounts = listed(container, "volumeMounts")
    mounts[:] = [each for each in mounts if each.get("name") != name]
    mounts += [{"name": name, "mountPath": path, "readOnly": True} for path in dict.fromkeys(paths)]


def _fill_resources(container: Document, settings: Settings) -> None:
    requests, limits = part(container, "resources", "requests"), part(container, "resources", "limits")
    if settings.cpu is not None:
        limits.pop("cpu", None)
        requests["cpu"] = _quantity(settings.cpu, "--cpu")
        if parse_quantity(settings.cpu) <= 0:
            del requests["cpu"]
    if settings.memory is not None:
        requests["memory"] = limits["memory"] = _amount(settings.memory, "--memory")
    if settings.gpu is not None:
        resource = settings.gpu_resource or GPU
        for each in (requests, limits):
            each.pop(resource, None)
            if settings.gpu > 0:
                each[resource] = str(settings.gpu)


def _quantity(text: str, flag: str, written: Callable[[str], str] = canonical) -> str:
    try:
        return written(text)
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None


def _amount(text: str, flag: str) -> str:
    """Return a positive whole number of bytes."""
    amount = _quantity(text, flag, whole)
    if parse_quantity(amount) <= 0:
        raise UsageError(f"{flag} {printable(text)}: write more than 0, such as 4Gi or 4G")
    return amount


def _fill_scratch(spec: Document, container: Document, text: str) -> None:
    size = _amount(text, "--scratch")
    put_named(listed(spec, "volumes"), {"name": SCRATCH, "emptyDir": {"sizeLimit": size}})
    part(container, "resources", "requests")["ephemeral-storage"] = size
    # The log, and what the container writes elsewhere.
    part(container, "resources", "limits")["ephemeral-storage"] = total(size, "2Gi")
    if all(each.get("name") != SCRATCH for each in listed(container, "volumeMounts")):
        listed(container, "volumeMounts").append({"name": SCRATCH, "mountPath": "/scratch"})
