"""Manifests as YAML text: read what people wrote, write what every parser reads alike.

YAML parsers do not agree on what a plain word is: ``1e3`` is a text for one and a number for
another, and so is ``y``. Hence texts are quoted here unless no parser could read them as anything
else; texts of several lines are literal blocks, so that a command stays readable."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamlreading import Doubt, load_yaml, plain_value

_PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9_/.@+=-]*(?:[: ][A-Za-z0-9_/.@+=-]+)*|--?[A-Za-z][A-Za-z-]*|[0-9]+[KMGT]i?")
# Numbers in some YAML, truth values in another.
_RESERVED = re.compile(r"(?i)-?inf|y|n|yes|no|on|off|true|false|null|nan|inf|_[0-9_]*|[a-z/_]*:[0-9_:.]*")
# What a block cannot hold exactly, or what is a line's end in some versions of YAML only.
_UNFIT = re.compile(
    "[^\\n\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)
_TRAILING = re.compile(r"[ ]+(?:\n|\Z)")
Document = dict[str, Any]


def load_documents(text: str, where: str, doubts: list[Doubt] | None = None) -> list[Document]:
    """The manifests in ``text``, YAML or JSON. Empty documents are skipped, a ``List`` of any kind gives its items.
    where: the file's name, for messages. doubts: takes what kubectl accepts in silence; None refuses that."""
    found: list[Document] = []
    for number, value in enumerate(load_yaml(text, where, doubts=doubts), 1):
        if value is None:
            continue
        for item in _items(value):
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise UsageError(f"{printable(where)}: document {number} is not a manifest: it has no kind")
            found.append(item)
    if not found:
        raise UsageError(f"{printable(where)}: it has no manifest in it")
    return found


def _items(value: Any) -> Iterator[Any]:
    """A document itself; those in a list, with its kind if it is a list of one kind, as kubectl takes lists apart."""
    kind, items = (value.get("kind"), value.get("items")) if isinstance(value, dict) else (None, None)
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        yield value
        return
    for item in items:
        if isinstance(item, dict) and kind != "List" and "kind" not in item:
            item = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
        yield from _items(item)


def dump_documents(documents: Iterable[Mapping[str, Any]]) -> str:
    """YAML of the documents, in the order of their fields; the same bytes for the same documents."""
    out: list[str] = []
    for document in documents:
        out += ["---\n"] if out else []
        _write(document, "", out)
    return "".join(out)


def dump_json(documents: Sequence[Mapping[str, Any]]) -> str:
    """JSON of one document, or of a ``List`` of them."""
    # It refuses what neither can hold.
    dump_documents(documents)
    value = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _write(value: Any, indent: str, out: list[str]) -> None:
    """Add the lines of a mapping or list that is not empty; a text of several lines counts as one."""
    is_list = isinstance(value, (list, tuple))
    for key, item in ((None, each) for each in value) if is_list else value.items():
        head = f"{indent}-" if is_list else f"{indent}{_scalar(key, '')}:"
        if not item or not isinstance(item, (dict, list, tuple, Mapping)):
            out.append(f"{head} {_scalar(item, indent + '  ')}\n")
        elif is_list and isinstance(item, Mapping):
            first = len(out)
            _write(item, f"{indent}  ", out)
            # The dash takes the place of the first line's indent.
            out[first] = f"{head} {out[first][len(indent) + 2 :]}"
        else:
            out.append(f"{head}\n")
            # The items of a list in a mapping have the indent of its key.
            _write(item, f"{indent}  " if is_list or isinstance(item, Mapping) else indent, out)


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _text(value, indent)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"a manifest cannot hold the number {value}")
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, (Mapping, list, tuple)):
        return "{}" if isinstance(value, Mapping) else "[]"
    raise UsageError(f"a manifest holds texts, numbers and truth values; got {type(value).__name__}")


def _text(text: str, indent: str) -> str:
    if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text) and isinstance(plain_value(text), str):
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{printable(text)!r}: this text is not UTF-8, so no manifest can hold it") from None
    if "\0" in text:
        raise UsageError(f"{printable(text)!r}: no command or variable can hold a NUL")
    if indent and "\n" in text and not _UNFIT.search(text) and not _TRAILING.search(text) and text.strip("\n"):
        return _block(text, indent)
    # JSON's strings are YAML's, but for what stays unescaped.
    return _UNFIT.sub(lambda match: json.dumps(match[0])[1:-1], json.dumps(text, ensure_ascii=False))


def _block(text: str, indent: str) -> str:
    """A literal block: ``|`` with the indicators for leading blanks and for the lines' ends at its end."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    leading = "2" if text[0] in " \n" else ""
    chomping = ("-", "")[ends] if ends < 2 else "+"
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")] + [""] * max(0, ends - 1)
    return f"|{leading}{chomping}\n" + "\n".join(lines)
