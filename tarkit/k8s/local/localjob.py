"""From a manifest's documents to the processes of one pod here: its metadata, words, variables and folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarkit.errors import EXIT_NOT_FOUND, CommandNotRunnableError, UsageError, printable
from tarkit.k8s.apiobject import Object, part_of, spec_of
from tarkit.k8s.expansion import substitute
from tarkit.k8s.local.env import Machine, PodView, Sources, container_env
from tarkit.k8s.local.mounts import MountMap, mount_map, volume_folders
from tarkit.k8s.local.policy import JobRules
from tarkit.k8s.local.processes import MARK
from tarkit.k8s.quantity import parse_quantity
from tarkit.k8s.wellknown import CONTROLLER, INDEX, JOB_NAME

_IGNORED = ("ConfigMap", "Secret", "Service", "Namespace", "ServiceAccount", "PersistentVolumeClaim")
# What a cluster lets be changed while a Job runs, so that it is the same work.
_MUTABLE = ("parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")

_LONGEST_NAME = 220
"""Bytes. A file's name has 255 at most, and something is added."""


@dataclass(frozen=True)
class LocalJob:
    """A Job, or a Pod as a Job of one: what is run. template: metadata and spec of its pods. spec: its own."""

    kind: str
    rules: JobRules
    template: Object
    spec: Object

    @property
    def name(self) -> str:
        """Of the Job or Pod."""
        return self.rules.name

    @property
    def containers(self) -> list[Object]:
        """Those of its pods, init containers first."""
        spec = spec_of(self.template)
        return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]

    @property
    def limits_memory(self) -> bool:
        """Whether any container has a limit of memory."""
        return any("memory" in part_of(each, "resources", "limits") for each in self.containers)


@dataclass(frozen=True)
class Process:
    """A container as a process to start. role: init, sidecar or main. memory: its limit in bytes, or None."""

    name: str
    role: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    memory: int | None = None


def jobs_of(documents: Sequence[Object]) -> list[LocalJob]:
    """What is to be run of a manifest, in its order.

    Raises:
        UsageError: nothing is; two have one name; or a document is of a kind that does not run here.
    """
    found: list[LocalJob] = []
    for document in documents:
        kind = str(document.get("kind"))
        if kind in ("Job", "Pod"):
            found.append(_job_of(kind, document))
        elif kind not in _IGNORED:
            raise UsageError(f"a {printable(kind)} does not run on this machine; only Jobs and Pods do")
    if not found:
        raise UsageError("there is neither a Job nor a Pod in this manifest, so there is nothing to run")
    name, count = Counter(job.name for job in found).most_common(1)[0]
    if count > 1:
        raise UsageError(f"two documents have the name {printable(name)}; a cluster would refuse the second")
    return found


def _job_of(kind: str, document: Object) -> LocalJob:
    metadata, spec = part_of(document, "metadata"), spec_of(document)
    # What a server would append to generateName differs each time; here a rerun is to go on.
    name = str(metadata.get("name") or f"{metadata.get('generateName') or ''}local")
    where = f"{kind} {printable(name)}"
    if name.startswith(".") or _is_no_file(name):
        raise UsageError(f"{where}: this is not a name of a Kubernetes object; correct metadata.name")
    namespace = str(metadata.get("namespace") or "default")
    if kind == "Job":
        job = LocalJob(kind, JobRules.of(name, spec, namespace), part_of(spec, "template"), spec)
    else:
        restarts = spec.get("restartPolicy", "Always") != "Never"
        rules = JobRules(name, backoff_limit=None if restarts else 0, restarts=restarts, namespace=namespace)
        job = LocalJob(kind, rules, document, {})
    if not spec_of(job.template).get("containers"):
        raise UsageError(f"{where} has no containers, so there is nothing to run")
    # Names of which files' names are made here; a server would refuse the same.
    for each in (*job.containers, *(spec_of(job.template).get("volumes") or ())):
        if _is_no_file(str(each.get("name"))):
            raise UsageError(f"{where}: {printable(str(each.get('name')))!r} is not a container's or volume's name")
    for each in (entry for container in job.containers for entry in container.get("env") or ()):
        variable = str(each.get("name"))
        if not variable or "=" in variable:
            raise UsageError(f"{where}: env {printable(variable)!r} is not a variable's name")
    return job


def _is_no_file(name: str) -> bool:
    return "/" in name or name in ("", ".", "..") or len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME


def digest_of(documents: Sequence[Object], volumes: Mapping[str, str] | None = None) -> str:
    """SHA-256 of what is done: of all that a cluster does not let be changed while it runs, and folders for volumes."""
    parts: list[Any] = [dict(volumes)] if volumes else []
    for document in documents:
        fixed = {key: value for key, value in spec_of(document).items() if key not in _MUTABLE}
        content = {key: document[key] for key in ("data", "binaryData", "stringData") if key in document}
        parts.append([document.get("kind"), part_of(document, "metadata").get("name"), fixed, content])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()


def pod_view(job: LocalJob, index: int, attempt: int, machine: Machine) -> PodView:
    """The pod of an index as the Job controller would make it. attempt: from 1, part of its name."""
    labels, annotations = (dict(part_of(job.template, "metadata", key)) for key in ("labels", "annotations"))
    spec, name = dict(spec_of(job.template)), job.name
    if job.kind == "Job":
        name = f"{job.name}-{index}-{attempt}"
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"job/{job.name}"))
        labels |= {JOB_NAME: job.name, CONTROLLER: uid, "job-name": job.name, "controller-uid": uid}
    if job.rules.indexed:
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = f"{job.name}-{index}"
        for group in ("initContainers", "containers"):
            spec[group] = [_with_index(each) for each in spec.get(group) or ()]
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"pod/{name}"))
    metadata = {
        "name": name,
        "namespace": job.rules.namespace,
        "labels": labels,
        "annotations": annotations,
        "uid": uid,
    }
    return PodView(metadata, spec, machine)


def _with_index(container: Object) -> Object:
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
    volumes = volume_folders(pod, own, shared, sources)
    found = []
    for group, role in (("initContainers", "init"), ("containers", "main")):
        for container in pod.spec.get(group) or ():
            where = f"container {printable(str(container.get('name')))} of {printable(pod.name)}"
            mounts = mount_map(container, volumes, where)
            sidecar = role == "init" and container.get("restartPolicy") == "Always"
            variables = container_env(pod, container, sources)
            found.append(
                _process(container, "sidecar" if sidecar else role, where, folder, mounts, variables, {
                    **host, "HOSTNAME": str(pod.spec.get("hostname") or pod.name),
                })
            )  # fmt: skip
    return found


def _process(
    container: Object, role: str, where: str, folder: str, mounts: MountMap, variables: Mapping[str, str],
    host: Mapping[str, str],
) -> Process:  # fmt: skip
    name = str(container.get("name"))
    env = {**host, **{key: mounts.word(value) for key, value in variables.items()}}
    env[MARK] = f"{os.path.abspath(folder)}/{name}"
    if not container.get("command"):
        raise UsageError(f"{where} has no command; what its image would run is not known here, so write it out")
    # As a kubelet does it: what comes with the image or this machine is not known to $(NAME).
    words = [mounts.word(substitute(str(word), variables)) for word in _words(container)]
    wanted = container.get("workingDir")
    cwd = mounts.path(str(wanted)) if wanted else folder
    if not os.path.isdir(cwd):
        cwd = folder
    if shutil.which(os.path.join(cwd, words[0]) if "/" in words[0] else words[0], path=env.get("PATH")) is None:
        raise CommandNotRunnableError(
            f"{where}: {printable(words[0])} is not on this machine; images are not used here, so install it",
            EXIT_NOT_FOUND,
        )
    memory = part_of(container, "resources", "limits").get("memory")
    limit = None if memory is None else int(parse_quantity(str(memory)))
    return Process(name, role, tuple(words), env, cwd, limit)


def _words(container: Object) -> list[Any]:
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def notes_on(job: LocalJob) -> Iterator[str]:
    """What differs here from the cluster, a sentence each, for people."""
    if job.spec.get("suspend"):
        yield f"{job.name} is suspended in the manifest; here it runs"
    ignored = [each for each in ("successPolicy", "managedBy") if job.spec.get(each)]
    ignored += ["restartPolicyRules"] if any(each.get("restartPolicyRules") for each in job.containers) else []
    for each in ignored:
        yield f"{job.name}: {each} is not followed here"
    for container in job.containers:
        mounts = MountMap({str(mount.get("mountPath")): "" for mount in container.get("volumeMounts") or ()})
        entries = sorted(container.get("env") or (), key=lambda entry: entry.get("name") == "TMPDIR")
        own = {str(entry.get("value")).rstrip("/"): str(entry.get("name")) for entry in entries}
        for path in sorted({path for word in map(str, _words(container)) for path in mounts.named_in(word)}):
            there = (
                f"it is at ${own[path]}" if path in own else "it has another name: set a variable to it, and use that"
            )
            yield f"{job.name}: a script names {path}, which does not exist on this machine; here {there}"
        missing = container.get("workingDir")
        if missing and not os.path.isdir(str(missing)) and mounts.path(str(missing)) == missing:
            yield f"{job.name}: no folder {printable(str(missing))} here; commands start in one of their own"
