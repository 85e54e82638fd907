"""What of a manifest nobody could follow: the commands that do something with one refuse it, asked to lint or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError
from tarkit.k8s.lint.jobs import ACTIONS, OPERATORS
from tarkit.k8s.lint.nodes import Finding, Node, root_of
from tarkit.k8s.lint.types import shapes

_WORDS = (("action", ACTIONS), ("operator", OPERATORS))
_NEWEST = "1.37"


def refuse_shapes(documents: Sequence[Mapping[str, Any]]) -> None:
    """See to it that values are of the types that the API has for their fields.

    Raises:
        UsageError: one is not; a text that has to be passed to a process holds a NUL; or a rule of a
            podFailurePolicy has an action or operator that is none.
    """
    for number, document in enumerate(documents, 1):
        wrong = next(_wrong(root_of(document, number, _NEWEST)), None)
        if wrong is not None:
            raise UsageError(str(wrong))


def _wrong(root: Node) -> Iterator[Finding]:
    for key in ("metadata", "spec"):
        if root.has(key) and not isinstance(root.at(key).value, dict):
            yield root.at(key).error("is no mapping; write NAME: VALUE below it")
    yield from shapes(root)
    for rule in root.at("spec", "podFailurePolicy", "rules").items():
        for node in (rule, rule.at("onExitCodes")):
            for key, known in _WORDS:
                if node.has(key) and node.text(key) not in known:
                    yield node.at(key).error(f"{node.text(key)!r} is none; write one of {', '.join(known)}")
    data = root.manifest.kind in ("ConfigMap", "Secret")
    yield from _zero_bytes(root, keys_only=data)


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
