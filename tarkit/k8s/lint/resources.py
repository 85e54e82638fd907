"""Rules on what containers ask for: CPUs, memory, disk, GPUs. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from tarkit.errors import UsageError
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import label_key
from tarkit.k8s.quantity import parse_quantity

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_BYTES = ("memory", "ephemeral-storage")


def amount(node: Node) -> Decimal | None:
    """The number of a quantity; None if it is none, which another rule says."""
    if not isinstance(node.value, (str, int, float)) or isinstance(node.value, bool):
        return None
    try:
        return parse_quantity(node.value)
    except UsageError:
        return None


def resources(container: Node) -> Iterator[Finding]:
    """Names of resources, whole numbers where they must be, and requests within the limits."""
    asked, limits = container.at("resources", "requests"), container.at("resources", "limits")
    for part in (asked, limits):
        for name, node in part.fields():
            if wrong := _name(name):
                yield node.error(wrong)
            elif (number := amount(node)) is not None:
                yield from _fraction(name, node, number)
    for name, node in asked.fields():
        number, limit = amount(node), amount(limits.at(name))
        if _extended(name):
            continue
        if number is not None and limit is not None and number > limit:
            text = f"{node.value} is more than the limit of {limits.value[name]}; ask for at most the limit"
            yield node.error(text)
    yield from _devices(asked, limits)


def _name(name: str) -> str | None:
    if name in _STANDARD or name.startswith("hugepages-"):
        return None
    if "/" not in name:
        return "there is no such resource; write cpu, memory, ephemeral-storage, or one with a domain (nvidia.com/gpu)"
    return label_key(name)


def _extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _fraction(name: str, node: Node, number: Decimal) -> Iterator[Finding]:
    if number == number.to_integral_value():
        return
    if _extended(name):
        yield node.error(f"{node.value} is no whole number; devices can not be divided, write 1 or more")
    elif name in _BYTES:
        # Where somebody wrote 400m.
        match = re.fullmatch(r"([0-9.]+)[mun]", str(node.value))
        meant = f"; write {match[1]}M or {match[1]}Mi" if match else "; write whole bytes"
        yield node.warning(f"{node.value} is {number.normalize():f} bytes{meant}")


def _devices(asked: Node, limits: Node) -> Iterator[Finding]:
    """Devices are not shared: as many are asked for as may be used."""
    for name, node in asked.fields():
        if not _extended(name):
            continue
        limit = limits.at(name)
        if limit.value is None:
            yield node.error("needs a limit of the same; write it under limits (or there only)")
        elif amount(node) is not None and amount(limit) is not None and amount(node) != amount(limit):
            yield node.error(f"{node.value} is not the limit of {limit.value}; both must be the same")


def small_memory(container: Node) -> Iterator[Finding]:
    """Limits with which nothing can start."""
    node = container.at("resources", "limits", "memory")
    number = amount(node)
    if number is not None and number == number.to_integral_value() and 0 < number < 4 * 1024 * 1024:
        yield node.warning(
            f"{node.value} is {number:f} bytes, and no container starts with so little; write for example 1G"
        )
