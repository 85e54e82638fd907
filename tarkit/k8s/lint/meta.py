"""Rules on what all objects have: kind and apiVersion, names, labels, annotations; and on how large they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tarkit.errors import printable
from tarkit.k8s.limits import ANNOTATIONS
from tarkit.k8s.lint.nodes import Finding, Node, label_pairs
from tarkit.k8s.names import SUBDOMAIN_LENGTH, dns_label, dns_subdomain, label_key, service_name
from tarkit.k8s.wellknown import APP_NAME, LAST_APPLIED

SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
"""Kinds that know their pods by a selector."""

# Where the kinds are that kubetpl fills; the schema knows all.
_API_VERSIONS = {
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    **dict.fromkeys(SELECTING, "apps/v1"),
    **dict.fromkeys(("Pod", "Service", "ConfigMap", "Secret"), "v1"),
}
# Kinds that may have more in their names than others: any that a URL can have, as of RBAC.
_SUBDOMAINS = (*_API_VERSIONS, "PersistentVolumeClaim", "ServiceAccount", "Ingress", "NetworkPolicy")
_OLD_GROUPS = re.compile(r"(apps|batch|extensions)/v[0-9]+((alpha|beta)[0-9]+)?")
_OBJECT = 1_572_864
_REQUEST = 3_145_728


def kind(root: Node) -> Iterator[Finding]:
    """kind and apiVersion are there and belong together."""
    name, api = root.text("kind"), root.text("apiVersion")
    if not name:
        yield root.at("kind").error("is missing; write what it is, such as kind: Job")
        return
    right = _API_VERSIONS.get(name)
    if not api:
        yield root.at("apiVersion").error(f"is missing; write apiVersion: {right or 'GROUP/VERSION'}")
    elif right is not None:
        # Others may have kinds of the same name in groups of their own.
        if api != right and (_OLD_GROUPS.fullmatch(api) or "." not in api):
            yield root.at("apiVersion").error(f"{printable(api)} has no {name}; write {right}")
    elif "." not in api:
        known = next((known for known in _API_VERSIONS if known.lower() == name.lower().removesuffix("s")), None)
        if known is not None:
            yield root.at("kind").error(f"there is no kind {printable(name)!r}; did you mean {known}?")


def name(root: Node) -> Iterator[Finding]:
    """It has a name, of which a URL can be made."""
    meta, kind = root.at("metadata"), root.manifest.kind
    text, node = meta.text("name"), root.at("metadata", "name")
    if not text and (begin := meta.text("generateName")):
        node = root.at("metadata", "generateName")
        if kind in _SUBDOMAINS and (wrong := dns_subdomain(f"{begin}x"[-SUBDOMAIN_LENGTH:])):
            yield node.error(wrong)
        yield node.warning("kubectl apply refuses it; use kubectl create -f, or write metadata.name", "--name")
    elif not text:
        # Another type is an error of the schema.
        yield from [node.error("is missing; write one")] if not node.value else []
    elif kind == "Service":
        if wrong := dns_label(text):
            yield node.error(wrong)
        elif wrong := service_name(text, root.manifest.version_text):
            yield node.unusable(f"servers before 1.36 refuse it: {wrong}")
    # What is too long for a Job is a rule of Jobs.
    elif kind not in ("Job", "CronJob") or len(text) <= SUBDOMAIN_LENGTH:
        check = dns_label if kind == "Namespace" else dns_subdomain if kind in _SUBDOMAINS else _path_segment
        if wrong := check(text):
            yield node.error(wrong)
    if (namespace := meta.text("namespace")) and (wrong := dns_label(namespace)):
        yield root.at("metadata", "namespace").error(wrong)


def _path_segment(text: str) -> str | None:
    return "may not have / or % in it" if re.search("[/%]", text) or text in (".", "..") else None


def labels(meta: Node) -> Iterator[Finding]:
    """Names and values of labels; names of annotations. Of ``metadata``, or that of a template."""
    yield from label_pairs(meta.at("labels"))
    for key, node in meta.at("annotations").fields():
        # Servers compare them in lower case.
        if wrong := label_key(key.lower()):
            yield node.error(f"this is no name of an annotation: {wrong}", None)


def selector(root: Node) -> Iterator[Finding]:
    """What makes pods finds them again: its selector fits the labels of their template."""
    spec = root.at("spec")
    if root.manifest.kind not in SELECTING and spec.at("manualSelector").value is not True:
        # Of a Job without it, a server makes both.
        return
    labels = spec.at("template", "metadata", "labels")
    for key, node in spec.at("selector", "matchLabels").fields():
        if node.value != labels.at(key).value:
            there = f"has {printable(str(labels.at(key).value))!r} there" if labels.has(key) else "has no such label"
            flag = "--app" if key in ("app", APP_NAME) else "--label"
            yield node.error(
                f"the pods' template {there}, and so they would not be found; write the same in both", flag
            )


def size(root: Node) -> Iterator[Finding]:
    """What a server, its store, and kubectl apply can hold."""
    # No character becomes more than six bytes. This takes a fraction of the time of JSON.
    if len(repr(root.value)) * 6 < ANNOTATIONS:
        return
    text = json.dumps(root.value, separators=(",", ":"), ensure_ascii=False, default=str)
    annotations = root.at("metadata", "annotations").fields()
    own = sum(len(_utf8(key)) + len(_utf8(str(node.value))) for key, node in annotations)
    if own > ANNOTATIONS:
        yield root.at("metadata", "annotations").error(
            f"the annotations have {own} bytes; at most {ANNOTATIONS} are allowed", None
        )
        return
    total = len(_utf8(text))
    # What is kept is not JSON: nothing is escaped there, and names of fields are numbers.
    kept = 0 if root.manifest.kind in ("ConfigMap", "Secret") else sum(len(_utf8(each)) for each in _texts(root.value))
    if total > _REQUEST or kept > _OBJECT:
        held = f"a cluster keeps {_OBJECT} of an object" if kept > _OBJECT else f"a server takes {_REQUEST}"
        yield root.error(f"has {max(total, kept)} bytes, and {held}; keep large things in a bucket")
        return
    # Go's JSON writes these three in six characters. Two fields are added, and a line's end.
    applied = total + 5 * sum(text.count(each) for each in "<>&") + len(',"annotations":{},"namespace":"default"') + 1
    if own + len(LAST_APPLIED) + applied > ANNOTATIONS:
        yield root.warning(
            f"kubectl apply keeps a copy in an annotation, and {applied} bytes are too many for one ({ANNOTATIONS}); "
            "use kubectl apply --server-side, or kubectl create"
        )


def _texts(value: Any) -> Iterator[str]:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from [each] if isinstance(each, str) else _texts(each)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
