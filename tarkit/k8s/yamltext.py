"""Manifests as YAML text: reads any YAML, writes YAML that every parser reads the same way.

YAML parsers do not agree on plain words: ``1e3`` and ``0o17`` are numbers to kubectl and texts to
PyYAML, and ``y`` is true to only one of them. Such a word is refused when it is read, and quoted
when it is written. Texts of several lines are literal blocks, so that a command stays readable.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from tarkit.errors import MissingInputError, UsageError, printable

Document = dict[str, Any]
_TAG = "tag:yaml.org,2002:"
_UNSURE = "!unsure"
_MOST_REPEATED = 100
"""Largest size of a file with its aliases expanded, in multiples of its size."""
# Numbers to all parsers, and modes of files in octal; then what is a number or a truth value to
# some of them.
_PLAIN = {
    f"{_TAG}int": r"-?(?:0|[1-9][0-9]*)\Z|0[0-7]+\Z",
    f"{_TAG}float": r"-?(?:0|[1-9][0-9]*)\.[0-9]+\Z",
    _UNSURE: r"(?=.*[0-9])[-+]?_*(?:0_*[xXbBoO][0-9a-fA-F_]+|[0-9_]*\.?[0-9_]*(?:[eE]_*[-+]?[0-9_]+)?)\Z"
    r"|[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)\Z|[yYnN]\Z",
}
_FIRST = list("-+.0123456789yYnN")
# What a block cannot hold exactly, or what is a line's end in some versions of YAML only; and empty
# lines at the end.
_UNFIT = re.compile("[^\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|(?:\\A|\n)\n\\Z")


def load_yaml(text: str | bytes, where: str, numbers: bool = True) -> list[Any]:
    """Return the values of all YAML documents in ``text``; bytes are UTF-8.

    Args:
        where: the file's name, for messages.
        numbers: False returns numbers as the text that was written: 012, 1.10 and 1e3 do not become
            10, 1.1 and 1000.

    Raises:
        UsageError: the text is not YAML, a key is repeated or is not a text, or parsers disagree on
            the type of a plain word.
    """
    import yaml

    try:
        # JSON's values only; and an alias gives the very same object twice, of which a change would
        # change both.
        pieces: list[str] = []
        size = 0
        for piece in json.JSONEncoder(allow_nan=False).iterencode(list(yaml.load_all(text, _loader(numbers)))):
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_REPEATED * (len(text) + 1000):
                raise ValueError("its aliases (*) repeat too much; write them out")
        return list(json.loads("".join(pieces)))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        why = printable(" ".join(str(problem).split()))
        raise UsageError(f"{printable(where)}: {place}this cannot be used as YAML: {why}") from error


@functools.cache
def _loader(numbers: bool) -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers = {
            first: [row for row in rows if row[0] in (f"{_TAG}bool", f"{_TAG}null", f"{_TAG}merge")]
            for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    def refuse(node: Any, why: str) -> Any:
        raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)

    def mapping(loader: Any, node: Any) -> Any:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if key.tag != f"{_TAG}merge"):
            name = loader.construct_object(key, deep=True)
            if not isinstance(name, str):
                refuse(key, f"the key {name!r} is not a text; put it in quotes")
            if name in seen:
                refuse(key, f"the key {name!r} comes twice")
            seen.add(name)
        loader.flatten_mapping(node)
        return loader.construct_mapping(node, deep=True)

    def sequence(loader: Any, node: Any) -> Any:
        found = loader.construct_sequence(node, deep=True)
        return refuse(node, "null in a list is not a value; leave it out") if None in found else found

    def scalar(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        return refuse(node, "a NUL is in this text, and no command or variable can hold it") if "\0" in text else text

    def unsure(loader: Any, node: Any) -> Any:
        return refuse(node, f"parsers of YAML do not agree what {node.value} is; put it in quotes, or write it out")

    for tag, pattern in _PLAIN.items() if numbers else ():
        Loader.add_implicit_resolver(tag, re.compile(pattern), _FIRST)
    constructors = {f"{_TAG}map": mapping, f"{_TAG}seq": sequence, f"{_TAG}str": scalar, _UNSURE: unsure}
    Loader.yaml_constructors = {**Loader.yaml_constructors, **constructors}
    return Loader


def load_documents(text: str | bytes, where: str) -> list[Document]:
    """Return the manifests in ``text``, YAML or JSON.

    Empty documents are skipped; a ``List`` is replaced by its items.

    Args:
        where: the file's name, for messages.
    """
    found: list[Document] = []
    for number, value in enumerate(load_yaml(text, where), 1):
        is_list = isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list)
        for item in value["items"] if is_list else () if value is None else (value,):
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise UsageError(f"{printable(where)}: document {number} is not a manifest: it has no kind")
            found.append(item)
    if not found:
        raise UsageError(f"{printable(where)}: it has no manifest in it")
    return found


def dump_documents(documents: Sequence[Document]) -> str:
    """Return the documents as YAML, in the order of their fields.

    Equal documents give equal bytes.

    Raises:
        UsageError: a document has a text that no manifest can have.
    """
    import yaml

    return str(yaml.dump_all(documents, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1 << 30))


def dump_json(documents: Sequence[Document]) -> str:
    """Return one document, or a ``List`` of several, as JSON."""
    # It refuses what neither can hold.
    dump_documents(documents)
    value = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, text: str) -> Any:
        if re.search("[\0\ud800-\udfff]", text):
            raise UsageError(f"{printable(text)!r}: no manifest can hold a NUL, or bytes that are not UTF-8")
        style = '"' if _UNFIT.search(text) else "|" if "\n" in text else None
        return dumper.represent_scalar(f"{_TAG}str", text, style)

    Dumper.add_implicit_resolver(_UNSURE, re.compile(_PLAIN[_UNSURE]), _FIRST)
    Dumper.add_representer(str, represent)
    return Dumper


def read_bytes(path: str, most: int = -1) -> bytes:
    """Return the content of a file, or its first bytes.

    Args:
        most: largest number of bytes to read.
    """
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except FileNotFoundError:
        raise MissingInputError("no such file", url=path) from None
