"""Rules on what all objects have: names, labels, annotations; and on ConfigMaps.

Every rule but ``labels`` takes the document.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from tarkit.errors import printable
from tarkit.k8s.lint.nodes import Finding, Node, valid, valid_labels
from tarkit.k8s.names import (
    SUBDOMAIN_LENGTH,
    config_key,
    dns_label,
    dns_label_1035,
    dns_subdomain,
    label_key,
    version,
)
from tarkit.k8s.wellknown import APP_NAME

_SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
# Kinds whose names are DNS subdomains; others may have any name that a URL can have, such as those of RBAC.
_SUBDOMAINS = (
    *_SELECTING, "Job", "CronJob", "Pod", "ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount",
)  # fmt: skip
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
    if not text and not meta.text("generateName"):
        # Another type is an error of the schema.
        yield from [node.error("is missing; write one")] if node.is_empty() else []
    elif kind == "Service" and (wrong := dns_label(text)):
        yield node.error(wrong)
    elif kind == "Service" and version(root.manifest.kube_version) < (1, 36) and (wrong := dns_label_1035(text)):
        yield node.unusable(f"servers before 1.36 refuse it: {wrong}")
    # What is too long for a Job is a rule of Jobs.
    elif kind in _SUBDOMAINS and (kind not in ("Job", "CronJob") or len(text) <= SUBDOMAIN_LENGTH):
        yield from valid(meta, "name", dns_subdomain)
    yield from valid(meta, "namespace", dns_label)


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
    for key, node in spec.at("selector", "matchLabels").fields() if root.manifest.kind in _SELECTING else ():
        if node.value != labels.at(key).value:
            there = f"has {printable(str(labels.at(key).value))!r} there" if labels.has(key) else "has no such label"
            flag = "--app" if key in ("app", APP_NAME) else "--label"
            yield node.error(f"the pods' template {there}, so they would not be found; write the same in both", flag)


def files(root: Node) -> Iterator[Finding]:
    """Entries of a ConfigMap: names that files can have, base64 where it must be, no keys."""
    for part in ("data", "binaryData") if root.manifest.kind == "ConfigMap" else ():
        for key, node in root.at(part).fields():
            if wrong := config_key(key):
                yield node.error(f"not a valid name of a file: {wrong}")
            if not isinstance(node.value, str):
                continue
            try:
                # A server takes line ends in it.
                packed = node.value.replace("\n", "").replace("\r", "")
                text = node.value if part == "data" else base64.b64decode(packed, validate=True).decode("latin-1")
            except ValueError:
                yield node.error("is not base64; encode it, or put the text under data")
                continue
            sign = next((what for what, pattern in _SIGNS.items() if pattern.search(text)), None)
            if sign is not None:
                yield node.unusable(
                    f"looks like {sign}, which all users of the namespace can read; put it in a Secret: "
                    f"kubectl create secret generic NAME --from-file={key}, then --secret NAME",
                    None,
                )
