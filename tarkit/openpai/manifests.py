"""A job of OpenPAI as Kubernetes manifests: an Indexed Job for one role, a JobSet for several or for retries of it all.

The environment is that of OpenPAI's containers, as far as Kubernetes has it: tasks find each other by the names of a
headless service instead of addresses of machines, and ports are fixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tarkit.errors import DataError, quoted
from tarkit.k8s.names import safe_label
from tarkit.k8s.podfields import escape_in
from tarkit.k8s.quantity import canonical
from tarkit.k8s.wellknown import GPU, INDEX_FIELD, MANAGED_BY, QUEUE, TAKEN_AWAY
from tarkit.k8s.yamltext import Document
from tarkit.openpai.check import prerequisites_of
from tarkit.openpai.entrypoint import entrypoint
from tarkit.openpai.schema import Problem

_NAME = 52
"""Characters of the name; those of pods, with role and index, are one DNS label."""
_FIRST_PORT = 20_000
_PORTS = 65_535
_PEERS = 1_000
"""Tasks whose names and ports fit the environment."""
_NEVER_AGAIN = [132, 135, 136, 141, *range(220, 236)]
"""Exit codes after which OpenPAI does not retry (its table of exit codes, 1.8)."""
_SECRET = re.compile(r"<% \$secrets\.([A-Za-z_][A-Za-z0-9_]*) %>")
_LOST = ("hivedScheduler", "jobStatusChangeNotification", "com.microsoft.pai.runtimeplugin")


def manifests(
    job: Mapping[str, Any], *, user: str = "user", default_fs: str = "", queue: str | None = None
) -> tuple[list[Document], list[Problem]]:
    """The manifests of a job of protocol 2 without problems, and what is lost or must be made beside it.

    Args:
        user: what ``PAI_USER_NAME`` is. default_fs: what ``PAI_DEFAULT_FS_URI`` is, ``hdfs://host:9000``.
        queue: a LocalQueue of Kueue, for the job's virtual cluster.
    """
    render = _Rendering(job, user, default_fs)
    roles = {name: render.role(name) for name in job["taskRoles"]}
    retries = job.get("jobRetryCount", 0)
    if len(roles) == 1 and not retries:
        (spec,) = roles.values()
        document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": render.metadata(queue), "spec": spec}
    else:
        document = _job_set(render, roles, retries, queue)
    return [*render.service(), document], [*render.notes, *_losses(job, queue)]


class _Rendering:
    """What the roles of one job share."""

    def __init__(self, job: Mapping[str, Any], user: str, default_fs: str) -> None:
        self.job = job
        self.notes: list[Problem] = []
        name = safe_label(job["name"])
        # Of a service, it begins with a letter.
        self.name = (name if name[0].isalpha() else f"job-{name}")[:_NAME].rstrip("-")
        if self.name != job["name"]:
            self._note("name", f"{job['name']} is called {self.name}")
        self._is_single = len(job["taskRoles"]) == 1 and not job.get("jobRetryCount", 0)
        self._refuse_equal_names()
        self._sizes = {name: int(role.get("instances", 1)) for name, role in job["taskRoles"].items()}
        self._ports = self._ports_of_roles()
        self._has_ports = any(self._ports.values())
        self._env = {**self._totals(user, default_fs), **self._peers()}

    def _refuse_equal_names(self) -> None:
        """OpenPAI tells roles apart by case, too."""
        roles: dict[str, str] = {}
        for role in self.job["taskRoles"]:
            other = roles.setdefault(safe_label(role), role)
            if other != role:
                reason = f"on a cluster it and {other} have one name, {safe_label(role)}; rename one"
                raise DataError(f"taskRoles.{role}: {reason}")

    def metadata(self, queue: str | None) -> Document:
        labels = {"app": self.name, MANAGED_BY: "tarkit"} | ({QUEUE: queue} if queue else {})
        return {"name": self.name, "labels": labels, "annotations": {"tarkit.dev/openpai-job": self.job["name"]}}

    def service(self) -> Iterator[Document]:
        """The headless service, if tasks look for each other; a JobSet makes its own."""
        if self._has_ports and self._is_single:
            spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": self.name}}
            metadata = {"name": self.name, "labels": {"app": self.name, MANAGED_BY: "tarkit"}}
            yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}

    def role(self, name: str) -> Document:
        """The spec of the Job of a role."""
        role, size = self.job["taskRoles"][name], self._sizes[name]
        pod = self._pod(name, role)
        spec: Document = {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "backoffLimitPerIndex": max(0, role.get("taskRetryCount", 0)),
        }
        completion = role.get("completion", {})
        failed = completion.get("minFailedInstances") or 1
        if failed > 0:
            spec["maxFailedIndexes"] = min(failed, size) - 1
        if failed != 1:
            reason = "a Job with a task that failed ends as Failed, also where OpenPAI calls it succeeded"
            self._note(f"taskRoles.{name}.completion.minFailedInstances", reason)
        succeeded = completion.get("minSucceededInstances") or 0
        if 0 < succeeded < size:
            spec["successPolicy"] = {"rules": [{"succeededCount": succeeded}]}
        never_again = {"containerName": "main", "operator": "In", "values": _NEVER_AGAIN}
        spec["podFailurePolicy"] = {"rules": [TAKEN_AWAY, {"action": "FailIndex", "onExitCodes": never_again}]}
        labels = {"app": self.name, "role": safe_label(name)}
        spec["template"] = {"metadata": {"labels": labels}, "spec": pod}
        return spec

    def _pod(self, name: str, role: Mapping[str, Any]) -> Document:
        image = prerequisites_of(self.job)["dockerimage", role["dockerImage"]]
        pod: Document = {"restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False}
        if self._has_ports:
            pod["subdomain"] = self.name
        if "auth" in image:
            pod["imagePullSecrets"] = [{"name": f"{self.name}-registry"}]
            make = f"kubectl create secret docker-registry {self.name}-registry --docker-server=… --docker-username=…"
            self._note("prerequisites", f"make the secret of the registry: {make}")
        wanted = role["resourcePerInstance"]
        amounts = {"cpu": str(wanted["cpu"]), "memory": canonical(f"{wanted['memoryMB']}Mi")}
        if wanted["gpu"]:
            amounts[GPU] = str(wanted["gpu"])
        env = {**self._env, "PAI_CURRENT_TASK_ROLE_NAME": _short(name)}
        container: Document = {
            "name": "main",
            "image": image["uri"],
            "command": ["/bin/bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
        }
        for key in ("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "PAI_TASK_INDEX"):
            container["env"].append({"name": key, "valueFrom": INDEX_FIELD})
        container["args"] = [self._script(name, container)]
        container["resources"] = {"requests": dict(amounts), "limits": dict(amounts)}
        if ports := self._ports[name]:
            container["ports"] = [{"containerPort": port} for each in ports.values() for port in each]
        shared = role.get("extraContainerOptions", {}).get("shmMB", 512)
        volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": canonical(f"{shared}Mi")}}]
        mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 (of the container)
        storages = self.job.get("extras", {}).get("storages") or []
        for number, storage in enumerate(storages if isinstance(storages, list) else [None]):
            if not (isinstance(storage, dict) and isinstance(storage.get("name"), str)):
                raise DataError(f"extras.storages[{number}]: it has no name")
            label, path = f"storage-{number}", storage.get("mountPath") or f"/mnt/{storage['name']}"
            volumes.append({"name": label, "persistentVolumeClaim": {"claimName": safe_label(storage["name"])}})
            mounts.append({"name": label, "mountPath": path})
        container["volumeMounts"] = mounts
        return {**pod, "containers": [container], "volumes": volumes}

    def _script(self, name: str, container: Document) -> str:
        """The entrypoint; secrets are variables, from a Secret that is made beside it. Kubernetes writes their values
        into the text before the shell reads it, as OpenPAI does: in whatever quotes they are."""
        script = entrypoint(self.job, name)
        texts = _SECRET.split(script)
        secrets = list(dict.fromkeys(texts[1::2]))
        if left := re.search(r"<% \$secrets\b.*?%>", "".join(texts[::2]), re.DOTALL):
            wrong = f"{quoted(left[0])} is not the name of a variable; OpenPAI fills it in, Kubernetes cannot"
            raise DataError(f"taskRoles.{name}.commands: {wrong}; give the secret another name")
        if not secrets:
            return escape_in(container, script)
        for secret in secrets:
            reference = {"secretKeyRef": {"name": f"{self.name}-secrets", "key": secret}}
            container["env"].append({"name": f"PAI_SECRET_{secret}", "valueFrom": reference})
        make = f"kubectl create secret generic {self.name}-secrets --from-literal={secrets[0]}=…"
        self._note("secrets", f"make the secret with {', '.join(secrets)}: {make}")
        # Any $( before a secret would have Kubernetes take all up to the secret's bracket for one name.
        texts[::2] = [text.replace("$", "$$") for text in texts[::2]]
        texts[1::2] = [f"$(PAI_SECRET_{secret})" for secret in texts[1::2]]
        return "".join(texts)

    def _note(self, field: str, reason: str) -> None:
        if Problem(field, reason) not in self.notes:
            self.notes.append(Problem(field, reason))

    def _totals(self, user: str, default_fs: str) -> dict[str, str]:
        total, roles = str(sum(self._sizes.values())), str(len(self._sizes))
        job = self.job
        return {
            "PAI_JOB_NAME": f"{user}~{job['name']}",
            "PAI_FRAMEWORK_NAME": f"{user}~{job['name']}",
            "PAI_USER_NAME": user,
            "PAI_USERNAME": user,
            "PAI_DEFAULT_FS_URI": default_fs,
            "PAI_VIRTUAL_CLUSTER": job.get("defaults", {}).get("virtualCluster") or "default",
            **dict.fromkeys(("PAI_TASK_ROLE_COUNT", "PAI_TASK_ROLES_NUM", "PAI_JOB_TASK_ROLE_COUNT"), roles),
            **dict.fromkeys(("PAI_TASK_ROLE_LIST", "PAI_JOB_TASK_ROLE_LIST"), ",".join(self._sizes)),
            **dict.fromkeys(("PAI_JOB_TASK_COUNT", "PAI_TASKS_NUM"), total),
            **{key: value for name, role in job["taskRoles"].items() for key, value in self._of_role(name, role)},
        }

    def _of_role(self, name: str, role: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Variables about one role, which tasks of all roles have."""
        wanted = role["resourcePerInstance"]
        shared = role.get("extraContainerOptions", {}).get("shmMB", 0)
        completion = role.get("completion", {})
        yield f"PAI_TASK_ROLE_TASK_COUNT_{name}", str(self._sizes[name])
        yield f"PAI_RESOURCE_{name}", f"{wanted['gpu']},{wanted['cpu']},{wanted['memoryMB']},{shared}"
        yield f"PAI_MIN_FAILED_TASK_COUNT_{name}", str(completion.get("minFailedInstances") or 1)
        succeeded = completion.get("minSucceededInstances") or self._sizes[name]
        yield f"PAI_MIN_SUCCEEDED_TASK_COUNT_{name}", str(succeeded)

    def _ports_of_roles(self) -> dict[str, dict[str, range]]:
        """Ports of each role by label; each role has others, as tasks of several can share a machine."""
        number, found = _FIRST_PORT, dict[str, dict[str, range]]()
        for name, role in self.job["taskRoles"].items():
            found[name] = {}
            for label, count in (role["resourcePerInstance"].get("ports") or {}).items():
                if not 0 <= count <= _PORTS - number:
                    raise DataError(f"taskRoles.{name}: {count} ports for {label}; ports are {_FIRST_PORT} to {_PORTS}")
                first, number = number, number + int(count)
                found[name][label] = range(first, number)
        return found

    def _peers(self) -> dict[str, str]:
        if not self._has_ports:
            return {}
        if sum(self._sizes.values()) > _PEERS:
            self._note("taskRoles", f"PAI_HOST_IP_* is not set: there are more than {_PEERS} tasks")
            return {}
        tasks = [f"{_short(name)}:{index}" for name, size in self._sizes.items() for index in range(size)]
        found = {"PAI_TASK_ROLE_INSTANCES": ",".join(tasks)}
        for name, size in self._sizes.items():
            short = _short(name)
            # Pods of a JobSet have the number of the replicated Job in their names.
            pod = self.name if self._is_single else f"{self.name}-{safe_label(name)}-0"
            for index in range(size):
                found[f"PAI_HOST_IP_{short}_{index}"] = f"{pod}-{index}.{self.name}"
                for label, ports in self._ports[name].items():
                    found[f"PAI_PORT_LIST_{short}_{index}_{label}"] = ",".join(map(str, ports))
        return found


def _job_set(render: _Rendering, roles: Mapping[str, Document], retries: int, queue: str | None) -> Document:
    names = {name: safe_label(name) for name in roles}
    decides = [
        names[name]
        for name, role in render.job["taskRoles"].items()
        if (role.get("completion", {}).get("minSucceededInstances") or 0) >= 0
    ]
    # In OpenPAI, the job succeeds as soon as one role has, unless that is switched off for it.
    policy = {"operator": "Any", "targetReplicatedJobs": decides} if decides else {"operator": "All"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": render.metadata(queue),
        "spec": {
            "failurePolicy": {"maxRestarts": retries},
            "successPolicy": policy,
            "network": {"enableDNSHostnames": True, "subdomain": render.name},
            "replicatedJobs": [
                {"name": names[name], "replicas": 1, "template": {"spec": spec}} for name, spec in roles.items()
            ],
        },
    }


def _short(role: str) -> str:
    """A role as OpenPAI's runtime calls it, in the names of its variables and in PAI_CURRENT_TASK_ROLE_NAME."""
    return re.sub("[^a-z0-9]", "", role.lower())


def _losses(job: Mapping[str, Any], queue: str | None) -> Iterator[Problem]:
    extras = job.get("extras", {})
    for name in _LOST:
        if extras.get(name):
            yield Problem(f"extras.{name}", "Kubernetes has nothing like it; it is left out")
    if extras.get("gangAllocation", True) is not False and queue is None:
        yield Problem("extras.gangAllocation", "tasks start one by one, unless a queue of Kueue admits them together")
    cluster = job.get("defaults", {}).get("virtualCluster") or "default"
    if cluster != "default" and queue is None:
        yield Problem("defaults.virtualCluster", f"{cluster} is lost; name a LocalQueue of Kueue")
    for name, role in job["taskRoles"].items():
        if role.get("extraContainerOptions", {}).get("infiniband"):
            yield Problem(f"taskRoles.{name}.extraContainerOptions.infiniband", "it is left out")
