"""The rules about pods and pod templates that the API server enforces; written from the facts, not from tarkit."""

from __future__ import annotations

import re
from typing import Any

from apidefaults import containers
from apierrors import Cause, missing, not_there, twice, unsupported, wrong
from apiquantity import amount
from apiresources import JOBS, PODS, Resource

Json = dict[str, Any]
LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
SAID_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SAID_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SAID_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SAID_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_TOO_LONG = "must be no more than 63 bytes"


def label(text: str) -> list[str]:
    """What is wrong with a DNS label."""
    return ([_TOO_LONG] if len(text) > 63 else []) + ([] if LABEL.match(text) else [SAID_LABEL])


def subdomain(text: str) -> list[str]:
    """What is wrong with a DNS subdomain."""
    long = ["must be no more than 253 bytes"] if len(text) > 253 else []
    return long + ([] if SUBDOMAIN.match(text) else [SAID_SUBDOMAIN])


def labels(found: Json, path: str) -> list[Cause]:
    causes = []
    for key, value in found.items():
        causes += qualified(key, path)
        if len(value) > 63:
            causes.append(wrong(path, value, _TOO_LONG))
        elif value and not _QUALIFIED.match(value):
            causes.append(wrong(path, value, _SAID_VALUE))
    return causes


def qualified(key: str, path: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    causes = []
    if slash and subdomain(prefix):
        causes.append(wrong(path, key, f"prefix part {SAID_SUBDOMAIN}"))
    if not _QUALIFIED.match(name):
        causes.append(wrong(path, key, _SAID_NAME))
    elif len(name) > 63:
        causes.append(wrong(path, key, f"name part {_TOO_LONG}"))
    return causes


def pod_template(template: Json, path: str) -> list[Cause]:
    meta = template.get("metadata", {})
    causes = labels(meta.get("labels", {}), f"{path}.labels")
    for key in meta.get("annotations", {}):
        causes += qualified(key.lower(), f"{path}.annotations")
    return causes + pod_spec(template.get("spec", {}), f"{path}.spec")


def pod_spec(spec: Json, path: str) -> list[Cause]:
    causes, volumes = _volumes(spec, f"{path}.volumes")
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(missing(f"{path}.containers"))
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(kind) or []):
            here = f"{path}.{kind}[{number}]"
            name = container.get("name", "")
            if name in names:
                causes.append(twice(f"{here}.name", name))
            names.add(name)
            causes += _container(container, here, volumes)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), ["Always", "OnFailure", "Never"]))
    for field, check in (("hostname", label), ("subdomain", label), ("serviceAccountName", subdomain)):
        value = spec.get(field)
        if value and (said := check(value)):
            causes.append(wrong(f"{path}.{field}", value, said[0]))
    causes += labels(spec.get("nodeSelector", {}), f"{path}.nodeSelector")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        causes.append(wrong(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"))
    return causes + _tolerations(spec.get("tolerations", []), f"{path}.tolerations")


def _tolerations(found: list[Json], path: str) -> list[Cause]:
    causes = []
    for number, one in enumerate(found):
        here = f"{path}[{number}]"
        if one.get("operator", "Equal") == "Exists" and one.get("value"):
            causes.append(wrong(f"{here}.operator", one, "value must be empty when `operator` is 'Exists'"))
        if one.get("operator", "Equal") == "Equal" and not one.get("key"):
            causes.append(wrong(f"{here}.operator", "Equal", "operator must be Exists when `key` is empty"))
        if one.get("tolerationSeconds") is not None and one.get("effect") != "NoExecute":
            causes.append(
                wrong(
                    f"{here}.effect",
                    one.get("effect", ""),
                    "effect must be 'NoExecute' when `tolerationSeconds` is set",
                )
            )
    return causes


def _volumes(spec: Json, path: str) -> tuple[list[Cause], set[str]]:
    causes: list[Cause] = []
    names: set[str] = set()
    for number, volume in enumerate(spec.get("volumes") or []):
        here, name = f"{path}[{number}]", volume.get("name", "")
        if said := label(name):
            causes.append(wrong(f"{here}.name", name, said[0]))
        if name in names:
            causes.append(twice(f"{here}.name", name))
        names.add(name)
        kinds = [key for key in volume if key != "name"]
        if not kinds:
            causes.append(missing(here, "must specify a volume type"))
        for more in kinds[1:]:
            causes.append(
                Cause(f"{here}.{more}", "FieldValueForbidden", "Forbidden: may not specify more than 1 volume type")
            )
        if "configMap" in volume and not volume["configMap"].get("name"):
            causes.append(missing(f"{here}.configMap.name"))
        if "secret" in volume and not volume["secret"].get("secretName"):
            causes.append(missing(f"{here}.secret.secretName"))
    return causes, names


def _container(container: Json, path: str, volumes: set[str]) -> list[Cause]:
    causes = []
    name = container.get("name", "")
    if not name:
        causes.append(missing(f"{path}.name"))
    elif said := label(name):
        causes.append(wrong(f"{path}.name", name, said[0]))
    image = container.get("image", "")
    if not image:
        causes.append(missing(f"{path}.image"))
    elif image.strip() != image and ".template." not in path:
        causes.append(wrong(f"{path}.image", image, "must not have leading or trailing whitespace"))
    for number, variable in enumerate(container.get("env", [])):
        causes += _variable(variable, f"{path}.env[{number}]")
    for number, port in enumerate(container.get("ports", [])):
        value = port.get("containerPort", 0)
        if not 1 <= value <= 65535:
            causes.append(
                wrong(f"{path}.ports[{number}].containerPort", value, "must be between 1 and 65535, inclusive")
            )
    places: set[str] = set()
    for number, mount in enumerate(container.get("volumeMounts", [])):
        here = f"{path}.volumeMounts[{number}]"
        if mount.get("name") not in volumes:
            causes.append(not_there(f"{here}.name", mount.get("name", "")))
        place = mount.get("mountPath", "")
        if not place:
            causes.append(missing(f"{here}.mountPath"))
        if place in places:
            causes.append(wrong(f"{here}.mountPath", place, "must be unique"))
        places.add(place)
    policy = container.get("imagePullPolicy")
    if policy not in ("Always", "IfNotPresent", "Never"):
        causes.append(unsupported(f"{path}.imagePullPolicy", policy, ["Always", "IfNotPresent", "Never"]))
    return causes + _resources(container.get("resources", {}), f"{path}.resources")


def _variable(variable: Json, path: str) -> list[Cause]:
    name = variable.get("name", "")
    causes = [] if name else [missing(f"{path}.name")]
    if name and (not name.isprintable() or "=" in name):
        causes.append(
            wrong(
                f"{path}.name",
                name,
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            )
        )
    source = variable.get("valueFrom")
    if source is not None:
        if variable.get("value"):
            causes.append(wrong(f"{path}.valueFrom", "", "may not be specified when `value` is not empty"))
        if len(source) != 1:
            said = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            causes.append(
                wrong(
                    f"{path}.valueFrom",
                    "",
                    said if not source else "may not have more than one field specified at a time",
                )
            )
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if kind in source and not _KEY.match(source[kind].get("key", "")):
                causes.append(missing(f"{path}.valueFrom.{kind}.key"))
    return causes


def _resources(resources: Json, path: str) -> list[Cause]:
    causes = []
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, amounts in (("limits", limits), ("requests", requests)):
        for key, value in amounts.items():
            if amount(value) < 0:
                causes.append(wrong(f"{path}.{part}[{key}]", value, "must be greater than or equal to 0"))
            known = key in ("cpu", "memory", "ephemeral-storage") or key.startswith("hugepages-") or "/" in key
            if not known:
                said = "must be a standard resource type or fully qualified"
                causes.append(wrong(f"{path}.{part}[{key}]", key, said))
    for key, value in requests.items():
        if "/" in key and key not in limits:
            causes.append(missing(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif "/" in key and amount(value) != amount(limits[key]):
            causes.append(wrong(f"{path}.requests", value, f"must be equal to {key} limit of {limits[key]}"))
        elif key in limits and amount(value) > amount(limits[key]):
            causes.append(
                wrong(f"{path}.requests", value, f"must be less than or equal to {key} limit of {limits[key]}")
            )
    return causes


def named_containers(spec: Json) -> set[str]:
    return {one.get("name", "") for one in containers(spec)}


def warnings(resource: Resource, thing: Json) -> list[str]:
    """What the server accepts but warns about: fractions of bytes, a variable defined twice."""
    if resource is JOBS:
        return _spec_warnings(thing["spec"]["template"]["spec"], "spec.template.spec")
    return _spec_warnings(thing["spec"], "spec") if resource is PODS else []


def _spec_warnings(spec: Json, path: str) -> list[str]:
    said = []
    for number, container in enumerate(spec.get("containers", [])):
        here = f"{path}.containers[{number}]"
        for part, amounts in container.get("resources", {}).items():
            for key in ("memory", "ephemeral-storage"):
                value = amounts.get(key) if isinstance(amounts, dict) else None
                if value is not None and amount(value) % 1:
                    why = f'fractional byte value "{value}" is invalid, must be an integer'
                    said.append(f"{here}.resources.{part}[{key}]: {why}")
        seen: set[str] = set()
        for index, variable in enumerate(container.get("env", [])):
            name = variable.get("name", "")
            if name in seen:
                said.append(
                    f'{here}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
                )
            seen.add(name)
    return said
