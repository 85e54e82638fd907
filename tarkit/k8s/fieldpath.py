"""One field of a manifest by its path: ``spec.template.spec.containers[0].image``."""

from __future__ import annotations

import re
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamltext import Document, load_yaml

_STEP = re.compile(r'\.?(?:([^.\[\]"]+)|"([^"]+)")|\[([^\]]*)\]')


def set_field(document: Document, assignment: str) -> None:
    """Set a field to a value: ``PATH=VALUE``. The value is YAML; null removes the field.
    Steps of a path are names, in double quotes if they have dots themselves (``metadata.annotations."a.b/c"``), places
    in lists (``[0]``; ``[]`` is after the last), and names of items in lists (``containers[main]``). What is missing on
    the way is made."""
    path, value = _parsed(assignment)
    at: Any = document
    for step, following in zip(path, [*path[1:], None], strict=True):
        key: Any = _key(at, step, assignment)
        there = key < len(at) if isinstance(at, list) else key in at
        missing = not there or (isinstance(at, dict) and following is not None and at[key] is None)
        if missing and value is None:
            # There is nothing to remove, so nothing is made on the way either.
            return
        if missing and isinstance(at, list):
            at.append({})
        elif missing:
            at[key] = [] if isinstance(following, int) or following == "[]" else {}
        if following is not None:
            at = at[key]
        elif value is None:
            del at[key]
        else:
            at[key] = value


def _parsed(assignment: str) -> tuple[list[str | int], Any]:
    # The first "=" outside brackets and quotes: labels' names have none.
    match = re.match(r'((?:[^="\[]|"[^"]*"|\[[^\]]*\])+)=(.*)', assignment, re.DOTALL)
    if match is None:
        raise UsageError(f"--set {printable(assignment)}: write PATH=VALUE, such as spec.suspend=true")
    steps: list[str | int] = []
    at = 0
    while at < len(match[1]):
        step = _STEP.match(match[1], at)
        if step is None or (step[0].startswith(".") and at == 0):
            raise UsageError(
                f"--set {printable(assignment)}: {printable(match[1][at:])!r} is not a step of a path; "
                "names are separated by dots, and need double quotes if they have dots themselves"
            )
        inside = step[3]
        if inside is not None and re.fullmatch("[0-9]{1,6}", inside):
            steps.append(int(inside))
        else:
            steps.append(f"[{inside}]" if inside is not None else step[1] or step[2])
        at = step.end()
    values = load_yaml(match[2], f"--set {assignment}") or [None]
    if len(values) > 1:
        raise UsageError(f"--set {printable(assignment)}: the value is several YAML documents")
    # Nothing at all is an empty text; "null" removes the field.
    return steps, "" if match[2] == "" else values[0]


def _key(at: Any, step: str | int, assignment: str) -> str | int:
    """The key of a mapping, or the place in a list, that a step means; the list's length is the place after its end."""
    if isinstance(step, str) and not step.startswith("["):
        if isinstance(at, dict):
            return step
        raise UsageError(f"--set {printable(assignment)}: {step}: the value above it is not a mapping")
    if not isinstance(at, list):
        raise UsageError(f"--set {printable(assignment)}: no list at [{str(step).strip('[]')}]")
    if isinstance(step, int):
        if step <= len(at):
            return step
        raise UsageError(f"--set {printable(assignment)}: the list has {len(at)} items, so there is no [{step}]")
    if step == "[]":
        return len(at)
    name = step.strip("[]")
    for number, item in enumerate(at):
        if isinstance(item, dict) and item.get("name") == name:
            return number
    raise UsageError(f"--set {printable(assignment)}: nothing in the list is called {printable(name)}")
