"""What a manifest's documents hold for its pods: ConfigMaps and Secrets, by name, key by key."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from tarkit.errors import UsageError, printable

_SOURCES = ("ConfigMap", "Secret")


class Sources:
    """The ConfigMaps and Secrets among documents. folders: name of a volume -> folder to use in its stead."""

    def __init__(self, documents: Iterable[Mapping[str, Any]], folders: Mapping[str, str] | None = None) -> None:
        self.folders = dict(folders or {})
        self._found: dict[tuple[str, str], dict[str, bytes]] = {}
        for document in documents:
            kind = document.get("kind")
            if kind in _SOURCES:
                name = str((document.get("metadata") or {}).get("name"))
                self._found[str(kind), name] = _content(str(kind), name, document)

    def content(self, kind: str, name: str, wanted_by: str, *, optional: bool = False) -> dict[str, bytes] | None:
        """Keys and values of a ConfigMap or Secret; None if it is optional and not there.

        Raises:
            UsageError: it is not among the documents.
        """
        found = self._found.get((kind, name))
        if found is None and not optional:
            raise UsageError(
                f"{wanted_by} needs the {kind} {printable(name)}, which is not in this manifest: put its document "
                f"before or after the others in the file"
                + (", or give a volume's folder with --volume NAME=FOLDER" if " volume " in wanted_by else "")
            )
        return found

    def value(self, kind: str, reference: Mapping[str, Any], wanted_by: str) -> str | None:
        """The text under one key; None if it is optional and not there.

        Raises:
            UsageError: it is not there, or is no text.
        """
        name, key = str(reference.get("name")), str(reference.get("key"))
        optional = bool(reference.get("optional"))
        content = self.content(kind, name, wanted_by, optional=optional)
        if content is None or (optional and key not in content):
            return None
        if key not in content:
            raise UsageError(f"{wanted_by} needs the key {printable(key)} of the {kind} {printable(name)}: it has none")
        return as_text(content[key], f"{wanted_by}: {kind} {name}, key {key}")


def as_text(value: bytes, where: str) -> str:
    """The text of a value that goes to an environment.

    Raises:
        UsageError: it holds a NUL, or is no UTF-8.
    """
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{printable(where)}: this is no UTF-8, so no variable can hold it") from None
    if "\0" in text:
        raise UsageError(f"{printable(where)}: no variable can hold a NUL")
    return text


def _content(kind: str, name: str, document: Mapping[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    encoded = ("binaryData",) if kind == "ConfigMap" else ("data",)
    for part in ("binaryData", "data", "stringData"):
        for key, value in (document.get(part) or {}).items():
            if not isinstance(value, str):
                raise UsageError(f"{kind} {printable(name)}: {part}.{printable(key)} is no text; put it in quotes")
            found[key] = _decoded(value, f"{kind} {name}: {part}.{key}") if part in encoded else value.encode("utf-8")
    return found


def _decoded(value: str, where: str) -> bytes:
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise UsageError(f"{printable(where)} is no base64; texts of a Secret may stand in stringData") from None
