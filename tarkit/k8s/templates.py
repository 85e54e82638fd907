"""The templates: complete manifests, tarkit's own and those of users, by name."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterator

from tarkit.errors import MissingInputError, StreamError, UsageError, printable
from tarkit.k8s.yamltext import Document, load_documents, read_bytes

FOLDERS = ("kubetpl-templates", ".kubetpl", "/usr/local/lib/kubetpl", "/usr/lib/kubetpl")
"""Folders in which a template is searched by name, before those that come with tarkit."""

_MOST_BYTES = 4 << 20
"""Of a template."""


def own_folder() -> str:
    """The folder of the templates that come with tarkit."""
    return str(importlib.resources.files("tarkit.k8s_templates"))


def template_path(name: str, folders: list[str]) -> str:
    """The file of template ``name``: ``name.yaml`` in the first folder that has it, or tarkit's own."""
    for found, path in available(folders):
        if found == name:
            return path
    raise MissingInputError(f"no template {printable(name)}", hint="kubetpl templates lists all with their paths")


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


def available(folders: list[str]) -> Iterator[tuple[str, str]]:
    """Names of templates with their paths; the first of each name is the one that is taken."""
    for folder in [*folders, own_folder()]:
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StreamError(f"the folder of templates cannot be read: {error.strerror}", url=folder) from error
        for name in names:
            if name.endswith(".yaml"):
                yield name.removesuffix(".yaml"), os.path.join(folder, name)
