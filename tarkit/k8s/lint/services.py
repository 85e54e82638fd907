"""Rules on Services: their pods, and their ports. Every rule takes the document."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, label_pairs, repeated
from tarkit.k8s.names import dns_label, port_name


def selector(root: Node) -> Iterator[Finding]:
    """It selects pods, by labels."""
    node, kind = root.at("spec", "selector"), root.at("spec").text("type")
    if not node.value and kind != "ExternalName" and isinstance(node.value, (dict, type(None))):
        yield node.warning("is empty, so the service has no pods; write a label that they carry, such as app: NAME")
    yield from label_pairs(node)


def ports(root: Node) -> Iterator[Finding]:
    """There are ports; each pair of number and protocol once; with names if there are several."""
    spec = root.at("spec")
    kind, listed = spec.text("type"), spec.at("ports").items()
    addresses = spec.at("clusterIPs").value
    headless = "None" in (spec.text("clusterIP"), *(addresses if isinstance(addresses, list) else ()))
    if headless and kind in ("NodePort", "LoadBalancer"):
        yield spec.at("clusterIP").error(f"a {kind} has an address; leave out clusterIP: None, or the type")
    if kind == "ExternalName" and not spec.text("externalName"):
        yield spec.at("externalName").error("is missing; an ExternalName stands for another name")
    if not headless and kind != "ExternalName" and not spec.at("ports").value:
        yield spec.at("ports").error("is missing; write a port, or clusterIP: None for a service of names only")
    for port in listed:
        name, target = port.text("name"), port.text("targetPort")
        if name and (wrong := dns_label(name)):
            yield port.at("name").error(wrong)
        elif len(listed) > 1 and not name:
            yield port.at("name").error("is missing; where there are several ports, each needs a name")
        if target and (wrong := port_name(target)):
            yield port.at("targetPort").error(f"{wrong}; or write a number, without quotes")
        number = port.whole("targetPort")
        if number is not None and not 0 <= number <= 65535:
            yield port.at("targetPort").error(f"{number} is not a port; write 1 to 65535")
    for name, node in repeated([(port.text("name"), port.at("name")) for port in listed]):
        yield node.error(f"{name!r} is there twice; give each port its own name")
    numbers = [(f"{port.whole('port')}/{port.text('protocol') or 'TCP'}", port.at("port")) for port in listed]
    for name, node in repeated(numbers):
        yield node.error(f"port {name} is there twice; leave out one")
