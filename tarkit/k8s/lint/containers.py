"""Rules on containers: image, command, environment, ports. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, repeated
from tarkit.k8s.names import config_key, env_name, port_name

# MAX_ARG_STRLEN of Linux is 32 pages, with the zero byte at the end.
_LONGEST_STRING = 131_071
_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_FIELD_OF_MAP = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_RESOURCE = re.compile(r"(?:limits|requests)\.(?:cpu|memory|ephemeral-storage|hugepages-.+)")
# As the runtimes take it; it is the node that refuses others, not the server.
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|[A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/|[A-Za-z0-9-]+:[0-9]+/)?"
    rf"{_PATH_PART}(?:/{_PATH_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@[a-z0-9]+:[^\s]+)?"
)
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def image(container: Node) -> Iterator[Finding]:
    """There is one, with no blanks in it, as it can be pulled."""
    text, node = container.text("image"), container.at("image")
    if container.has("image") and text.strip() == "" and text == node.value:
        yield node.error("is empty; write one, such as ubuntu:24.04")
    elif any(c.isspace() for c in text):
        yield node.error(f"{text!r} has blanks in it; write it without")
    elif text and not _IMAGE.fullmatch(text):
        yield node.warning(
            f"{text!r} is no name of an image to most nodes; write [HOST/]name[:TAG], the name in lower case"
        )


def words(container: Node) -> Iterator[Finding]:
    """What Linux takes as words of a command, and as an environment."""
    for key in ("command", "args"):
        for word in container.at(key).members():
            if isinstance(word.value, str):
                yield from _string(word, word.value)
    for variable in container.at("env").items():
        if isinstance(variable.at("value").value, str):
            yield from _string(variable.at("value"), f"{variable.text('name')}={variable.text('value')}")


def _string(node: Node, text: str) -> Iterator[Finding]:
    if "\0" in text:
        yield node.error("has a zero byte in it, where Linux ends it; keep such data in a file")
    # Four bytes a character at most.
    elif len(text) > _LONGEST_STRING // 4 and (length := len(text.encode("utf-8", "surrogatepass"))) > _LONGEST_STRING:
        yield node.error(f"has {length} bytes, and Linux takes {_LONGEST_STRING} in one; put it in a file (ConfigMap)")


def terminal(container: Node) -> Iterator[Finding]:
    """No pod of a Job has somebody at a terminal."""
    if container.manifest.kind not in ("Job", "CronJob"):
        return
    if isinstance(container.value.get("stdin"), bool) and container.value["stdin"]:
        yield container.at("stdin").warning("a command that reads its input waits for ever; leave it out")
    if isinstance(container.value.get("tty"), bool) and container.value["tty"]:
        yield container.at("tty").warning("errors are mixed into the output, and lines end in CR LF; leave it out")


def environment(container: Node) -> Iterator[Finding]:
    """Names of variables, each once; and one source for each value."""
    variables = container.at("env").items()
    for variable in variables:
        name = variable.text("name")
        if name:
            if wrong := env_name(name, variable.manifest.version_text):
                yield variable.at("name").error(f"this is no name of a variable: {wrong}")
            elif not _SHELL_NAME.fullmatch(name):
                yield variable.at("name").warning(
                    f"no shell can read a variable called {name!r}; write letters, digits and _"
                )
        elif variable.value.get("name") == "":
            yield variable.at("name").error("is empty; write one")
        if variable.has("valueFrom"):
            yield from _source(variable, container)
    for name, node in repeated([(variable.text("name"), variable.at("name")) for variable in variables]):
        yield node.warning(f"{name} is set twice, and the last one counts; leave out the others")


def _source(variable: Node, container: Node) -> Iterator[Finding]:
    source = variable.at("valueFrom")
    if variable.text("value"):
        yield variable.error("has both value and valueFrom; leave out one")
    kinds = [key for key, node in source.fields() if node.value is not None]
    if isinstance(source.value, dict) and len(kinds) != 1:
        yield source.error(f"names {len(kinds)} sources of the value; write one")
    path = source.at("fieldRef").text("fieldPath")
    if path and path not in _FIELDS and not _FIELD_OF_MAP.fullmatch(path):
        yield source.at("fieldRef", "fieldPath").error(
            f"{path!r} can not be had; write one of {', '.join(_FIELDS)}, or metadata.labels['NAME']"
        )
    yield from _resource(source.at("resourceFieldRef"), container)
    for key in ("configMapKeyRef", "secretKeyRef"):
        reference = source.at(key)
        if reference.value is not None and not reference.text("name"):
            yield reference.at("name").error("is missing; write it")
        if (text := reference.text("key")) and (wrong := config_key(text)):
            yield reference.at("key").error(wrong)


def _resource(reference: Node, container: Node) -> Iterator[Finding]:
    resource = reference.text("resource")
    if not resource:
        return
    node = reference.at("resource")
    if not _RESOURCE.fullmatch(resource):
        yield node.error(
            f"{resource!r} can not be had; write limits. or requests. and cpu, memory or ephemeral-storage"
        )
        return
    other = reference.text("containerName")
    part, _, name = resource.partition(".")
    if part == "limits" and other in ("", container.text("name")) and not container.at("resources", "limits").has(name):
        yield node.warning(f"there is no limit, so this is the node's whole {name}; write requests.{name}")


def ports(container: Node) -> Iterator[Finding]:
    """Numbers and names of ports."""
    listed = container.at("ports").items()
    seen: list[tuple[str, Node]] = []
    for port in listed:
        for key in ("containerPort", "hostPort"):
            number = port.whole(key)
            # 0 is as good as none for a port of the host.
            if number is not None and not 1 <= number <= 65535 and (key, number) != ("hostPort", 0):
                yield port.at(key).error(f"{number} is no port; write 1 to 65535")
        if (name := port.text("name")) and (wrong := port_name(name)):
            yield port.at("name").error(wrong)
        protocol = port.text("protocol") or "TCP"
        if protocol not in ("TCP", "UDP", "SCTP"):
            yield port.at("protocol").error(f"{protocol!r} is no protocol; write TCP, UDP or SCTP")
        if port.whole("containerPort") is not None:
            seen.append((f"{port.whole('containerPort')}/{protocol}", port))
    for name, node in repeated([(port.text("name"), port.at("name")) for port in listed]):
        yield node.error(f"{name!r} is there twice; give each port its own name")
    for name, node in repeated(seen):
        yield node.warning(f"port {name} is there twice; leave out one")
