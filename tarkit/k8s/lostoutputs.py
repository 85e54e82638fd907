"""Detection of outputs that would be lost with their pods, although each pod ends with 0."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator
from posixpath import join, normpath
from typing import NamedTuple

from tarkit.errors import UsageError
from tarkit.k8s.fill import pod_of
from tarkit.k8s.podfields import folders_of_stage, listed, part, substitute, work_in
from tarkit.k8s.yamltext import Document
from tarkit.names.url import is_stream, local_path

_OUTPUT = "TARKIT_OUT"
_STAYS = "name a bucket, or a folder in a volume that stays"


class LostOutput(NamedTuple):
    """An output that would be lost.

    Attributes:
        is_certain: nothing else in the pod could copy the outputs in time, and no mount is missing.
        sentence: what is wrong, where, and how to fix it.
    """

    is_certain: bool
    sentence: str


def lost_outputs(document: Document, kept: Collection[str] = ()) -> Iterator[LostOutput]:
    """Yield outputs of a manifest's containers that are lost with their pod.

    Args:
        kept: names of volumes that are never lost.
    """
    document = copy.deepcopy(document)
    pod = pod_of(document)
    if pod is None:
        return
    spec = part(pod, "spec")
    gone = {each.get("name") for each in listed(spec, "volumes") if not {"emptyDir", "ephemeral"}.isdisjoint(each)}
    containers = [*listed(spec, "containers"), *listed(spec, "initContainers")]
    mounts = [
        {str(each.get("mountPath")).rstrip("/"): each.get("name") for each in listed(container, "volumeMounts")}
        for container in containers
    ]
    for container, mounted in zip(containers, mounts, strict=True):
        paths, is_tarkit = _output_paths(container)
        for path in paths:
            above = max((each for each in mounted if f"{path}/".startswith(f"{each}/")), key=len, default=None)
            if not path.startswith("/"):
                is_certain, why = (
                    is_tarkit,
                    "is in the folder in which the command starts, and is lost when the pod ends",
                )
            elif above is None:
                is_certain, why = False, "is in no volume, and a folder of the pod itself is lost when it ends"
            elif mounted[above] in gone - set(kept):
                is_certain = is_tarkit and sum(mounted[above] in each.values() for each in mounts) == 1
                why = f"is in the volume {mounted[above]}, which is gone with its pod, and the outputs with it"
            else:
                continue
            name = f"{document['kind']} {part(document, 'metadata').get('name')}"
            yield LostOutput(is_certain, f"{name}: the output {path!r} {why}; {_STAYS}")


def _output_paths(container: Document) -> tuple[list[str], bool]:
    """Return the paths of a container's local outputs, and whether tarkit itself writes them."""
    values: dict[str, str] = {}
    for each in listed(container, "env"):
        if each.get("value") is not None:
            values[str(each.get("name"))] = substitute(str(each["value"]), values)
    try:
        work, outputs = work_in(container), folders_of_stage(container)
        is_tarkit = work is not None or bool(outputs)
        if work is not None:
            outputs = [work.outdir or work.output or ""]
        outputs = [substitute(each, values) for each in outputs] if is_tarkit else [values.get(_OUTPUT, "")]
        paths = [None if is_stream(each) else local_path(each) for each in outputs]
    except UsageError:
        # With such arguments tarproc ends at once, and such a URL is not a path.
        return [], False
    folder = str(container.get("workingDir") or "")
    found = [normal_path(join(folder, path)) for path in paths if path and not path.startswith(("$(", "/dev/"))]
    return found, is_tarkit


def normal_path(path: str) -> str:
    """Return a path without ``//``, ``.``, ``..`` and a trailing slash.

    A leading ``//`` stays, since its meaning depends on the system (POSIX).
    """
    return re.sub("^//+", "/", normpath(path))
