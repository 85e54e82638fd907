"""Manifests as YAML text: read what people wrote, write what every parser reads alike.

YAML parsers do not agree on what a plain word is: ``1e3`` is a text for one and a number for
another, and so is ``y``. Hence texts are quoted here unless no parser could take them for anything
else; texts of several lines are literal blocks, so that a command can be read.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError, printable

_PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9_/.@+=-]*(?:[: ][A-Za-z0-9_/.@+=-]+)*|--?[A-Za-z][A-Za-z-]*|[0-9]+[KMGT]i?")
# Numbers in some YAML, truth values in another.
_RESERVED = re.compile(r"(?i)-?inf|y|n|yes|no|on|off|true|false|null|nan|inf|_[0-9_]*|[a-z/_]*:[0-9_:.]*")
# What a block can not hold exactly, or what is a line's end in some versions of YAML only.
_UNFIT = re.compile(
    "[^\\n\\x20-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd\\U00010000-\\U0010ffff]"
)
_TRAILING = re.compile(r"[ ]+(?:\n|\Z)")
_DEEPEST = 200
_MOST_REPEATED = 1_000_000
Document = dict[str, Any]


@functools.cache
def _loader(as_written: bool) -> Any:
    """PyYAML's safe loader, made stricter where something would be lost, and laxer where a text is a text."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> dict[str, Any]:
        loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            wrong = "is no text" if not isinstance(key, str) else "comes twice" if key in found else None
            if wrong:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} {wrong}", key_node.start_mark)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    # Dates are texts in JSON, which is what a server reads. Plain "=" and "<<" as values, which PyYAML refuses,
    # are written so by kubectl.
    for name in ("timestamp", "value", "merge", *(("int", "float") if as_written else ())):
        Loader.add_constructor(f"tag:yaml.org,2002:{name}", lambda loader, node: loader.construct_scalar(node))
    return Loader


def load_yaml(text: str, where: str, as_written: bool = False) -> list[Any]:
    """The values of all YAML documents in ``text``. where: the file's name, for messages.

    as_written: numbers are texts, as they stand there: 012, 1.10 and 1:30 are no 10, 1.1 and 90.

    Raises:
        UsageError: it is no YAML; a key comes twice or is no text. With line and column.
    """
    import yaml

    try:
        _refuse_bombs(text, where)
        # An alias gives the very same object twice: who changes one would change both.
        return [_unshared(value) for value in yaml.load_all(text, Loader=_loader(as_written))]
    except yaml.YAMLError as error:
        raise UsageError(f"{printable(where)}: {_why(error)}") from error
    except UsageError:
        raise
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{printable(where)}: this is no YAML: {printable(str(error))}") from error


def _refuse_bombs(text: str, where: str) -> None:
    """What is nested so deeply that the parser would crash, or repeats so much that memory would not do.

    Raises:
        UsageError: it is one of both.
    """
    import yaml

    sizes: dict[str, int] = {}
    open_ones: list[tuple[str | None, int]] = []
    nodes = repeated = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            repeated += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_ones.append((event.anchor, nodes + repeated))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_ones.pop()
            if anchor is not None:
                sizes[anchor] = nodes + repeated - before + 1
        if len(open_ones) > _DEEPEST or repeated > _MOST_REPEATED:
            line = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
            why = f"more than {_DEEPEST} levels inside one another; no manifest is like that"
            if repeated > _MOST_REPEATED:
                why = f"aliases (*) repeat more than {_MOST_REPEATED:,} values; write them out"
            raise UsageError(f"{printable(where)}: {line}{why}")


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unshared(each) for key, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def _why(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return f"{place}this is no YAML that can be used: {printable(' '.join(str(problem).split()))}"


def load_documents(text: str, where: str) -> list[Document]:
    """The manifests in ``text``, YAML or JSON. Empty documents are skipped, a ``kind: List`` gives its items.

    where: the file's name, for messages.

    Raises:
        UsageError: it is no YAML, holds no manifest, or something that is none.
    """
    found: list[Document] = []
    for number, value in enumerate(load_yaml(text, where), 1):
        if value is None:
            continue
        items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else [value]
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise UsageError(f"{printable(where)}: document {number} is no manifest: it has no kind")
            found.append(item)
    if not found:
        raise UsageError(f"{printable(where)}: there is no manifest in it")
    return found


def dump_documents(documents: Iterable[Mapping[str, Any]]) -> str:
    """YAML of the documents, in the order of their fields; the same bytes for the same documents.

    Raises:
        UsageError: a text holds what YAML can not: bytes that are no UTF-8, or a NUL.
    """
    out: list[str] = []
    for document in documents:
        if out:
            out.append("---\n")
        _mapping_lines(document, "", out)
    return "".join(out)


def dump_json(documents: Sequence[Mapping[str, Any]]) -> str:
    """JSON of one document, or of a ``List`` of them."""
    # For what it refuses.
    dump_documents(documents)
    value = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _mapping_lines(mapping: Mapping[str, Any], indent: str, out: list[str]) -> None:
    for key, value in mapping.items():
        _entry(f"{indent}{_scalar(key, '')}:", value, indent, out)


def _entry(head: str, value: Any, indent: str, out: list[str]) -> None:
    """``head`` and what it stands before."""
    if isinstance(value, Mapping) and value:
        out.append(f"{head}\n")
        _mapping_lines(value, f"{indent}  ", out)
    elif isinstance(value, (list, tuple)) and value:
        out.append(f"{head}\n")
        _item_lines(value, indent, out)
    else:
        out.append(f"{head} {_scalar(value, indent + '  ')}\n")


def _item_lines(items: Sequence[Any], indent: str, out: list[str]) -> None:
    for item in items:
        if isinstance(item, Mapping) and item:
            lines: list[str] = []
            _mapping_lines(item, f"{indent}  ", lines)
            # The dash takes the place of the first line's indent.
            out.append(f"{indent}- {lines[0][len(indent) + 2 :]}")
            out.extend(lines[1:])
        elif isinstance(item, (list, tuple)) and item:
            out.append(f"{indent}-\n")
            _item_lines(item, f"{indent}  ", out)
        else:
            out.append(f"{indent}- {_scalar(item, indent + '  ')}\n")


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _text(value, indent)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"a manifest can not hold the number {value}")
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, (Mapping, list, tuple)):
        return "{}" if isinstance(value, Mapping) else "[]"
    raise UsageError(f"a manifest holds texts, numbers and truth values; got {type(value).__name__}")


def _text(text: str, indent: str) -> str:
    if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text):
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{printable(text)!r}: this text is no UTF-8, so no manifest can hold it") from None
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
