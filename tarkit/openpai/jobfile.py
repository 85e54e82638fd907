"""Parse the text of a job as OpenPAI does: JSON, or YAML by the rules of js-yaml 3."""

from __future__ import annotations

import collections
import functools
import json
import re
from typing import Any, NamedTuple

from tarkit.errors import DataError, printable

_MOST_CHARACTERS = 4 << 20
"""Largest number of characters of a file, with each alias of its YAML expanded."""
_DEEPEST = 100
"""Largest depth of its values: the readers of JSON and YAML, and recursive functions, support some
hundreds of levels.
"""
_TAG = "tag:yaml.org,2002:"
# Unlike YAML 1.1 as PyYAML reads it: yes and on are texts, 1e3 is a number.
_WORDS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (
        "int",
        r"[-+]?(?:0b[01][01_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0[0-7_]*|[1-9][0-9_]*(?::[0-5]?[0-9])*)(?<!_)",
        list("-+0123456789"),
    ),
    (
        "float",
        r"[-+]?(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    (
        "timestamp",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}"
        r"(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?",
        list("0123456789"),
    ),
    ("merge", "<<", ["<"]),
)


class JobFile(NamedTuple):
    """A parsed job file.

    Attributes:
        protocol: 1 for a job JSON, 2 for a job YAML.
        job: values of the job.
        text: the text that they were read from or are written as.
    """

    protocol: int
    job: dict[str, Any]
    text: str = ""


def read_job(text: str, where: str) -> JobFile:
    """Read a job of either protocol: a job of protocol 2 has a ``protocolVersion``.

    Args:
        where: the file's name, for messages.

    Raises:
        DataError: the text is neither JSON nor YAML, or is not a job.
    """
    if len(text) > _MOST_CHARACTERS:
        raise DataError(f"it has {len(text)} characters; a job has {_MOST_CHARACTERS} at most", url=where)
    text = text.removeprefix("\ufeff")
    repeated: list[str] = []
    if not text.lstrip().startswith("{"):
        job = _yaml(text, where)
    else:
        try:
            job = json.loads(text, object_pairs_hook=functools.partial(_mapping, repeated), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            # JSON is YAML, if with comments it is not JSON.
            job = _yaml_or_none(text)
            if not (isinstance(job, dict) and "protocolVersion" in job):
                raise DataError(f"it is not JSON: {printable(str(error))}", url=where, hint=_HINT) from None
    if not isinstance(job, dict):
        raise DataError("it is not a job: it has no fields", url=where)
    if _levels(job) > _DEEPEST:
        raise DataError(f"its values are nested more than {_DEEPEST} levels deep", url=where)
    protocol = 2 if "protocolVersion" in job or "jobName" not in job else 1
    if repeated and protocol == 2:  # in JSON the last one counts, in YAML none
        raise DataError(f"the key {printable(repeated[0])} comes twice", url=where)
    return JobFile(protocol, job, text)


_HINT = "a job JSON has no comments and no comma after the last item"


def _mapping(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a mapping of JSON.

    Args:
        repeated: repeated keys are added to it; the last value of such a key counts.
    """
    repeated += [key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1]
    return dict(pairs)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _levels(value: Any) -> int:
    """Return the depth of nested mappings and lists."""
    level, found = [value], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        found += 1
    return found


def _yaml_or_none(text: str) -> Any:
    try:
        return _yaml(text, "")
    except DataError:
        return None


def _yaml(text: str, where: str) -> Any:
    import yaml

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None and _characters(node, {}) > _MOST_CHARACTERS:
            raise DataError(f"with its aliases written out, it has more than {_MOST_CHARACTERS} characters", url=where)
        return None if node is None else loader.construct_document(node)
    except DataError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error)
        raise DataError(f"it is not YAML{place}: {printable(reason)}", url=where) from None
    except (ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:  # of tags: !!bool x
        raise DataError(f"it is not YAML: {printable(str(error))}", url=where) from None


def _characters(node: Any, known: dict[int, int]) -> int:
    """Return the smallest number of characters of a YAML node with its aliases expanded."""
    if isinstance(node.value, str):
        return len(node.value) + 1
    if id(node) not in known:
        known[id(node)] = 0  # in itself, which is refused later
        inner = (each for pair in node.value for each in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_characters(each, known) for each in inner)
    return known[id(node)]


@functools.cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[str, Any] = {}

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            # In JavaScript, keys are texts.
            key = javascript_text(loader.construct_object(key_node))
            if key_node.tag != f"{_TAG}merge" and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {printable(key)} comes twice", key_node.start_mark
                )
            seen.add(key)
        loader.flatten_mapping(node)
        return {
            javascript_text(loader.construct_object(key)): loader.construct_object(value, deep=True)
            for key, value in node.value
        }

    for name, form, first in _WORDS:
        Loader.add_implicit_resolver(f"{_TAG}{name}", re.compile(rf"(?:{form})\Z"), first)
    Loader.add_constructor(f"{_TAG}map", mapping)
    Loader.add_constructor(f"{_TAG}merge", lambda loader, node: node.value)
    return Loader


def javascript_text(value: Any) -> str:
    """Return a value as JavaScript writes it when it joins it to a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, list):
        return ",".join("" if each is None else javascript_text(each) for each in value)
    return "[object Object]" if isinstance(value, dict) else str(value)


def _number_text(value: float) -> str:
    """Format a number as ECMAScript's Number::toString: with the fewest digits.

    An exponent is used from 1e21 on and below 1e-6.
    """
    if value != value:  # noqa: PLR0124 (not a number)
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if exponent and 1e-6 <= abs(value) < 1e21:
        return f"{value:.{len(mantissa.replace('-', '').replace('.', '')) - 1 - int(exponent)}f}"
    sign, digits = ("-" if exponent.startswith("-") else "+"), exponent.lstrip("+-0")
    return f"{mantissa}e{sign}{digits}" if exponent else text
