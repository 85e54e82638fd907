"""Manifests as a server stores them, where another form would be a conflict for ``kubectl apply --server-side``.

A server keeps quantities in canonical form, and fills in defaults. What it compares only as a whole (a fieldRef, a list
of rules) then differs from the manifest, and whoever applies that again is said to change another manager's field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.errors import UsageError
from tarkit.k8s.quantity import canonical
from tarkit.k8s.yamltext import Document

_CONTAINERS = ("containers", "initContainers")


def store(document: Document, pod: Document | None) -> None:
    """Bring a manifest into the form in which a server stores it. pod: its part with the pod's spec."""
    spec = pod.get("spec") if pod is not None else None
    for holder in [spec, *_each(spec, *_CONTAINERS)]:
        for part in ("requests", "limits"):
            amounts = _inside(holder, "resources", part)
            for name in amounts:
                _canonical(amounts, name)
    for volume in _each(spec, "volumes"):
        _canonical(_inside(volume, "emptyDir"), "sizeLimit")
    for source in _sources(spec):
        reference = _inside(source, "fieldRef")
        if reference:
            # In the order in which kubectl writes them.
            source["fieldRef"] = {"apiVersion": "v1", **{k: v for k, v in reference.items() if v is not None}}
        _canonical(_inside(source, "resourceFieldRef"), "divisor", "0")
    for rule in _each(_inside(document, "spec", "podFailurePolicy"), "rules"):
        for condition in _each(rule, "onPodConditions"):
            if condition.get("status") is None:
                condition["status"] = "True"


def _sources(spec: Any) -> Iterator[Document]:
    """What may have a fieldRef or a resourceFieldRef: variables, and files of the downward API."""
    for container in _each(spec, *_CONTAINERS):
        for variable in _each(container, "env"):
            yield _inside(variable, "valueFrom")
    for volume in _each(spec, "volumes"):
        yield from _each(_inside(volume, "downwardAPI"), "items")
        for projected in _each(_inside(volume, "projected"), "sources"):
            yield from _each(_inside(projected, "downwardAPI"), "items")


def _canonical(holder: Document, name: str, default: str | None = None) -> None:
    if not holder:
        return
    value = holder.get(name)
    if value is None:
        if default is not None:
            holder[name] = default
        return
    try:
        holder[name] = canonical(value)
    except UsageError:
        # Lint reports it, with the place.
        return


def _inside(value: Any, *names: str) -> Document:
    """The mapping under these names; an empty one where there is none, or something else."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _each(value: Any, *names: str) -> Iterator[Document]:
    """The mappings in the lists under these names."""
    for name in names:
        items = value.get(name) if isinstance(value, dict) else None
        yield from (each for each in items if isinstance(each, dict)) if isinstance(items, list) else ()
