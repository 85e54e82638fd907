"""The Kubernetes manifests of an elastic training job.

A Job of one pod is the shard service, with its state on a claim, so that it resumes after it was
killed. The workers are an Indexed Job: one that is lost comes back under its index, and more can be
added while they run. Pods that never end by themselves (parameter servers, an evaluator) end when
the service has handed out everything: a sidecar waits for that, so that the trainers' image needs
only a shell. No pod uses the API.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.fill import filled, restrict, without_empties
from tarkit.k8s.names import LABEL_LENGTH, dns_label_1035, index_name_budget
from tarkit.k8s.podfields import escape_in, put_named
from tarkit.k8s.settings import Settings
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.wellknown import ELASTIC, SERVICE
from tarkit.k8s.yamltext import Document

_FIRST_PORT = {"chief": 3300, "worker": 3333, "evaluator": 3320, "ps": 2222}
"""Port of a TensorFlow server with index 0; the index is added, so that one machine can have
several.
"""
_TORCH_PORT = 29500
_NUMBERS = {"chief": "100000", "evaluator": "200000"}
"""Digits before the index, so that no two workers have the same number for the service."""
_WATCHERS = "ps", "evaluator"
"""Roles whose pods end only with the shard service."""
_LONGEST = 128 << 10
_RETRIES = 1000
_NAME = "mytask"
"""Name of the job in the template."""


@dataclass(frozen=True)
class Role:
    """The pods of one role.

    Attributes:
        kind: worker, chief, ps or evaluator.
        number: number of pods.
        priority: priority class; "": none.
    """

    kind: str
    number: int
    image: str
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    priority: str = ""


@dataclass(frozen=True)
class TrainJob:
    """An elastic training job: its roles, image, command and settings.

    Attributes:
        command: command of all roles, a line for bash, or for sh if the image has no bash.
        serve: options of ``tarkit serve`` about the data sets.
        framework: ``tensorflow`` with TF_CONFIG, ``torch`` with torchrun's variables, or "".
        most_workers: largest number of workers, for the addresses of TF_CONFIG.
        state: the claim for the state of the service; "": the manifest has one of its own.
        relaunch: number of retries of a worker that fails.
        grace: seconds for which all roles but the chief run on at the end.
        model_zoo: a folder that the image has as /model_zoo, so that ``python -m model_zoo.NAME``
            runs in /; "": none.
        placement: settings of placement and time limits in a cluster, as for other generators.
    """

    name: str
    image: str
    command: str
    roles: tuple[Role, ...]
    serve: tuple[str, ...] = ()
    service: Role = Role("master", 1, "")
    framework: str = ""
    most_workers: int = 0
    env: dict[str, str] = field(default_factory=dict)
    volumes: tuple[Document, ...] = ()
    mounts: tuple[Document, ...] = ()
    pull_policy: str = ""
    restart_policy: str = "Never"
    state: str = ""
    relaunch: int = 3
    grace: int = 60
    model_zoo: str = ""
    restricted: bool = False
    placement: Settings = field(default_factory=Settings)

    def documents(self, here: str = "") -> list[Document]:
        """Make the manifests, in the order in which they must be created.

        Args:
            here: a folder of this machine, to run the job there: commands start in it, and the
                service listens on loopback only, at ports derived from the folder, so that jobs in
                other folders rarely conflict.

        Raises:
            UsageError: the name leaves no room for that of a pod, a variable is reserved for the
                pods, or the model zoo is not in the folder of this machine.
        """
        rooms = (index_name_budget(self._most(role)) - len(role.kind) - 1 for role in self.roles)
        room = min(LABEL_LENGTH - len(SERVICE) - 1, *rooms)
        if wrong := dns_label_1035(self.name):
            raise UsageError(f"--job_name: {wrong}")
        if len(self.name) > room:
            raise UsageError(f"--job_name {self.name} has {len(self.name)} characters; {room} leave room for the pods")
        *others, trainer = read_template(template_path("train"))
        service, pods, claim, policy, shards = _renamed(others, _NAME, self.name)
        made = [service, *([pods] if self.framework else []), *([] if self.state else [claim]), policy]
        made += [self._service_job(shards), *(self._role_job(trainer, role) for role in self.roles)]
        found = [without_empties(filled(each, self.placement)) for each in made]
        if here:
            self._run_in(here, found)
        return found

    def _run_in(self, here: str, documents: Sequence[Document]) -> None:
        """Change the manifests so that they run in a folder of this machine."""
        if self.model_zoo and os.path.abspath(self.model_zoo) != os.path.join(here, "model_zoo"):
            wrong = "commands start in the current folder here, and find it only as model_zoo in that"
            raise UsageError(f"--model_zoo {printable(self.model_zoo)}: {wrong}; go to the folder that it is in")
        first = 20_000 + zlib.crc32(f"{here}/{self.name}".encode()) % 5_000 * 2
        mains = [each["spec"]["template"]["spec"]["containers"][0] for each in documents if each["kind"] == "Job"]
        for container in mains:
            container["workingDir"] = here
        command = mains[0]["command"]
        for number, port in enumerate(mains[0]["ports"]):
            command[command.index(f"0.0.0.0:{port['containerPort']}")] = f"127.0.0.1:{first + number}"
            port["containerPort"] = documents[0]["spec"]["ports"][number]["targetPort"] = first + number
        mains[0]["readinessProbe"]["httpGet"]["port"] = first + 1

    def _most(self, role: Role) -> int:
        return max(role.number, self.most_workers) if role.kind == "worker" else role.number

    def _service_job(self, job: Document) -> Document:
        pod, container = self._pod(job, self.service, self.image)
        known = (("--watchers" if each.kind in _WATCHERS else "--trainers", each) for each in self.roles)
        words = [*(word for option, each in known for word in (option, f"{each.kind}={each.number}")), *self.serve]
        container["command"] += [escape_in(container, word) for word in words]
        if self.state:
            pod["volumes"][-1]["persistentVolumeClaim"]["claimName"] = self.state
        return job

    def _role_job(self, template: Document, role: Role) -> Document:
        # In this order: the name of the job may have a role in it.
        job: Document = _renamed(_renamed(template, "worker", role.kind), _NAME, self.name)
        spec = job["spec"]
        for name, value in self._own_env(role):
            put_named(spec["template"]["spec"]["containers"][0]["env"], {"name": name, "value": value})
        pod, container = self._pod(job, role, role.image or self.image)
        *start, _, end = container["command"]
        beside = role.kind in _WATCHERS or (role.kind == "worker" and any(each.kind == "chief" for each in self.roles))
        container["command"] = [*start, escape_in(container, self.command), *([end] if beside else [])]
        pod["initContainers"][0] |= {"image": self.image, **self._pull}
        pod["initContainers"][0]["command"][-1] = str(self.grace)
        if self.framework:
            pod["subdomain"] = self.name
        spec |= {"completions": role.number, "parallelism": role.number, "backoffLimitPerIndex": self.relaunch}
        if self.restart_policy != "Never":
            pod["restartPolicy"] = self.restart_policy
            for name in ("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy"):
                del spec[name]
            spec["backoffLimit"] = _RETRIES
        if role.kind == "worker":
            job["metadata"]["annotations"] = {ELASTIC: "true"}
        return job

    @property
    def _pull(self) -> Document:
        return {"imagePullPolicy": self.pull_policy} if self.pull_policy else {}

    def _pod(self, job: Document, role: Role, image: str) -> tuple[Document, Document]:
        """Return the pod and the main container of a Job, with the fields that all roles have."""
        pod = job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        amounts = {"requests": dict(role.requests), "limits": dict(role.limits or role.requests)}
        if clash := next((each["name"] for each in container["env"] if each["name"] in self.env), None):
            raise UsageError(f"--envs: {clash} is set by kubetpl train itself; leave it out")
        env = [*({"name": name, "value": value} for name, value in self.env.items()), *container["env"]]
        container |= {"image": image, "resources": amounts, "env": env, **self._pull}
        container["volumeMounts"] = [*(dict(each) for each in self.mounts), *container["volumeMounts"]]
        pod["volumes"] = [*(dict(each) for each in self.volumes), *pod["volumes"]]
        if self.model_zoo:
            container["workingDir"] = "/"
        if role.priority:
            pod["priorityClassName"] = role.priority
        if self.restricted:
            pod.pop("securityContext", None)
            restrict(pod)
        return pod, container

    def _own_env(self, role: Role) -> Iterator[tuple[str, str]]:
        """Yield the variables by which a trainer finds the others.

        The names are those of ElasticDL, TensorFlow and torchrun.
        """
        workers = sum(each.number for each in self.roles if each.kind == "worker")
        yield "WORKER_ID", f"{_NUMBERS.get(role.kind, '')}$(TARKIT_INDEX)"
        yield "WORKER_NUM", str(workers)
        if self.framework == "torch":
            yield "MASTER_ADDR", f"{self.name}-worker-0.{self.name}"
            yield "MASTER_PORT", str(_TORCH_PORT)
            yield from dict.fromkeys(("RANK", "GROUP_RANK", "NODE_RANK"), "$(TARKIT_INDEX)").items()
            yield from dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE"), str(workers)).items()
            yield from {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items()
        if self.framework == "tensorflow":
            # The index is the pod's: in the place of a number that no JSON has, so that it is found
            # again.
            text = json.dumps({"cluster": self._cluster(), "task": {"type": role.kind, "index": "@"}})
            if len(text) >= _LONGEST:
                wrong = f"TF_CONFIG has {len(text)} bytes with the addresses of all; Linux takes {_LONGEST - 1}"
                raise UsageError(f"--num_workers, --max_workers or --num_ps_pods: {wrong}")
            yield "TF_CONFIG", text.replace('"@"', "$(TARKIT_INDEX)").replace(" ", "")

    def _cluster(self) -> dict[str, list[str]]:
        """Return the addresses of TensorFlow's cluster, without the evaluator.

        The list ends where it is too long for a variable in any case.
        """
        return {
            role.kind: [
                f"{self.name}-{role.kind}-{index}.{self.name}:{_FIRST_PORT[role.kind] + index}"
                for index in range(min(self._most(role), _LONGEST))
            ]
            for role in self.roles
            if role.kind != "evaluator"
        }


def _renamed(thing: Any, old: str, new: str) -> Any:
    """Return a copy of a template with one word replaced everywhere."""
    if isinstance(thing, str):
        return thing.replace(old, new)
    if isinstance(thing, list):
        return [_renamed(each, old, new) for each in thing]
    return {key: _renamed(each, old, new) for key, each in thing.items()} if isinstance(thing, dict) else thing
