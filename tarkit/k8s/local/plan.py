"""From a manifest's documents to the processes of one pod here: its metadata, words, variables and folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarkit.errors import EXIT_NOT_FOUND, CommandNotRunnableError, UsageError, printable
from tarkit.k8s.expansion import expand
from tarkit.k8s.local.env import Machine, PodView, container_env
from tarkit.k8s.local.mounts import MountMap, mount_map, prepare
from tarkit.k8s.local.policy import JobRules
from tarkit.k8s.local.sources import Sources
from tarkit.k8s.local.watch import MARK
from tarkit.k8s.quantity import parse_quantity
from tarkit.k8s.wellknown import INDEX

_IGNORED = ("ConfigMap", "Secret", "Service", "Namespace", "ServiceAccount", "PersistentVolumeClaim")
# What a cluster lets be changed while a Job runs, so that it is the same work.
_MUTABLE = ("parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")

_LONGEST_NAME = 220
"""Bytes. A file's name has 255 at most, and something is added."""


@dataclass(frozen=True)
class Work:
    """A Job, or a Pod as a Job of one: what is run.

    template: metadata and spec of its pods. left_aside: fields of its spec that are not followed here.
    """

    kind: str
    rules: JobRules
    template: Mapping[str, Any]
    suspended: bool = False
    left_aside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the Job or Pod."""
        return self.rules.name


@dataclass(frozen=True)
class Process:
    """A container as a process to start. role: init, sidecar or main. memory: bytes, None is no limit."""

    name: str
    role: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    memory: int | None = None


def works_of(documents: Sequence[Mapping[str, Any]]) -> list[Work]:
    """What is to be run of a manifest, in its order.

    Raises:
        UsageError: nothing is; two have one name; or a document is of a kind that does not run here.
    """
    found: list[Work] = []
    for document in documents:
        kind = str(document.get("kind"))
        if kind in ("Job", "Pod"):
            found.append(_work_of(kind, document))
        elif kind not in _IGNORED:
            raise UsageError(f"a {printable(kind)} does not run on this machine; only Jobs and Pods do")
    if not found:
        raise UsageError("there is neither a Job nor a Pod in this manifest, so there is nothing to run")
    twice = next((name for name, count in Counter(work.name for work in found).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"two documents have the name {printable(twice)}; a cluster would refuse the second")
    return found


def _work_of(kind: str, document: Mapping[str, Any]) -> Work:
    metadata = document.get("metadata") or {}
    # What a server would append to generateName differs each time; here a rerun is to go on.
    name = str(metadata.get("name") or f"{metadata.get('generateName') or ''}local")
    if "/" in name or name.startswith(".") or _length(name) > _LONGEST_NAME:
        raise UsageError(f"{kind} {printable(name)}: this is no name of a Kubernetes object; correct metadata.name")
    namespace = str(metadata.get("namespace") or "default")
    spec = document.get("spec") or {}
    if kind == "Job":
        template = spec.get("template") or {}
        left = tuple(each for each in ("successPolicy", "managedBy") if spec.get(each))
        work = Work(kind, JobRules.of(name, spec, namespace), template, bool(spec.get("suspend")), left)
    else:
        restarts = spec.get("restartPolicy", "Always") != "Never"
        limit = None if restarts else 0
        work = Work(kind, JobRules(name, backoff_limit=limit, restarts=restarts, namespace=namespace), document)
    if not (work.template.get("spec") or {}).get("containers"):
        raise UsageError(f"{kind} {printable(name)} has no containers, so there is nothing to run")
    _check_names(work)
    return work


def _check_names(work: Work) -> None:
    """See to it that names, of which files' names are made here, are some; a server would refuse the same."""
    for each in (*_containers(work), *(work.template["spec"].get("volumes") or ())):
        name = str(each.get("name"))
        if "/" in name or name in ("", ".", "..") or _length(name) > _LONGEST_NAME:
            raise UsageError(
                f"{work.kind} {printable(work.name)}: {printable(name)!r} is no container's or volume's name"
            )
    for each in (entry for container in _containers(work) for entry in container.get("env") or ()):
        name = str(each.get("name"))
        if not name or "=" in name:
            raise UsageError(f"{work.kind} {printable(work.name)}: env {printable(name)!r}: no variable is called so")


def _length(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def digest_of(documents: Sequence[Mapping[str, Any]], volumes: Mapping[str, str] | None = None) -> str:
    """SHA-256 of what is done: of all that a cluster does not let be changed while it runs, and folders for volumes."""
    parts: list[Any] = [dict(volumes)] if volumes else []
    for document in documents:
        spec = document.get("spec") or {}
        fixed = {key: value for key, value in spec.items() if key not in _MUTABLE}
        content = {key: document[key] for key in ("data", "binaryData", "stringData") if key in document}
        parts.append([document.get("kind"), (document.get("metadata") or {}).get("name"), fixed, content])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()


def pod_view(work: Work, index: int, attempt: int, machine: Machine) -> PodView:
    """The pod of an index as the Job controller would make it. attempt: from 1, part of its name."""
    own = work.template.get("metadata") or {}
    spec = dict(work.template.get("spec") or {})
    labels, annotations = dict(own.get("labels") or {}), dict(own.get("annotations") or {})
    name = work.name
    if work.kind == "Job":
        name = f"{work.name}-{index}-{attempt}"
        job_uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"job/{work.name}"))
        for prefix in ("", "batch.kubernetes.io/"):
            labels |= {f"{prefix}job-name": work.name, f"{prefix}controller-uid": job_uid}
    if work.rules.indexed:
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = f"{work.name}-{index}"
        for group in ("initContainers", "containers"):
            spec[group] = [_with_index(each) for each in spec.get(group) or ()]
    metadata = {
        "name": name,
        "namespace": work.rules.namespace,
        "labels": labels,
        "annotations": annotations,
        "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"pod/{name}")),
    }
    return PodView(metadata, spec, machine)


def _with_index(container: Mapping[str, Any]) -> dict[str, Any]:
    env = list(container.get("env") or ())
    if not any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in env):
        path = f"metadata.annotations['{INDEX}']"
        env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return {**container, "env": env}


def processes_of(pod: PodView, own: str, shared: str, sources: Sources, host: Mapping[str, str]) -> list[Process]:
    """Its containers, in the order in which they start; the folders of its volumes are made.

    own: the pod's folder. shared: the run's. host: variables of this machine that pods see.

    Raises:
        UsageError: the manifest lacks what a container needs.
        CommandNotRunnableError: a command is not on this machine.
    """
    folder = os.path.join(own, "work")
    os.makedirs(folder, 0o700, exist_ok=True)
    volumes = prepare(pod, own, shared, sources)
    found = []
    for group, role in (("initContainers", "init"), ("containers", "main")):
        for container in pod.spec.get(group) or ():
            sidecar = role == "init" and container.get("restartPolicy") == "Always"
            found.append(_process(pod, container, "sidecar" if sidecar else role, folder, volumes, sources, host))
    return found


def _process(
    pod: PodView,
    container: Mapping[str, Any],
    role: str,
    folder: str,
    volumes: Mapping[str, str],
    sources: Sources,
    host: Mapping[str, str],
) -> Process:
    name = str(container.get("name"))
    where = f"container {printable(name)} of {printable(pod.name)}"
    mounts = mount_map(container, volumes, where)
    own = container_env(pod, container, sources)
    env = {**host, "HOSTNAME": str(pod.spec.get("hostname") or pod.name)}
    env.update((key, mounts.word(value)) for key, value in own.items())
    env[MARK] = f"{os.path.abspath(folder)}/{name}"
    # As a kubelet does it: what comes with the image or this machine is not known to $(NAME).
    words = [expand(str(word), own) for word in [*(container.get("command") or ()), *(container.get("args") or ())]]
    if not container.get("command"):
        raise UsageError(f"{where} has no command; what its image would run is not known here, so write it out")
    words = [mounts.word(word) for word in words]
    wanted = container.get("workingDir")
    cwd = mounts.path(str(wanted)) if wanted else folder
    if not os.path.isdir(cwd):
        cwd = folder
    if shutil.which(os.path.join(cwd, words[0]) if "/" in words[0] else words[0], path=env.get("PATH")) is None:
        raise CommandNotRunnableError(
            f"{where}: {printable(words[0])} is not on this machine; images are not used here, so install it",
            EXIT_NOT_FOUND,
        )
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    limit = None if memory is None else int(parse_quantity(str(memory)))
    return Process(name, role, tuple(words), env, cwd, limit)


def notes_on(work: Work) -> Iterator[str]:
    """What differs here from the cluster, a sentence each, for people."""
    if work.suspended:
        yield f"{work.name} is suspended in the manifest; here it runs"
    rules = any(each.get("restartPolicyRules") for each in _containers(work))
    for each in (*work.left_aside, *(("restartPolicyRules",) if rules else ())):
        yield f"{work.name}: {each} is not followed here"
    for container in _containers(work):
        mounts = MountMap({str(mount.get("mountPath")): "" for mount in container.get("volumeMounts") or ()})
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        entries = sorted(container.get("env") or (), key=lambda entry: entry.get("name") == "TMPDIR")
        own = {str(entry.get("value")).rstrip("/"): str(entry.get("name")) for entry in entries}
        for path in sorted({path for word in map(str, words) for path in mounts.named_in(word)}):
            there = (
                f"it is at ${own[path]}" if path in own else "it has another name: set a variable to it, and use that"
            )
            yield f"{work.name}: a script names {path}, which does not exist on this machine; here {there}"
        missing = container.get("workingDir")
        if missing and not os.path.isdir(str(missing)) and mounts.path(str(missing)) == missing:
            yield f"{work.name}: there is no folder {printable(str(missing))} here; commands start in one of their own"


def uses_image(works: Collection[Work]) -> bool:
    """Whether there is an image, a security context or the like that is left aside."""
    return any(each.get("image") or each.get("securityContext") for work in works for each in _containers(work))


def limits_memory(works: Collection[Work]) -> bool:
    """Whether any container has a limit."""
    return any(
        "memory" in ((each.get("resources") or {}).get("limits") or {}) for w in works for each in _containers(w)
    )


def _containers(work: Work) -> list[Mapping[str, Any]]:
    spec = work.template.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
