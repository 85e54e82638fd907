"""The rules that the API server enforces on whole objects, and on changes of them."""

from __future__ import annotations

import json
import re
from typing import Any

from apierrors import Cause, missing, not_allowed, wrong
from apiresources import CONFIGMAPS, EVENTS, JOBS, NAMESPACES, PODS, SECRETS, SERVICES, Resource
from apistore import clone
from jobrules import job, job_update
from podrules import label, labels, pod_spec, qualified, subdomain

Json = dict[str, Any]
_ANNOTATIONS = 256 * 1024
_DATA = 1024 * 1024


def validate_new(resource: Resource, thing: Json) -> list[Cause]:
    causes = _metadata(resource, thing["metadata"])
    if resource is JOBS:
        causes += job(thing)
    elif resource is PODS:
        causes += pod_spec(thing.get("spec", {}), "spec")
    elif resource in (CONFIGMAPS, SECRETS):
        causes += _data(resource, thing)
    elif resource is SERVICES and not thing["spec"].get("ports") and thing["spec"].get("clusterIP") != "None":
        causes.append(missing("spec.ports"))
    return causes


def validate_change(resource: Resource, new: Json, old: Json) -> list[Cause]:
    """A changed object: the same rules, and what may not change."""
    causes = _metadata(resource, new["metadata"])
    if resource is JOBS:
        causes += job_update(new, old)
    elif resource is PODS:
        causes += _pod_update(new, old)
    elif resource in (CONFIGMAPS, SECRETS):
        causes += _data(resource, new)
        if old.get("immutable"):
            for field in ("data", "binaryData"):
                if new.get(field) != old.get(field):
                    causes.append(not_allowed(field, "field is immutable when `immutable` is set"))
            if not new.get("immutable"):
                causes.append(not_allowed("immutable", "field is immutable when `immutable` is set"))
    return causes


def _metadata(resource: Resource, meta: Json) -> list[Cause]:
    causes = []
    name = meta.get("name", "")
    check = label if resource in (NAMESPACES, SERVICES) else subdomain
    if not name:
        causes.append(missing("metadata.name", "name or generateName is required"))
    elif resource is not EVENTS:
        causes += [wrong("metadata.name", name, said) for said in check(name)]
    causes += labels(meta.get("labels", {}), "metadata.labels")
    annotations = meta.get("annotations", {})
    for key in annotations:
        causes += qualified(key.lower(), "metadata.annotations")
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS:
        said = f"Too long: may not be more than {_ANNOTATIONS} bytes"
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", said))
    return causes


def _data(resource: Resource, thing: Json) -> list[Cause]:
    causes = []
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (thing.get(field) or {}).items():
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key) or key in (".", ".."):
                said = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                causes.append(wrong(f"{field}[{key}]", key, said))
            encoded = resource is SECRETS or field == "binaryData"
            size += len(value) * 3 // 4 - value.count("=") if encoded else len(value.encode())
    if size > _DATA:
        causes.append(Cause("data", "FieldValueTooLong", f"Too long: may not be more than {_DATA} bytes"))
    return causes


def _pod_update(new: Json, old: Json) -> list[Cause]:
    """Of a pod only images, tolerations (more) and the deadline may change."""
    before, after = clone(old["spec"]), clone(new["spec"])
    for spec in (before, after):
        for field in ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName"):
            spec.pop(field, None)
        for kind in ("initContainers", "containers"):
            for container in spec.get(kind, []):
                container.pop("image", None)
    if before == after:
        return []
    said = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [not_allowed("spec", said)]


def size_of(thing: Json) -> int:
    """Bytes, as far as the limit of a request and of the database go."""
    return len(json.dumps(thing, separators=(",", ":")).encode())
