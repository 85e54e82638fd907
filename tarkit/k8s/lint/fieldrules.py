"""Rules on fields as data: which texts and numbers a field can have, and which fields of a mapping go together.

A row is where to look, the kind of rule, and its arguments; the kinds are the functions here and those of ``nodes``.
Source: pkg/apis/core/validation and pkg/apis/batch/validation of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

from tarkit.k8s.lint.containers import quantity
from tarkit.k8s.lint.nodes import Finding, Node, Report, form, unique, valid, valid_labels
from tarkit.k8s.names import config_key, dns_label, dns_subdomain, label_key, port_name


def forbid(node: Node, condition: str, sentence: str, report: Report = Node.error) -> Iterator[Finding]:
    """A finding in a mapping of which all words of the condition hold, at the field that the first word is about.

    The words: ``a``, a is set and not empty; ``!a``, it is not; ``a=x|y``, it is x or y, or a list with one of them;
    ``a=*``, it is set; ``!a=x``. The other of ``a|b`` counts as a. ``.`` is the mapping itself."""
    words = condition.split()
    if all(_holds(node.value, word) for word in words if word != "."):
        path = words[0].lstrip("!").partition("=")[0]
        yield report(node.at(*(name.partition("|")[0] for name in path.split(".") if name)), sentence)


def _holds(value: Any, word: str) -> bool:
    path, is_compared, wanted = word.removeprefix("!").partition("=")
    found = [value]
    for names in [step.split("|") for step in path.split(".")]:
        found = [it for each in found if isinstance(each, dict) for name in names if (it := each.get(name)) is not None]
    if not found or wanted == "*":
        return bool(found) is not word.startswith("!")
    if not is_compared:
        empty = [each in ("", [], {}) for each in found]
        # What is of another type is an error of the schema only.
        return all(empty) if word[0] == "!" else any(isinstance(each, (str, list, dict)) and each for each in found)
    members = [each for one in found for each in (one if isinstance(one, list) else [one])]
    texts = [str(each).lower() if isinstance(each, (bool, int)) else each for each in members]
    return any(text in wanted.split("|") for text in texts) is not word.startswith("!")


def one_of(node: Node, *keys: str) -> Iterator[Finding]:
    """A mapping that does not have exactly one of these fields."""
    given = [key for key in keys if node.has(key)]
    if isinstance(node.value, dict) and len(given) != 1:
        yield node.error(f"has {' and '.join(given) or 'none'}, and needs one of {', '.join(keys)}")


def port(node: Node, least: int) -> Iterator[Finding]:
    """A number or name that no port has."""
    if type(node.value) is int and not least <= node.value <= 65535:
        yield node.error(f"{node.value} is not a port; write 1 to 65535")
    yield from valid(node, port_name)


_EMPTY = "must not be empty"
_NO_DOTS = r"(?!(.*/)?\.\.(/|\Z)).*"
_IS_BELOW = "{0} must be below the volume; write it without / first and without .."
_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_CONTAINERS = "containers[]|initContainers[]"
_ENTRIES = "env[].valueFrom.configMapKeyRef|secretKeyRef{0} envFrom[].configMapRef|secretRef{0}"
_ACTIONS = "livenessProbe|readinessProbe|startupProbe{0} lifecycle.preStop|postStart{0}"

FIELD_RULES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "job": (
        ("podFailurePolicy.rules[].onPodConditions[]", forbid, "!type", _EMPTY),
        ("podFailurePolicy.rules[].onPodConditions[].type", valid, label_key),
        ("successPolicy.rules[]", forbid, ". !succeededCount=* !succeededIndexes",
         "is empty; write succeededCount or succeededIndexes"),
        ("", forbid, "selector=* selector.matchLabels|matchExpressions !manualSelector=true",
         "a Job makes its own selector; leave it out", partial(Node.error, flag=None)),
        ("", forbid, "!selector=* manualSelector=true",
         "is missing; with manualSelector it must be there", partial(Node.error, flag=None)),
        ("managedBy", valid, form(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/.+",
                                   "{0} is not a name such as example.com/controller")),
        *(("", forbid, f"{key}=* !completionMode=Indexed",
           "works with completionMode: Indexed only; set that or leave it out")
          for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")),
        # Without both a server takes 1 for both.
        ("", forbid, "!completions=* completionMode=Indexed parallelism=*",
         "is missing; an Indexed Job needs the number of its indexes"),
        ("", forbid, "maxFailedIndexes=* completionMode=Indexed !backoffLimitPerIndex=*",
         "works with backoffLimitPerIndex only; set that too", partial(Node.error, flag="--retries")),
        ("", forbid, "backoffLimitPerIndex=* template.spec.restartPolicy=OnFailure !podFailurePolicy=*", "is made for "
         "restartPolicy: Never; with OnFailure a pod fails for good only after its own restarts",
         partial(Node.unusable, flag="--restartpolicy")),
        *(("", forbid, condition, "pods of a Job must end; write Never, or OnFailure to restart them in place")
          for condition in ("!template.spec.restartPolicy", "template.spec.restartPolicy=Always")),
        ("", forbid, "template.spec.restartPolicy=OnFailure podFailurePolicy=*",
         "a podFailurePolicy works with restartPolicy: Never only, not OnFailure"),
        ("podFailurePolicy.rules[].onExitCodes", forbid, "values=0 operator=In",
         "0 is success, and a rule cannot be about it; leave it out"),
        ("", forbid, "podReplacementPolicy=TerminatingOrFailed podFailurePolicy=*",
         "must be Failed when there is a podFailurePolicy"),
        *(("", forbid, f"template.spec.hostname=* {many}", "all pods of the Job would share this name; leave it out",
           Node.warning) for many in ("completionMode=Indexed", "parallelism=* !parallelism=0|1")),
        ("", forbid, "completions=0", "with 0 the Job is complete at once, and nothing is run", Node.warning),
    ),
    "pod": (
        (f"{_CONTAINERS}.name volumes[].name hostname|subdomain", valid, dns_label),
        ("serviceAccountName|priorityClassName|runtimeClassName|nodeName", valid, dns_subdomain),
        ("imagePullSecrets[]", forbid, "!name", _EMPTY, Node.unusable),
        ("imagePullSecrets[].name", valid, dns_subdomain, Node.unusable),
        ("nodeSelector", valid_labels),
        ("", forbid, "!dnsConfig.nameservers dnsPolicy=None",
         "is missing; dnsPolicy None needs one to three name servers"),
        ("tolerations[].key", valid, label_key),
        ("tolerations[]", forbid, ". !key !operator=Exists",
         "without a key it tolerates everything, and needs operator: Exists; or write a key"),
        ("tolerations[]", forbid, "value operator=Exists",
         "operator Exists takes no value; leave it out, or write operator: Equal"),
        ("tolerations[]", forbid, "!effect=NoExecute tolerationSeconds=*",
         "must be NoExecute where there are tolerationSeconds"),
        *((f"{_CONTAINERS}.securityContext", forbid, f"allowPrivilegeEscalation=false {power}",
           "cannot be false in a privileged container or with CAP_SYS_ADMIN; leave out one")
          for power in ("privileged=true", "capabilities.add=CAP_SYS_ADMIN")),
        *((f"securityContext.{profile} {_CONTAINERS}.securityContext.{profile}", forbid, condition,
           "belongs to type: Localhost, which needs the profile's file")
          for profile in ("seccompProfile", "appArmorProfile")
          for condition in ("!localhostProfile type=Localhost", "localhostProfile !type=Localhost")),
        *(("initContainers[]", forbid, f"{key}=* !restartPolicy=Always",
           "an init container cannot have it, unless its restartPolicy is Always; leave it out")
          for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")),
        ("volumes[].configMap", forbid, "!name", "is missing; write it"),
        ("volumes[].secret", forbid, "!secretName", "is missing; write it"),
        ("volumes[].configMap.name volumes[].secret.secretName", valid, dns_subdomain, Node.unusable),
        ("volumes[].configMap|secret.items[].key", valid, config_key, Node.unusable),
        ("volumes[].configMap|secret.items[].path", valid, form(r"(?!/|\.\.)" + _NO_DOTS, _IS_BELOW)),
        ("volumes[].hostPath.path", valid, form(_NO_DOTS, "must not have .. in it; write the folder itself")),
        ("volumes[].emptyDir.sizeLimit", quantity),
        ("volumes[].emptyDir.medium", valid,
         form("Memory|HugePages.*", "{0} is not a medium; write Memory, or leave it out for disk"), Node.unusable),
        ("volumes", unique, "name", "volume"),
        (f"{_CONTAINERS}.volumeMounts[].mountPath", valid, form("/.*", "{0} is not from the root on; write /{1}"),
         Node.warning),
        (f"{_CONTAINERS}.volumeMounts[].subPath|subPathExpr", valid, form("(?!/)" + _NO_DOTS, _IS_BELOW)),
        (f"{_CONTAINERS}.volumeMounts[]", forbid, ". subPath subPathExpr",
         "has subPath and subPathExpr, and needs one of subPath, subPathExpr"),
        (f"{_CONTAINERS}.volumeMounts", unique, "mountPath", "volume"),
    ),
    "container": (
        ("", forbid, "!image", "is missing; write one, such as ubuntu:24.04"),
        ("env[]", forbid, ". value valueFrom=*", "has value and valueFrom, and needs one of value, valueFrom"),
        ("env[].valueFrom.fieldRef.fieldPath", valid,
         form(rf"{'|'.join(map(re.escape, _FIELDS))}|spec\.host|metadata\.(labels|annotations)\['[^']+'\]",
               f"there is no {{0}}; write one of {', '.join(_FIELDS)}, or metadata.labels['NAME']")),
        ("env[].valueFrom.resourceFieldRef.resource", valid,
         form(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)",
               "there is no {0}; write limits. or requests. and cpu, memory or ephemeral-storage")),
        ("envFrom[]", one_of, "configMapRef", "secretRef"),
        (_ENTRIES.format(""), forbid, "!name", _EMPTY),
        (_ENTRIES.format(".name"), valid, dns_subdomain),
        ("env[].valueFrom.configMapKeyRef|secretKeyRef.key", valid, config_key),
        ("ports[].name", valid, port_name),
        ("ports", unique, "name", "port"),
        (_ACTIONS.format(""), one_of, "exec", "httpGet", "tcpSocket", "grpc", "sleep"),
        (_ACTIONS.format(".exec"), forbid, "!command", "is missing; write what to run"),
        (_ACTIONS.format(".httpGet|tcpSocket.port"), port, 1),
        ("livenessProbe|startupProbe", forbid, "successThreshold=* !successThreshold=0|1",
         "must be 1; only a readinessProbe can ask for more"),
        ("readinessProbe", forbid, "terminationGracePeriodSeconds=*", "a readinessProbe ends nothing; leave it out"),
    ),
    "service": (
        ("", forbid, "!selector !type=ExternalName",
         "is empty, so the service has no pods; write a label that they carry, such as app: NAME", Node.warning),
        ("selector", valid_labels),
        *(("", forbid, f"clusterIP|clusterIPs=None type={kind}",
           f"a {kind} has an address; leave out clusterIP: None, or the type")
          for kind in ("NodePort", "LoadBalancer")),
        ("", forbid, "!externalName type=ExternalName", "is missing; an ExternalName stands for another name"),
        ("", forbid, "!ports !type=ExternalName !clusterIP|clusterIPs=None",
         "is missing; write a port, or clusterIP: None for a service of names only"),
        ("ports[].name", valid, dns_label),
        ("ports[].targetPort", port, 0),
        ("ports", unique, "name", "port"),
    ),
}  # fmt: skip
"""Rows, by what they are about as in ``RULES``. ``a[]|b.c`` is c in each mapping of the list a, and in b."""


@cache
def rows_of(scope: str) -> dict[str, Any]:
    """The rows of a scope as a tree of the fields that they are about, each with its rows under the empty name."""
    tree: dict[str, Any] = {}
    for paths, *row in FIELD_RULES.get(scope, ()):
        for names in (each for path in paths.split(" ") for each in product(*(s.split("|") for s in path.split(".")))):
            place = tree
            for step in " ".join(names).replace("[]", " []").split():
                place = place.setdefault(step, {})
            place.setdefault("", []).append(row)
    return tree


def field_rules(node: Node, rows: dict[str, Any]) -> Iterator[Finding]:
    """What rows find at a place and in it."""
    for kind, *arguments in rows.get("", ()):
        yield from kind(node, *arguments)
    for step, inside in rows.items():
        for place in node.items() if step == "[]" else [node.at(step)] if step and node.has(step) else ():
            yield from field_rules(place, inside)
