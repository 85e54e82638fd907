"""Label and field selectors: which objects a list or a watch is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from apierrors import bad_request
from apiresources import EVENTS, NODES, PODS, Resource

Json = dict[str, Any]
Test = Callable[[Json], bool]
_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_ALWAYS = {"metadata.name", "metadata.namespace"}
# What the real server can select by; it refuses everything else.
_FIELDS = {
    PODS.plural: {
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    },
    EVENTS.plural: {
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
    NODES.plural: {"spec.unschedulable"},
    "jobs": {"status.successful"},
    "namespaces": {"status.phase"},
    "secrets": {"type"},
    "services": {"spec.clusterIP", "spec.type"},
}


def _split(text: str) -> list[str]:
    """At the commas outside parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def label_test(text: str) -> Test:
    """`a=b,c!=d,e in (f,g),h,!i` as a function of an object."""
    tests = [_one_label(part) for part in _split(text)]
    return lambda thing: all(test(thing["metadata"].get("labels") or {}) for test in tests)


def _one_label(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(part):
        key, word = found[1], found[2]
        values = {one.strip() for one in found[3].split(",")}
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    if found := _EQUAL.match(part):
        key, word, value = found[1], found[2], found[3]
        if word == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    name = part.strip()
    if re.fullmatch(r"![^\s!=,()]+", name):
        return lambda labels: name[1:] not in labels
    if re.fullmatch(r"[^\s!=,()]+", name):
        return lambda labels: name in labels
    raise bad_request(f'unable to parse requirement: found "{part}"')


def field_test(resource: Resource, text: str) -> Test:
    """`spec.nodeName!=,status.phase=Running` as a function of an object."""
    wanted: list[tuple[str, bool, str]] = []
    for part in _split(text):
        found = _EQUAL.match(part)
        if not found:
            raise bad_request(f'invalid field selector: "{text}"')
        path = found[1]
        if path not in _ALWAYS | _FIELDS.get(resource.plural, set()):
            version = resource.api_version
            raise bad_request(
                f'Unable to find "{version}, Resource={resource.plural}" that match label selector "", '
                f'field selector "{text}": field label not supported: {path}'
            )
        wanted.append((path, found[2] != "!=", found[3]))
    return lambda thing: all((field_text(thing, path) == value) is equal for path, equal, value in wanted)


def field_text(thing: Json, path: str) -> str:
    """A field as selectors see it: absent is empty, booleans are lower case."""
    if path == "source":
        return str(thing.get("source", {}).get("component", ""))
    value: Any = thing
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
