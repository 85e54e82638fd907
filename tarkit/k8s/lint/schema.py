"""Manifests against the API's own schema, of the release that a cluster runs: every field, every type, all kinds.

The schemas are those of the package kubernetes-validate (the extra ``lint``), with the words and ranges of
``enumerations``. What a schema cannot express about Jobs, names, quantities and volumes is in ``rules``;
everything else is left to a server."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tarkit.errors import UsageError, library, printable
from tarkit.k8s.lint.enumerations import complete
from tarkit.k8s.lint.nodes import WARNING, Finding, Node, root_of
from tarkit.k8s.names import version
from tarkit.k8s.quantity import parse_quantity

_FOR = ("checking manifests against the API's schema", "lint")
_TEXT = "a text"
_NAMES = re.compile("[A-Za-z0-9]{1,80} ([a-z0-9.-]{1,80}/)?[a-z0-9]{1,20}")
_DECODING = ("type", "additionalProperties")
_TYPING = ("type", "enum", "minimum", "maximum", "pattern")
NEWEST = "1.9999"
OLDEST = "1.33"
"""The oldest release that kubetpl is made for: the one that is meant where none is named."""
TYPES = {
    "string": _TEXT, "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list", "null": "null",
}  # fmt: skip
"""The types of JSON Schema, as messages name them."""


def check_schema(document: dict[str, Any], kube_version: str | None = OLDEST, number: int = 1) -> list[Finding]:
    """What is wrong with a manifest's fields. kube_version: the cluster's; None: it is not known, so that what newer
    releases than the oldest have is a warning only. number: the manifest's position.

    Without a schema of that release, the newest before it is used, and a warning reports it.

    Raises:
        MissingExtraError: kubernetes-validate is not installed.
        UsageError: kube_version is not a version, or older than all schemas.
    """
    wanted = OLDEST if kube_version is None else kube_version
    root = root_of(document, number, wanted)
    missing = [key for key in ("kind", "apiVersion") if not root.text(key)]
    if missing:
        return [root.at(key).error("is missing; without it nothing can be checked") for key in missing]
    release, schemas = _release(wanted)
    found = []
    if version(release) < version(wanted):
        found.append(root.warning(f"checked against the schema of {release}, since none of {wanted} is installed"))
    errors, newest = _errors(root, schemas, release), _release(NEWEST)[1]
    later = {each.where for each, _ in _errors(root, newest, release)} if errors and newest != schemas else None
    for each, is_missing in errors:
        if later is None or each.where in later:
            found.append(each)
        # A field that newer descriptions do not require was never required by servers.
        elif not is_missing:
            sentence = f"in Kubernetes {OLDEST}: {each.sentence}"
            in_oldest = dataclasses.replace(each, severity=WARNING, sentence=sentence)
            found.append(in_oldest if kube_version is None else each)
    return found


def _errors(root: Node, schemas: str, release: str) -> list[tuple[Finding, bool]]:
    """What a release's schema refuses, in the order of the fields; and whether it is that something is missing."""
    kind, api = root.manifest.kind, root.text("apiVersion")
    validator = _validator(schemas, kind, api)
    if validator is None:
        # A mistake in the release's own groups, a custom kind in groups with a domain.
        if "." in api:
            return [(root.warning(f"no schema of {printable(api)}, so its fields are unchecked"), False)]
        sentence = f"Kubernetes {release} has no {printable(kind)} in {printable(api)}; see kubectl api-resources"
        return [(root.at("kind").error(sentence), False)]
    errors = sorted(validator.iter_errors(root.value), key=lambda error: [str(step) for step in error.absolute_path])
    found = (
        (finding, error.validator in ("required", "minLength") or error.instance is None)
        for error in errors
        for finding in _findings(root, error)
    )
    return list(dict.fromkeys(found))


def refuse_types(documents: Sequence[Mapping[str, Any]]) -> None:
    """Refuse manifests with values of other types than the API has, which could not be followed.
    Fields and kinds that the newest schema does not have are left to lint.
    Raises: UsageError: a value is of another type, or not one of the words of its field; or a text that is passed to a
    process holds a NUL. MissingExtraError: kubernetes-validate is not installed."""
    roots = [root_of(document, number, NEWEST) for number, document in enumerate(documents, 1)]
    for root in roots:
        for unfit in _unfit(root, keys_only=root.manifest.kind in ("ConfigMap", "Secret")):
            raise UsageError(str(unfit))
    _, schemas = _release(NEWEST)
    for root in roots:
        # Only the kind counts: apiVersion may be missing, or of another release.
        validator = _validator(schemas, root.manifest.kind, "batch/v1" if "Job" in root.manifest.kind else "v1")
        for error in validator.iter_errors(root.value) if validator is not None else ():
            if error.validator in _TYPING and (wrong := _findings(root, error)):
                raise UsageError(str(wrong[0]))


def _unfit(node: Node, keys_only: bool) -> Iterator[Finding]:
    """Names and texts that no process, variable or file can have (in data they may be), and null in lists."""
    for key, child in node.fields():
        if "\0" in key:
            yield child.error("has a zero byte in its name, where Linux ends it; write it without")
        yield from _unfit(child, keys_only)
    for child in node.members():
        if child.value is None:
            yield child.error("null is not a value here; leave it out")
        yield from _unfit(child, keys_only)
    if not keys_only and isinstance(node.value, str) and "\0" in node.value:
        yield node.error("has a zero byte in it, where Linux ends it; write it without, or keep it in a file")


@cache
def _release(kube_version: str) -> tuple[str, str]:
    """The newest release with a schema that is not newer than the cluster's: ``1.33``, and the schemas' folder."""
    utils = library("kubernetes_validate.utils", *_FOR)
    wanted = version(kube_version)
    known = [each for each in utils.all_versions() if version(each) <= wanted]
    if not known:
        raise UsageError(f"no schema of Kubernetes {printable(kube_version)}; write for example 1.33")
    return utils.major_minor(known[-1]), f"v{known[-1]}-local-strict"


@cache
def _validator(schemas: str, kind: str, api: str) -> Any:
    """Of a kind, made once: the definitions are megabytes. None for a kind that it does not have."""
    if not _NAMES.fullmatch(f"{kind} {api}"):
        return None
    jsonschema = library("jsonschema", *_FOR)
    referencing = library("referencing", *_FOR)
    group, _, name = api.rpartition("/")
    file = f"{kind.lower()}-{group.partition('.')[0]}-{name}.json" if group else f"{kind.lower()}-{name}.json"
    schema = _contents(schemas, file)
    if schema is None:
        return None
    complete({kind: schema})
    registry = _definitions(schemas) @ (referencing.Resource.from_contents(schema) @ referencing.Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


@cache
def _definitions(schemas: str) -> Any:
    """What all kinds of a release share, with the words and ranges that the published schemas lack."""
    whole = _contents(schemas, "_definitions.json")
    complete(whole["$defs"])
    return library("referencing", *_FOR).Resource.from_contents(whole)


def _contents(schemas: str, file: str) -> Any:
    """A file of a release; None if there is none of this name."""
    utils = library("kubernetes_validate.utils", *_FOR)
    try:
        return utils.schema_contents(f"kubernetes-json-schema/{schemas}/{file}", schemas)
    except (FileNotFoundError, utils.VersionNotSupportedError):
        return None


def _findings(root: Node, error: Any) -> list[Finding]:
    """One error of the validator as findings: it puts all unknown fields of an object into one."""
    node = root
    for step in error.absolute_path:
        node = Node(None, root.manifest, node, step)
    if error.validator == "additionalProperties" and isinstance(error.schema.get("properties"), dict):
        known = error.schema["properties"]
        return [_no_such_field(node.at(str(name)), str(name), known) for name in error.instance if name not in known]
    in_status = next(iter(error.absolute_path), "") == "status" and error.validator not in _DECODING
    if in_status or (error.validator == "enum" and not isinstance(error.instance, str)):
        # Of a status only types count, since servers drop its values; and a wrong type is an error of its own.
        return []
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [node.at(name).error("is missing, and must be there") for name in missing]
    return [node.error(_sentence(error.validator, error.validator_value, error.instance, error.message))]


def _no_such_field(node: Node, name: str, known: Iterable[str]) -> Finding:
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return node.error(f"no such field; {f'did you mean {near[0]}?' if near else 'leave it out'}", None)


def _sentence(rule: str, wanted: Any, value: Any, message: str) -> str:
    if rule == "type":
        types = [TYPES.get(each, each) for each in ([wanted] if isinstance(wanted, str) else wanted) if each != "null"]
        plain = types == [_TEXT] and isinstance(value, (bool, int, float))
        return f"{_shown(value)} is not {' or '.join(types)}{'; put it in quotes' if plain else ''}"
    if rule == "enum":
        return f"{_shown(value)} is not one of {', '.join(each for each in wanted if each)}"
    if rule == "minLength":
        return "is empty; write one"
    if rule in ("minItems", "maxItems"):
        return f"has {len(value)} items; write at {'least' if rule == 'minItems' else 'most'} {wanted}"
    if rule in ("minimum", "maximum"):
        return f"{value} is out of range; write at {'least' if rule == 'minimum' else 'most'} {wanted}"
    if rule == "pattern":
        try:
            parse_quantity(value)
        except UsageError as error:
            return str(error)
    return printable(message)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return printable(json.dumps(value, default=str))
