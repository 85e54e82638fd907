"""Commands that are hard to quote, and the text that a container gets of each."""

from __future__ import annotations

from typing import Any

from tarkit.k8s.podfields import substitute

HARD = [
    "", " ", "\n", "\n\n x\n\n\n", "  lead\nx", "\tx\n", "x\n ", "x \ny", "cat <<EOF\n\n\n  a\nEOF\n",
    "$(A)$$(A)$$$(A)", "$(A", "echo $$ $(HOME) ${HOME} $(date)", "-c", "--", "-", "true", "1", "null", "{}", "[]", "#",
    "\u2028", "\x85x", "\ufeffx", "x\r\ny\r\n", "\rx",
]  # fmt: skip
# A container's variables, in the order in which a kubelet knows them.
ENV = {"TMPDIR": "/scratch", "HOME": "/scratch", "A": "value of A", "B": "$(A)"}


def untouched(text: str) -> bool:
    """Whether there is nothing in it that a kubelet would change."""
    return "$$" not in text and not any(f"$({name})" in text for name in (*ENV, "JOB_COMPLETION_INDEX"))


def seen(container: dict[str, Any], text: str) -> str:
    """A text as the container gets it: a kubelet knows the variables one after the other."""
    known: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:
            known[each["name"]] = substitute(each["value"], known)
    return substitute(text, known)


def check(container: dict[str, Any], command: str) -> None:
    (text,) = container["args"]
    assert seen(container, text) == command
    if untouched(command):
        assert text == command
