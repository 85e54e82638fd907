"""Rules on pods: containers, names, where they may run, as whom, volumes. Every rule takes a pod's ``spec``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from posixpath import join, normpath

from tarkit.errors import UsageError
from tarkit.k8s.lint.containers import amount
from tarkit.k8s.lint.nodes import Finding, Node, unique, valid
from tarkit.k8s.names import label_value
from tarkit.k8s.podfields import substitute, work_in
from tarkit.store.url import is_stream, local_path

_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_OUTPUT = "TARKIT_OUT"
_STAYS = "name a bucket, or a folder in a volume that stays"


def containers(spec: Node) -> list[Node]:
    """The containers of a pod, those for the start last."""
    return [*spec.at("containers").items(), *spec.at("initContainers").items()]


def names(spec: Node) -> Iterator[Finding]:
    """There are containers, each with its own name; and values of tolerations that are compared."""
    listed = spec.at("containers")
    if listed.is_empty():
        yield listed.error(f"is {'empty' if listed.value == [] else 'missing'}; a pod has at least one container")
    yield from unique(containers(spec), "name", "container")
    for toleration in spec.at("tolerations").items():
        if toleration.text("operator") in ("", "Equal"):
            yield from valid(toleration.at("value"), label_value)


def security(spec: Node) -> Iterator[Finding]:
    """Root that must not be root."""
    pod = spec.at("securityContext")
    for container in containers(spec):
        own = container.at("securityContext")
        user = (own if own.has("runAsUser") else pod).at("runAsUser")
        not_root = (own if own.has("runAsNonRoot") else pod).at("runAsNonRoot").value
        if type(user.value) is int and user.value == 0 and not_root is True:
            yield user.unusable("user 0 is root, and runAsNonRoot is set, so no container starts; write another user")


def volumes(spec: Node) -> Iterator[Finding]:
    """Each has one source; and what is mounted is a volume of the pod."""
    for volume in spec.at("volumes").items():
        kinds = [key for key, node in volume.fields() if key != "name" and node.value is not None]
        if not kinds:
            yield volume.warning("has no source, so it is an empty folder; write emptyDir: {} if that is meant")
        elif len(kinds) > 1:
            yield volume.error(f"has the sources {' and '.join(sorted(kinds))}; make two volumes of it")
    names = {volume.text("name") for volume in spec.at("volumes").items()}
    # Claims of a StatefulSet's template are volumes of its pods.
    names |= {claim.at("metadata").text("name") for claim in spec.root().at("spec", "volumeClaimTemplates").items()}
    for name in (each.at("name") for one in containers(spec) for each in one.at("volumeMounts").items()):
        if isinstance(name.value, str) and name.value and name.value not in names:
            there = ", ".join(sorted(names - {""})) or "none"
            yield name.error(f"no volume {name.value!r} in the pod; there is: {there}", None)


def memory_disks(spec: Node) -> Iterator[Finding]:
    """Files in memory count as memory of the container that writes them."""
    for volume in spec.at("volumes").items():
        disk, name = volume.at("emptyDir"), volume.text("name")
        size = amount(disk.at("sizeLimit")) if disk.text("medium") == "Memory" else None
        for container in containers(spec):
            limit = container.at("resources", "limits", "memory")
            most = amount(limit)
            if size is not None and most is not None and size >= most and name in _mounted(container).values():
                yield disk.at("sizeLimit").warning(
                    f"{disk.value['sizeLimit']} of files in memory count against the container's limit of "
                    f"{limit.value}, and it is killed before they are full; write less, or a higher limit",
                    "--scratch or --memory",
                )


def _mounted(container: Node) -> dict[str, str]:
    """The names of its volumes, by path."""
    mounts = container.at("volumeMounts").items()
    return {each.text("mountPath").rstrip("/"): each.text("name") for each in mounts if each.text("mountPath")}


def lost_outputs(spec: Node, kept: Collection[str] = ()) -> Iterator[Finding]:
    """Outputs go to a place that stays; what ends with its pod is lost, though each pod ends with 0.
    kept: names of volumes that stay in any case."""
    gone = {each.text("name") for each in spec.at("volumes").items() if each.has("emptyDir") or each.has("ephemeral")}
    for container in containers(spec):
        found = _output(container)
        if found is None:
            continue
        place, output, flag, is_tarproc = found
        # What a variable stands for may not be known here.
        if (path := _path_of(output)) in (None, "") or path.startswith(("$(", "/dev/")):
            continue
        path = normpath(join(container.text("workingDir"), path))
        # Another program may copy its files elsewhere.
        report = place.unusable if is_tarproc else place.warning
        if not path.startswith("/"):
            yield report(
                f"{path!r} is in the folder in which the command starts, and is lost when the pod ends; {_STAYS}, or "
                "set workingDir to one",
                flag,
            )
            continue
        mounted = _mounted(container)
        above = max((each for each in mounted if f"{path}/".startswith(f"{each}/")), key=len, default=None)
        if above is None:
            why = "nothing is mounted there, and a folder of the pod itself is lost when it ends"
            yield place.warning(f"{path!r}: {why}; {_STAYS}", flag)
        elif mounted[above] in gone - set(kept):
            why = f"is in the volume {mounted[above]}, which is gone with its pod, and the outputs with it"
            yield report(f"{path!r} {why}; {_STAYS}", flag)


def _path_of(output: str) -> str | None:
    """The path of a local output; None: it is another one, or cannot be."""
    try:
        return None if is_stream(output) else local_path(output)
    except UsageError:
        return None


def _output(container: Node) -> tuple[Node, str, str | None, bool] | None:
    """The place that names the output; the output; the option of kubetpl for it, if there is one; whether it is an
    argument of tarproc, or a variable of another program."""
    words = [*container.at("command").members(), *container.at("args").members()]
    try:
        work = work_in({"command": [word.value for word in words]})
    except UsageError:
        # With such arguments tarproc ends at once.
        return None
    if work is None:
        variable = next((each for each in container.at("env").items() if each.text("name") == _OUTPUT), None)
        return None if variable is None else (variable.at("value"), variable.text("value"), "--outdir", False)
    values: dict[str, str] = {}
    for each in container.at("env").items():
        if each.has("value"):
            values[each.text("name")] = substitute(each.text("value"), values)
    output = work.outdir or work.output or ""
    spelled = [f"{flag}{output}" for flag in ("", "-O", "--outdir=", "-o", "--output=")]
    place = next((word for word in words if word.value in spelled), container.at("args"))
    return place, substitute(output, values), "--outdir" if work.outdir else None, True


def credentials(spec: Node) -> Iterator[Finding]:
    """A key file is mounted of a Secret, since all users of the namespace can read ConfigMaps."""
    public = {volume.text("name") for volume in spec.at("volumes").items() if volume.has("configMap")}
    for container in containers(spec):
        folders = [path for path, name in _mounted(container).items() if name in public]
        for variable in container.at("env").items():
            path = variable.text("value")
            if variable.text("name") == _CREDENTIALS and any(path.startswith(f"{folder}/") for folder in folders):
                yield variable.warning(
                    "the key file is in a ConfigMap, which all users of the namespace can read; put it in a Secret "
                    "(kubectl create secret generic NAME --from-file=FILE), or do without by --service-account",
                    "--config-map to --secret",
                )
