"""The ways to patch an object: merge, strategic merge, JSON patch, and server-side apply."""

from __future__ import annotations

from typing import Any

from apierrors import ApiError, bad_request
from apischema import kind_of, resolve
from apistore import clone

Json = dict[str, Any]
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"


def merge(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(schema: Json, base: Any, patch: Any) -> Any:
    """Merges lists by the keys that the schema names; knows $patch, $setElementOrder and $deleteFromPrimitiveList."""
    if not isinstance(patch, dict):
        return clone(patch)
    if patch.get("$patch") == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch"}
    _, body = resolve(schema)
    properties, free = body.get("properties", {}), body.get("additionalProperties", {})
    result = dict(base) if isinstance(base, dict) else {}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            name = key[len(_REMOVE) :]
            result[name] = [one for one in result.get(name) or [] if one not in value]
        if key.startswith("$"):
            continue
        inside = properties.get(key, free if isinstance(free, dict) else {})
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            order = patch.get(_ORDER + key)
            result[key] = _lists(inside, result.get(key) or [], value, order)
        else:
            result[key] = strategic(inside, result.get(key), value)
    for key, order in patch.items():
        name = key[len(_ORDER) :]
        if key.startswith(_ORDER) and name in result and name not in patch:
            result[name] = _sorted(properties.get(name, {}), result[name], order)
    return result


def _merge_key(schema: Json) -> str:
    return str(schema.get("x-kubernetes-patch-merge-key", ""))


def _lists(schema: Json, base: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    strategy = str(schema.get("x-kubernetes-patch-strategy", ""))
    if "merge" not in strategy.split(","):
        return list(clone(patch))
    key = _merge_key(schema)
    if not key:
        return _sorted(schema, base + [one for one in patch if one not in base], order)
    if any(one.get("$patch") == "replace" and key not in one for one in patch):
        return [clone(one) for one in patch if one.get("$patch") != "replace"]
    result = list(base)
    for one in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == one.get(key)), None)
        if one.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != one.get(key)]
        elif at is None:
            result.append(strategic(schema["items"], {}, one))
        else:
            result[at] = strategic(schema["items"], result[at], one)
    return _sorted(schema, result, order)


def _sorted(schema: Json, things: list[Any], order: list[Any] | None) -> list[Any]:
    if not order:
        return things
    key = _merge_key(schema)
    places = [one.get(key) if key and isinstance(one, dict) else one for one in order]

    def place(one: Any) -> int:
        value = one.get(key) if key and isinstance(one, dict) else one
        return places.index(value) if value in places else len(places)

    return sorted(things, key=place)


def json_patch(base: Any, steps: Any) -> Any:
    """RFC 6902: test, add, replace, remove, copy, move."""
    if not isinstance(steps, list):
        raise bad_request("a JSON patch is a list of operations")
    result = clone(base)
    for step in steps:
        result = _json_step(result, step)
    return result


def _json_step(result: Any, step: Json) -> Any:
    word = step.get("op")
    if word in ("copy", "move"):
        value = clone(_look(result, _pointer(step["from"])))
        if word == "move":
            _edit(result, _pointer(step["from"]), "remove", None)
        _edit(result, _pointer(step["path"]), "add", value)
    elif word == "test":
        if _look(result, _pointer(step["path"])) != step.get("value"):
            raise ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {step}")
    elif word in ("add", "replace", "remove"):
        _edit(result, _pointer(step["path"]), word, clone(step.get("value")))
    else:
        raise bad_request(f"unknown JSON patch operation {word!r}")
    return result


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _look(value: Any, path: list[str]) -> Any:
    for part in path:
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (LookupError, TypeError, ValueError):
            return None
    return value


def _edit(root: Any, path: list[str], word: str, value: Any) -> None:
    parent = _look(root, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        if word == "add":
            parent.insert(len(parent) if last == "-" else int(last), value)
        elif word == "remove":
            del parent[int(last)]
        else:
            parent[int(last)] = value
    elif isinstance(parent, dict) and (word == "add" or last in parent):
        if word == "remove":
            del parent[last]
        else:
            parent[last] = value
    else:
        raise ApiError(422, "Invalid", f"the server rejected our request: no such path /{'/'.join(path)}")


def apply(schema: Json, live: Json, wanted: Json, before: Json | None) -> Json:
    """Server-side apply, as far as one manager goes: what it applied before and no longer wants goes, the rest merges.

    From documentation only: the real server keeps the ownership of fields per manager and answers 409 when two
    disagree; here the last one wins.
    """
    result = strategic(schema, live, wanted)
    if before is not None:
        result = _without(schema, result, before, wanted)
    return dict(result)


def _without(schema: Json, result: Any, before: Any, wanted: Any) -> Any:
    if not (isinstance(result, dict) and isinstance(before, dict) and isinstance(wanted, dict)):
        return result
    _, body = resolve(schema)
    kept = dict(result)
    for key, old in before.items():
        inside = body.get("properties", {}).get(key, {})
        if key not in wanted:
            kept.pop(key, None)
        elif isinstance(old, list) and _merge_key(inside) and kind_of(inside) == "array":
            name = _merge_key(inside)
            names = {one.get(name) for one in wanted[key]}
            gone = {one.get(name) for one in old} - names
            kept[key] = [one for one in kept.get(key, []) if one.get(name) not in gone]
        else:
            kept[key] = _without(inside, kept.get(key), old, wanted[key])
    return kept
