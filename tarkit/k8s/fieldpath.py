"""One field of a manifest by its path: ``spec.template.spec.containers[0].image``."""

from __future__ import annotations

import re
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamlreading import load_yaml
from tarkit.k8s.yamltext import Document

_STEP = re.compile(r'\.?(?:([^.\[\]"]+)|"([^"]+)")|\[([^\]]*)\]')


def set_field(document: Document, assignment: str) -> None:
    """Set a field to a value: ``PATH=VALUE``. The value is YAML; null removes the field.

    Steps of a path are names, in double quotes if they have dots themselves
    (``metadata.annotations."a.b/c"``), places in lists (``[0]``; ``[]`` is after the last), and names of items in
    lists (``containers[main]``). What is missing on the way is made.

    Raises:
        UsageError: it is not such an assignment, or the path does not fit the manifest.
    """
    path, value = _parsed(assignment)
    at: Any = document
    for step, following in zip(path, [*path[1:], None], strict=True):
        if value is None and _is_missing(at, step, following):
            return
        at = _descend(at, step, following, value, assignment)


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
    values = load_yaml(match[2], f"--set {assignment}", "typed") or [None]
    if len(values) > 1:
        raise UsageError(f"--set {printable(assignment)}: the value is several YAML documents")
    # Nothing at all is an empty text; "null" removes the field.
    return steps, "" if match[2] == "" else values[0]


def _is_missing(at: Any, step: str | int, following: str | int | None) -> bool:
    """Whether there is nothing to remove below a step, so that nothing is made on the way either."""
    if isinstance(at, list):
        return step in ("[]", len(at))
    return isinstance(at, dict) and (step not in at or (following is not None and at[step] is None))


def _descend(at: Any, step: str | int, following: str | int | None, value: Any, assignment: str) -> Any:
    """The value one step down; at the last step, it is set."""
    key: Any = step
    if isinstance(step, int) or step.startswith("["):
        if not isinstance(at, list):
            raise UsageError(f"--set {printable(assignment)}: there is no list at [{str(step).strip('[]')}]")
        key = _place(at, step, assignment)
    elif not isinstance(at, dict):
        raise UsageError(f"--set {printable(assignment)}: {step}: the value above it is not a mapping")
    if following is None:
        if value is not None:
            at[key] = value
        elif isinstance(at, list):
            del at[key]
        else:
            at.pop(key, None)
        return None
    if isinstance(at, dict) and at.get(key) is None:
        at[key] = [] if isinstance(following, int) or following == "[]" else {}
    return at[key]


def _place(items: list[Any], step: str | int, assignment: str) -> int:
    if step == "[]" or step == len(items):
        items.append({})
        return len(items) - 1
    if isinstance(step, int):
        if step < len(items):
            return step
        raise UsageError(f"--set {printable(assignment)}: the list has {len(items)} items, so there is no [{step}]")
    name = step.strip("[]")
    for number, item in enumerate(items):
        if isinstance(item, dict) and item.get("name") == name:
            return number
    raise UsageError(f"--set {printable(assignment)}: nothing in the list is called {printable(name)}")
