"""A pod's volumes as folders of this machine, and its paths as they are called here.

Nothing is mounted: words and values that are a mount path, or lie in one, are rewritten. A script is
left alone, whatever it names: changed text would be another command, with other done records.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, part_of
from tarkit.k8s.local.env import PodView, Sources, downward_value

_OPTION = re.compile(r"(@|--?[A-Za-z][\w-]*=@?)(/.*)", re.DOTALL)
_SCRIPT = re.compile(r"\s")
"""More than one word is not a path."""
_SOURCE_KINDS = {"configMap": ("ConfigMap", "name"), "secret": ("Secret", "secretName")}


class MountMap:
    """Mount paths of one container -> folders here. Longest first, as mounts lie in one another."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._mounts = sorted(((path.rstrip("/") or "/", real) for path, real in mounts.items()), reverse=True)
        self._mounts.sort(key=lambda entry: -len(entry[0]))

    def word(self, text: str) -> str:
        """A word of a command, or a value of a variable: ``/scratch/x``, ``@/scratch/x``, ``--opt=/scratch/x``."""
        if _SCRIPT.search(text):
            return text
        match = _OPTION.fullmatch(text)
        return match[1] + self.path(match[2]) if match else self.path(text)

    def path(self, text: str) -> str:
        """The same file, as it is called here."""
        for mount, real in self._mounts:
            if text == mount or text.startswith(mount + "/"):
                return real + text[len(mount) :]
        return text

    def named_in(self, script: str) -> Iterator[str]:
        """Mount paths that a script names."""
        for mount, _ in self._mounts:
            if _SCRIPT.search(script) and re.search(rf"(?<![\w./-]){re.escape(mount)}(?![\w-])", script):
                yield mount


def volume_folders(pod: PodView, own: str, shared: str, sources: Sources) -> dict[str, str]:
    """Make the folders of all volumes of a pod; their paths by volume.

    own: the pod's folder, for what it writes. shared: the run's, for what all its pods only read.

    Raises:
        UsageError: a ConfigMap or Secret is not among the documents, or no such volume here.
    """
    volumes = pod.spec.get("volumes") or ()
    return {str(each.get("name")): _folder_of(pod, each, own, shared, sources) for each in volumes}


def mount_map(container: Object, volumes: Mapping[str, str], where: str) -> MountMap:
    """Where the mounts of a container are.

    Raises:
        UsageError: it mounts a volume that the pod does not have.
    """
    mounts: dict[str, str] = {}
    for mount in container.get("volumeMounts") or ():
        name = str(mount.get("name"))
        if name not in volumes:
            raise UsageError(f"{where} mounts the volume {printable(name)}, which the pod does not have")
        real = volumes[name]
        if below := mount.get("subPath"):
            real = os.path.join(real, below)
            if not os.path.exists(real):
                os.makedirs(real)
        mounts[str(mount.get("mountPath"))] = real
    return MountMap(mounts)


def _folder_of(pod: PodView, volume: Object, own: str, shared: str, sources: Sources) -> str:
    name = str(volume.get("name"))
    where = f"{printable(pod.name)}: volume {printable(name)} "
    if name in sources.folders:
        return sources.folders[name]
    if path := part_of(volume, "hostPath").get("path"):
        return str(path)
    parts = part_of(volume, "projected").get("sources") or () if volume.get("projected") else [volume]
    personal = any({"downwardAPI", "emptyDir", "ephemeral"} & part.keys() for part in parts)
    folder = os.path.join(own if personal else shared, "volumes", name)
    os.makedirs(folder, 0o700, exist_ok=True)
    files: dict[str, bytes] = {}
    for part in parts:
        files.update(_files_of(pod, part, where, sources))
    modes = (each["defaultMode"] for each in volume.values() if isinstance(each, dict) and each.get("defaultMode"))
    # Everything is its owner's here; of the mode only matters whether it can be executed.
    _write(folder, files, 0o600 | 0o100 & int(next(modes, 0)))
    return folder


def _files_of(pod: PodView, source: Object, where: str, sources: Sources) -> dict[str, bytes]:
    for key, (kind, name_field) in _SOURCE_KINDS.items():
        if (reference := source.get(key)) is not None:
            name = str(reference.get(name_field) or reference.get("name"))
            content = sources.content(kind, name, reference, where)
            items = reference.get("items") or [{"key": each, "path": each} for each in content]
            missing = next((str(item.get("key")) for item in items if item.get("key") not in content), None)
            if missing is not None and not reference.get("optional"):
                raise UsageError(f"{where}of {kind} {name}: no key {printable(missing)}")
            return {str(item["path"]): content[item["key"]] for item in items if item.get("key") in content}
    if (downward := source.get("downwardAPI")) is not None:
        containers = {each.get("name"): each for each in pod.spec.get("containers") or ()}
        items = downward.get("items") or ()
        return {str(each.get("path")): downward_value(pod, containers, each, where).encode("utf-8") for each in items}
    if {"serviceAccountToken", "emptyDir", "ephemeral"} & source.keys():
        # An empty folder; there is no API server here for which a token could be good.
        return {}
    kind = next((key for key in source if key != "name"), "none")
    raise UsageError(f"{where}is a {printable(kind)}, which is not here; give its folder with --volume NAME=FOLDER")


def _write(folder: str, files: Mapping[str, bytes], mode: int) -> None:
    """Files that all pods of a run may read at once: the same content each time, so written once."""
    os.makedirs(folder, 0o700, exist_ok=True)
    for path, content in files.items():
        full = os.path.normpath(os.path.join(folder, path))
        if not full.startswith(folder + os.sep):
            raise UsageError(f"{printable(path)}: a file of a volume must be inside of it")
        if os.path.exists(full):
            continue
        os.makedirs(os.path.dirname(full), 0o700, exist_ok=True)
        fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(fd, "wb") as stream:
            stream.write(content)
