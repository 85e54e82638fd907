"""What is run of a manifest's documents: its Jobs and Pods, and the pod of an index as a Job controller makes it."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, annotations_of, part_of, spec_of
from tarkit.k8s.local.kubelet import MountMap, command_words
from tarkit.k8s.local.policy import LocalJob
from tarkit.k8s.wellknown import ELASTIC, INDEX, INDEX_FIELD, JOB_NAME

_IGNORED = ("ConfigMap", "Secret", "Service", "Namespace", "ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy")
# What a cluster lets be changed while a Job runs, so that it is the same work.
_MUTABLE = ("parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")

_LONGEST_NAME = 220
"""Bytes. A file's name has 255 at most, and something is added."""


def jobs_of(documents: Sequence[Object]) -> list[LocalJob]:
    """What is to be run of a manifest, in its order."""
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
    if kind == "Pod":
        restarts = spec.get("restartPolicy") or "Always"
        spec = {"backoffLimit": 0, "template": {**document, "spec": {**spec, "restartPolicy": restarts}}}
    namespace, elastic = str(metadata.get("namespace") or "default"), ELASTIC in annotations_of(document)
    job = LocalJob(name, spec, namespace, is_pod=kind == "Pod", elastic=elastic)
    pod = spec_of(job.template)
    if not pod.get("containers"):
        raise UsageError(f"{where} has no containers, so there is nothing to run")
    if len(pod["containers"]) > 1 or pod.get("initContainers"):
        raise UsageError(f"{where}: only pods of one container run here, without init containers and sidecars")
    # Names of which files' names are made here; a server would refuse the same.
    for each in (job.container, *(pod.get("volumes") or ())):
        if _is_no_file(str(each.get("name"))):
            raise UsageError(f"{where}: {printable(str(each.get('name')))!r} is not a container's or volume's name")
    for each in job.container.get("env") or ():
        variable = str(each.get("name"))
        if not variable or "=" in variable:
            raise UsageError(f"{where}: env {printable(variable)!r} is not a variable's name")
    return job


def _is_no_file(name: str) -> bool:
    too_long = len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME
    return too_long or "/" in name or "\0" in name or name in ("", ".", "..")


def digest_of(documents: Sequence[Object], volumes: Mapping[str, str]) -> str:
    """SHA-256 of what is done: of all that a cluster does not let be changed while it runs, and folders for volumes."""
    parts: list[Any] = [dict(volumes)] if volumes else []
    for document in documents:
        fixed = {key: value for key, value in spec_of(document).items() if key not in _MUTABLE}
        content = {key: document[key] for key in ("data", "binaryData", "stringData") if key in document}
        parts.append([document.get("kind"), part_of(document, "metadata").get("name"), fixed, content])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()


def local_pod(job: LocalJob, index: int, attempt: int) -> Object:
    """The pod of an index as the Job controller would make it. attempt: from 1, part of its name."""
    labels, annotations = (dict(part_of(job.template, "metadata", key)) for key in ("labels", "annotations"))
    spec, name = dict(spec_of(job.template)), job.name
    if not job.is_pod:
        name = f"{job.name}-{index}-{attempt}"
        labels |= {JOB_NAME: job.name, "job-name": job.name}
    if job.indexed:
        labels[INDEX] = annotations[INDEX] = str(index)
        spec["hostname"] = f"{job.name}-{index}"
        env = list(job.container.get("env") or ())
        if not any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": INDEX_FIELD})
        spec["containers"] = [{**job.container, "env": env}]
    metadata = {"name": name, "namespace": job.namespace, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def notes_on(job: LocalJob) -> Iterator[str]:
    """What differs here from the cluster, a sentence each, for people."""
    container = job.container
    if job.spec.get("suspend"):
        yield f"{job.name} is suspended in the manifest; here it runs"
    ignored = [each for each in ("successPolicy", "managedBy") if job.spec.get(each)]
    ignored += [each for each in ("lifecycle", "restartPolicyRules") if container.get(each)]
    for each in ignored:
        yield f"{job.name}: {each} is not followed here"
    mounts = MountMap({str(mount.get("mountPath")): "" for mount in container.get("volumeMounts") or ()})
    entries = sorted(container.get("env") or (), key=lambda entry: entry.get("name") == "TMPDIR")
    own = {str(entry.get("value")).rstrip("/"): str(entry.get("name")) for entry in entries}
    for path in sorted({path for word in command_words(container) for path in mounts.named_in(word)}):
        there = f"it is at ${own[path]}" if path in own else "it has another name: set a variable to it, and use that"
        yield f"{job.name}: a script names {path}, which does not exist on this machine; here {there}"
    missing = container.get("workingDir")
    if missing and not os.path.isdir(str(missing)) and mounts.path(str(missing)) == missing:
        yield f"{job.name}: no folder {printable(str(missing))} here; commands start in one of their own"
