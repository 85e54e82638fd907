"""Values of wrong types in what ``local``, ``status`` and ``retry`` read: they could not follow such a manifest.

So it is refused before anything runs, asked to lint or not, and with nothing installed. The table is not the API's
schema: it has the fields that these commands read, and what else there is, is left to lint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.lint.enumerations import words
from tarkit.k8s.lint.nodes import Finding, Node, root_of
from tarkit.k8s.lint.resources import amount

_WORDS = (
    ("action", "PodFailurePolicyRule.action"),
    ("operator", "PodFailurePolicyOnExitCodesRequirement.operator"),
)
_NEWEST = "1.37"
# Types: text, whole (number), flag, quantity, map (not looked into), [list of], {map to}, or another line's name.
_TABLE = """
    Job: metadata:Meta spec:JobSpec
    CronJob: metadata:Meta spec:CronJobSpec
    Pod: metadata:Meta spec:PodSpec
    ConfigMap: metadata:Meta data:{text} binaryData:{text}
    Secret: metadata:Meta data:{text} stringData:{text}
    Meta: name:text generateName:text namespace:text uid:text labels:{text} annotations:{text}
    CronJobSpec: jobTemplate:JobTemplate
    JobTemplate: metadata:Meta spec:JobSpec
    JobSpec: activeDeadlineSeconds:whole backoffLimit:whole backoffLimitPerIndex:whole completionMode:text
    JobSpec: completions:whole maxFailedIndexes:whole parallelism:whole podFailurePolicy:FailurePolicy suspend:flag
    JobSpec: successPolicy:map template:Template ttlSecondsAfterFinished:whole podReplacementPolicy:text
    FailurePolicy: rules:[Rule]
    Rule: action:text onExitCodes:ExitCodes onPodConditions:[Condition]
    ExitCodes: containerName:text operator:text values:[whole]
    Condition: status:text type:text
    Template: metadata:Meta spec:PodSpec
    PodSpec: activeDeadlineSeconds:whole affinity:map containers:[Container] hostname:text initContainers:[Container]
    PodSpec: restartPolicy:text securityContext:map serviceAccountName:text subdomain:text volumes:[Volume]
    PodSpec: terminationGracePeriodSeconds:whole tolerations:[map] nodeSelector:{text} imagePullSecrets:[map]
    Container: args:[text] command:[text] env:[Variable] envFrom:[Source] image:text name:text workingDir:text
    Container: resources:Resources restartPolicy:text volumeMounts:[Mount] securityContext:map ports:[map]
    Variable: name:text value:text valueFrom:ValueFrom
    ValueFrom: configMapKeyRef:KeyRef fieldRef:FieldRef resourceFieldRef:ResourceRef secretKeyRef:KeyRef
    Source: configMapRef:Reference prefix:text secretRef:Reference
    Reference: name:text optional:flag
    KeyRef: key:text name:text optional:flag
    FieldRef: apiVersion:text fieldPath:text
    ResourceRef: containerName:text divisor:quantity resource:text
    Resources: limits:{quantity} requests:{quantity}
    Mount: mountPath:text name:text readOnly:flag subPath:text subPathExpr:text
    Volume: name:text configMap:MapVolume downwardAPI:FieldsVolume emptyDir:Folder hostPath:Path
    Volume: persistentVolumeClaim:Claim projected:Projected secret:SecretVolume ephemeral:map
    Folder: medium:text sizeLimit:quantity
    Path: path:text type:text
    Claim: claimName:text readOnly:flag
    MapVolume: defaultMode:whole items:[Item] name:text optional:flag
    SecretVolume: defaultMode:whole items:[Item] optional:flag secretName:text
    FieldsVolume: defaultMode:whole items:[FieldItem]
    Projected: defaultMode:whole sources:[ProjectedSource]
    ProjectedSource: configMap:Keys downwardAPI:Fields secret:Keys serviceAccountToken:map
    Keys: items:[Item] name:text optional:flag
    Fields: items:[FieldItem]
    Item: key:text mode:whole path:text
    FieldItem: fieldRef:FieldRef mode:whole path:text resourceFieldRef:ResourceRef
"""
_PLAIN: dict[str, tuple[type, str]] = {
    "text": (str, "a text"),
    "flag": (bool, "true or false"),
    "map": (dict, "a mapping"),
    "[": (list, "a list"),
}


@cache
def _table() -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for line in _TABLE.strip().splitlines():
        name, _, fields = line.strip().partition(": ")
        table.setdefault(name, {}).update(field.split(":", 1) for field in fields.split())  # type: ignore[misc]
    return table


def refuse_shapes(documents: Sequence[Mapping[str, Any]]) -> None:
    """See to it that values are of the types that the API has for their fields.

    Raises:
        UsageError: one is not; a text that has to be passed to a process holds a NUL; or a rule of a
            podFailurePolicy has an action or operator that the API does not have.
    """
    for number, document in enumerate(documents, 1):
        wrong = next(_wrong(root_of(document, number, _NEWEST)), None)
        if wrong is not None:
            raise UsageError(str(wrong))


def _wrong(root: Node) -> Iterator[Finding]:
    for key in ("metadata", "spec"):
        if root.has(key) and not isinstance(root.at(key).value, dict):
            yield root.at(key).error("is not a mapping; write NAME: VALUE below it")
    if root.manifest.kind in ("Job", "CronJob", "Pod", "ConfigMap", "Secret"):
        yield from _value(root, root.manifest.kind)
    for rule in root.at("spec", "podFailurePolicy", "rules").items():
        for node in (rule, rule.at("onExitCodes")):
            for key, field in _WORDS:
                if node.has(key) and node.text(key) not in words()[field]:
                    yield node.at(key).error(f"{node.text(key)!r} is not one of {', '.join(words()[field])}")
    yield from _zero_bytes(root, keys_only=root.manifest.kind in ("ConfigMap", "Secret"))


def _value(node: Node, kind: str) -> Iterator[Finding]:
    """What is wrong with a value of a kind, down to the leaves; null is as good as missing, but in a list."""
    value = node.value
    if kind == "whole":
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if not whole or not -(2**63) <= value < 2**63:
            yield node.error(f"{_shown(value)} is not a whole number; write one, without quotes")
    elif kind == "quantity":
        if (amount(node) or 0) < 0 or amount(node) is None:
            yield node.error(f"{_shown(value)} is not a quantity; write a number such as 2, 500m, 4G or 4Gi")
    else:
        plain, name = _PLAIN.get(kind, _PLAIN.get(kind[0], _PLAIN["map"]))
        if type(value) is not plain:
            yield node.error(f"{_shown(value)} is not {name}; write {_advice(value, name)}")
        elif kind[0] == "[":
            for child in node.members():
                yield from _value(child, kind[1:-1])
        elif kind[0] == "{":
            for _, child in node.fields():
                if child.value is not None:
                    yield from _value(child, kind[1:-1])
        elif kind in _table():
            for key, field in _table()[kind].items():
                if node.has(key):
                    yield from _value(node.at(key), field)


def _advice(value: Any, name: str) -> str:
    if name == "a list":
        return f"[{_shown(value)}]"
    if name == "a mapping":
        return "NAME: VALUE below it"
    return "it in quotes" if name == "a text" and not isinstance(value, (dict, list)) else "one"


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return printable(value if isinstance(value, str) else json.dumps(value, default=str))


def _zero_bytes(node: Node, keys_only: bool) -> Iterator[Finding]:
    """Names and texts that no process, variable or file can have; in data they may be, if they go to a file."""
    for key, child in node.fields():
        if "\0" in key:
            yield child.error("has a zero byte in its name, where Linux ends it; write it without")
        yield from _zero_bytes(child, keys_only)
    for child in node.members():
        yield from _zero_bytes(child, keys_only)
    if not keys_only and isinstance(node.value, str) and "\0" in node.value:
        yield node.error("has a zero byte in it, where Linux ends it; write it without, or keep it in a file")
