"""Manifests from files and standard input, for the commands of kubetpl that read them."""

from __future__ import annotations

import os
import sys
from typing import Any

from tarkit.errors import UsageError
from tarkit.extras import MissingExtraError

from ..shared.program import say


def manifest_documents(name: str) -> list[dict[str, Any]]:
    """Return the manifests in a UTF-8 file; ``-`` is standard input.

    A note is printed if the types of their values were not checked.

    Raises:
        UsageError: the file has no manifest, or a manifest with a value of a wrong type.
    """
    from tarkit.k8s.fieldtypes import check_types
    from tarkit.k8s.yamltext import load_documents, read_bytes

    if name == "-" and os.isatty(0):
        raise UsageError("no manifest: name a file, or pipe one in")
    data = sys.stdin.buffer.read() if name == "-" else read_bytes(name)
    documents = load_documents(data, "standard input" if name == "-" else name)
    try:
        check_types(documents)
    except MissingExtraError as error:
        say("kubetpl", f"note: fields and their types are not checked: {error}")
    return documents
