"""Rules on ConfigMaps and Secrets. Every rule takes the document."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import config_key

_LARGEST = 1_048_576
_PARTS = {"ConfigMap": ("data", "binaryData"), "Secret": ("data", "stringData")}
_IN_BASE64 = {("ConfigMap", "binaryData"), ("Secret", "data")}


class _Sign(NamedTuple):
    what: str
    pattern: re.Pattern[str]


_SIGNS = (
    _Sign("a Google service account's key", re.compile(r'"private_key(_id)?"\s*:')),
    _Sign("a Google user's refresh token", re.compile(r'"refresh_token"\s*:\s*"')),
    _Sign("a private key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")),
    _Sign(
        "a private key", re.compile(r"\A0\x82..\x02\x01\0(?:\x02\x82|0.\x06.\*\x86H\x86\xf7\r\x01\x01\x01)", re.DOTALL)
    ),
    # The same in base64, which begins at one of three places of a group.
    _Sign(
        "a private key in base64",
        re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{0,40}(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)"),
    ),
    _Sign("an AWS secret access key", re.compile(r"(?i)\baws_secret_access_key\s*[=:]|\baws_session_token\s*[=:]")),
    _Sign("an Azure account key", re.compile(r"(?i)\bAccountKey=[A-Za-z0-9+/]{20}")),
    _Sign("a kubeconfig's key", re.compile(r"(?m)^\s*client-key-data:\s*\S")),
)


def entries(root: Node) -> Iterator[Finding]:
    """Names that can be files' names, base64 where it must be, and nothing twice."""
    kind = root.manifest.kind
    for part in _PARTS[kind]:
        for key, node in root.at(part).fields():
            if wrong := config_key(key):
                yield node.error(f"this is no name of a file in it: {wrong}")
            if (kind, part) in _IN_BASE64 and isinstance(node.value, str) and _bytes(node.value) is None:
                there = "stringData" if kind == "Secret" else "data"
                yield node.error(f"is no base64; encode it, or put the text under {there}")
    for key, node in root.at("binaryData").fields():
        if kind == "ConfigMap" and isinstance(root.at("data").value, dict) and key in root.at("data").value:
            yield node.error("is under data too; leave out one")


def total(root: Node) -> Iterator[Finding]:
    """A ConfigMap or a Secret holds 1 MiB."""
    held = 0
    for part in _PARTS[root.manifest.kind]:
        for _, node in root.at(part).fields():
            if isinstance(node.value, str):
                encoded = (root.manifest.kind, part) in _IN_BASE64
                held += len((_bytes(node.value) or b"") if encoded else node.value.encode("utf-8", "surrogatepass"))
    if held > _LARGEST:
        yield root.error(
            f"holds {held} bytes, and a {root.manifest.kind} takes {_LARGEST}; keep large things in a bucket"
        )


def keys_of_people(root: Node) -> Iterator[Finding]:
    """All users of a namespace may read its ConfigMaps, so they hold no keys."""
    if root.manifest.kind != "ConfigMap":
        return
    for part in ("data", "binaryData"):
        for key, node in root.at(part).fields():
            text = node.value if isinstance(node.value, str) else ""
            if part == "binaryData":
                text = (_bytes(text) or b"").decode("latin-1")
            sign = next((sign for sign in _SIGNS if sign.pattern.search(text)), None)
            if sign is not None:
                yield node.unusable(
                    f"looks like {sign.what}, which everybody in the namespace could read; put it in a Secret: "
                    f"kubectl create secret generic NAME --from-file={key}, then --secret NAME",
                    None,
                )


def _bytes(text: str) -> bytes | None:
    """What base64 stands for, with lines' ends in it or not; None if it is none."""
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return None
