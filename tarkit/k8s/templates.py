"""Templates: complete manifests, tarkit's own and those of users."""

from __future__ import annotations

import importlib.resources
import os

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamltext import Document, load_documents, read_bytes

_MOST_BYTES = 4 << 20
"""Of a template."""


def template_path(name: str) -> str:
    """The file of the template of a generator, as it comes with tarkit."""
    return os.path.join(str(importlib.resources.files("tarkit.k8s_templates")), f"{name}.yaml")


def read_template(path: str) -> list[Document]:
    """The documents of a template file."""
    data = read_bytes(path, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{printable(path)}: over 4 MiB is not a template; a server takes 3 MiB at most")
    try:
        return load_documents(data, path)
    except UsageError as error:
        if b"{{" not in data and b"{%" not in data:
            raise
        raise UsageError(
            f"{error}; it looks like a text template: a template is a complete manifest here, whose fields are filled; "
            "write plain values in place of {{ }}"
        ) from None
