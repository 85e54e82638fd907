"""The environment and the command line of a container, as a kubelet works them out."""

from __future__ import annotations

import base64
import re
from decimal import ROUND_CEILING

from apiquantity import amount
from apiresources import CONFIGMAPS, SECRETS, Resource
from apistore import Json, Store

_KEYED = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")


class ConfigError(Exception):
    """Something that the container refers to is not there: CreateContainerConfigError."""


def expand(text: str, known: dict[str, str]) -> str:
    """$(NAME) becomes the value; $$ becomes $; what is not known or not closed stays as it is.

    The rules of the expansion package that kubelets carry: a $ before anything else is kept with what follows it.
    """
    out, at = [], 0
    while at < len(text):
        char = text[at]
        if char != "$" or at + 1 >= len(text):
            out.append(char)
            at += 1
        elif text[at + 1] == "$":
            out.append("$")
            at += 2
        elif text[at + 1] == "(":
            end = text.find(")", at + 2)
            if end < 0:
                out.append("$(")
                at += 2
                continue
            name = text[at + 2 : end]
            out.append(known.get(name, f"$({name})"))
            at = end + 1
        else:
            out.append(text[at : at + 2])
            at += 2
    return "".join(out)


def data_of(store: Store, resource: Resource, namespace: str, name: str) -> dict[str, bytes] | None:
    """The keys of a ConfigMap or Secret as bytes; None if no such object."""
    thing = store.find(resource, namespace, name)
    if thing is None:
        return None
    if resource is SECRETS:
        return {key: base64.b64decode(value) for key, value in (thing.get("data") or {}).items()}
    data = {key: value.encode() for key, value in (thing.get("data") or {}).items()}
    return {**data, **{key: base64.b64decode(value) for key, value in (thing.get("binaryData") or {}).items()}}


def environment(store: Store, pod: Json, container: Json, node: Json, base: dict[str, str]) -> dict[str, str]:
    """Base, then envFrom, then env in order, each seeing those before it. Raises ConfigError."""
    found: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom", []):
        for kind, resource, word in (("configMapRef", CONFIGMAPS, "configmap"), ("secretRef", SECRETS, "secret")):
            if kind not in source:
                continue
            data = data_of(store, resource, namespace, source[kind].get("name", ""))
            if data is None:
                if source[kind].get("optional"):
                    continue
                raise ConfigError(f'{word} "{source[kind].get("name", "")}" not found')
            for key, content in data.items():
                found[source.get("prefix", "") + key] = content.decode(errors="replace")
    for variable in container.get("env", []):
        value: str | None = expand(variable.get("value", ""), {**base, **found})
        if "valueFrom" in variable:
            value = _value_from(store, pod, container, node, variable["valueFrom"])
        if value is not None:
            found[variable["name"]] = value
    return {**base, **found}


def _value_from(store: Store, pod: Json, container: Json, node: Json, source: Json) -> str | None:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return _resource_value(pod, container, node, source["resourceFieldRef"])
    for kind, resource, word in (("configMapKeyRef", CONFIGMAPS, "configmap"), ("secretKeyRef", SECRETS, "secret")):
        if kind in source:
            reference, namespace = source[kind], pod["metadata"]["namespace"]
            data = data_of(store, resource, namespace, reference.get("name", ""))
            if data is not None and reference["key"] in data:
                return data[reference["key"]].decode(errors="replace")
            if reference.get("optional"):
                return None
            if data is None:
                raise ConfigError(f'{word} "{reference.get("name", "")}" not found')
            noun = "ConfigMap" if word == "configmap" else "Secret"
            raise ConfigError(f"couldn't find key {reference['key']} in {noun} {namespace}/{reference['name']}")
    raise ConfigError(f"invalid valueFrom: {sorted(source)}")


def field_value(pod: Json, path: str) -> str:
    """A field of the pod as the downward API gives it."""
    keyed = _KEYED.match(path)
    if keyed:
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": pod["status"].get("podIP", "127.0.0.1"),
        "status.podIPs": pod["status"].get("podIP", "127.0.0.1"),
        "status.hostIP": "127.0.0.1",
        "status.hostIPs": "127.0.0.1",
    }
    if path not in known:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(known[path])


def _resource_value(pod: Json, container: Json, node: Json, reference: Json) -> str:
    """Rounded up to whole divisors. A limit that is not set is that of the node; a request that is not set is 0."""
    part, _, key = reference["resource"].partition(".")
    name = reference.get("containerName") or container["name"]
    owner = next((one for one in pod["spec"]["containers"] if one["name"] == name), container)
    value = owner.get("resources", {}).get(part, {}).get(key)
    if value is None and part == "limits":
        value = node["status"]["allocatable"].get(key, "0")
    divisor = reference.get("divisor", "0")
    unit = amount("1" if divisor in ("0", "") else divisor)
    return str(int((amount(value or "0") / unit).to_integral_value(ROUND_CEILING)))
