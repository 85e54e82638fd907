"""JSON Schemas of both protocols (``schemas.yaml``), and messages about violations of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from tarkit.errors import printable, quoted
from tarkit.extras import library

TYPES = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list", "null": "null",
}  # fmt: skip
"""The types of JSON Schema, as messages name them."""
_SECRET = {"auth", "secrets", "jobEnvs"}
"""Fields whose values are not shown; their rules only check types."""


class Problem(NamedTuple):
    """A problem of a job.

    Attributes:
        field: path such as ``taskRoles[0].name``; empty for the job itself.
        reason: the problem, a phrase.
    """

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


@cache
def schema(protocol: int) -> dict[str, Any]:
    """Return the schema of the jobs of a protocol, 1 or 2."""
    import yaml

    found: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("schemas.yaml").read_bytes())
    return found[str(protocol)]  # type: ignore[no-any-return]


def problems_of(job: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """Return the violations of a schema, in the order of the fields.

    Raises:
        MissingExtraError: jsonschema is not installed.
    """
    jsonschema = library("jsonschema", "a check of OpenPAI's jobs", "openpai")
    found = list(jsonschema.Draft7Validator(schema).iter_errors(job))
    return list(dict.fromkeys(problem for error in found for problem in _problems(error)))


def field_name(path: list[str | int]) -> str:
    """Return ``taskRoles[0].name`` for ["taskRoles", 0, "name"]."""
    return "".join(f"[{each}]" if isinstance(each, int) else f".{printable(each)}" for each in path).removeprefix(".")


def _problems(error: Any) -> Iterator[Problem]:
    path, wanted, value = list(error.absolute_path), error.validator_value, error.instance
    if error.validator == "required":
        yield from (Problem(field_name([*path, name]), "it is missing") for name in wanted if name not in value)
    elif error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        forms = list(error.schema.get("patternProperties", {}))
        for name in value:
            if name not in known and forms:
                yield Problem(field_name([*path, name]), _form(forms[0]))
            elif name not in known:
                yield Problem(field_name([*path, name]), f"it is not a field; known are {', '.join(known)}")
    elif error.validator == "anyOf":
        *_, number = wanted
        yield Problem(
            field_name(path), f"{quoted(str(value))} must be null, or a whole number from {number['minimum']} on"
        )
    elif error.validator in ("allOf", "if"):
        for each in error.context:
            yield from _problems(each)
    elif not _SECRET.isdisjoint(path):
        yield Problem(field_name(path), f"it must be {_types(wanted)}")
    else:
        yield Problem(field_name(path), _reason(error.validator, wanted, value))


def _form(pattern: str) -> str:
    return f"a name has the form {pattern.replace(chr(92) + 'Z', '$')}"


def _types(wanted: str | list[str]) -> str:
    return " or ".join(TYPES[each] for each in ([wanted] if isinstance(wanted, str) else wanted))


def _reason(rule: str, wanted: Any, value: Any) -> str:
    if rule == "type":
        return f"it must be {_types(wanted)}, and is {_shown(value)}"
    if rule in ("enum", "const"):
        one_of = ", ".join(dict.fromkeys(map(str, wanted if rule == "enum" else [wanted])))
        return f"it must be {'one of ' if ',' in one_of else ''}{one_of}, and is {_shown(value)}"
    if rule == "pattern":
        return f"{_shown(value)}: {_form(wanted)}"
    if rule in ("minItems", "minProperties"):
        return "it is empty"
    if rule == "minLength":
        return "it is an empty text"
    if rule == "maxLength":
        return f"it has {len(value)} characters; {wanted} is the most"
    bound = "at least" if rule == "minimum" else "at most"
    return f"it is {value}, and must be {bound} {wanted}"


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return TYPES["object" if isinstance(value, dict) else "array"]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else quoted(str(value))
