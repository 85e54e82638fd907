"""Rules on pods: their containers, names, where they may run, as whom. Every rule takes a pod's ``spec``."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, unique, valid, valid_labels
from tarkit.k8s.names import dns_label, dns_subdomain, label_key, label_value


def containers(spec: Node) -> list[Node]:
    """The containers of a pod, those for the start last."""
    return [*spec.at("containers").items(), *spec.at("initContainers").items()]


def names(spec: Node) -> Iterator[Finding]:
    """There are containers, each with its own name; names of hosts, accounts, secrets, priorities and labels."""
    listed = spec.at("containers")
    if listed.is_empty():
        yield listed.error(f"is {'empty' if listed.value == [] else 'missing'}; a pod has at least one container")
    for container in containers(spec):
        yield from valid(container, "name", dns_label)
    yield from unique(containers(spec), "name", "container")
    for key in ("hostname", "subdomain"):
        yield from valid(spec, key, dns_label)
    for key in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        yield from valid(spec, key, dns_subdomain)
    for secret in spec.at("imagePullSecrets").items():
        if wrong := dns_subdomain(secret.text("name")):
            yield secret.at("name").unusable(wrong)
    yield from valid_labels(spec.at("nodeSelector"))
    # A pod without the cluster's DNS policy names its servers itself.
    if spec.text("dnsPolicy") == "None" and spec.at("dnsConfig", "nameservers").is_empty():
        yield spec.at("dnsConfig", "nameservers").error("is missing; dnsPolicy None needs one to three name servers")


def tolerations(spec: Node) -> Iterator[Finding]:
    """Operator, value and effect fit."""
    for toleration in spec.at("tolerations").items():
        operator = toleration.text("operator")
        yield from valid(toleration, "key", label_key)
        if not toleration.text("key") and operator != "Exists":
            yield toleration.error("without a key it tolerates everything, and needs operator: Exists; or write a key")
        if operator == "Exists" and toleration.text("value"):
            yield toleration.at("value").error("operator Exists takes no value; leave it out, or write operator: Equal")
        elif operator in ("", "Equal"):
            yield from valid(toleration, "value", label_value)
        if toleration.has("tolerationSeconds") and toleration.text("effect") != "NoExecute":
            yield toleration.at("effect").error("must be NoExecute where there are tolerationSeconds")


def security(spec: Node) -> Iterator[Finding]:
    """Contradictions: root that must not be root, privileges that are forbidden, profiles without a file."""
    pod = spec.at("securityContext")
    own_contexts = [container.at("securityContext") for container in containers(spec)]
    for own in own_contexts:
        user = own.at("runAsUser") if own.has("runAsUser") else pod.at("runAsUser")
        not_root = (own if own.has("runAsNonRoot") else pod).at("runAsNonRoot").value
        if type(user.value) is int and user.value == 0 and not_root is True:
            yield user.unusable("user 0 is root, and runAsNonRoot is set, so no container starts; write another user")
        escalation, added = own.at("allowPrivilegeEscalation"), own.at("capabilities", "add").value
        powerful = own.at("privileged").value is True or (isinstance(added, list) and "CAP_SYS_ADMIN" in added)
        if escalation.value is False and powerful:
            yield escalation.error("cannot be false in a privileged container or with CAP_SYS_ADMIN; leave out one")
    for holder in (pod, *own_contexts):
        for key in ("seccompProfile", "appArmorProfile"):
            profile = holder.at(key)
            local = profile.text("type") == "Localhost"
            if isinstance(profile.value, dict) and local != bool(profile.at("localhostProfile").value):
                yield profile.at("localhostProfile").error("belongs to type: Localhost, which needs the profile's file")
