"""A ConfigMap with small files."""

from __future__ import annotations

import base64
import dataclasses
import os.path

from tarkit.errors import UsageError, printable
from tarkit.k8s.fill import filled
from tarkit.k8s.names import config_key
from tarkit.k8s.podfields import part
from tarkit.k8s.settings import Generator, Request
from tarkit.k8s.yamlreading import read_bytes
from tarkit.k8s.yamltext import Document

_MOST = 262_144
"""Bytes: client-side ``kubectl apply`` keeps the whole manifest in an annotation, which takes so many."""


def documents(request: Request) -> list[Document]:
    """The template with the files in it: as text if they are UTF-8, else in base64."""
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
        content = read_bytes(path, 2 * _MOST)
        try:
            text[key] = content.decode("utf-8")
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode("ascii")
        if "\0" in text.get(key, ""):
            binary[key] = base64.b64encode(text.pop(key).encode("utf-8")).decode("ascii")
    size = sum(len(each.encode()) for each in (*text.values(), *binary.values()))
    if size > _MOST:
        raise UsageError(
            f"the files take at least {size} bytes; client-side kubectl apply takes {_MOST} in all: put large "
            "ones in a bucket"
        )
    found = [filled(template, settings) for template in request.template]
    for document in found:
        for name, given in (("data", text), ("binaryData", binary)):
            part(document, name).update(given)
            if not document[name]:
                del document[name]
    return found


CONFIGMAP = Generator(
    "A ConfigMap with the content of files: NAME FILE… or NAME KEY=FILE…",
    "kubetpl configmap files mapper.py labels.txt | kubectl apply -f -",
    documents,
    words="[NAME] FILE...",
)
