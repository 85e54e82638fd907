"""The arguments of ``elasticdl train``, and the texts in which it takes resources, volumes and variables.

Source of the forms: the documents of ElasticDL's client 1.0.0. What it passed over in silence is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tarkit.errors import UsageError, printable
from tarkit.k8s.names import dns_subdomain
from tarkit.k8s.quantity import canonical
from tarkit.k8s.train.job import Role, TrainJob
from tarkit.k8s.wellknown import GPU
from tarkit.k8s.yamltext import Document

_FORMS = {
    "cpu": re.compile(r"[0-9]+(?:\.[0-9]+)?|[1-9][0-9]*m"),
    **dict.fromkeys(("memory", "disk", "ephemeral-storage"), re.compile(r"[1-9][0-9]*(?:[EPTGMK]i?)")),
    "gpu": re.compile("[1-9][0-9]*"),
}
_MOUNT_PATH = re.compile(r"(?!/+(?:state/*)?$)/(?!(?:.*/)?\.\.(?:/|$))[^:\x00-\x1f]*")
_RESOURCE = {"disk": "ephemeral-storage", "gpu": GPU}


def amounts_of(text: str, flag: str) -> dict[str, str]:
    """``cpu=0.3,memory=1024Mi,gpu=1`` as amounts of a container. flag: for messages.

    Raises:
        UsageError: an unknown or repeated name, or what is not an amount.
    """
    found: dict[str, str] = {}
    for name, value in _pairs(text, flag):
        device = name.endswith("/gpu") or name.startswith("nvidia.com/")
        form = _FORMS["gpu"] if device else _FORMS.get(name)
        if form is None:
            raise UsageError(f"{flag}: no resource is called {printable(name)}; known are {', '.join(_FORMS)}")
        if not form.fullmatch(value):
            example = {"cpu": "0.3 or 300m", "gpu": "1"}.get("gpu" if device else name, "1024Mi")
            raise UsageError(f"{flag}: {printable(name)}={printable(value)} is not an amount; write it as {example}")
        name = _RESOURCE.get(name, name)
        if name in found:
            raise UsageError(f"{flag}: {name} comes twice")
        try:
            found[name] = str(canonical(value))
        except UsageError as error:
            raise UsageError(f"{flag}: {error}") from None
    return found


def volumes_of(text: str) -> tuple[list[Document], list[Document]]:
    """``claim_name=c,mount_path=/data,sub_path=x; host_path=/d,mount_path=/e`` as volumes and mounts of a container.

    Raises:
        UsageError: an unknown or repeated key; neither or both of claim and path; no mount path.
    """
    sources: list[Document] = []
    mounts: list[Document] = []
    for item in filter(str.strip, text.split(";")):
        keys: dict[str, str] = {}
        for name, value in _pairs(item, "--volume"):
            if name not in ("claim_name", "host_path", "mount_path", "sub_path", "type") or name in keys:
                wrong = "comes twice" if name in keys else "is not a key"
                raise UsageError(f"--volume: {printable(name)} {wrong}; write claim_name=NAME,mount_path=/PATH")
            keys[name] = value
        where, claim, path = f"--volume {printable(item.strip())}", keys.get("claim_name"), keys.get("host_path")
        if (claim is None) == (path is None):
            raise UsageError(f"{where}: write either claim_name=NAME or host_path=/PATH")
        if not _MOUNT_PATH.fullmatch(keys.get("mount_path", "")):
            wrong = "mount_path is an absolute path in the containers, not / or /state, without .. and :"
            raise UsageError(f"{where}: {wrong}")
        if path is not None and not path.startswith("/"):
            raise UsageError(f"{where}: host_path is an absolute path on the nodes")
        if claim is not None and "type" in keys:
            raise UsageError(f"{where}: type goes with host_path")
        if claim is not None and (wrong_name := dns_subdomain(claim)):
            raise UsageError(f"{where}: the name of a claim {wrong_name}")
        # One path as two types of file is two volumes.
        kind = {"type": keys["type"]} if "type" in keys else {}
        source = (
            {"hostPath": {"path": path, **kind}} if claim is None else {"persistentVolumeClaim": {"claimName": claim}}
        )
        if source not in sources:
            sources.append(source)
        sub = {"subPath": keys["sub_path"]} if "sub_path" in keys else {}
        mounts.append({"name": f"volume-{sources.index(source)}", "mountPath": keys["mount_path"], **sub})
    return [{"name": f"volume-{number}", **source} for number, source in enumerate(sources)], mounts


def variables(text: str) -> dict[str, str]:
    """``A=1,B=x,y,C=2`` as variables: a comma belongs to the value unless a name and ``=`` follow.

    Raises:
        UsageError: what is not a variable, or a repeated one.
    """
    found: dict[str, str] = {}
    for part in re.split(r",(?=[^,=]*=)", text) if text else []:
        name, mark, value = part.partition("=")
        if not mark or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            raise UsageError(f"--envs {printable(part)}: write NAME=VALUE,NAME=VALUE")
        if name.strip() in found:
            raise UsageError(f"--envs: {name.strip()} comes twice")
        found[name.strip()] = value
    return found


def _pairs(text: str, flag: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, mark, value = (each.strip() for each in part.partition("="))
        if not mark or not name or not value or "=" in value:
            raise UsageError(f"{flag} {printable(part.strip())!r}: write NAME=VALUE,NAME=VALUE")
        yield name, value


def priority(text: str, flag: str) -> str:
    """A priority class. A share of pods that are high is refused: the pods of one Job have one class."""
    if text and re.fullmatch(r"[0-9.]+(e[-+]?[0-9]+)?", text):
        raise UsageError(f"{flag} {text}: the pods of a Job have one priority class; name it, such as high")
    return text


_TRUE = ("true", "yes", "t", "y", "1")
_FALSE = ("false", "no", "f", "n", "0")
_OF_DATA = {
    "training_data": "--data",
    "custom_data_reader": "--custom_data_reader",
    "data_reader_params": "--custom_data_reader_params",
    "records_per_shard": "--records-per-shard",
    "num_epochs": "--epochs",
    "shuffle": "--shuffle",
}
"""Argument -> the option of ``tarkit serve`` that it becomes."""


@dataclass(frozen=True)
class TrainArguments:
    """The arguments, as they are given. of_roles: those that each role has: ``worker_resource_request``,
    ``worker_resource_limit``, ``worker_pod_priority``, and of master, ps, chief, evaluator."""

    job_name: str
    image_name: str
    job_command: str
    worker_image: str
    ps_image: str
    framework: str | None
    num_workers: int
    max_workers: int | None
    num_ps_pods: int
    num_evaluators: int
    need_tf_config: str
    distribution_strategy: str
    training_data: str | None
    custom_data_reader: str | None
    data_reader_params: str | None
    records_per_shard: int | None
    num_epochs: int | None
    shuffle: str | None
    volume: str
    state_claim: str
    envs: str
    image_pull_policy: str | None
    restart_policy: str
    relaunch_on_worker_failure: int
    lease_ceiling: float | None
    end_grace: int
    model_zoo: str
    namespace: str
    security: str
    of_roles: Mapping[str, str]

    def job(self) -> TrainJob:
        """The job that they ask for.

        Raises:
            UsageError: an argument that cannot be, or not beside another.
        """
        with_tf_config = _truth(self.need_tf_config, "--need_tf_config")
        framework = self.framework or ("tensorflow" if with_tf_config else "")
        if with_tf_config and framework == "torch":
            raise UsageError("--need_tf_config is TensorFlow's, and --framework is torch; leave one out")
        if self.max_workers is not None and self.max_workers < self.num_workers:
            raise UsageError(f"--max_workers {self.max_workers} is less than --num_workers {self.num_workers}")
        chief = framework == "tensorflow" and self.distribution_strategy == "ParameterServerStrategy"
        numbers = {
            "ps": self.num_ps_pods,
            "chief": int(chief),
            "worker": self.num_workers,
            "evaluator": self.num_evaluators,
        }
        # Of kinds that this job does not have, too: each argument is checked.
        roles = [self._role(kind, number) for kind, number in numbers.items()]
        found, mounts = volumes_of(self.volume)
        if self.state_claim and (wrong := dns_subdomain(self.state_claim)):
            raise UsageError(f"--state_claim: {wrong}")
        if self.security == "restricted" and any("hostPath" in each for each in found):
            raise UsageError("--security restricted: pods may not use host_path; put it on a claim, and use claim_name")
        return TrainJob(
            name=self.job_name,
            image=self.image_name,
            command=self.job_command,
            roles=tuple(role for role in roles if role.number),
            serve=tuple(self._serve()),
            service=self._role("master", 1),
            framework=framework,
            most_workers=self.max_workers or 0,
            env=variables(self.envs),
            volumes=tuple(found),
            mounts=tuple(mounts),
            pull_policy=self.image_pull_policy or "",
            restart_policy=self.restart_policy,
            namespace=self.namespace,
            state=self.state_claim,
            relaunch=self.relaunch_on_worker_failure,
            grace=self.end_grace,
            model_zoo=self.model_zoo,
            restricted=self.security == "restricted",
        )

    def _role(self, kind: str, number: int) -> Role:
        request, limit, high = (f"{kind}_{word}" for word in ("resource_request", "resource_limit", "pod_priority"))
        images = {"master": "", "ps": self.ps_image or self.worker_image}
        requests = amounts_of(self.of_roles[request], f"--{request}")
        limits = amounts_of(self.of_roles[limit], f"--{limit}") if self.of_roles[limit] else {}
        # A device cannot be shared, so a cluster takes only a limit that is the request.
        return Role(
            kind,
            number,
            images.get(kind, self.worker_image),
            requests,
            limits and {**{name: each for name, each in requests.items() if "/" in name}, **limits},
            priority(self.of_roles[high], f"--{high}"),
        )

    def _serve(self) -> Iterator[str]:
        given = {name: getattr(self, name) for name in _OF_DATA if getattr(self, name) not in (None, "")}
        if given and not given.keys() & {"training_data", "custom_data_reader"}:
            name = next(iter(given))
            raise UsageError(f"--{name} goes with --training_data; else the trainers declare their data sets")
        if "data_reader_params" in given and "custom_data_reader" not in given:
            raise UsageError("--data_reader_params goes with --custom_data_reader")
        for name, value in given.items():
            yield from (_OF_DATA[name], str(value))
        if self.lease_ceiling is not None:
            yield from ("--lease-ceiling", f"{self.lease_ceiling:.15g}")


def _truth(text: str, flag: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise UsageError(f"{flag} {printable(text)}: write true or false")
    return text.lower() in _TRUE
