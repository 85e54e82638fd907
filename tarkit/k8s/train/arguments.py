"""The texts in which ``elasticdl train`` takes resources, volumes and variables.

Source of the forms: the documents of ElasticDL's client 1.0.0. What it passed over in silence is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tarkit.errors import UsageError, printable
from tarkit.k8s.quantity import canonical
from tarkit.k8s.yamltext import Document

_GPU = "nvidia.com/gpu"
_FORMS = {
    "cpu": re.compile(r"[0-9]+(?:\.[0-9]+)?|[1-9][0-9]*m"),
    **dict.fromkeys(("memory", "disk", "ephemeral-storage"), re.compile(r"[1-9][0-9]*(?:[EPTGMK]i?)")),
    "gpu": re.compile("[1-9][0-9]*"),
}
_RESOURCE = {"disk": "ephemeral-storage", "gpu": _GPU}


def resources(text: str, flag: str) -> dict[str, str]:
    """``cpu=0.3,memory=1024Mi,gpu=1`` as amounts of a container. flag: for messages.

    Raises:
        UsageError: an unknown or repeated name, or what is not an amount.
    """
    found: dict[str, str] = {}
    for name, value in _pairs(text, flag):
        form = _FORMS["gpu"] if name.endswith("/gpu") else _FORMS.get(name)
        if form is None:
            raise UsageError(f"{flag}: no resource is called {printable(name)}; known are {', '.join(_FORMS)}")
        if not form.fullmatch(value):
            example = {"cpu": "0.3 or 300m", "gpu": "1"}.get(name, "1024Mi")
            raise UsageError(f"{flag}: {printable(name)}={printable(value)} is not an amount; write it as {example}")
        name = _RESOURCE.get(name, name)
        if name in found:
            raise UsageError(f"{flag}: {name} comes twice")
        found[name] = str(canonical(value))
    return found


def volumes(text: str) -> tuple[list[Document], list[Document]]:
    """``claim_name=c,mount_path=/data,sub_path=x; host_path=/d,mount_path=/e`` as volumes and mounts of a container.

    Raises:
        UsageError: an unknown or repeated key; neither or both of claim and path; no mount path.
    """
    declared: dict[tuple[str, str], Document] = {}
    mounts: list[Document] = []
    for item in filter(str.strip, text.split(";")):
        keys: dict[str, str] = {}
        for name, value in _pairs(item, "--volume"):
            if name not in ("claim_name", "host_path", "mount_path", "sub_path", "type") or name in keys:
                wrong = "comes twice" if name in keys else "is not a key"
                raise UsageError(f"--volume: {printable(name)} {wrong}; write claim_name=NAME,mount_path=/PATH")
            keys[name] = value
        source = next((each for each in ("claim_name", "host_path") if each in keys), None)
        if source is None or {"claim_name", "host_path"} <= keys.keys():
            raise UsageError(f"--volume {printable(item.strip())}: write either claim_name=NAME or host_path=/PATH")
        if not keys.get("mount_path", "").startswith("/"):
            raise UsageError(f"--volume {printable(item.strip())}: mount_path is an absolute path in the containers")
        identity = (source, keys[source])
        if identity not in declared:
            name = f"volume-{len(declared)}"
            if source == "claim_name":
                declared[identity] = {"name": name, "persistentVolumeClaim": {"claimName": keys[source]}}
            else:
                path = {"path": keys[source], **({"type": keys["type"]} if "type" in keys else {})}
                declared[identity] = {"name": name, "hostPath": path}
        sub = {"subPath": keys["sub_path"]} if "sub_path" in keys else {}
        mounts.append({"name": declared[identity]["name"], "mountPath": keys["mount_path"], **sub})
    return list(declared.values()), mounts


def variables(text: str) -> dict[str, str]:
    """``A=1,B=x,y,C=2`` as variables: a comma belongs to the value unless a name and ``=`` follow."""
    found: dict[str, str] = {}
    for part in re.split(r",(?=[^,=]*=)", text) if text else []:
        name, mark, value = part.partition("=")
        if not mark or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            raise UsageError(f"--envs {printable(part)}: write NAME=VALUE,NAME=VALUE")
        found[name.strip()] = value
    return found


def _pairs(text: str, flag: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, mark, value = (each.strip() for each in part.partition("="))
        if not mark or not name or not value or "=" in value:
            raise UsageError(f"{flag} {printable(part.strip())!r}: write NAME=VALUE,NAME=VALUE")
        yield name, value


def priority(text: str, flag: str) -> str:
    """A priority class. A share of pods that are high is refused: the pods of one Job have one class."""
    if text and text.replace(".", "", 1).isdigit():
        raise UsageError(f"{flag} {text}: the pods of a Job have one priority class; name it, such as high")
    return text
