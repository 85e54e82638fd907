"""Rules on quantities: what containers ask for, CPUs, memory, disk, GPUs. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from tarkit.errors import UsageError
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import label_key
from tarkit.k8s.quantity import is_taken, parse_quantity

_BYTES = ("memory", "ephemeral-storage")
_STANDARD = ("cpu", *_BYTES)


def amount(node: Node) -> Decimal | None:
    """The number of a quantity; None if it is none that can be meant."""
    try:
        return parse_quantity(node.value)
    except UsageError:
        return None


def quantity(node: Node) -> Iterator[Finding]:
    """It is a quantity that a server takes, and one that can be meant."""
    if node.value is None:
        return
    try:
        if parse_quantity(node.value) < 0:
            yield node.error(f"{node.value} is negative; write an amount of 0 or more")
    except UsageError as error:
        # What is too large, servers cut or write down wrongly.
        yield node.unusable(str(error)) if is_taken(node.value) else node.error(str(error))


def resources(container: Node) -> Iterator[Finding]:
    """Names of resources, quantities, whole numbers where they must be, and requests within the limits."""
    asked, limits = container.at("resources", "requests"), container.at("resources", "limits")
    for part in (asked, limits):
        for name, node in part.fields():
            if wrong := _name(name):
                yield node.error(wrong)
            else:
                yield from quantity(node)
                yield from _fraction(name, node)
    for name, node in asked.fields():
        number, limit = amount(node), amount(limits.at(name))
        if _extended(name):
            # Devices are not shared: as many are asked for as may be used.
            if not limits.has(name):
                yield node.error("needs a limit of the same; write it under limits (or there only)")
            elif number is not None and limit is not None and number != limit:
                yield node.error(f"{node.value} is not the limit of {limits.value[name]}; both must be the same")
        elif number is not None and limit is not None and number > limit:
            yield node.error(f"{node.value} is more than the limit of {limits.value[name]}; ask for at most the limit")
    yield from _small_memory(limits.at("memory"))


def _name(name: str) -> str | None:
    if name in _STANDARD or name.startswith("hugepages-"):
        return None
    if "/" not in name:
        return "there is no such resource; write cpu, memory, ephemeral-storage, or one with a domain (nvidia.com/gpu)"
    return label_key(name)


def _extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _fraction(name: str, node: Node) -> Iterator[Finding]:
    number = amount(node)
    if number is None or number == number.to_integral_value():
        return
    if _extended(name):
        yield node.error(f"{node.value} is not a whole number; devices cannot be divided, write 1 or more")
    elif name in _BYTES:
        # For those who wrote 400m.
        match = re.fullmatch(r"([0-9.]+)[mun]", str(node.value))
        meant = f"; write {match[1]}M or {match[1]}Mi" if match else "; write whole bytes"
        yield node.warning(f"{node.value} is {number.normalize():f} bytes{meant}")


def _small_memory(node: Node) -> Iterator[Finding]:
    """Limits with which nothing can start."""
    number = amount(node)
    if number is not None and number == number.to_integral_value() and 0 < number < 4 * 1024 * 1024:
        yield node.warning(
            f"{node.value} is {number:f} bytes, and no container starts with so little; write for example 1G"
        )
