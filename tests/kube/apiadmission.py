"""What may stop a well-formed pod: Pod Security of its namespace, and quotas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from apidefaults import containers
from apierrors import forbidden
from apiquantity import amount, canonical
from apiresources import NAMESPACES, PODS, QUOTAS
from apistore import Json, Store

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def admit_pod(store: Store, pod: Json) -> None:
    """Raises ApiError 403 in the words of the admission plugin that refuses."""
    meta = pod["metadata"]
    namespace = store.get(NAMESPACES, "", meta["namespace"])
    level = namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce", "privileged")
    broken = violations(pod["spec"], level)
    if broken:
        raise forbidden(PODS, meta["name"], f'violates PodSecurity "{level}:latest": {", ".join(broken)}')
    for quota in store.items(QUOTAS, meta["namespace"])[0]:
        _within(store, quota, pod)


def violations(spec: Json, level: str) -> list[str]:
    """What breaks a Pod Security level, in the order and words of the real plugin."""
    if level not in ("baseline", "restricted"):
        return []
    said = []
    host = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    if host:
        said.append(f"host namespaces ({', '.join(host)})")
    said += _containers_that(
        spec,
        "privileged",
        "privileged",
        lambda c: c.get("privileged"),
        "securityContext.privileged=true",
        "must not set",
    )
    paths = [volume["name"] for volume in spec.get("volumes", []) if "hostPath" in volume]
    if paths:
        said.append(f"hostPath volumes ({_volumes(paths)})")
    return said if level == "baseline" else said + _restricted(spec)


def _restricted(spec: Json) -> list[str]:
    pod = spec.get("securityContext", {})
    said = _containers_that(
        spec,
        "allowPrivilegeEscalation != false",
        "",
        lambda c: c.get("allowPrivilegeEscalation") is not False,
        "securityContext.allowPrivilegeEscalation=false",
    )
    said += _containers_that(
        spec,
        "unrestricted capabilities",
        "",
        lambda c: "ALL" not in c.get("capabilities", {}).get("drop", []),
        'securityContext.capabilities.drop=["ALL"]',
    )
    odd = [v["name"] for v in spec.get("volumes", []) if not _VOLUMES & set(v)]
    if odd:
        kinds = sorted({key for v in spec["volumes"] if v["name"] in odd for key in v if key != "name"})
        listed = ", ".join(f'"{kind}"' for kind in kinds)
        verb = "uses" if len(odd) == 1 else "use"
        said.append(f"restricted volume types ({_volumes(odd)} {verb} restricted volume type {listed})")
    said += _containers_that(
        spec,
        "runAsNonRoot != true",
        "pod or ",
        lambda c: c.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True,
        "securityContext.runAsNonRoot=true",
    )
    if pod.get("runAsUser") == 0:
        said.append("runAsUser=0 (pod must not set runAsUser=0)")
    said += _containers_that(spec, "runAsUser=0", "", lambda c: c.get("runAsUser") == 0, "runAsUser=0", "must not set")
    allowed = ("RuntimeDefault", "Localhost")
    said += _containers_that(
        spec,
        "seccompProfile",
        "pod or ",
        lambda c: c.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in allowed,
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
    )
    return said


def _volumes(names: list[str]) -> str:
    return ("volume " if len(names) == 1 else "volumes ") + ", ".join(f'"{name}"' for name in names)


def _containers_that(spec: Json, title: str, prefix: str, test: Any, wanted: str, verb: str = "must set") -> list[str]:
    names = [f'"{one["name"]}"' for one in containers(spec) if test(one.get("securityContext", {}))]
    if not names:
        return []
    return [f"{title} ({prefix}container{'s' if len(names) > 1 else ''} {', '.join(names)} {verb} {wanted})"]


def usage(pod: Json) -> dict[str, Decimal]:
    """What a pod takes of a quota."""
    used = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for container in containers(pod["spec"]):
        for part in ("requests", "limits"):
            for key, value in container.get("resources", {}).get(part, {}).items():
                name = f"{part}.{key}"
                used[name] = used.get(name, Decimal(0)) + amount(value)
                if part == "requests" and key in ("cpu", "memory"):
                    used[key] = used.get(key, Decimal(0)) + amount(value)
    return used


def used_of(store: Store, quota: Json) -> dict[str, Decimal]:
    total = {key: Decimal(0) for key in quota["spec"].get("hard", {})}
    for pod in store.items(PODS, quota["metadata"]["namespace"])[0]:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            for key, value in usage(pod).items():
                if key in total:
                    total[key] += value
    return total


def _within(store: Store, quota: Json, pod: Json) -> None:
    hard = quota["spec"].get("hard", {})
    wants, has = usage(pod), used_of(store, quota)
    name = quota["metadata"]["name"]
    absent = [key for key in sorted(hard) if key in _MUST and key not in wants]
    if absent:
        who = ",".join(one["name"] for one in containers(pod["spec"]))
        said = "; ".join(f"{key} for: {who}" for key in absent)
        raise forbidden(PODS, pod["metadata"]["name"], f"failed quota: {name}: must specify {said}")
    over = [key for key in sorted(hard) if key in wants and has[key] + wants[key] > amount(hard[key])]
    if over:
        asked = ",".join(f"{key}={_text(wants[key], hard[key])}" for key in over)
        taken = ",".join(f"{key}={_text(has[key], hard[key])}" for key in over)
        limit = ",".join(f"{key}={hard[key]}" for key in over)
        said = f"exceeded quota: {name}, requested: {asked}, used: {taken}, limited: {limit}"
        raise forbidden(PODS, pod["metadata"]["name"], said)


_MUST = {"limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "cpu", "memory"}


def _text(value: Decimal, like: str) -> str:
    """A sum in the unit family of the limit (Gi or G)."""
    return canonical(f"{int(value) // 1024}Ki" if like.endswith("i") and value % 1024 == 0 and value else f"{value:f}")
