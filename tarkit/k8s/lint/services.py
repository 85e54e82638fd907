"""Rules on Services. Every rule takes the document."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, label_pairs, repeated
from tarkit.k8s.names import dns_label, port_name

_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def addresses(root: Node) -> Iterator[Finding]:
    """The type, and whether it has an address."""
    spec = root.at("spec")
    kind = spec.text("type")
    if kind and kind not in _TYPES:
        yield spec.at("type").error(f"{kind!r} is no type; write one of {', '.join(_TYPES)}")
    if spec.text("clusterIP") == "None" and kind in ("NodePort", "LoadBalancer"):
        yield spec.at("clusterIP").error(f"a {kind} has an address; leave out clusterIP: None, or the type")
    if kind == "ExternalName" and not spec.text("externalName"):
        yield spec.at("externalName").error("is missing; an ExternalName stands for another name")


def selector(root: Node) -> Iterator[Finding]:
    """It says which pods, by labels."""
    spec = root.at("spec")
    node = spec.at("selector")
    if not node.value and spec.text("type") != "ExternalName" and isinstance(node.value, (dict, type(None))):
        yield node.warning("is empty, so the service has no pods; write a label that they carry, such as app: NAME")
    yield from label_pairs(node)


def ports(root: Node) -> Iterator[Finding]:
    """There are ports, with numbers; with names if there are several."""
    spec = root.at("spec")
    listed = spec.at("ports").items()
    needed = spec.text("clusterIP") != "None" and spec.text("type") != "ExternalName"
    if needed and not spec.at("ports").value:
        yield spec.at("ports").error("is missing; write a port, or clusterIP: None for a service of names only")
    seen: list[tuple[str, Node]] = []
    for port in listed:
        yield from _port(port, len(listed) > 1)
        if port.whole("port") is not None:
            seen.append((f"{port.whole('port')}/{port.text('protocol') or 'TCP'}", port.at("port")))
    for name, node in repeated([(port.text("name"), port.at("name")) for port in listed]):
        yield node.error(f"{name!r} is there twice; give each port its own name")
    for name, node in repeated(seen):
        yield node.error(f"port {name} is there twice; leave out one")


def _port(port: Node, several: bool) -> Iterator[Finding]:
    number, name = port.whole("port"), port.text("name")
    if number is not None and not 1 <= number <= 65535:
        yield port.at("port").error(f"{number} is no port; write 1 to 65535")
    if name and (wrong := dns_label(name)):
        yield port.at("name").error(wrong)
    elif several and not name:
        yield port.at("name").error("is missing; where there are several ports, each needs a name")
    protocol = port.text("protocol")
    if protocol and protocol not in ("TCP", "UDP", "SCTP"):
        yield port.at("protocol").error(f"{protocol!r} is no protocol; write TCP, UDP or SCTP")
    target = port.at("targetPort")
    if isinstance(target.value, str):
        if wrong := port_name(target.value):
            yield target.error(f"{wrong}; or write a number, without quotes")
    elif target.value is not None and (isinstance(target.value, bool) or not isinstance(target.value, int)):
        yield target.error("is neither a number nor the name of a port; write one of them")
    elif isinstance(target.value, int) and not 1 <= target.value <= 65535:
        yield target.error(f"{target.value} is no port; write 1 to 65535")
