"""Jobs and Pods of a manifest as processes: the variables, words and folders of each container.

The fields that the generators of tarkit print are supported; any other field is refused by its
name, unless it only matters in a cluster. Nothing is mounted: words and values that are a mount
path, or are below one, are rewritten; so are addresses of services. A script is never changed,
whatever it names: changed text would be another command, with other done records.
"""

from __future__ import annotations

import base64
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import EXIT_NOT_FOUND, CommandNotRunnableError, UsageError, printable
from tarkit.k8s.apiobject import Object, name_of, part_of, spec_of
from tarkit.k8s.local.policy import LocalJob
from tarkit.k8s.local.processes import MARK, Process
from tarkit.k8s.lostoutputs import normal_path
from tarkit.k8s.names import dns_label, dns_subdomain
from tarkit.k8s.podfields import substitute
from tarkit.k8s.quantity import parse_quantity
from tarkit.k8s.wellknown import CONTROLLER, INDEX, INDEX_FIELD

_NOT_RUN = ("ConfigMap", "Secret", "Service", "Namespace", "ServiceAccount", "PersistentVolumeClaim", "NetworkPolicy")
_KNOWN = {
    "Job": "completionMode completions parallelism backoffLimit backoffLimitPerIndex maxFailedIndexes podFailurePolicy"
    " activeDeadlineSeconds template podReplacementPolicy ttlSecondsAfterFinished",
    "Pod": "containers initContainers volumes restartPolicy terminationGracePeriodSeconds hostname subdomain"
    " securityContext affinity automountServiceAccountToken enableServiceLinks serviceAccountName imagePullSecrets"
    " priorityClassName nodeSelector tolerations topologySpreadConstraints",
    "container": "name command args env workingDir volumeMounts resources ports image imagePullPolicy securityContext"
    " readinessProbe terminationMessagePolicy",
    "env": "name value valueFrom",
    "volumeMounts": "name mountPath readOnly",
    "configMap": "name",
    "rules": "action onExitCodes onPodConditions",
    "onExitCodes": "containerName operator values",
}
"""Fields that are supported here, or have no effect on this machine, by the part that contains
them.
"""
_WORDS = {
    "completionMode": ("Indexed", "NonIndexed"),
    "restartPolicy": ("Never", "OnFailure"),
    "action": ("Count", "FailIndex", "FailJob", "Ignore"),
    "operator": ("In", "NotIn"),
}
"""Values of fields that are supported here; another value would be treated like one of these."""
_OPTION = re.compile(r"((?:@|--?[A-Za-z][\w-]*=@?|-[A-Za-z]@?|)(?:file://)?)(/\S*)")


@dataclass(frozen=True)
class LocalSettings:
    """Settings of a local run.

    Attributes:
        parallelism: number of pods at once; None takes that of the manifest, but at most the number
            of CPUs.
        retry_delay: seconds before the first retry; it doubles.
        env: variables of this machine that pods see.
        volumes: name of a volume -> folder that replaces it.
    """

    parallelism: int | None = None
    retry_delay: float = 1.0
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)


def jobs_of(documents: Sequence[Object]) -> list[LocalJob]:
    """Return the Jobs and Pods of a manifest, in its order.

    Raises:
        UsageError: a Job or Pod would not run here as in a cluster.
    """
    found: list[LocalJob] = []
    for document in documents:
        kind = str(document.get("kind"))
        if kind in ("Job", "Pod"):
            found.append(_job_of(kind, document))
        elif kind not in _NOT_RUN:
            raise UsageError(f"a {printable(kind)} does not run on this machine; only Jobs and Pods do")
    if not found:
        raise UsageError("there is neither a Job nor a Pod in this manifest, so there is nothing to run")
    if len({job.name for job in found}) < len(found):
        raise UsageError("two Jobs or Pods of this manifest have one name; rename one")
    return found


def _job_of(kind: str, document: Object) -> LocalJob:
    job = LocalJob(document)
    where, pod = job.where, spec_of(job.template)
    pod = {**pod, "restartPolicy": pod.get("restartPolicy") or "Always"}
    _known(job.spec, kind, where)
    if len(_known(pod, "Pod", where).get("containers") or ()) != 1:
        raise UsageError(f"{where} has not one container; only pods of one container, with its sidecars, run here")
    if any(each.container.get("restartPolicy") != "Always" for each in job.sidecars):
        raise UsageError(f"{where} has an init container that is not a sidecar (restartPolicy Always); none runs here")
    for rule in job.rules:
        _known(part_of(_known(rule, "rules", where), "onExitCodes"), "onExitCodes", where)
    for one in (*job.sidecars, job):
        _known({**one.container, **({} if one is job else {"restartPolicy": None})}, "container", where)
        for part in ("env", "volumeMounts"):
            for each in one.container.get(part) or ():
                _known(each, part, where)
    names = [dns_subdomain(job.name)]
    for each in pod.get("volumes") or ():
        # Folders are called so.
        names += [dns_label(str(each.get("name"))), dns_subdomain(_claim_of(each) or "none")]
    if wrong := next(filter(None, names), None):
        raise UsageError(f"{where}: metadata.name, or the name of a volume or claim: {wrong}")
    return job


def _known(thing: Any, part: str, where: str) -> Object:
    """Return the mapping, after a check that all its fields are supported here."""
    if not isinstance(thing, dict):
        raise UsageError(f"{where}: {part}: {printable(repr(thing))} is not a mapping")
    for key, value in thing.items():
        if value and key not in _KNOWN[part].split():
            raise UsageError(f"{where}: {part}: {printable(key)} is not done here; remove it, or use a cluster")
        if value and value not in _WORDS.get(key, (value,)):
            raise UsageError(f"{where}: {key}: {printable(repr(value))} is not one of {', '.join(_WORDS[key])} here")
    return thing


def _claim_of(volume: Object) -> str:
    """Return the name of the claim of a volume, or ""."""
    return str(part_of(volume, "persistentVolumeClaim").get("claimName") or "")


class Sources:
    """The ConfigMaps, Services and claims among documents.

    Attributes:
        claims: names of the claims; each is a folder of the run.
    """

    def __init__(self, documents: Sequence[Object]) -> None:
        self.claims = {name_of(each) for each in documents if each.get("kind") == "PersistentVolumeClaim"}
        self._config_maps: dict[str, dict[str, bytes]] = {}
        self._addresses: dict[str, str] = {}
        headless = ["(?!)"]
        for each in documents:
            name = name_of(each)
            if each.get("kind") == "ConfigMap":
                content = {key: str(value).encode() for key, value in part_of(each, "data").items()}
                for key, value in part_of(each, "binaryData").items():
                    try:
                        content[key] = base64.b64decode("".join(str(value).split()), validate=True)
                    except ValueError:
                        raise UsageError(f"ConfigMap {printable(name)}: {printable(key)} is not base64") from None
                if self._config_maps.setdefault(name, content) != content:
                    raise UsageError(f"two ConfigMaps with different content are called {printable(name)}; rename one")
            elif each.get("kind") == "Service":
                if spec_of(each).get("clusterIP") == "None":
                    headless.append(re.escape(name))
                for port in spec_of(each).get("ports") or ():
                    self._addresses[f"{name}:{port.get('port')}"] = (
                        f"localhost:{port.get('targetPort') or port.get('port')}"
                    )
        self._pods = re.compile(rf"(?<![\w.-])[a-z0-9-]+\.(?:{'|'.join(headless)})(?![\w.-])")

    def address(self, text: str) -> str:
        """Return the local address of a service, if the text is its NAME:PORT.

        Addresses POD.NAME of a headless service are replaced, too, in a text without blanks.
        """
        text = text if re.search(r"\s", text) else self._pods.sub("localhost", text)
        return self._addresses.get(text, text)

    def write(self, name: str, folder: str, where: str) -> None:
        """Write the files of a ConfigMap, once, since all pods of a Job may read them."""
        if name not in self._config_maps:
            missing = f"the ConfigMap {printable(name)} is not in this manifest; put its document there"
            raise UsageError(f"{where}: {missing}, or give a folder with --volume")
        for key, content in self._config_maps[name].items():
            path = os.path.join(folder, os.path.basename(key))
            if not os.path.exists(path):
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                    stream.write(content)


def process_of(job: LocalJob, index: int, name: str, folder: str, sources: Sources, settings: LocalSettings) -> Process:
    """Return a pod of an index as a process.

    Its folders are created in the folder of the run.

    Raises:
        CommandNotRunnableError: its program is not installed.
        UsageError: it has no command, or a ConfigMap is missing.
    """
    pod, container, where = spec_of(job.template), job.container, job.where
    sidecars = [process_of(each, index, name, folder, sources, settings) for each in job.sidecars]
    work = os.path.join(folder, "pods", name, "work")
    os.makedirs(work, 0o700, exist_ok=True)
    mounts = sorted(_mounts_of(job, name, folder, sources, settings.volumes), key=lambda mount: -len(mount[0]))

    def here(text: str) -> str:
        """Translate paths of volumes in a word of a command, or in a variable's value.

        Examples: ``/scratch/x``, ``@/scratch/x``, ``--opt=/scratch/x``, ``-O/scratch/x``,
        ``file:///scratch/x``, ``service:80``.

        The longest mount path counts, since mounts may be nested; ``/scratch/../data/x`` is in
        /data.
        """
        if match := _OPTION.fullmatch(text):
            path = normal_path(match[2]) + "/" * match[2].endswith("/")
            for mount, real in mounts:
                if f"{path}/".startswith(f"{mount}/"):
                    return f"{match[1]}{real}{path[len(mount) :]}"
        return sources.address(text)

    variables = _variables(job, index)
    own = {"HOSTNAME": f"{job.name}-{index}" if job.indexed else str(pod.get("hostname") or name), MARK: work}
    env = {**settings.env, **own, **{key: here(value) for key, value in variables.items()}}
    # As a kubelet does it: the variables of this machine are not known to $(NAME).
    given = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    words = [here(substitute(word, variables)) for word in given]
    if not container.get("command"):
        raise UsageError(f"{where} has no command; what its image would run is not known here, so write it out")
    cwd = here(str(container.get("workingDir") or work))
    if shutil.which(os.path.join(cwd, words[0]) if "/" in words[0] else words[0], path=env.get("PATH")) is None:
        missing = f"{printable(words[0])} is not on this machine; images are not used here, so install it"
        raise CommandNotRunnableError(f"{where}: {missing}", EXIT_NOT_FOUND)
    grace = pod.get("terminationGracePeriodSeconds")
    return Process(words, env, cwd, 30.0 if grace is None else float(grace), sidecars)


def _variables(job: LocalJob, index: int) -> dict[str, str]:
    """Return the variables of the manifest as a kubelet computes them, in order.

    ``$(NAME)`` is the value of an earlier one.
    """
    entries = job.container.get("env") or []
    if job.indexed and all(entry.get("name") != "JOB_COMPLETION_INDEX" for entry in entries):
        entries = [*entries, {"name": "JOB_COMPLETION_INDEX", "valueFrom": INDEX_FIELD}]
    fields = {"spec.nodeName": socket.gethostname(), "status.podIP": "127.0.0.1"}
    fields |= {f"metadata.labels['{CONTROLLER}']": job.uid}
    fields |= {f"metadata.annotations['{INDEX}']": str(index)} if job.indexed else {}
    cpus = part_of(job.container, "resources", "requests").get("cpu")
    known: dict[str, str] = {}
    for entry in entries:
        variable, value, source = str(entry.get("name") or ""), entry.get("value") or "", entry.get("valueFrom") or {}
        resource = part_of(source, "resourceFieldRef")
        if not isinstance(value, str) or not variable or "=" in variable:
            raise UsageError(f"{job.where}: env {printable(variable)!r}: its name or value is not that of a variable")
        if sum(map(bool, (value, *source.values()))) > 1:
            raise UsageError(f"{job.where}: env {variable}: several values are given for it; leave one")
        if (path := part_of(source, "fieldRef").get("fieldPath")) in fields:
            known[variable] = fields[path]
        elif resource.get("resource") == "requests.cpu" and cpus and str(resource.get("divisor", "1")) in "01":
            known[variable] = str(math.ceil(parse_quantity(cpus)))
        elif source:
            raise UsageError(f"{job.where}: env {variable}: {printable(str(source))} is not done here; use a value")
        else:
            known[variable] = substitute(value, known)
    return known


def _mounts_of(
    job: LocalJob, name: str, folder: str, sources: Sources, given: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the mount paths of a container, and the folders here.

    The folders are created, with the files of ConfigMaps.
    """
    volumes = {each["name"]: each for each in spec_of(job.template).get("volumes") or ()}
    for mount in job.container.get("volumeMounts") or ():
        volume = volumes.get(mount.get("name"))
        if volume is None:
            raise UsageError(f"{job.where} mounts the volume {printable(str(mount.get('name')))}, which the pod lacks")
        label, where = volume["name"], f"{job.where}: volume {volume['name']}"
        claim = _claim_of(volume)
        if path := given.get(label) or part_of(volume, "hostPath").get("path"):
            yield mount["mountPath"].rstrip("/"), path.rstrip("/")
            continue
        if volume.get("configMap"):
            # The same path for all pods, as it may be part of a command and so of done records.
            path = os.path.join(folder, "volumes", job.name, label)
        elif "emptyDir" in volume:
            path = os.path.join(folder, "pods", name, "volumes", label)
        elif claim in sources.claims:
            path = os.path.join(folder, "claims", claim)
        else:
            kind = printable(next((key for key in volume if key != "name"), "nothing"))
            raise UsageError(f"{where}: {kind} is not done here; give its folder: --volume {label}=DIR")
        os.makedirs(path, 0o700, exist_ok=True)
        if volume.get("configMap"):
            config_map = _known(volume["configMap"], "configMap", where)
            sources.write(str(config_map.get("name")), path, where)
        yield mount["mountPath"].rstrip("/"), path
