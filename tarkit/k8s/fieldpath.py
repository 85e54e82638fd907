"""Access to one field of a manifest by its path: ``spec.template.spec.containers[0].image``."""

from __future__ import annotations

import re
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamltext import Document, load_yaml

_STEP = r'(?:^|\.)(?:[^.\[\]"=]+|"[^"]+")|\[[^\]]*\]'
_ASSIGNMENT = re.compile(rf"((?:{_STEP})+)=(.*)", re.DOTALL)


def set_field(document: Document, assignment: str) -> None:
    """Set a field to a value: ``PATH=VALUE``.

    The value is YAML; null removes the field. Steps of a path are names, in double quotes if they
    have dots themselves (``metadata.annotations."a.b/c"``), positions in lists (``[0]``; at the end
    ``[]`` is after the last), and names of items in lists (``containers[main]``). Missing mappings
    are created.
    """
    match = _ASSIGNMENT.fullmatch(assignment)
    if match is None:
        raise UsageError(
            f"--set {printable(assignment)}: write PATH=VALUE, such as spec.suspend=true; names are separated by dots, "
            "and need double quotes if they have dots themselves"
        )
    values = load_yaml(match[2], f"--set {assignment}") or [None]
    if len(values) > 1:
        raise UsageError(f"--set {printable(assignment)}: the value is several YAML documents")
    # Nothing at all is an empty text; "null" removes the field.
    value = "" if match[2] == "" else values[0]
    *way, last = (step.removeprefix(".") for step in re.findall(_STEP, match[1]))
    at: Any = document
    for step in way:
        key = _key(at, step, assignment)
        if isinstance(at, dict) and at.get(key) is None:
            if value is None:
                return
            at[key] = {}
        at = at[key]
    if last == "[]" and isinstance(at, list) and value is not None:
        at.append(value)
        return
    key = _key(at, last, assignment)
    if value is not None:
        at[key] = value
    elif isinstance(at, list) or key in at:
        del at[key]


def _key(at: Any, step: str, assignment: str) -> Any:
    """Return the key of a mapping, or the position in a list, that a step means."""
    if isinstance(at, dict) and not step.startswith("["):
        return step.strip('"')
    for number, item in enumerate(at if isinstance(at, list) and step.startswith("[") else ()):
        if step[1:-1] in (str(number), item.get("name") if isinstance(item, dict) else None):
            return number
    raise UsageError(f"--set {printable(assignment)}: there is nothing at {printable(step)}")
