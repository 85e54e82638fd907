"""Rules on containers: image, command, environment, ports, probes, resources. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from tarkit.errors import UsageError
from tarkit.k8s.lint.nodes import Finding, Node, one_of, unique, valid
from tarkit.k8s.names import config_key, dns_subdomain, env_name, label_key, port_name
from tarkit.k8s.quantity import is_taken, parse_quantity

# MAX_ARG_STRLEN of Linux is 32 pages, with the zero byte at the end.
_LONGEST_STRING = 131_071
_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "spec.host",
)  # fmt: skip
_FIELD_OF_MAP = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_RESOURCE = re.compile(r"(?:limits|requests)\.(?:cpu|memory|ephemeral-storage|hugepages-.+)")
# As the runtimes take it; it is the node that refuses others, not the server.
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/|[A-Za-z0-9-]+:[0-9]+/)?"
    rf"{_PATH_PART}(?:/{_PATH_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@[a-z0-9]+:[^\s]+)?"
)
_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BYTES = ("memory", "ephemeral-storage")


def image(container: Node) -> Iterator[Finding]:
    """There is one, as it can be pulled."""
    text, node = container.text("image"), container.at("image")
    # Of a pod's template it is taken; and what is in the middle, everywhere.
    pod_itself = container.manifest.kind == "Pod" and text != text.strip()
    if node.is_empty():
        yield node.error("is missing; write one, such as ubuntu:24.04")
    elif any(c.isspace() for c in text):
        sentence = f"{text!r} has blanks in it, so no node can pull it; write it without"
        yield node.error(sentence) if pod_itself else node.unusable(sentence)
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
    if "\0" in text:
        yield node.unusable("has a zero byte in it, where Linux ends it; keep such data in a file")
    # Four bytes a character at most.
    elif len(text) > _LONGEST_STRING // 4 and (length := len(text.encode("utf-8", "surrogatepass"))) > _LONGEST_STRING:
        yield node.unusable(
            f"has {length} bytes, and Linux takes {_LONGEST_STRING} in one; put it in a file (ConfigMap)"
        )


def environment(container: Node) -> Iterator[Finding]:
    """Names of variables, each once; and one source for each value."""
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
        if variable.text("value"):
            yield from one_of(variable, ("value", "valueFrom"))
        yield from _source(variable.at("valueFrom"), container)
    for source in container.at("envFrom").items():
        yield from one_of(source, ("configMapRef", "secretRef"))
        yield from (f for key in ("configMapRef", "secretRef") for f in _named(source.at(key)))


def _named(reference: Node) -> Iterator[Finding]:
    wrong = dns_subdomain(reference.text("name"))
    if wrong and isinstance(reference.value, dict):
        yield reference.at("name").error(wrong)


def _source(source: Node, container: Node) -> Iterator[Finding]:
    kinds = [key for key, node in source.fields() if node.value is not None]
    if isinstance(source.value, dict) and len(kinds) != 1:
        yield source.error(f"names {len(kinds)} sources of the value; write one")
    path = source.at("fieldRef").text("fieldPath")
    if path and path not in _FIELDS and not _FIELD_OF_MAP.fullmatch(path):
        yield source.at("fieldRef", "fieldPath").error(
            f"there is no {path!r}; write one of {', '.join(_FIELDS[:-1])}, or metadata.labels['NAME']"
        )
    for reference in (source.at("configMapKeyRef"), source.at("secretKeyRef")):
        yield from _named(reference)
        yield from valid(reference, "key", config_key)
    reference = source.at("resourceFieldRef")
    resource, node = reference.text("resource"), reference.at("resource")
    part, _, name = resource.partition(".")
    if resource and not _RESOURCE.fullmatch(resource):
        yield node.error(f"there is no {resource!r}; write limits. or requests. and cpu, memory or ephemeral-storage")
    own = reference.text("containerName") in ("", container.text("name"))
    if part == "limits" and own and not container.at("resources", "limits").has(name):
        yield node.warning(f"no limit is set, so this is the node's whole {name}; write requests.{name}")


def ports(container: Node) -> Iterator[Finding]:
    """Names of ports, each once; the schema has their numbers."""
    for port in container.at("ports").items():
        yield from valid(port, "name", port_name)
    yield from unique(container.at("ports").items(), "name", "port")


def probes(container: Node) -> Iterator[Finding]:
    """Each probe and each hook has one action; one success is enough, but for readiness."""
    starts_first = ".initContainers" in f".{container.path}" and container.text("restartPolicy") != "Always"
    for kind in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        probe = container.at(kind)
        if not isinstance(probe.value, dict):
            continue
        if starts_first:
            yield probe.error("an init container cannot have it, unless its restartPolicy is Always; leave it out")
        for node in [probe] if kind != "lifecycle" else [probe.at("preStop"), probe.at("postStart")]:
            yield from one_of(node, _ACTIONS)
            if node.has("exec") and node.at("exec", "command").is_empty():
                yield node.at("exec", "command").error("is missing; write what to run")
        if kind != "readinessProbe" and (probe.whole("successThreshold") or 1) != 1:
            yield probe.at("successThreshold").error("must be 1; only a readinessProbe can ask for more")
        if kind == "readinessProbe" and probe.has("terminationGracePeriodSeconds"):
            yield probe.at("terminationGracePeriodSeconds").error("a readinessProbe ends nothing; leave it out")


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
    for part in (requests, limits):
        for name, node in part.fields():
            if wrong := _resource_name(name):
                yield node.error(wrong)
            else:
                yield from quantity(node)
                yield from _fraction(name, node)
    for name, node in requests.fields():
        number, limit = amount(node), amount(limits.at(name))
        if _is_device(name):
            # Devices are not shared: the request and the limit are one number.
            if not limits.has(name) or (number is not None and limit is not None and number != limit):
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


def _fraction(name: str, node: Node) -> Iterator[Finding]:
    number = amount(node)
    if number is None or number == number.to_integral_value():
        return
    if _is_device(name):
        yield node.error(f"{node.value} is not a whole number; devices cannot be divided, write 1 or more")
    elif name in _BYTES:
        yield node.warning(f"{node.value} is {number.normalize():f} bytes; write whole bytes, such as 4M or 4Mi")
