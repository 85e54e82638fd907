"""Rules on what all objects have: names, labels, annotations, size; and on ConfigMaps, Secrets and Services.

Every rule takes the document, but for ``labels`` and ``ports``."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tarkit.errors import printable
from tarkit.k8s.lint.nodes import Finding, Node, form, valid, valid_labels
from tarkit.k8s.names import SUBDOMAIN_LENGTH, config_key, dns_label, dns_label_1035, dns_subdomain, label_key, version
from tarkit.k8s.wellknown import ANNOTATIONS, APP_NAME, LAST_APPLIED

_SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
# Kinds whose names are DNS subdomains; others may have any name that a URL can have, such as those of RBAC.
_SUBDOMAINS = (
    *_SELECTING, "Job", "CronJob", "Pod", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount",
    "Ingress", "NetworkPolicy",
)  # fmt: skip
# Bytes of an object as a cluster keeps it, of a request, and of the files in a ConfigMap or Secret.
_OBJECT, _REQUEST, _FILES = 1_572_864, 3_145_728, 1_048_576
_PARTS = {"ConfigMap": ("data", "binaryData"), "Secret": ("data", "stringData")}
_segment = form(r"(?!\.\.?\Z)[^/%]*", "may not have / or % in it")
# What keys and tokens look like.
_SIGNS = {
    "a Google service account's key": re.compile(r'"private_key(_id)?"\s*:'),
    "a Google user's refresh token": re.compile(r'"refresh_token"\s*:\s*"'),
    "a private key": re.compile(
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"|\A0\x82..\x02\x01\0(?:\x02\x82|0.\x06.\*\x86H\x86\xf7\r\x01\x01\x01)",
        re.DOTALL,
    ),
    # The same in base64, which begins at one of three places of a group.
    "a private key in base64": re.compile(
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{0,40}(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)"
    ),
    "an AWS secret access key": re.compile(r"(?i)\baws_secret_access_key\s*[=:]|\baws_session_token\s*[=:]"),
    "an Azure account key": re.compile(r"(?i)\bAccountKey=[A-Za-z0-9+/]{20}"),
    "a kubeconfig's key": re.compile(r"(?m)^\s*client-key-data:\s*\S"),
}


def name(root: Node) -> Iterator[Finding]:
    """It has a name that its kind can have."""
    meta, kind = root.at("metadata"), root.manifest.kind
    text, node = meta.text("name"), meta.at("name")
    if not text and (begin := meta.text("generateName")):
        node = meta.at("generateName")
        if kind in _SUBDOMAINS and (wrong := dns_subdomain(f"{begin}x"[-SUBDOMAIN_LENGTH:])):
            yield node.error(wrong)
        yield node.warning("kubectl apply refuses it; use kubectl create -f, or write metadata.name", "--name")
    elif not text:
        # Another type is an error of the schema.
        yield from [node.error("is missing; write one")] if node.is_empty() else []
    elif kind == "Service" and (wrong := dns_label(text)):
        yield node.error(wrong)
    elif kind == "Service" and version(root.manifest.kube_version) < (1, 36) and (wrong := dns_label_1035(text)):
        yield node.unusable(f"servers before 1.36 refuse it: {wrong}")
    # What is too long for a Job is a rule of Jobs.
    elif kind not in ("Job", "CronJob") or len(text) <= SUBDOMAIN_LENGTH:
        yield from valid(node, dns_label if kind == "Namespace" else dns_subdomain if kind in _SUBDOMAINS else _segment)
    yield from valid(meta.at("namespace"), dns_label)


def labels(meta: Node) -> Iterator[Finding]:
    """Names and values of labels; names of annotations. Takes ``metadata``, also that of a template."""
    yield from valid_labels(meta.at("labels"))
    for key, node in meta.at("annotations").fields():
        # Servers compare them in lower case.
        if wrong := label_key(key.lower()):
            yield node.error(f"not a valid name of an annotation: {wrong}", None)


def selector(root: Node) -> Iterator[Finding]:
    """What makes pods finds them again: its selector fits the labels of their template."""
    spec = root.at("spec")
    labels = spec.at("template", "metadata", "labels")
    # Of a Job without manualSelector, a server makes both.
    if root.manifest.kind not in _SELECTING and spec.at("manualSelector").value is not True:
        return
    for key, node in spec.at("selector", "matchLabels").fields():
        if node.value != labels.at(key).value:
            there = f"has {printable(str(labels.at(key).value))!r} there" if labels.has(key) else "has no such label"
            flag = "--app" if key in ("app", APP_NAME) else "--label"
            yield node.error(f"the pods' template {there}, so they would not be found; write the same in both", flag)


def byte_limits(root: Node) -> Iterator[Finding]:
    """What a server, its store, and kubectl apply can hold."""
    # No character becomes more than six bytes. This takes a fraction of the time of JSON.
    if len(repr(root.value)) * 6 < ANNOTATIONS:
        return
    annotations = root.at("metadata", "annotations")
    own = sum(len(_utf8(f"{key}{node.value}")) for key, node in annotations.fields())
    text = json.dumps(root.value, separators=(",", ":"), ensure_ascii=False, default=str)
    total = len(_utf8(text))
    # What is kept is not JSON: nothing is escaped there, and names of fields are numbers.
    kept = 0 if root.manifest.kind in _PARTS else sum(len(_utf8(each)) for each in _texts(root.value))
    # Go's JSON writes these three in six characters. Two fields are added, and a line's end.
    applied = total + 5 * sum(text.count(each) for each in "<>&") + len(',"annotations":{},"namespace":"default"') + 1
    if own > ANNOTATIONS:
        yield annotations.error(f"the annotations have {own} bytes; at most {ANNOTATIONS} are allowed", None)
    elif kept > _OBJECT:
        yield root.error(f"has {kept} bytes, and a cluster keeps {_OBJECT} of an object; keep large things in a bucket")
    elif total > _REQUEST:
        yield root.error(f"has {total} bytes, and a server takes {_REQUEST}; keep large things in a bucket")
    elif own + len(LAST_APPLIED) + applied > ANNOTATIONS:
        yield root.warning(
            f"kubectl apply keeps a copy in an annotation, and {applied} bytes are too many for one ({ANNOTATIONS}); "
            "use kubectl apply --server-side, or kubectl create"
        )


def _texts(value: Any) -> Iterator[str]:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from [each] if isinstance(each, str) else _texts(each)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def files(root: Node) -> Iterator[Finding]:
    """Entries of a ConfigMap or Secret: names that files can have, base64 where it must be, 1 MiB in all, no keys."""
    kind, held = root.manifest.kind, 0
    plain = {"ConfigMap": "data", "Secret": "stringData"}.get(kind)
    for part in _PARTS.get(kind, ()):
        for key, node in root.at(part).fields():
            if wrong := config_key(key):
                yield node.error(f"not a valid name of a file: {wrong}")
            if part == "binaryData" and root.at("data").has(key):
                yield node.error("is under data too; leave out one")
            if not isinstance(node.value, str):
                continue
            try:
                # A server takes line ends in it.
                packed = node.value.replace("\n", "").replace("\r", "")
                content = _utf8(node.value) if part == plain else base64.b64decode(packed, validate=True)
            except ValueError:
                yield node.error(f"is not base64; encode it, or put the text under {plain}")
                continue
            held += len(content)
            text = content.decode("latin-1") if kind == "ConfigMap" else ""
            sign = next((what for what, pattern in _SIGNS.items() if pattern.search(text)), None)
            if sign is not None:
                yield node.unusable(
                    f"looks like {sign}, which all users of the namespace can read; put it in a Secret: "
                    f"kubectl create secret generic NAME --from-file={key}, then --secret NAME",
                    None,
                )
    if held > _FILES:
        yield root.error(f"holds {held} bytes, and a {kind} takes {_FILES}; keep large things in a bucket")


def ports(spec: Node) -> Iterator[Finding]:
    """Ports of a Service: where there are several, each has a name; each pair of number and protocol is there once."""
    listed = spec.at("ports").items()
    seen = set()
    for port in listed:
        if len(listed) > 1 and port.at("name").is_empty():
            yield port.at("name").error("is missing; where there are several ports, each needs a name")
        number = (port.whole("port"), port.text("protocol") or "TCP")
        if number in seen:
            yield port.at("port").error(f"port {number[0]}/{number[1]} is there twice; leave out one")
        seen.add(number)
