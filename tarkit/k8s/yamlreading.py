"""YAML and JSON into values, as kubectl reads them; what it accepts in silence is refused, or noted.

What a plain word stands for is neither YAML 1.1 nor 1.2, but the table of sigs.k8s.io/yaml (goyaml.v2, resolve.go),
with which kubectl turns YAML into JSON: ``y`` and ``on`` are true, ``1e3`` and ``0o17`` and ``08`` are numbers,
``12:30`` is a text. A test asks kubectl itself."""

from __future__ import annotations

import collections
import functools
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tarkit.errors import MissingInputError, StreamError, UsageError, printable

_TAG = "tag:yaml.org,2002:"
_TAGS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
_LAST = "the last one counts, leave out the others"
_DEEPEST = 200
_MOST_REPEATED = 1_000_000
Words = Literal["kubectl", "typed", "written"]


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NO_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BASES = (
    (re.compile("[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile("[-+]?0[bB][01]+"), 2),
    (re.compile("[-+]?0[oO]?[0-7]+"), 8),
    (re.compile("[-+]?[0-9]+"), 10),
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# What begins with a point may have _ between two digits only; elsewhere all _ are dropped first.
_POINT_FLOAT = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")
_INTEGERS = range(-(2**63), 2**64)


class Doubt(NamedTuple):
    """What kubectl accepts in silence, though hardly as it was meant. where: the line."""

    where: str
    sentence: str


def plain_value(text: str) -> bool | int | float | str | None:
    """The value of a plain scalar, as Go has it. Infinite and NaN: what JSON does not have, and kubectl refuses."""
    if not text or text[0] not in "+-.0123456789":
        return _WORDS.get(text, text)
    if _NO_JSON.fullmatch(text):
        return float(text.lower().replace(".", ""))
    digits = text.replace("_", "")
    if text[0] == ".":
        return _number(digits, text) if _POINT_FLOAT.fullmatch(text) else text
    for form, base in _BASES:
        if form.fullmatch(digits):
            value = int(re.sub("^([-+]?)0[xXbBoO]", r"\1", digits), base)
            if value in _INTEGERS:
                return value
            break
    return _number(digits, text) if _FLOAT.fullmatch(digits) else text


def _number(digits: str, text: str) -> float | str:
    value = float(digits)
    return text if math.isinf(value) else value


@functools.cache
def _loader(words: Words) -> Any:
    """PyYAML's safe loader, which reads plain words as kubectl does, and notes or refuses what would be lost."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        doubts: list[Doubt] | None = None

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is not yaml.ScalarNode or not implicit[0]:
                return super().resolve(kind, value, implicit)
            if value == "<<":
                return f"{_TAG}merge"
            plain = value if words != "kubectl" and value in ("y", "Y", "n", "N") else plain_value(value)
            return _TAG + _TAGS[type(plain)]

        def doubt(self, sentence: str, mark: Any) -> None:
            if self.doubts is None:
                raise yaml.constructor.ConstructorError(None, None, sentence, mark)
            self.doubts.append(Doubt(f"line-{mark.line + 1}", sentence))

    def mapping(loader: Any, node: Any) -> dict[str, Any]:
        own = {id(key_node) for key_node, _ in node.value}
        loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = _key(loader, key_node)
            if id(key_node) in own:
                if key in seen:
                    loader.doubt(f"the key {key!r} comes twice; {_LAST}", key_node.start_mark)
                seen.add(key)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    def number(loader: Any, node: Any) -> int | float:
        value = plain_value(loader.construct_scalar(node))
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            why = f"{node.value} is not a number that JSON has; put it in quotes"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
        # To a server, whole numbers are integers, however they are written.
        return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value

    def text(loader: Any, node: Any) -> Any:
        return loader.construct_scalar(node)

    Loader.add_constructor(f"{_TAG}map", mapping)
    Loader.add_constructor(f"{_TAG}bool", lambda loader, node: plain_value(node.value) is True)
    for name in ("int", "float"):
        Loader.add_constructor(f"{_TAG}{name}", text if words == "written" else number)
    # Dates are texts in JSON, which is what a server reads; kubectl writes plain "=" and "<<" as values.
    for name in ("timestamp", "value", "merge"):
        Loader.add_constructor(f"{_TAG}{name}", text)
    return Loader


def _key(loader: Any, node: Any) -> str:
    """A mapping's key, which is a text in JSON, even if it is a number or a truth value in YAML."""
    import yaml

    key = loader.construct_object(node, deep=True)
    if isinstance(key, str):
        return key
    text = key_text(plain_value(node.value)) if isinstance(node, yaml.ScalarNode) else None
    if text is None:
        shown = node.value if isinstance(node.value, str) else repr(key)
        raise yaml.constructor.ConstructorError(None, None, f"the key {shown} is not a text", node.start_mark)
    loader.doubt(f"the key {node.value} is {text!r} to kubectl; put it in quotes", node.start_mark)
    return text


def key_text(key: object) -> str | None:
    """The text that kubectl makes of a plain key; None if it refuses it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key < 2**63 else None
    return _float_text(key) if isinstance(key, float) else key if isinstance(key, str) else None


def _float_text(value: float) -> str:
    """Go's ``FormatFloat(value, 'g', -1, 32)``: the fewest digits that give the same number of 32 bits."""
    try:
        wanted = struct.pack("<f", value)
    except OverflowError:
        return ".inf" if value > 0 else "-.inf"
    text = next(text for n in range(17) if struct.pack("<f", float(text := f"{value:.{n}e}")) == wanted)
    mantissa, _, exponent = text.partition("e")
    if not -4 <= int(exponent) < 6:
        return text
    return f"{float(text):.{max(0, len(mantissa.partition('.')[2]) - int(exponent))}f}"


def load_yaml(text: str, where: str, words: Words = "kubectl", doubts: list[Doubt] | None = None) -> list[Any]:
    """The values of all YAML documents in ``text``, as kubectl reads them. where: the file's name, for messages.

    words: what plain ones are. ``kubectl``: as kubectl reads a manifest. ``typed``: on a command line, where y and n
    are texts. ``written``: numbers are texts too, as they are written: 012, 1.10 and 1e3 are not 10, 1.1 and 1000.
    doubts: takes what kubectl accepts in silence, though hardly as it was meant: keys that come twice or are not texts;
    None refuses that, with its line and column."""
    import yaml

    try:
        if text.lstrip()[:1] == "{" and (value := _json(text, words, doubts)) is not None:
            return [value]
        _refuse_bombs(text, where)
        loader = _loader(words)(text)
        loader.doubts = doubts
        try:
            found = []
            while loader.check_data():
                # An alias gives the very same object twice: a change of one would change both.
                found.append(_unshared(loader.get_data()))
            return found
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise UsageError(f"{printable(where)}: {_why(error)}") from error
    except UsageError:
        raise
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{printable(where)}: this is not YAML: {printable(str(error))}") from error


def _json(text: str, words: Words, doubts: list[Doubt] | None) -> Any:
    """The mapping that a JSON text is, as kubectl tries it first; None if it is not JSON, or not without doubts."""
    try:
        value, twice = read_json(text, str if words == "written" else None)
    except (ValueError, RecursionError):
        return None
    # Both are read as YAML, for the line.
    if (twice and doubts is None) or is_deeper(value, _DEEPEST):
        return None
    if doubts is not None:
        doubts += [Doubt("JSON", f"the key {key!r} comes twice; {_LAST}") for key in twice]
    return value


def read_json(text: str, number: Callable[[str], Any] | None = None) -> tuple[Any, list[str]]:
    """The value of a JSON text, and the keys that come twice in a mapping, of which the last one counts.
    number: makes the value of a number as it is written. Raises: ValueError, RecursionError: it is not JSON."""
    twice: list[str] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.extend(key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1)
        return found

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a number of JSON")

    value = json.loads(text, object_pairs_hook=mapping, parse_int=number, parse_float=number, parse_constant=refuse)
    return value, twice


def is_deeper(value: Any, most: int) -> bool:
    """Whether mappings and lists are inside one another on more than ``most`` levels."""
    levels = [(value, 1)]
    while levels:
        inner, level = levels.pop()
        if isinstance(inner, (dict, list)):
            if level > most:
                return True
            levels += [(each, level + 1) for each in (inner.values() if isinstance(inner, dict) else inner)]
    return False


def read_bytes(path: str, most: int = -1) -> bytes:
    """The content of a file, or so many bytes of it."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except FileNotFoundError:
        raise MissingInputError("no such file", url=path) from None
    except OSError as error:
        raise StreamError(f"it cannot be read: {error.strerror}", url=path) from error


def utf8(data: bytes, where: str) -> str:
    """The text of a file, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{printable(where)}: this is not UTF-8: {error.reason} at byte {error.start}") from None


def _refuse_bombs(text: str, where: str) -> None:
    """Refuse what is nested so deeply that the parser would crash, or repeats so much that memory is exhausted."""
    import yaml

    sizes: dict[str | None, int] = {}
    open_ones: list[tuple[str | None, int]] = []
    values = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_ones.pop()
            sizes[anchor] = values - before
        elif isinstance(event, yaml.NodeEvent):
            anchor = event.anchor
            if isinstance(event, yaml.CollectionStartEvent):
                open_ones.append((anchor, values))
            values += sizes.get(anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
        if len(open_ones) > _DEEPEST or values > len(text) + _MOST_REPEATED:
            line = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
            why = f"more than {_DEEPEST} levels inside one another; no manifest has so many"
            if len(open_ones) <= _DEEPEST:
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
    return f"{place}this cannot be used as YAML: {printable(' '.join(str(problem).split()))}"
