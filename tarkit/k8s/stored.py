"""Manifests as a server stores them, where another form would be a conflict for ``kubectl apply --server-side``.

A server keeps quantities in canonical form, and fills in defaults. What it compares only as a whole (a fieldRef, a list
of rules) then differs from the manifest, and applying it again seems to change another manager's field.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import UsageError
from tarkit.k8s.quantity import canonical
from tarkit.k8s.yamltext import Document


def store(document: Document) -> None:
    """Bring a Job, a Pod, or another object with pods into the form in which a server stores it."""
    _store("", document.get("spec"))


def _store(name: str, value: Any) -> None:
    """The value of the field of this name, and what is in it."""
    if isinstance(value, list):
        for each in value:
            _store(name, each)
    elif isinstance(value, dict) and value:
        if name in ("requests", "limits"):
            for resource in value:
                _canonical(value, resource)
        elif name == "emptyDir":
            _canonical(value, "sizeLimit")
        elif name == "resourceFieldRef":
            value["divisor"] = "0" if value.get("divisor") is None else value["divisor"]
            _canonical(value, "divisor")
        elif name == "fieldRef":
            # In the order in which kubectl writes them.
            given = {key: each for key, each in value.items() if each is not None}
            value.clear()
            value.update({"apiVersion": "v1", **given})
        elif name == "onPodConditions" and value.get("status") is None:
            value["status"] = "True"
        else:
            for key, each in value.items():
                if isinstance(each, (dict, list)):
                    _store(key, each)


def _canonical(amounts: Document, name: str) -> None:
    try:
        if amounts.get(name) is not None:
            amounts[name] = canonical(amounts[name])
    except UsageError:
        # Lint reports it, with the place.
        return
