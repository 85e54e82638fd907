"""What the API server fills in: the defaults of a Job, a pod template, a pod, a Service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiquantity import canonical
from apiresources import EVENTS, JOBS, NAMESPACES, PODS, QUOTAS, SECRETS, SERVICES, Resource

Json = dict[str, Any]
NO_LIMIT = 2**31 - 1


def fill(resource: Resource, thing: Json) -> None:
    """Defaults of a new or changed object, in place."""
    spec = thing.setdefault("spec", {}) if resource in (JOBS, PODS, SERVICES) else thing.get("spec", {})
    if resource is JOBS:
        _job(thing, spec)
    elif resource is PODS:
        _pod(spec)
    elif resource is SERVICES:
        _service(spec)
    elif resource is NAMESPACES:
        thing["spec"] = {"finalizers": ["kubernetes"]}
        thing.setdefault("status", {"phase": "Active"})
        thing["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = thing["metadata"].get("name", "")
    elif resource is SECRETS:
        thing.setdefault("type", "Opaque")
        _secret(thing)
    elif resource is QUOTAS:
        hard = spec.get("hard", {})
        spec["hard"] = {key: canonical(value) for key, value in hard.items()}
    elif resource is EVENTS:
        for field in ("reportingComponent", "reportingInstance"):
            thing.setdefault(field, "")


def _secret(thing: Json) -> None:
    import base64

    plain = thing.pop("stringData", None) or {}
    for key, value in plain.items():
        thing.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _job(job: Json, spec: Json) -> None:
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", NO_LIMIT if spec.get("backoffLimitPerIndex") is not None else 6)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    for rule in (policy or {}).get("rules", []):
        for pattern in rule.get("onPodConditions", []):
            pattern.setdefault("status", "True")
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    template_spec(template.setdefault("spec", {}))
    if not job["metadata"].get("labels") and template["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(template["metadata"]["labels"])


def own_labels(job: Json) -> None:
    """The selector of a new Job, and the labels by which its pods are found."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"].setdefault("labels", {})
    labels.update({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name})
    labels.update({"controller-uid": uid, "job-name": name})


_DEFAULTS = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}


def template_spec(spec: Json) -> None:
    """Of every pod template. What is empty is as good as missing."""
    spec.update({key: value for key, value in _DEFAULTS.items() if not spec.get(key)})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in containers(spec):
        _container(container)
    for volume in spec.get("volumes", []):
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        for kind in ("configMap", "secret", "projected", "downwardAPI"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 420)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")
        if "sizeLimit" in volume.get("emptyDir", {}):
            volume["emptyDir"]["sizeLimit"] = canonical(volume["emptyDir"]["sizeLimit"])


def containers(spec: Json) -> Iterator[Json]:
    """Init containers, then containers."""
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def _container(container: Json) -> None:
    container.setdefault("resources", {})
    for part in ("requests", "limits"):
        amounts = container["resources"].get(part)
        if amounts:
            container["resources"][part] = {key: canonical(value) for key, value in amounts.items()}
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    moving = "@" not in image and tag in ("", "latest")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = "Always" if moving else "IfNotPresent"
    for port in container.get("ports", []):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", []):
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
        if "resourceFieldRef" in source:
            source["resourceFieldRef"].setdefault("divisor", "0")


def _pod(spec: Json) -> None:
    template_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    # The real server also mounts a token of the service account (volume kube-api-access-xxxxx) unless told not to;
    # nothing here would answer to it.
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    for container in containers(spec):
        resources = container["resources"]
        for key, value in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(key, value)
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(one.get("key") == key for one in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _service(spec: Json) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("clusterIP", "10.96.0.10")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def quality_of_service(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from requests and limits."""
    resources = [container.get("resources", {}) for container in containers(spec)]
    if not any(one.get("requests") or one.get("limits") for one in resources):
        return "BestEffort"
    for one in resources:
        requests, limits = one.get("requests", {}), one.get("limits", {})
        if any(key not in limits or requests.get(key, limits[key]) != limits[key] for key in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"
