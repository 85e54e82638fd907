"""The schemas that kubernetes-validate carries: strict decoding, merge keys for patches, OpenAPI for kubectl."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from apierrors import bad_request
from apiresources import RESOURCES, VERSION, Resource

Json = dict[str, Any]
_QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_GO_TYPES = {"int32": "int32", "int64": "int64", "string": "string", "boolean": "bool", "integer": "int64"}


@functools.lru_cache(maxsize=1)
def definitions() -> Json:
    """Every named type of the API, by its long name."""
    spec = importlib.util.find_spec("kubernetes_validate")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the stand-in API server needs the schemas of kubernetes-validate; pip install it")
    minor = ".".join(VERSION[1:].split(".")[:2])
    folder = Path(spec.submodule_search_locations[0]) / "kubernetes-json-schema" / f"v{minor}.0-local"
    found: Json = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


def resolve(schema: Json) -> tuple[str, Json]:
    """The name (or "") and the body of a schema that may be a reference."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return (name, definitions()[name]) if name else ("", schema)


def kind_of(schema: Json) -> str:
    """object, array, string ...; the schemas say ["string", "null"]."""
    kind = schema.get("type", "")
    return str(next((one for one in kind if one != "null"), "")) if isinstance(kind, list) else str(kind)


def decode(resource: Resource, thing: Any, schema: str = "") -> tuple[Json, list[str]]:
    """The object without unknown and null fields, and the paths of the unknown ones.

    Raises ApiError 400 for values of a wrong type, in the words of the Go decoder.
    """
    name = schema or resource.schema
    unknown: list[str] = []
    try:
        kept = _decode({"$ref": f"/{name}"}, thing, "", "", unknown)
    except ValueError as error:
        kind = name.rpartition(".")[2]
        version = resource.api_version.rpartition("/")[2]
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    return kept, unknown


def _decode(schema: Json, value: Any, path: str, owner: str, unknown: list[str]) -> Any:
    name, body = resolve(schema)
    short = name.rpartition(".")[2]
    if short == "Quantity":
        return _quantity(value)
    if "properties" in body:
        if not isinstance(value, dict):
            raise ValueError(_mismatch(value, path, owner, f"v1.{short}"))
        kept = {}
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            if key not in body["properties"]:
                unknown.append(here)
            elif inner is not None:
                kept[key] = _decode(body["properties"][key], inner, here, short, unknown)
        return kept
    kind = kind_of(body)
    if kind == "array":
        if not isinstance(value, list):
            raise ValueError(_mismatch(value, path, owner, "[]" + _go_name(body["items"])))
        return [_decode(body["items"], one, f"{path}[{i}]", owner, unknown) for i, one in enumerate(value)]
    if kind == "object" and isinstance(body.get("additionalProperties"), dict):
        if not isinstance(value, dict):
            raise ValueError(_mismatch(value, path, owner, "map[string]" + _go_name(body["additionalProperties"])))
        inside = body["additionalProperties"]
        return {key: _decode(inside, one, path, owner, unknown) for key, one in value.items() if one is not None}
    return _scalar(body, kind, value, path, owner)


def _go_name(schema: Json) -> str:
    name, body = resolve(schema)
    return f"v1.{name.rpartition('.')[2]}" if name else _GO_TYPES.get(body.get("format") or kind_of(body), "string")


def _scalar(body: Json, kind: str, value: Any, path: str, owner: str) -> Any:
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
    }.get(kind, True)
    if not fits:
        raise ValueError(_mismatch(value, path, owner, _GO_TYPES.get(body.get("format") or kind, "string")))
    return value


def _mismatch(value: Any, path: str, owner: str, go_type: str) -> str:
    words = {str: "string", bool: "bool", int: "number", float: f"number {value}", list: "array", dict: "object"}
    plain = re.sub(r"\[\d+\]", "", path)
    return f"json: cannot unmarshal {words[type(value)]} into Go struct field {owner}.{plain} of type {go_type}"


def _quantity(value: Any) -> str:
    """A quantity is kept as text; a number is taken too, as the real server does."""
    text = str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else "?"
    if not _QUANTITY.match(text):
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return text


def _as_openapi(value: Any) -> Any:
    """JSON schema as OpenAPI 3.0 writes it: references into components, no lists of types."""
    if isinstance(value, list):
        return [_as_openapi(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        target = {"$ref": "#/components/schemas/" + str(value["$ref"]).rpartition("/")[2]}
        about = {key: _as_openapi(one) for key, one in value.items() if key != "$ref"}
        return {"allOf": [target], **about} if about else target
    kept = {key: _as_openapi(one) for key, one in value.items()}
    if isinstance(kept.get("type"), list):
        kept["type"] = kind_of(kept)
    return kept


def _closure(names: list[str]) -> list[str]:
    seen: list[str] = []
    while names:
        name = names.pop()
        if name not in seen:
            seen.append(name)
            names += re.findall(r'"\$ref": "[^"]*/([^"/]+)"', json.dumps(definitions()[name]))
    return sorted(seen)


def openapi_root() -> Json:
    paths = {one: {"serverRelativeURL": f"/openapi/v3/{one}?hash={VERSION}"} for one in ("api/v1", "apis/batch/v1")}
    return {"paths": paths}


@functools.lru_cache(maxsize=2)
def openapi(group: str) -> bytes:
    """The OpenAPI v3 document of a group: its types, and for each kind the query parameters that kubectl looks for."""
    mine = [one for one in RESOURCES if one.group == group]
    names = ["dryRun", "fieldManager", "fieldValidation", "force"]
    parameters = [{"name": one, "in": "query", "schema": {"type": "string"}} for one in names]
    paths = {}
    for one in mine:
        base = f"/apis/{one.group}/v1" if one.group else "/api/v1"
        path = base + ("/namespaces/{namespace}/" if one.namespaced else "/") + one.plural
        kind = {"group": one.group, "version": "v1", "kind": one.kind}
        words = {"x-kubernetes-group-version-kind": kind, "parameters": parameters, "responses": {}}
        paths[path] = {"post": {**words, "x-kubernetes-action": "post"}}
        paths[path + "/{name}"] = {"patch": {**words, "x-kubernetes-action": "patch"}}
    schemas = {name: _as_openapi(definitions()[name]) for name in _closure([one.schema for one in mine])}
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return json.dumps(document).encode()
