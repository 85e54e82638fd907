"""Manifests from files and standard input, for the commands of kubetpl that read them."""

from __future__ import annotations

import os
import sys
from typing import Any

from tarkit.errors import MissingExtraError, UsageError

from ..shared.program import say


def manifest_documents(name: str) -> list[dict[str, Any]]:
    """The manifests in a file; a UsageError if it holds none."""
    from tarkit.k8s.yamltext import load_documents

    return load_documents(manifest_text(name), shown(name))


def refuse_wrong_types(documents: list[dict[str, Any]]) -> None:
    """Refuse manifests that could not be followed; one line reports it if nothing was checked."""
    from tarkit.k8s.fieldtypes import check_types

    try:
        check_types(documents)
    except MissingExtraError as error:
        say("kubetpl", f"note: fields and their types are not checked: {error}")


def manifest_text(name: str) -> str:
    """The text of a file in UTF-8; ``-`` is standard input. A byte order mark is left out."""
    from tarkit.k8s.yamlreading import read_bytes, utf8

    if name == "-" and os.isatty(0):
        raise UsageError("no manifest: name a file, or pipe one in")
    return utf8(sys.stdin.buffer.read() if name == "-" else read_bytes(name), shown(name))


def shown(name: str) -> str:
    """The name of a file in messages."""
    return "standard input" if name == "-" else name
