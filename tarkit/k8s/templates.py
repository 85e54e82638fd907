"""Templates: complete manifests, from tarkit or from users."""

from __future__ import annotations

import importlib.resources
import os

from tarkit.k8s.yamltext import Document, load_documents, read_bytes


def template_path(name: str) -> str:
    """Return the path of a generator's template, which is part of the package."""
    return os.path.join(str(importlib.resources.files("tarkit.k8s_templates")), f"{name}.yaml")


def read_template(path: str) -> list[Document]:
    """Return the documents of a template file."""
    return load_documents(read_bytes(path), path)
