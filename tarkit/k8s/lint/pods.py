"""Rules on pods: their containers, names, where they may run, who they are. Every rule takes a pod's ``spec``."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, label_pairs, repeated
from tarkit.k8s.names import dns_label, dns_subdomain, label_key, label_value


def containers(spec: Node) -> list[Node]:
    """The containers of a pod, those for the start last."""
    return [*spec.at("containers").items(), *spec.at("initContainers").items()]


def container_names(spec: Node) -> Iterator[Finding]:
    """There are containers, and each has an image and a name of its own."""
    listed = spec.at("containers")
    if not listed.value:
        yield listed.error(f"is {'empty' if listed.value == [] else 'missing'}; a pod has a container at least")
    names = [(container.text("name"), container.at("name")) for container in containers(spec)]
    for name, node in names:
        if name and (wrong := dns_label(name)):
            yield node.error(wrong)
    for name, node in repeated(names):
        yield node.error(f"{name!r} is there twice; give each container its own name")


def who(spec: Node) -> Iterator[Finding]:
    """Names of hosts, accounts, secrets and priorities."""
    for key in ("hostname", "subdomain"):
        if (text := spec.text(key)) and (wrong := dns_label(text)):
            yield spec.at(key).error(wrong)
    for key in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        if (text := spec.text(key)) and (wrong := dns_subdomain(text)):
            yield spec.at(key).error(wrong)
    for secret in spec.at("imagePullSecrets").items():
        if not secret.text("name"):
            yield secret.at("name").warning("is missing, so it means nothing; write the name of a secret")
        elif wrong := dns_subdomain(secret.text("name")):
            yield secret.at("name").unusable(f"no secret can be called so: {wrong}")


def node_selector(spec: Node) -> Iterator[Finding]:
    """It is made of labels."""
    yield from label_pairs(spec.at("nodeSelector"))


def tolerations(spec: Node) -> Iterator[Finding]:
    """Operator, value and effect fit."""
    for toleration in spec.at("tolerations").items():
        key, operator, effect = toleration.text("key"), toleration.text("operator"), toleration.text("effect")
        if key and (wrong := label_key(key)):
            yield toleration.at("key").error(wrong)
        # Lt and Gt depend on a feature gate.
        if operator not in ("", "Exists", "Equal", "Lt", "Gt"):
            yield toleration.at("operator").error(f"{operator!r} is not an operator; write Exists or Equal")
        if not key and operator != "Exists":
            yield toleration.error("without a key it tolerates everything, and needs operator: Exists; or write a key")
        if operator == "Exists" and toleration.text("value"):
            yield toleration.at("value").error("operator Exists takes no value; leave it out, or write operator: Equal")
        elif operator in ("", "Equal") and (wrong := label_value(toleration.text("value"))):
            yield toleration.at("value").error(wrong)
        if toleration.has("tolerationSeconds") and effect != "NoExecute":
            yield toleration.at("effect").error("must be NoExecute where there are tolerationSeconds")


def names_of_servers(spec: Node) -> Iterator[Finding]:
    """A pod with no DNS policy of the cluster's names its servers itself."""
    if spec.text("dnsPolicy") == "None" and not spec.at("dnsConfig", "nameservers").value:
        yield spec.at("dnsConfig", "nameservers").error("is missing; dnsPolicy None needs one to three name servers")


def security(spec: Node) -> Iterator[Finding]:
    """What contradicts itself: root that must not be root, privileges that are not to be, profiles without a file."""
    pod = spec.at("securityContext")
    for container in containers(spec):
        own = container.at("securityContext")
        user_node = own.at("runAsUser") if own.has("runAsUser") else pod.at("runAsUser")
        not_root = (own if own.has("runAsNonRoot") else pod).at("runAsNonRoot").value
        if user_node.value == 0 and user_node.value is not False and not_root is True:
            yield user_node.unusable(
                "user 0 is root, and runAsNonRoot is set, so no container starts; write another user"
            )
        added = own.at("capabilities", "add").value
        if own.at("allowPrivilegeEscalation").value is False:
            if own.at("privileged").value is True:
                yield own.at("allowPrivilegeEscalation").error(
                    "cannot be false in a privileged container; leave out one"
                )
            if isinstance(added, list) and "CAP_SYS_ADMIN" in added:
                yield own.at("allowPrivilegeEscalation").error("cannot be false with CAP_SYS_ADMIN; leave out one")
    for holder in (pod, *(container.at("securityContext") for container in containers(spec))):
        for key in ("runAsUser", "runAsGroup", "fsGroup"):
            if (number := holder.whole(key)) is not None and not 0 <= number < 2**31:
                yield holder.at(key).error(f"{number} is out of range; write 0 to {2**31 - 1}")
        for key in ("seccompProfile", "appArmorProfile"):
            profile = holder.at(key)
            local = profile.text("type") == "Localhost"
            if isinstance(profile.value, dict) and local != bool(profile.at("localhostProfile").value):
                advice = "is missing; write the profile's file" if local else "works with type: Localhost only"
                yield profile.at("localhostProfile").error(advice)
