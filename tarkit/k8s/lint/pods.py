"""Rules on pods: where they may run, how they end, who they are. Every rule takes a pod's ``spec``."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, label_pairs, repeated
from tarkit.k8s.names import EFFECTS, dns_label, dns_subdomain, label_key, label_value


def containers(spec: Node) -> list[Node]:
    """The containers of a pod, those for the start last."""
    return [*spec.at("containers").items(), *spec.at("initContainers").items()]


def container_names(spec: Node) -> Iterator[Finding]:
    """There are containers, and each has a name of its own."""
    listed = spec.at("containers")
    if listed.value == []:
        yield listed.error("is empty; a pod has a container at least")
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
    for key in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
        if (text := spec.text(key)) and (wrong := dns_subdomain(text)):
            yield spec.at(key).error(wrong)
    for secret in spec.at("imagePullSecrets").items():
        if not secret.text("name") and not secret.has("name"):
            yield secret.at("name").warning("is missing, so it means nothing; write the name of a secret")


def ends(spec: Node) -> Iterator[Finding]:
    """restartPolicy, and times."""
    policy = spec.text("restartPolicy")
    if spec.manifest.kind == "Pod" and policy and policy not in ("Never", "OnFailure", "Always"):
        yield spec.at("restartPolicy").error(f"{policy!r} is no such policy; write Never, OnFailure or Always")
    if (grace := spec.whole("terminationGracePeriodSeconds")) is not None and grace < 0:
        yield spec.at("terminationGracePeriodSeconds").warning(f"{grace} is negative, and taken for 1; write 0 or more")
    if (deadline := spec.whole("activeDeadlineSeconds")) is not None and not 1 <= deadline < 2**31:
        yield spec.at("activeDeadlineSeconds").error(f"{deadline} can not be; write a number of seconds from 1 on")


def node_selector(spec: Node) -> Iterator[Finding]:
    """It is made of labels."""
    yield from label_pairs(spec.at("nodeSelector"))


def tolerations(spec: Node) -> Iterator[Finding]:
    """Operator, value and effect fit."""
    for toleration in spec.at("tolerations").items():
        key, operator, effect = toleration.text("key"), toleration.text("operator"), toleration.text("effect")
        if key and (wrong := label_key(key)):
            yield toleration.at("key").error(wrong)
        if operator not in ("", "Exists", "Equal") and not _compares(spec, operator):
            yield toleration.at("operator").error(f"{operator!r} is no operator; write Exists or Equal")
        if not key and operator != "Exists":
            yield toleration.error("without a key it tolerates everything, and needs operator: Exists; or write a key")
        if operator == "Exists" and toleration.text("value"):
            yield toleration.at("value").error("operator Exists takes no value; leave it out, or write operator: Equal")
        elif (value := toleration.text("value")) and (wrong := label_value(value)):
            yield toleration.at("value").error(wrong)
        if effect and effect not in EFFECTS:
            yield toleration.at("effect").error(f"{effect!r} is no effect; write one of {', '.join(EFFECTS)}")
        elif toleration.has("tolerationSeconds") and effect != "NoExecute":
            yield toleration.at("effect").error("must be NoExecute where there are tolerationSeconds")


def _compares(spec: Node, operator: str) -> bool:
    """Lt and Gt are taken since 1.35, where their feature gate is on."""
    return operator in ("Lt", "Gt") and spec.manifest.version >= (1, 35)


def spread(spec: Node) -> Iterator[Finding]:
    """Topology spread constraints."""
    for constraint in spec.at("topologySpreadConstraints").items():
        if (skew := constraint.whole("maxSkew")) is not None and skew < 1:
            yield constraint.at("maxSkew").error(f"{skew} is too small; write 1 or more")
        unsatisfied = constraint.text("whenUnsatisfiable")
        if unsatisfied and unsatisfied not in ("DoNotSchedule", "ScheduleAnyway"):
            yield constraint.at("whenUnsatisfiable").error(
                f"{unsatisfied!r} is neither DoNotSchedule nor ScheduleAnyway; write one of them"
            )
        if (key := constraint.text("topologyKey")) and (wrong := label_key(key)):
            yield constraint.at("topologyKey").error(wrong)


def preferred_nodes(spec: Node) -> Iterator[Finding]:
    """Weights of preferences are 1 to 100."""
    preferred = spec.at("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    for term in preferred.items():
        weight = term.whole("weight")
        if weight is None or not 1 <= weight <= 100:
            yield term.at("weight").error(f"{weight if weight is not None else 'nothing'} is no weight; write 1 to 100")


def security(spec: Node) -> Iterator[Finding]:
    """What contradicts itself: root that must not be root, and privileges that are not to be."""
    pod = spec.at("securityContext")
    for container in containers(spec):
        own = container.at("securityContext")
        user, user_node = own.whole("runAsUser"), own.at("runAsUser")
        if user is None:
            user, user_node = pod.whole("runAsUser"), pod.at("runAsUser")
        not_root = own.value if own.has("runAsNonRoot") else pod.value
        if user == 0 and isinstance(not_root, dict) and not_root.get("runAsNonRoot") is True:
            yield user_node.error("user 0 is root, and runAsNonRoot is set, so no container starts; write another user")
        escalation = isinstance(own.value, dict) and own.value.get("allowPrivilegeEscalation") is False
        if escalation and own.value.get("privileged") is True:
            yield own.at("allowPrivilegeEscalation").error("can not be false in a privileged container; leave out one")
        added = own.at("capabilities", "add").value
        if escalation and isinstance(added, list) and "CAP_SYS_ADMIN" in added:
            yield own.at("allowPrivilegeEscalation").error("can not be false with CAP_SYS_ADMIN; leave out one")
    for holder in (pod, *(container.at("securityContext") for container in containers(spec))):
        for key in ("runAsUser", "runAsGroup", "fsGroup"):
            if (number := holder.whole(key)) is not None and not 0 <= number < 2**31:
                yield holder.at(key).error(f"{number} is no such number; write 0 to {2**31 - 1}")
