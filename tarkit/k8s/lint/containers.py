"""Rules on containers: image, command, environment, resources. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from tarkit.errors import UsageError
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import env_name, label_key
from tarkit.k8s.quantity import is_taken, parse_quantity

# MAX_ARG_STRLEN of Linux is 32 pages, with the zero byte at the end.
_LONGEST_STRING = 131_071
# As the runtimes take it; it is the node that refuses others, not the server.
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/|[A-Za-z0-9-]+:[0-9]+/)?"
    rf"{_PATH_PART}(?:/{_PATH_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@[a-z0-9]+:[^\s]+)?"
)
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BYTES = ("memory", "ephemeral-storage")


def image(container: Node) -> Iterator[Finding]:
    """It is as it can be pulled."""
    text, node = container.text("image"), container.at("image")
    if any(c.isspace() for c in text):
        # In the middle, and in a pod's template, servers take them.
        report = node.error if container.manifest.kind == "Pod" and text != text.strip() else node.unusable
        yield report(f"{text!r} has blanks in it, so no node can pull it; write it without")
    elif text and not _IMAGE.fullmatch(text):
        yield node.warning(f"{text!r} is not an image to most nodes; write [HOST/]name[:TAG], the name in lower case")


def strings(container: Node) -> Iterator[Finding]:
    """What Linux takes as words of a command, and as an environment."""
    for key in ("command", "args"):
        for word in container.at(key).members():
            if isinstance(word.value, str):
                yield from _string(word, word.value)
            elif word.value is None:
                yield word.warning("is null, which servers take for an empty word; write it in quotes, or leave it out")
    for variable in container.at("env").items():
        if isinstance(variable.at("value").value, str):
            yield from _string(variable.at("value"), f"{variable.text('name')}={variable.text('value')}")


def _string(node: Node, text: str) -> Iterator[Finding]:
    length = len(text.encode("utf-8", "surrogatepass"))
    if "\0" in text:
        yield node.unusable("has a zero byte in it, where Linux ends it; keep such data in a file")
    elif length > _LONGEST_STRING:
        yield node.unusable(
            f"has {length} bytes, and Linux takes {_LONGEST_STRING} in one; put it in a file (ConfigMap)"
        )


def environment(container: Node) -> Iterator[Finding]:
    """Names of variables, each once, and one source for each value."""
    seen: set[str] = set()
    for variable in container.at("env").items():
        name, node = variable.text("name"), variable.at("name")
        if name and (wrong := env_name(name)):
            yield node.error(wrong)
        elif name and not _SHELL_NAME.fullmatch(name):
            yield node.warning(f"shells cannot read a variable called {name!r}; use letters, digits and _")
        if name in seen:
            yield node.warning(f"{name} is set twice, and the last one counts; leave out the others")
        seen.add(name)
        source = variable.at("valueFrom")
        sources = sum(each.value is not None for _, each in source.fields())
        if isinstance(source.value, dict) and sources != 1:
            yield source.error(f"names {sources} sources of the value; write one")
        reference = source.at("resourceFieldRef")
        part, _, resource = reference.text("resource").partition(".")
        own = reference.text("containerName") in ("", container.text("name"))
        if part == "limits" and own and not container.at("resources", "limits").has(resource):
            yield reference.at("resource").warning(
                f"no limit is set, so this is the node's whole {resource}; write requests.{resource}"
            )


def amount(node: Node) -> Decimal | None:
    """The number of a quantity; None if it is not a quantity, or too large for one."""
    try:
        return parse_quantity(node.value)
    except UsageError:
        return None


def quantity(node: Node) -> Iterator[Finding]:
    """It is a quantity that a server takes, and not one that a server takes for another."""
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
    requests, limits = container.at("resources", "requests"), container.at("resources", "limits")
    for name, node in [*requests.fields(), *limits.fields()]:
        if wrong := _resource_name(name):
            yield node.error(wrong)
        else:
            yield from quantity(node)
        number = amount(node)
        if number is None or number == number.to_integral_value():
            continue
        if _is_device(name):
            yield node.error(f"{node.value} is not a whole number; devices cannot be divided, write 1 or more")
        elif name in _BYTES:
            yield node.warning(f"{node.value} is {number.normalize():f} bytes; write whole bytes, such as 4M or 4Mi")
    for name, node in requests.fields():
        number, limit = amount(node), amount(limits.at(name))
        # Devices are not shared: the request and the limit are one number.
        if _is_device(name) and (not limits.has(name) or (None not in (number, limit) and number != limit)):
            yield node.error("needs a limit of the same number; write it under limits (or there only)")
        elif number is not None and limit is not None and number > limit:
            yield node.error(f"{node.value} is more than the limit of {limits.value[name]}; ask for at most the limit")
    memory = amount(limits.at("memory"))
    if memory is not None and memory == memory.to_integral_value() and 0 < memory < 4 * 1024 * 1024:
        yield limits.at("memory").warning(
            f"no container starts with so little as {memory:f} bytes; write for example 1G"
        )


def _resource_name(name: str) -> str | None:
    if name in ("cpu", *_BYTES) or name.startswith("hugepages-"):
        return None
    if "/" not in name:
        return "no such resource; write cpu, memory, ephemeral-storage, or one with a domain (nvidia.com/gpu)"
    return label_key(name)


def _is_device(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
