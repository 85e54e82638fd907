"""Rules on containers: image, command, environment, ports, probes. Every rule takes a container."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tarkit.k8s.lint.nodes import Finding, Node, repeated
from tarkit.k8s.names import config_key, dns_subdomain, env_name, port_name

# MAX_ARG_STRLEN of Linux is 32 pages, with the zero byte at the end.
_LONGEST_STRING = 131_071
_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.host", "spec.serviceAccountName",
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
_WAYS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def image(container: Node) -> Iterator[Finding]:
    """There is one, as it can be pulled."""
    text, node = container.text("image"), container.at("image")
    # Of a pod's template it is taken; and what is in the middle, everywhere.
    pod_itself = container.manifest.kind == "Pod" and text != text.strip()
    if node.value is None or node.value == "":
        yield node.error("is missing; write one, such as ubuntu:24.04")
    elif any(c.isspace() for c in text):
        sentence = f"{text!r} has blanks in it, so no node can pull it; write it without"
        yield node.error(sentence) if pod_itself else node.unusable(sentence)
    elif text and not _IMAGE.fullmatch(text):
        yield node.warning(f"{text!r} is not an image to most nodes; write [HOST/]name[:TAG], the name in lower case")


def words(container: Node) -> Iterator[Finding]:
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
    variables = container.at("env").items()
    for variable in variables:
        name = variable.text("name")
        if name and (wrong := env_name(name, variable.manifest.version_text)):
            # What servers take depends on their release; all since 1.32 agree.
            refused = env_name(name, "1.32") is not None
            sentence = f"no variable can be called so: {wrong}"
            yield variable.at("name").error(sentence) if refused else variable.at("name").unusable(sentence)
        elif name and not _SHELL_NAME.fullmatch(name):
            yield variable.at("name").warning(
                f"shells cannot read a variable called {name!r}; use letters, digits and _"
            )
        if variable.has("valueFrom"):
            yield from _source(variable, container)
    for name, node in repeated([(variable.text("name"), variable.at("name")) for variable in variables]):
        yield node.warning(f"{name} is set twice, and the last one counts; leave out the others")
    for source in container.at("envFrom").items():
        kinds = [key for key in ("configMapRef", "secretRef") if source.has(key)]
        if len(kinds) != 1:
            yield source.error(f"names {len(kinds)} sources; write one of configMapRef and secretRef")
        yield from (f for key in kinds if (f := _named(source.at(key))))


def _named(reference: Node) -> Finding | None:
    wrong = dns_subdomain(reference.text("name"))
    return reference.at("name").error(wrong) if wrong and isinstance(reference.value, dict) else None


def _source(variable: Node, container: Node) -> Iterator[Finding]:
    source = variable.at("valueFrom")
    if variable.text("value"):
        yield variable.error("has both value and valueFrom; leave out one")
    kinds = [key for key, node in source.fields() if node.value is not None]
    if isinstance(source.value, dict) and len(kinds) != 1:
        yield source.error(f"names {len(kinds)} sources of the value; write one")
    path = source.at("fieldRef").text("fieldPath")
    if path and path not in _FIELDS and not _FIELD_OF_MAP.fullmatch(path):
        shown = [each for each in _FIELDS if each != "spec.host"]
        yield source.at("fieldRef", "fieldPath").error(
            f"there is no {path!r}; write one of {', '.join(shown)}, or metadata.labels['NAME']"
        )
    yield from _resource(source.at("resourceFieldRef"), container)
    for reference in (source.at("configMapKeyRef"), source.at("secretKeyRef")):
        if wrong := _named(reference):
            yield wrong
        if (text := reference.text("key")) and (said := config_key(text)):
            yield reference.at("key").error(said)


def _resource(reference: Node, container: Node) -> Iterator[Finding]:
    resource = reference.text("resource")
    if not resource:
        return
    node = reference.at("resource")
    if not _RESOURCE.fullmatch(resource):
        yield node.error(
            f"{resource!r} is not to be had; write limits. or requests. and cpu, memory or ephemeral-storage"
        )
        return
    other = reference.text("containerName")
    part, _, name = resource.partition(".")
    if part == "limits" and other in ("", container.text("name")) and not container.at("resources", "limits").has(name):
        yield node.warning(f"there is no limit, so this is the node's whole {name}; write requests.{name}")


def ports(container: Node) -> Iterator[Finding]:
    """Names of ports, each once; the schema has their numbers."""
    listed = container.at("ports").items()
    for port in listed:
        if (name := port.text("name")) and (wrong := port_name(name)):
            yield port.at("name").error(wrong)
    for name, node in repeated([(port.text("name"), port.at("name")) for port in listed]):
        yield node.error(f"{name!r} is there twice; give each port its own name")


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
            ways = [key for key in _WAYS if node.has(key)]
            if isinstance(node.value, dict) and len(ways) != 1:
                yield node.error(f"has {len(ways)} actions; write one of {', '.join(_WAYS)}")
            if node.has("exec") and not node.at("exec", "command").value:
                yield node.at("exec", "command").error("is missing; write what to run")
        if kind != "readinessProbe" and (probe.whole("successThreshold") or 1) != 1:
            yield probe.at("successThreshold").error("must be 1; only a readinessProbe can ask for more")
        if kind == "readinessProbe" and probe.has("terminationGracePeriodSeconds"):
            yield probe.at("terminationGracePeriodSeconds").error("a readinessProbe ends nothing; leave it out")
