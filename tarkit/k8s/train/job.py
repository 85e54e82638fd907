"""The manifests of an elastic training job.

A Job of one pod is the shard service, with its state on a claim, so that it goes on where it was killed. The workers
are an Indexed Job: one that is lost comes back under its index, and more can be added while they run. What never ends
by itself (parameter servers, an evaluator) ends when the service has handed out everything: a sidecar looks at it, so
that the trainers' image needs nothing but a shell. No pod uses the API.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarkit.errors import EXIT_DATA, EXIT_FAILED, EXIT_MISSING, EXIT_SET_ASIDE, EXIT_USAGE, UsageError, printable
from tarkit.k8s.fill import filled, restrict, without_empties
from tarkit.k8s.names import LABEL_LENGTH, dns_label_1035, index_name_budget
from tarkit.k8s.podfields import escape_in
from tarkit.k8s.settings import Settings
from tarkit.k8s.wellknown import ELASTIC, INDEX_FIELD, MANAGED_BY, RUN, SERVICE, TAKEN_AWAY, UID_FIELD, WATCHERS
from tarkit.k8s.yamltext import Document

_PORTS = {"grpc": 50001, "http": 8080}
"""Of the shard service."""
_FIRST_PORT = {"chief": 3300, "worker": 3333, "evaluator": 3320, "ps": 2222}
"""Of TensorFlow's servers, one more for each index: so that several can be on one machine."""
_TORCH_PORT = 29500
_NUMBERS = {"chief": "100000", "evaluator": "200000"}
"""Digits before the index, so that to the service no worker has the same number."""
_LONGEST = 128 << 10
_MOUNT = "/state"
_END = f"{_MOUNT}/end"
_END_MOUNT = {"name": "end", "mountPath": _MOUNT}
_ABSENCE = "900"
"""Seconds. The Job controller waits up to 10 minutes before it replaces a pod."""
_RETRIES = 1000
_OWN_GROUP = {"fsGroup": 65532, "fsGroupChangePolicy": "OnRootMismatch"}
"""Of tarkit's image: without it, its user may not write to a new claim, which is root's."""
_FINAL = [EXIT_FAILED, EXIT_USAGE, EXIT_SET_ASIDE, EXIT_DATA, EXIT_MISSING]
"""Exit codes of the service after which it is not started again."""
_SHELL = """\
for shell in bash sh; do "$shell" -o pipefail -c : 2>/dev/null && exec "$shell" -o pipefail -c "$1"; done
exec sh -c "$1"\
"""
"""Runs a line in the best shell that the image has."""
_BESIDE = f"""\
trap 'kill "$job"; wait "$job"; exit 143' TERM
({_SHELL}) & job=$!
{{ until [ -p "$2" ]; do sleep 1; done; read -r _ < "$2"; kill "$job"; }} 2>/dev/null &
wait "$job" 2>/dev/null; status=$?
[ -e "$2.code" ] || exit "$status"
case $status in 0|143) ;; *) echo "the command ended with $status after all was handed out" >&2;; esac
read -r status < "$2.code"; exit "$status"\
"""
"""Runs a command, at most until a line comes through the pipe, with the shell's own commands alone: the image is the
user's. A pod that is taken away gives its command the time of grace."""
_WATCH = """\
trap 'sleep 3; exit 143' TERM
[ -p "$3" ] || mkfifo -m 666 "$3"
if [ ! -e "$3.code" ]; then
    tarkit serve --watch "$1" --as "$2" --quiet & wait $!; status=$?
    case $status in 0|1|3) status=0;; esac
    echo "$status" > "$3.new" && mv "$3.new" "$3.code"
    sleep "$4" & wait $!
fi
while :; do echo > "$3" & wait $!; sleep 1; done\
"""
"""Looks at the service, beside a trainer, and ends that so many seconds after the service has handed out everything:
for as long, the chief needs the parameter servers, to write the model. A worker that begins then would wait for them
for ever. Asked to end, it looks on for a moment: what it runs beside has ended, mostly since all is done."""
_WATCH_AMOUNTS = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True)
class Role:
    """The pods of one kind. kind: worker, chief, ps or evaluator. number: how many. priority: a class; "": none."""

    kind: str
    number: int
    image: str
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    priority: str = ""


@dataclass(frozen=True)
class TrainJob:
    """What an elastic training job is. command: of all roles, a line for bash, or for sh
    where the image has no bash. serve: options of ``tarkit serve`` about
    the data sets. framework: ``tensorflow`` with TF_CONFIG, ``torch`` with torchrun's variables, or "". most_workers:
    to how many the job may grow, for the addresses of TF_CONFIG. state: the claim of the state; "": one of its own is
    printed. relaunch: retries of a worker that fails. grace: seconds for which all but the chief go on at the end.
    model_zoo: a folder that the image has as /model_zoo, so that ``python -m model_zoo.NAME`` runs in /; "": none.
    placement: where and for how long its Jobs are in a cluster, as of other generators."""

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
    namespace: str = ""
    state: str = ""
    relaunch: int = 3
    grace: int = 60
    model_zoo: str = ""
    restricted: bool = False
    placement: Settings = field(default_factory=Settings)

    def documents(self, here: str = "") -> list[Document]:
        """The manifests, in the order in which they are created. here: a folder of this machine on which they are to
        run: commands start in it, and the service listens on loopback only, at ports that another job in another
        folder hardly has.

        Raises:
            UsageError: the name leaves no room for that of a pod; a variable is one that the pods
                need for themselves; the model zoo is not in the folder of this machine.
        """
        rooms = (index_name_budget(self._most(role)) - len(role.kind) - 1 for role in self.roles)
        room = min(LABEL_LENGTH - len(SERVICE) - 1, *rooms)
        if wrong := dns_label_1035(self.name):
            raise UsageError(f"--job_name: {wrong}")
        if len(self.name) > room:
            raise UsageError(f"--job_name {self.name} has {len(self.name)} characters; {room} leave room for the pods")
        ports = _PORTS
        if here:
            first = 20_000 + zlib.crc32(f"{here}/{self.name}".encode()) % 5_000 * 2
            ports = {name: first + number for number, name in enumerate(_PORTS)}
        service = self._service_job("127.0.0.1" if here else "0.0.0.0", ports)
        jobs = [filled(each, self.placement) for each in (service, *map(self._role_job, self.roles))]
        if folder := here or (self.model_zoo and "/"):
            for job in jobs:
                job["spec"]["template"]["spec"]["containers"][0]["workingDir"] = folder
        if here and self.model_zoo and os.path.abspath(self.model_zoo) != os.path.join(here, "model_zoo"):
            wrong = "commands start in the current folder here, and find it only as model_zoo in that"
            raise UsageError(f"--model_zoo {printable(self.model_zoo)}: {wrong}; go to the folder that it is in")
        return [without_empties(each) for each in (*self._objects(ports), *jobs)]

    def _has(self, kind: str) -> bool:
        return any(role.kind == kind for role in self.roles)

    def _most(self, role: Role) -> int:
        return max(role.number, self.most_workers) if role.kind == "worker" else role.number

    def _metadata(self, name: str) -> Document:
        labels = {"app": self.name, "role": name, MANAGED_BY: "kubetpl", RUN: self.name}
        found: Document = {"name": f"{self.name}-{name}", "labels": labels}
        return {**found, "namespace": self.namespace} if self.namespace else found

    def _objects(self, ports: Mapping[str, int]) -> Iterator[Document]:
        """The services, and the claim of the state."""
        selector = {RUN: self.name, "role": SERVICE}
        entries = [{"name": name, "port": _PORTS[name], "targetPort": port} for name, port in ports.items()]
        yield {
            "apiVersion": "v1", "kind": "Service", "metadata": self._metadata(SERVICE),
            "spec": {"selector": selector, "ports": entries},
        }  # fmt: skip
        if self.framework:
            # Without it, the names of pods are not known.
            metadata = {**self._metadata("pods"), "name": self.name}
            spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {RUN: self.name}}
            yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        if not self.state:
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            metadata = self._metadata("state")
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        ingress = {"from": [{"podSelector": {"matchLabels": {RUN: self.name}}}]}
        yield {
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": self._metadata(SERVICE),
            "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": [ingress]},
        }  # fmt: skip

    def _service_job(self, host: str, ports: Mapping[str, int]) -> Document:
        words = ["tarkit", "serve", "--listen", f"{host}:{ports['grpc']}", "--http", f"{host}:{ports['http']}"]
        # For as long, a pod that was lost at the end, or has waited for a node, may come and learn that all is done:
        # longer than the Job controller waits before it replaces a pod.
        words += ["--insecure", "--until-ended", "--drain", _ABSENCE, "--desertion", _ABSENCE]
        for role in self.roles:
            words += ["--watchers", f"{role.kind}={role.number}"] if role.kind in WATCHERS else []
        words += ["--state", f"{_MOUNT}/{self.name}.state", *self.serve]
        container = self._container(self.service, self.service.image or self.image)
        container["command"] = [escape_in(container, word) for word in words]
        # On the claim may be the state of a Job of the same name, which has ended.
        container["env"].append({"name": "TARKIT_RUN", "valueFrom": UID_FIELD})
        container["command"][2:2] = ["--run", "$(TARKIT_RUN)"]
        container["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
        # With the address of the pod: what the service itself listens on.
        container["readinessProbe"] = {"httpGet": {"path": "/healthz", "port": ports["http"]}}
        claim = {"name": "state", "persistentVolumeClaim": {"claimName": self.state or f"{self.name}-state"}}
        pod = self._pod(self.service, container, "Never")
        pod["volumes"] = [*pod.get("volumes", []), claim]
        container["volumeMounts"] = [*container.get("volumeMounts", []), {"name": "state", "mountPath": _MOUNT}]
        rules = [
            TAKEN_AWAY,
            # Shards are dead, too many of them, the state is another job's or damaged, or the data is not there: the
            # same again would end the same.
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": _FINAL}},
        ]
        spec = {"backoffLimit": _RETRIES, "podFailurePolicy": {"rules": rules}, "podReplacementPolicy": "Failed"}
        return self._job(SERVICE, spec, pod)

    def _role_job(self, role: Role) -> Document:
        container = self._container(role, role.image or self.image)
        own = list(self._own_env(role))
        if clash := next((each["name"] for each in own if each["name"] in self.env), None):
            raise UsageError(f"--envs: {clash} is set by kubetpl train itself; leave it out")
        container["env"] += own
        beside = role.kind in WATCHERS or (role.kind == "worker" and self._has("chief"))
        words = ["/bin/sh", "-c", _BESIDE if beside else _SHELL, role.kind, self.command, *([_END] if beside else [])]
        container["command"] = [escape_in(container, word) for word in words]
        container["volumeMounts"] = [*container.get("volumeMounts", []), _END_MOUNT]
        pod = self._pod(role, container, self.restart_policy, [self._watch(role)])
        pod["volumes"] = [*pod.get("volumes", []), {"name": "end", "emptyDir": {}}]
        if self.framework:
            pod["subdomain"] = self.name
        spec: Document = {"completionMode": "Indexed", "completions": role.number, "parallelism": role.number}
        if self.restart_policy == "Never":
            spec["backoffLimitPerIndex"] = self.relaunch
            spec["maxFailedIndexes"] = 0
            spec["podFailurePolicy"] = {"rules": [TAKEN_AWAY]}
            spec["podReplacementPolicy"] = "Failed"
        else:
            spec["backoffLimit"] = _RETRIES
        found = self._job(role.kind, spec, pod)
        if role.kind == "worker":
            found["metadata"]["annotations"] = {ELASTIC: "true"}
        return found

    def _watch(self, role: Role) -> Document:
        """The sidecar of a trainer, in tarkit's image: it looks at the service. So the service knows which pods there
        are, and all learn of the end."""
        found = self._container(replace(self.service, requests=_WATCH_AMOUNTS, limits={}), self.image)
        found |= {"name": "watch", "restartPolicy": "Always", "volumeMounts": [_END_MOUNT]}
        found["env"] = [{"name": "TARKIT_INDEX", "valueFrom": INDEX_FIELD}]
        words = ["/bin/sh", "-c", _WATCH, "watch", self._address, f"{role.kind}-$(TARKIT_INDEX)", _END, str(self.grace)]
        return {**found, "command": [word if "TARKIT" in word else escape_in(found, word) for word in words]}

    @property
    def _address(self) -> str:
        return f"{self.name}-{SERVICE}:{_PORTS['grpc']}"

    def _job(self, name: str, spec: Document, pod: Document) -> Document:
        metadata = self._metadata(name)
        spec["template"] = {"metadata": {"labels": dict(metadata["labels"])}, "spec": pod}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _pod(self, role: Role, container: Document, restart_policy: str, sidecars: Sequence[Document] = ()) -> Document:
        # Nothing in the pods asks the API for anything.
        found: Document = {"restartPolicy": restart_policy, "automountServiceAccountToken": False}
        found["enableServiceLinks"] = False
        if role.priority:
            found["priorityClassName"] = role.priority
        if sidecars:
            found["initContainers"] = [*sidecars]
        found["containers"] = [container]
        if self.restricted:
            restrict(found)
        elif role is self.service:
            found["securityContext"] = dict(_OWN_GROUP)
        if self.volumes:
            found["volumes"] = [dict(each) for each in self.volumes]
        return found

    def _container(self, role: Role, image: str) -> Document:
        # What it says last is in the pod's status then, for kubetpl status.
        found: Document = {"name": "main", "image": image, "terminationMessagePolicy": "FallbackToLogsOnError"}
        if self.pull_policy:
            found["imagePullPolicy"] = self.pull_policy
        found["env"] = [{"name": name, "value": value} for name, value in self.env.items()]
        amounts = {"requests": dict(role.requests), "limits": dict(role.limits or role.requests)}
        found["resources"] = {name: each for name, each in amounts.items() if each}
        if self.mounts:
            found["volumeMounts"] = [dict(each) for each in self.mounts]
        return found

    def _own_env(self, role: Role) -> Iterator[Document]:
        """By which a trainer finds the service and the others; the names are ElasticDL's, TensorFlow's, torchrun's."""
        yield {"name": "TARKIT_INDEX", "valueFrom": INDEX_FIELD}
        yield {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
        workers = sum(each.number for each in self.roles if each.kind == "worker")
        given = {
            "DLROVER_MASTER_ADDR": self._address,
            "WORKER_TYPE": role.kind,
            "WORKER_ID": f"{_NUMBERS.get(role.kind, '')}$(TARKIT_INDEX)",
            "WORKER_NUM": str(workers),
        }
        if self.framework == "torch":
            given |= {"MASTER_ADDR": f"{self.name}-worker-0.{self.name}", "MASTER_PORT": str(_TORCH_PORT)}
            given |= {"RANK": "$(TARKIT_INDEX)", "WORLD_SIZE": str(workers), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            given |= {"GROUP_RANK": "$(TARKIT_INDEX)", "GROUP_WORLD_SIZE": str(workers), "NODE_RANK": "$(TARKIT_INDEX)"}
        else:
            given["MASTER_ADDR"] = self._address
        if self.framework == "tensorflow":
            # The index is the pod's: in the place of a number that no JSON has, so that it is found again.
            text = json.dumps({"cluster": self._cluster(), "task": {"type": role.kind, "index": "@"}})
            given["TF_CONFIG"] = text.replace('"@"', "$(TARKIT_INDEX)").replace(" ", "")
            if len(text) >= _LONGEST:
                wrong = f"TF_CONFIG has {len(text)} bytes with the addresses of all; Linux takes {_LONGEST - 1}"
                raise UsageError(f"--num_workers, --max_workers or --num_ps_pods: {wrong}")
        for name, value in given.items():
            yield {"name": name, "value": value}

    def _cluster(self) -> dict[str, list[str]]:
        """TensorFlow's cluster: the evaluator is not part of it. So many addresses as are too long in any case would
        only fill the memory."""
        return {
            role.kind: [
                f"{self.name}-{role.kind}-{index}.{self.name}:{_FIRST_PORT[role.kind] + index}"
                for index in range(min(self._most(role), _LONGEST))
            ]
            for role in self.roles
            if role.kind != "evaluator"
        }
