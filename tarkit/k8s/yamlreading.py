"""YAML and JSON into values, as kubectl reads them; what it reads without a word is refused, or noted."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import math
import re
from typing import Any, Literal, NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.k8s.yamlscalars import json_number, key_text, plain_value

_TAG = "tag:yaml.org,2002:"
_TAGS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
_LAST = "the last one counts, leave out the others"
_DEEPEST = 200
_MOST_REPEATED = 1_000_000
Words = Literal["kubectl", "typed", "written"]


class Doubt(NamedTuple):
    """Something that kubectl reads in silence. where: the line."""

    where: str
    sentence: str


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
        plain = plain_value(loader.construct_scalar(node))
        if isinstance(plain, (int, float)) and not isinstance(plain, bool) and math.isfinite(plain):
            return json_number(plain)
        raise yaml.constructor.ConstructorError(
            None, None, f"{node.value} is not a number that JSON has; put it in quotes", node.start_mark
        )

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
    """A mapping's key, which is a text in JSON whatever it is in YAML."""
    import yaml

    key = loader.construct_object(node, deep=True)
    if isinstance(key, str):
        return key
    text = key_text(plain_value(node.value)) if isinstance(node, yaml.ScalarNode) else None
    if text is None:
        raise yaml.constructor.ConstructorError(
            None, None, f"the key {node.value if isinstance(node.value, str) else key!r} is not a text", node.start_mark
        )
    loader.doubt(f"the key {node.value} is {text!r} to kubectl; put it in quotes", node.start_mark)
    return text


def load_yaml(text: str, where: str, words: Words = "kubectl", doubts: list[Doubt] | None = None) -> list[Any]:
    """The values of all YAML documents in ``text``, as kubectl reads them. where: the file's name, for messages.

    words: what plain ones are. ``kubectl``: as kubectl reads a manifest. ``typed``: on a command line, where y and n
    are texts. ``written``: numbers are texts too, as they are written: 012, 1.10 and 1e3 are not 10, 1.1 and 1000.
    doubts: takes what kubectl reads without a word, and hardly as it was meant: keys that come twice or are not texts.

    Raises:
        UsageError: it is not YAML; or it is in doubt, and there are no doubts to take it. With line and column.
    """
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
                # An alias gives the very same object twice: who changes one would change both.
                found.append(_unshared(loader.get_data()))
            return found
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise UsageError(f"{printable(where)}: {_why(error)}") from error
    except UsageError:
        raise
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{printable(where)}: this is no YAML: {printable(str(error))}") from error


def _json(text: str, words: Words, doubts: list[Doubt] | None) -> Any:
    """The mapping that a JSON text is, as kubectl tries it first; None if it is not JSON, or not without doubts."""
    brackets = re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
    if max(itertools.accumulate(1 if each in "[{" else -1 for each in brackets)) > _DEEPEST:
        # Read as YAML, which is refused with the line.
        return None
    twice: list[str] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(key for key, number in collections.Counter(key for key, _ in pairs).items() if number > 1)
        return dict(pairs)

    kept = str if words == "written" else None
    try:
        value = json.loads(text, object_pairs_hook=mapping, parse_int=kept, parse_float=kept, parse_constant=_refuse)
    except ValueError:
        return None
    if twice and doubts is None:
        # Read as YAML, for the line.
        return None
    if doubts is not None:
        doubts += [Doubt("JSON", f"the key {key!r} comes twice; {_LAST}") for key in twice]
    return value


def _refuse(text: str) -> Any:
    raise ValueError(text)


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
