"""Generators of a ConfigMap with small files, and of a headless service for an app's pods."""

from __future__ import annotations

import base64
import dataclasses
import os.path
import re

from tarkit.errors import UsageError, printable
from tarkit.k8s.fill import app_of, filled
from tarkit.k8s.names import config_key
from tarkit.k8s.podfields import part, port_number
from tarkit.k8s.settings import Generator, Request
from tarkit.k8s.wellknown import ANNOTATIONS
from tarkit.k8s.yamltext import Document, read_bytes

# What keys and tokens look like: as text, in DER, and in base64, which begins at one of three
# places of a group.
_SECRET = re.compile(
    rb'"private_key(_id)?"\s*:|"refresh_token"\s*:\s*"|-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----'
    rb"|\A0\x82..\x02\x01\0(?:\x02\x82|0.\x06.\*\x86H\x86\xf7\r\x01\x01\x01)"
    rb"|LS0tLS1CRUdJTi[A-Za-z0-9+/]{0,40}(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)"
    rb"|(?i:\baws_secret_access_key\s*[=:]|\baws_session_token\s*[=:]|\bAccountKey=[A-Za-z0-9+/]{20})"
    rb"|\bclient-key-data:\s*\S",
    re.DOTALL,
)


def configmap_documents(request: Request) -> list[Document]:
    """Return the template with the contents of files: as text if they are UTF-8, else as base64."""
    settings, files = request.settings, list(request.words)
    if settings.name is None:
        if not files:
            raise UsageError("name the ConfigMap, and the files that go in: kubetpl configmap NAME FILE…")
        settings = dataclasses.replace(settings, name=files.pop(0))
    if not files:
        raise UsageError(f"name the files that go into the ConfigMap {printable(str(settings.name))}")
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for word in files:
        key, mark, path = word.partition("=")
        if not mark:
            key, path = os.path.basename(word), word
        if wrong := config_key(key):
            raise UsageError(f"{printable(word)}: as a key of a ConfigMap {wrong}; write KEY=FILE")
        if key in text or key in binary:
            raise UsageError(f"two files would both be called {key}; write KEY=FILE for one of them")
        content = read_bytes(path, 2 * ANNOTATIONS)
        if _SECRET.search(content):
            raise UsageError(
                f"{printable(path)} looks like a private key or token, and all users of the namespace can read a "
                f"ConfigMap; put it in a Secret: kubectl create secret generic NAME --from-file={key}, then --secret "
                "NAME"
            )
        try:
            if b"\0" in content:
                raise ValueError
            text[key] = content.decode("utf-8")
        except ValueError:
            binary[key] = base64.b64encode(content).decode("ascii")
    size = sum(len(each.encode()) for each in (*text.values(), *binary.values()))
    if size > ANNOTATIONS:
        raise UsageError(
            f"the files take at least {size} bytes; client-side kubectl apply takes {ANNOTATIONS} in all: put large "
            "ones in a bucket"
        )
    found = [filled(template, settings) for template in request.template]
    for document in found:
        for name, given in (("data", text), ("binaryData", binary)):
            part(document, name).update(given)
            if not document[name]:
                del document[name]
    return found


def service_documents(request: Request) -> list[Document]:
    """Return the template's documents with the app's name, its selector, and the ports."""
    settings = request.settings
    app = app_of(settings)
    if app is None:
        raise UsageError("name the app whose pods it is for: --app")
    if not settings.port:
        raise UsageError("name at least one port: --port")
    ports = list(dict.fromkeys(port_number(port) for port in settings.port))
    found = []
    for template in request.template:
        document = filled(template, dataclasses.replace(settings, name=settings.name or app))
        spec = part(document, "spec")
        spec["selector"] = {"app": app}
        spec["ports"] = [
            # The API wants names as soon as there are two.
            {**({"name": f"port-{port}"} if len(ports) > 1 else {}), "port": port, "targetPort": port}
            for port in ports
        ]
        found.append(document)
    return found


SERVICE = Generator("kubetpl service -a bigdata19 -P 7880 | kubectl apply -f -", service_documents)
CONFIGMAP = Generator(
    "kubetpl configmap files mapper.py labels.txt | kubectl apply -f -", configmap_documents, words="[NAME] FILE..."
)
