"""JSON Schemas of both protocols, and the sentences about what is against them.

Sources: OpenPAI's documents of its job configuration (0.14) and of protocol 2 (1.8), and what its server was seen to
accept. They are of draft 7, but for ``\\Z``, which Python needs where others have ``$``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tarkit.errors import library, printable, quoted
from tarkit.k8s.lint.schema import TYPES

_TEXT = {"type": "string", "minLength": 1}
_URL = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}
_WORD = {"type": "string", "pattern": r"^[A-Za-z0-9._~]+\Z"}


def _fields(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def _count(**limits: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, {**_WHOLE, **limits}]}


_PORT_1 = _fields({"label": _WORD, "beginAt": _WHOLE, "portNumber": _WHOLE}, "label")
_ROLE_1 = _fields(
    {
        "name": _WORD,
        **dict.fromkeys(("taskNumber", "cpuNumber", "memoryMB", "shmMB", "gpuNumber"), _WHOLE),
        "portList": {"type": "array", "items": _PORT_1},
        "command": _TEXT,
        **dict.fromkeys(("minFailedTaskCount", "minSucceededTaskCount"), _count(minimum=1)),
    },
    "name",
    "command",
)
JOB_JSON = _fields(
    {
        "jobName": {"type": "string", "pattern": r"^[A-Za-z0-9\-._]+\Z"},
        "image": _TEXT,
        **dict.fromkeys(("authFile", "dataDir", "outputDir", "codeDir", "virtualCluster", "gpuType"), _URL),
        "retryCount": {**_WHOLE, "minimum": -2},
        "killAllOnCompletedTaskNumber": _WHOLE,
        **dict.fromkeys(("jobEnvs", "extras"), {"type": "object"}),
        "taskRoles": {"type": "array", "minItems": 1, "items": _ROLE_1},
    },
    "jobName",
    "image",
    "taskRoles",
)
"""Version 1."""

_NAME = {"type": "string", "pattern": r"^[a-zA-Z0-9_-]+\Z", "maxLength": 255}
_IDENTIFIER = r"^[a-zA-Z_][a-zA-Z0-9_]*\Z"
_VERSION = {"enum": ["2", 2]}
_ABOUT = {
    "version": {"type": ["string", "number"]},
    **dict.fromkeys(("contributor", "description"), {"type": "string"}),
}
_LINES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_LOGIN = {"type": "object", "properties": dict.fromkeys(("username", "password", "registryuri"), {"type": "string"})}


def _named(pattern: str, value: Mapping[str, Any]) -> dict[str, Any]:
    # The server's own schema names no type here; what is not a mapping fails behind it.
    found = {"patternProperties": {pattern: value}, "minProperties": 1, "additionalProperties": False}
    return {"type": "object", **found}


def _if(kind: str, then: Mapping[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": then}


_PREREQUISITE = {
    "type": "object",
    "properties": {
        "protocolVersion": _VERSION,
        "name": {"type": "string"},
        "type": {"enum": ["dockerimage", "script", "output", "data"]},
        **_ABOUT,
        "plugin": {"type": "string"},
        "require": {"type": "array", "items": {"type": "string"}},
        "failurePolicy": {"enum": ["ignore", "fail"]},
    },
    "required": ["name", "type"],
    "allOf": [
        _if(
            "dockerimage",
            _fields(
                {
                    **dict.fromkeys(("protocolVersion", "name", "type", *_ABOUT), {}),
                    "uri": {"type": "string"},
                    "auth": _LOGIN,
                },
                "uri",
            ),
        ),
        *(_if(kind, {"properties": {"uri": {"type": "string"}}}) for kind in ("script", "output")),
        _if("data", {"properties": {"uri": {"type": "array", "items": {"type": "string"}}}}),
    ],
}
_ROLE_2 = _fields(
    {
        "protocolVersion": _VERSION,
        "instances": {"type": "integer", "minimum": 1},
        "completion": _fields(
            dict.fromkeys(("minFailedInstances", "minSucceededInstances"), {"type": ["integer", "null"]})
        ),
        "taskRetryCount": {"type": "integer"},
        **dict.fromkeys(("dockerImage", "data", "output", "script"), {"type": "string"}),
        "prerequisites": {"type": "array", "items": {"type": "string"}},
        "extraContainerOptions": {
            "type": "object",
            "properties": {"shmMB": {"type": "integer"}, "infiniband": {"type": "boolean"}},
        },
        "resourcePerInstance": _fields(
            {
                **dict.fromkeys(("cpu", "memoryMB", "gpu"), {"type": "integer"}),
                "ports": {**_named(_IDENTIFIER, {"type": "integer"}), "type": ["object", "null"]},
            },
            "cpu",
            "memoryMB",
            "gpu",
        ),
        "commands": _LINES,
    },
    "dockerImage",
    "resourcePerInstance",
    "commands",
)
JOB_YAML = _fields(
    {
        "protocolVersion": _VERSION,
        "name": _NAME,
        "type": {"enum": ["job"]},
        **_ABOUT,
        "prerequisites": {"type": "array", "items": _PREREQUISITE, "minItems": 1},
        **dict.fromkeys(("parameters", "secrets", "extras"), {"type": "object"}),
        "jobRetryCount": {"type": "integer", "minimum": 0},
        "taskRoles": _named(_IDENTIFIER, _ROLE_2),
        "deployments": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "protocolVersion": _VERSION,
                    "name": _NAME,
                    "taskRoles": _named(_IDENTIFIER, _fields(dict.fromkeys(("preCommands", "postCommands"), _LINES))),
                },
                "required": ["name", "taskRoles"],
            },
        },
        "defaults": {
            "type": "object",
            "properties": dict.fromkeys(("deployment", "virtualCluster"), {"type": "string"}),
        },
    },
    "protocolVersion",
    "name",
    "type",
    "taskRoles",
)
"""Protocol 2."""

_SECRET = {"auth", "secrets", "jobEnvs"}
"""Fields whose values are not shown; of their rules, all are about types."""


class Problem(NamedTuple):
    """field: as ``taskRoles[0].name``; empty of the job itself. reason: what is wrong with it, a phrase."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


def problems_of(job: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """What of a job is against a schema, in the order of the fields.

    Raises:
        MissingExtraError: jsonschema is not installed.
    """
    jsonschema = library("jsonschema", "a check of OpenPAI's jobs", "openpai")
    found = list(jsonschema.Draft7Validator(schema).iter_errors(job))
    return list(dict.fromkeys(problem for error in found for problem in _problems(error)))


def field_name(path: list[str | int]) -> str:
    """``taskRoles[0].name`` for ["taskRoles", 0, "name"]."""
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
