"""Which nodes a pod may run on, and as whom."""

from __future__ import annotations

import re

from tarkit.errors import UsageError, printable
from tarkit.k8s.podfields import dict_of, listed, main_container, part
from tarkit.k8s.settings import Settings
from tarkit.k8s.yamltext import Document

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SPOT_GRACE = 15
"""Seconds: of the 30 that GKE gives by default, 15 are for its own pods."""

# Label and value of nodes that may be taken away; whether they carry a taint of the same name.
_SPOT = {
    "gke": ("cloud.google.com/gke-spot", "true", True),
    "eks": ("eks.amazonaws.com/capacityType", "SPOT", False),
    "aks": ("kubernetes.azure.com/scalesetpriority", "spot", True),
    "karpenter": ("karpenter.sh/capacity-type", "spot", False),
}


def fill_placement(spec: Document, settings: Settings) -> None:
    """Node selectors, tolerations, spot nodes, priority, identity, image pull secrets, host name."""
    if settings.accelerator is not None:
        part(spec, "nodeSelector")["cloud.google.com/gke-accelerator"] = settings.accelerator
    if settings.node_selector:
        part(spec, "nodeSelector").update(settings.node_selector)
    for text in settings.toleration:
        _add(listed(spec, "tolerations"), _toleration(text))
    if settings.spot is not None:
        _prefer_spot(spec, settings.spot)
    for name in settings.image_pull_secret:
        _add(listed(spec, "imagePullSecrets"), {"name": name})
    for field, value in (
        ("priorityClassName", settings.priority_class),
        ("serviceAccountName", settings.service_account),
        ("hostname", settings.hostname),
        ("subdomain", settings.subdomain),
    ):
        if value is not None:
            spec[field] = value


def _toleration(text: str) -> Document:
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?(?::([A-Za-z]+))?", text)
    if match is None or (match[3] and match[3] not in _EFFECTS):
        raise UsageError(
            f"--toleration {printable(text)}: write KEY, KEY=VALUE or KEY=VALUE:EFFECT, where EFFECT is one of "
            f"{', '.join(_EFFECTS)}"
        )
    found: Document = {"key": match[1], "operator": "Exists" if match[2] is None else "Equal"}
    if match[2] is not None:
        found["value"] = match[2]
    if match[3]:
        found["effect"] = match[3]
    return found


def _add(items: list[Document], entry: Document) -> None:
    if entry not in items:
        items.append(entry)


def _prefer_spot(spec: Document, cloud: str) -> None:
    """Preferred, not required: without a spot node, the work goes on elsewhere."""
    label, value, tainted = _SPOT[cloud]
    if tainted:
        _add(listed(spec, "tolerations"), {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    expression = {"key": label, "operator": "In", "values": [value]}
    entry = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    _add(listed(part(spec, "affinity", "nodeAffinity"), _PREFERRED), entry)
    grace = spec.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int) or grace > _SPOT_GRACE:
        spec["terminationGracePeriodSeconds"] = _SPOT_GRACE


def without_spot(spec: Document) -> None:
    """Remove what ``--spot`` of any cloud had put into a pod."""
    labels = {label for label, _, _ in _SPOT.values()}
    if spec.get("tolerations"):
        spec["tolerations"] = [each for each in spec["tolerations"] if each.get("key") not in labels]
    affinity = dict_of(spec.get("affinity") or {})
    of_nodes = dict_of(affinity.get("nodeAffinity") or {})
    if of_nodes.get(_PREFERRED):
        of_nodes[_PREFERRED] = [
            each for each in of_nodes[_PREFERRED] if not any(label in repr(each) for label in labels)
        ]
        for holder, name in ((of_nodes, _PREFERRED), (affinity, "nodeAffinity"), (spec, "affinity")):
            if not holder[name]:
                del holder[name]


def fill_security(spec: Document, settings: Settings) -> None:
    """The pod security standard that is met, and the user that the container runs as.

    Source: Kubernetes' Pod Security Standards. ``restricted`` also has a read-only root, which they do not ask for.
    """
    if settings.security == "restricted":
        _restrict(spec)
    elif settings.security is not None:
        for name in ("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "seccompProfile"):
            part(spec, "securityContext").pop(name, None)
        for container in _containers(spec):
            container.pop("securityContext", None)
        if settings.security == "baseline":
            part(spec, "securityContext")["seccompProfile"] = {"type": "RuntimeDefault"}
    if settings.run_as is not None:
        context = part(spec, "securityContext")
        context.update(runAsUser=settings.run_as, runAsGroup=settings.run_as, fsGroup=settings.run_as)
        if settings.run_as == 0:
            if settings.security in (None, "restricted"):
                raise UsageError("--run-as 0: root is not allowed in restricted pods; add --security baseline")
            context["runAsNonRoot"] = False
    if spec.get("securityContext") == {}:
        del spec["securityContext"]


def _containers(spec: Document) -> list[Document]:
    """All of a pod: the standards are about each of them."""
    return [*listed(spec, "containers"), *(listed(spec, "initContainers") if spec.get("initContainers") else [])]


def _restrict(spec: Document) -> None:
    context = part(spec, "securityContext")
    context["runAsNonRoot"] = True
    # Root's own number is not allowed.
    context["runAsUser"] = context.get("runAsUser") or 65532
    for name in ("runAsGroup", "fsGroup"):
        context.setdefault(name, 65532)
    context.setdefault("fsGroupChangePolicy", "OnRootMismatch")
    context["seccompProfile"] = {"type": "RuntimeDefault"}
    for container in _containers(spec):
        own = part(container, "securityContext")
        for name in ("privileged", "procMount", "runAsNonRoot", "seccompProfile"):
            own.pop(name, None)
        if own.get("runAsUser") == 0:
            del own["runAsUser"]
        own.update(allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]})
    part(main_container(spec), "securityContext").setdefault("readOnlyRootFilesystem", True)
