"""Rules on volumes and where they are mounted. Every rule takes a pod's ``spec``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from posixpath import normpath

from tarkit.k8s.lint.containers import amount, quantity
from tarkit.k8s.lint.nodes import Finding, Node, one_of, unique, valid
from tarkit.k8s.lint.pods import containers
from tarkit.k8s.names import config_key, dns_label, dns_subdomain

_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_OUTPUT = "TARKIT_OUT"


def volumes(spec: Node) -> Iterator[Finding]:
    """Each has its own name, and one source."""
    listed = spec.at("volumes").items()
    for volume in listed:
        yield from valid(volume, "name", dns_label)
        kinds = [key for key, node in volume.fields() if key != "name" and node.value is not None]
        if not kinds:
            yield volume.warning("has no source, so it is an empty folder; write emptyDir: {} if that is meant")
        elif len(kinds) > 1:
            yield volume.error(f"has the sources {' and '.join(sorted(kinds))}; make two volumes of it")
        yield from _source(volume)
    yield from unique(listed, "name", "volume")


def _source(volume: Node) -> Iterator[Finding]:
    for kind, key in (("configMap", "name"), ("secret", "secretName")):
        source = volume.at(kind)
        if isinstance(source.value, dict) and source.at(key).is_empty():
            yield source.at(key).error("is missing; write it")
        yield from valid(source, key, dns_subdomain, Node.unusable)
        for item in source.at("items").items():
            yield from valid(item, "key", config_key, Node.unusable)
            yield from _below(item, "path")
    if ".." in volume.at("hostPath").text("path").split("/"):
        yield volume.at("hostPath", "path").error("must not have .. in it; write the folder itself")
    disk = volume.at("emptyDir")
    yield from quantity(disk.at("sizeLimit"))
    if (medium := disk.text("medium")) not in ("", "Memory") and not medium.startswith("HugePages"):
        yield disk.at("medium").unusable(f"{medium!r} is not a medium; write Memory, or leave it out for disk")


def _below(holder: Node, key: str) -> Iterator[Finding]:
    path, reserved = holder.text(key), key == "path" and holder.text(key).startswith("..")
    if path.startswith("/") or ".." in path.split("/") or reserved:
        yield holder.at(key).error(f"{path!r} must be below the volume; write it without / first and without ..")


def mounts(spec: Node) -> Iterator[Finding]:
    """What is mounted is a volume of the pod, and has its own path."""
    names = {volume.text("name") for volume in spec.at("volumes").items()}
    # Claims of a StatefulSet's template are volumes of its pods.
    names |= {claim.at("metadata").text("name") for claim in spec.root().at("spec", "volumeClaimTemplates").items()}
    for container in containers(spec):
        listed = container.at("volumeMounts").items()
        for mount in listed:
            name, path = mount.text("name"), mount.text("mountPath")
            if name and name not in names:
                there = ", ".join(sorted(names - {""})) or "none"
                yield mount.at("name").error(f"no volume {name!r} in the pod; there is: {there}", None)
            if path and not path.startswith("/"):
                yield mount.at("mountPath").warning(f"{path!r} is not from the root on; write /{path}")
            yield from _below(mount, "subPath")
            yield from _below(mount, "subPathExpr")
            if mount.text("subPath") and mount.text("subPathExpr"):
                yield from one_of(mount, ("subPath", "subPathExpr"))
        yield from unique(listed, "mountPath", "volume")


def memory_disks(spec: Node) -> Iterator[Finding]:
    """Files in memory count as memory of the container that writes them."""
    for volume in spec.at("volumes").items():
        disk = volume.at("emptyDir")
        if disk.text("medium") != "Memory":
            continue
        size = amount(disk.at("sizeLimit"))
        for container in containers(spec):
            limit = container.at("resources", "limits", "memory")
            allowed = amount(limit)
            uses = any(mount.text("name") == volume.text("name") for mount in container.at("volumeMounts").items())
            if size is not None and allowed is not None and uses and size >= allowed:
                yield disk.at("sizeLimit").warning(
                    f"{disk.value['sizeLimit']} of files in memory count against the container's limit of "
                    f"{limit.value}, and it is killed before they are full; write less, or a higher limit",
                    "--scratch or --memory",
                )


def lost_outputs(spec: Node, kept: Collection[str] = ()) -> Iterator[Finding]:
    """Outputs go to a folder that stays; one that ends with its pod is lost, though each pod ends with 0.

    kept: names of volumes that stay in any case.
    """
    gone = {each.text("name") for each in spec.at("volumes").items() if each.has("emptyDir") or each.has("ephemeral")}
    gone -= set(kept)
    for container in containers(spec):
        mounts = container.at("volumeMounts").items()
        mounted = {each.text("mountPath").rstrip("/"): each.text("name") for each in mounts if each.text("mountPath")}
        for word, is_tarproc in _outdirs(container):
            path = re.sub("^(--outdir=|-O)?(file://)?", "", str(word.value))
            if not path.startswith("/"):
                continue
            path = normpath(path)
            folders = (each for each in mounted if path.startswith(f"{each}/") or path == each)
            above = max(folders, key=len, default=None)
            if above is None:
                yield word.warning(
                    f"{path!r}: nothing is mounted there, and a folder of the pod itself is lost when it ends; name a "
                    "URL, or mount a volume that stays",
                    "--outdir",
                )
            elif mounted[above] in gone:
                # Another program may copy its files elsewhere.
                yield (word.unusable if is_tarproc else word.warning)(
                    f"{path!r} is in the volume {mounted[above]}, which is gone with its pod, and the "
                    "outputs with it; name a bucket, or a folder in a volume that stays",
                    "--outdir",
                )


def _outdirs(container: Node) -> Iterator[tuple[Node, bool]]:
    """The words that name the output folder: arguments of tarproc (True), or variables of other programs (False)."""
    command = container.at("command").members()
    if command and str(command[0].value).rpartition("/")[2] == "tarproc":
        for before, word in pairwise([*command, *container.at("args").members()]):
            if word.value == "--":
                return
            if before.value in ("-O", "--outdir") or re.match("--outdir=|-O.", str(word.value)):
                yield word, True
    else:
        for variable in container.at("env").items():
            if variable.text("name") == _OUTPUT:
                yield variable.at("value"), False


def credentials(spec: Node) -> Iterator[Finding]:
    """A key file is mounted of a Secret, since all users of the namespace can read ConfigMaps."""
    public = {volume.text("name") for volume in spec.at("volumes").items() if volume.has("configMap")}
    for container in containers(spec):
        folders = [m.text("mountPath") for m in container.at("volumeMounts").items() if m.text("name") in public]
        for variable in container.at("env").items():
            path = variable.text("value")
            if variable.text("name") == _CREDENTIALS and any(
                folder and path.startswith(f"{folder.rstrip('/')}/") for folder in folders
            ):
                yield variable.warning(
                    "the key file is in a ConfigMap, which all users of the namespace can read; put it in a Secret "
                    "(kubectl create secret generic NAME --from-file=FILE), or do without by --service-account",
                    "--config-map to --secret",
                )
