"""Rules on fields: that they exist, are of the right type, are not missing, and not newer than the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.lint.fields import Field, fields_of, required_of
from tarkit.k8s.lint.nodes import Finding, Node, no_such_field
from tarkit.k8s.names import version
from tarkit.k8s.quantity import parse_quantity

_RANGE = {"int": 2**31, "long": 2**63}


def fields(root: Node) -> Iterator[Finding]:
    """Unknown, missing and too new fields, and values of wrong types, down to the leaves."""
    if fields_of(root.manifest.kind) is not None:
        yield from _object(root, root.manifest.kind)


def shapes(root: Node) -> Iterator[Finding]:
    """Values of wrong types alone, of fields that are known: nobody could follow them, whatever the release."""
    if fields_of(root.manifest.kind) is not None:
        yield from _object(root, root.manifest.kind, shapes_only=True)


def _object(node: Node, table: str, shapes_only: bool = False) -> Iterator[Finding]:
    known = fields_of(table) or {}
    for name, value in node.value.items():
        field = known.get(name)
        if field is not None and type(value) is field.plain:
            continue
        child = Node(value, node.manifest, node, str(name))
        if field is None:
            if shapes_only:
                continue
            yield no_such_field(child, known)
        elif child.value is not None:
            if not shapes_only and (field.since or field.switched_on is not None):
                yield from _age(child, field)
            yield from _value(child, field.kind, shapes_only)
    for name in () if shapes_only else required_of(table):
        if node.value.get(name) is None:
            yield node.at(name).error("is missing, and must be there")


def _age(node: Node, field: Field) -> Iterator[Finding]:
    now, text = node.manifest.version, node.manifest.version_text
    if field.since and now < version(field.since):
        yield node.error(
            f"exists since Kubernetes {field.since}, and a server of {text} refuses it; leave it out", None
        )
    elif field.switched_on == "":
        yield node.warning(
            f"is off unless the cluster has the feature gate {field.switch} on, and is dropped then", None
        )
    elif field.switched_on and now < version(field.switched_on):
        when = f"is on since Kubernetes {field.switched_on}; {text} drops it"
        yield node.warning(f"{when} unless the cluster has the feature gate {field.switch} on", None)


def _value(node: Node, kind: str, shapes_only: bool) -> Iterator[Finding]:
    value = node.value
    if kind == "text":
        if not isinstance(value, str):
            yield node.error(_quote(value))
    elif kind == "quantity":
        yield from _amount(node)
    elif kind[0] == "[":
        yield from _list(node, kind[1:-1], shapes_only)
    elif kind[0] == "{":
        yield from _map(node, kind[1:-1], shapes_only)
    elif kind in _RANGE:
        if not isinstance(value, int) or isinstance(value, bool):
            # A server takes 3.0 for 3.
            if not (isinstance(value, float) and value.is_integer()):
                yield node.error(f"{_shown(value)} is no whole number; write one, without quotes")
        elif not -_RANGE[kind] <= value < _RANGE[kind]:
            yield node.error(f"{value} is too large; at most {_RANGE[kind] - 1} can be")
    elif kind == "flag":
        if not isinstance(value, bool):
            yield node.error(f"{_shown(value)} is neither true nor false; write one of them, without quotes")
    elif kind != "any":
        if not isinstance(value, dict):
            yield node.error(f"{_shown(value)} is no mapping; write NAME: VALUE below it")
        elif kind != "map":
            yield from _object(node, kind, shapes_only)


def _list(node: Node, kind: str, shapes_only: bool) -> Iterator[Finding]:
    if not isinstance(node.value, list):
        yield node.error(f"{_shown(node.value)} is no list; write [{_shown(node.value)}]")
        return
    if kind == "text" and all(type(value) is str for value in node.value):
        return
    for child in node.members():
        if child.value is None:
            yield child.error("is empty (null); leave it out")
        else:
            yield from _value(child, kind, shapes_only)


def _map(node: Node, kind: str, shapes_only: bool) -> Iterator[Finding]:
    if not isinstance(node.value, dict):
        yield node.error(f"{_shown(node.value)} is no mapping; write NAME: VALUE below it")
        return
    for _, child in node.fields():
        # To a server null is an empty text here.
        if child.value is not None:
            yield from _value(child, kind, shapes_only)


def _amount(node: Node) -> Iterator[Finding]:
    if isinstance(node.value, (dict, list)):
        yield node.error(f"{_shown(node.value)} is no quantity: write a number such as 2, 500m, 4G or 4Gi")
        return
    try:
        number = parse_quantity(node.value)
    except UsageError as error:
        yield node.error(str(error))
        return
    if number < 0:
        yield node.error(f"{node.value} is negative; write an amount of 0 or more")


def _quote(value: Any) -> str:
    """What to do about something that is no text."""
    if isinstance(value, (dict, list)):
        return f"{_shown(value)} is no text; write one"
    return f"{_shown(value)} is no text to YAML; write {json.dumps(_shown(value))}, in quotes"


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return printable(value if isinstance(value, str) else json.dumps(value, default=str))
