"""Manifests from files and standard input, for the commands of kubetpl that read them."""

from __future__ import annotations

import os
import sys
from typing import Any

from tarkit.errors import MissingInputError, StreamError, UsageError, printable


def manifest_documents(name: str) -> list[dict[str, Any]]:
    """The manifests in a file.

    Raises:
        As ``manifest_text``; UsageError also if it holds none.
    """
    from tarkit.k8s.yamltext import load_documents

    return load_documents(manifest_text(name), shown(name))


def manifest_text(name: str) -> str:
    """The text of a file; ``-`` is standard input. A byte order mark is left out.

    Raises:
        MissingInputError: there is no such file. StreamError: it can not be read.
        UsageError: it is no UTF-8; or it would have to be typed in.
    """
    if name == "-" and os.isatty(0):
        raise UsageError("no manifest: name a file, or pipe one in")
    try:
        if name == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                data = file.read()
    except FileNotFoundError:
        raise MissingInputError("there is no such file", url=name) from None
    except OSError as error:
        raise StreamError(f"it can not be read: {error.strerror}", url=name) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(shown(name))}: this is no UTF-8, so no manifest") from None


def shown(name: str) -> str:
    """What a file is called in messages."""
    return "standard input" if name == "-" else name
