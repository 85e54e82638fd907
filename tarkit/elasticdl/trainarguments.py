"""Arguments of ``elasticdl train``, with its texts for resources, volumes and variables.

Source of the forms: the documents of ElasticDL's client 1.0.0. Arguments that
it ignored in silence are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tarkit.elasticdl.trainjob import Role, TrainJob
from tarkit.errors import UsageError, printable
from tarkit.k8s.configuration import read_settings
from tarkit.k8s.names import dns_subdomain
from tarkit.k8s.quantity import canonical, whole
from tarkit.k8s.wellknown import GPU
from tarkit.k8s.yamltext import Document

_FORMS = {
    "cpu": re.compile(r"[0-9]+(?:\.[0-9]+)?|[1-9][0-9]*m"),
    **dict.fromkeys(
        ("memory", "disk", "ephemeral-storage"), re.compile(r"(?=[0-9.]*[1-9])[0-9]*\.?[0-9]+(?:[EPTGMK]i?|k)")
    ),
    "gpu": re.compile("[1-9][0-9]*"),
}
_MOUNT_PATH = re.compile(r"(?!/+(?:state/*)?$)/(?!(?:.*/)?\.\.(?:/|$))[^:\x00-\x1f]*")
_RESOURCE = {"disk": "ephemeral-storage", "gpu": GPU}


def amounts_of(text: str, flag: str) -> dict[str, str]:
    """Parse ``cpu=0.3,memory=1024Mi,gpu=1`` as resource amounts of a container.

    Args:
        flag: name of the flag, for messages.

    Raises:
        UsageError: a name is unknown or repeated, or an amount is not valid.
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
            found[name] = canonical(value) if name == "cpu" else whole(value)
        except UsageError as error:
            raise UsageError(f"{flag}: {error}") from None
    return found


def volumes_of(text: str) -> tuple[list[Document], list[Document]]:
    """Parse the text of ``--volume`` as volumes and mounts of a container.

    Such as ``claim_name=c,mount_path=/data,sub_path=x; host_path=/d,mount_path=/e``.

    Raises:
        UsageError: a key is unknown or repeated, not exactly one of claim and path is given, or
            there is no mount path.
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
    """Parse ``A=1,B=x,y,C=2`` as variables.

    A comma belongs to the value unless a name and ``=`` follow.

    Raises:
        UsageError: an item is not a variable, or a variable is repeated.
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
    """Check the name of a priority class, and return it.

    A share of high-priority pods is rejected, because the pods of one Job have one class.
    """
    if text and re.fullmatch(r"[0-9.]+(e[-+]?[0-9]+)?", text):
        raise UsageError(f"{flag} {text}: the pods of a Job have one priority class; name it, such as high")
    return text


PLACEMENT = ("deadline", "ttl", "queue", "node_selector", "namespace")
"""Settings of other generators that all Jobs of a training job share."""
_OF_DATA = {
    "training_data": "--data",
    "custom_data_reader": "--custom_data_reader",
    "data_reader_params": "--custom_data_reader_params",
    "records_per_shard": "--records-per-shard",
    "num_epochs": "--epochs",
    "shuffle": "--shuffle",
}
"""Argument -> the option of ``tarkit serve`` that it becomes."""


def train_job(given: Mapping[str, Any]) -> TrainJob:
    """Make the training job that the arguments describe.

    Args:
        given: all arguments of ``kubetpl train`` by name.

    Raises:
        UsageError: an argument is not valid, or conflicts with another one.
    """
    framework = given["framework"] or ("tensorflow" if given["need_tf_config"] else "")
    if given["need_tf_config"] and framework == "torch":
        raise UsageError("--need_tf_config is TensorFlow's, and --framework is torch; leave one out")
    if given["max_workers"] is not None and given["max_workers"] < given["num_workers"]:
        raise UsageError(f"--max_workers {given['max_workers']} is less than --num_workers {given['num_workers']}")
    chief = framework == "tensorflow" and given["distribution_strategy"] == "ParameterServerStrategy"
    numbers = {
        "ps": given["num_ps_pods"],
        "chief": int(chief),
        "worker": given["num_workers"],
        "evaluator": given["num_evaluators"],
    }
    # Each argument is checked, also those of roles that this job does not have.
    roles = [_role(given, kind, number) for kind, number in numbers.items()]
    volumes, mounts = volumes_of(given["volume"])
    if given["state_claim"] and (wrong := dns_subdomain(given["state_claim"])):
        raise UsageError(f"--state_claim: {wrong}")
    if given["security"] == "restricted" and any("hostPath" in each for each in volumes):
        raise UsageError("--security restricted: pods may not use host_path; put it on a claim, and use claim_name")
    return TrainJob(
        name=given["job_name"],
        image=given["image_name"],
        command=given["job_command"],
        roles=tuple(role for role in roles if role.number),
        serve=tuple(_serve(given)),
        service=_role(given, "master", 1),
        framework=framework,
        most_workers=given["max_workers"] or 0,
        env=variables(given["envs"]),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        pull_policy=given["image_pull_policy"] or "",
        restart_policy=given["restart_policy"],
        state=given["state_claim"],
        relaunch=given["relaunch_on_worker_failure"],
        grace=given["end_grace"],
        model_zoo=given["model_zoo"],
        restricted=given["security"] == "restricted",
        placement=read_settings({name: given[name] or None for name in PLACEMENT}, ()),
    )


def _role(given: Mapping[str, Any], kind: str, number: int) -> Role:
    request, limit, high = (f"{kind}_{word}" for word in ("resource_request", "resource_limit", "pod_priority"))
    images = {"master": "", "ps": given["ps_image"] or given["worker_image"]}
    requests = amounts_of(given[request], f"--{request}")
    limits = amounts_of(given[limit], f"--{limit}") if given[limit] else {}
    # A device cannot be shared, so a cluster takes only a limit that is the request.
    devices = {name: each for name, each in requests.items() if "/" in name}
    return Role(
        kind,
        number,
        images.get(kind, given["worker_image"]),
        requests,
        limits and {**devices, **limits},
        priority(given[high], f"--{high}") or given["priority_class"] or "",
    )


def _serve(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of ``tarkit serve``, one word each."""
    data = {name: given[name] for name in _OF_DATA if given[name] not in (None, "")}
    if data and not data.keys() & {"training_data", "custom_data_reader"}:
        raise UsageError(f"--{next(iter(data))} goes with --training_data; else the trainers declare their data sets")
    if "data_reader_params" in data and "custom_data_reader" not in data:
        raise UsageError("--data_reader_params goes with --custom_data_reader")
    for name, value in data.items():
        yield from (_OF_DATA[name], str(value))
    for name in ("lease_ceiling", "desertion"):
        if given[name] is not None:
            yield from (f"--{name.replace('_', '-')}", f"{given[name]:.15g}")
