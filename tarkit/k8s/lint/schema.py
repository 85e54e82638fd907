"""Manifests against the API's own schema, of the release that a cluster runs: every field, every type, all kinds.

The schemas are those that the package kubernetes-validate carries (the extra ``lint``). What a schema can not say is
in the rules beside this.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.extras import library
from tarkit.k8s.lint.nodes import Finding, Node, no_such_field, root_of
from tarkit.k8s.names import version

_FOR = ("checking manifests against the API's schema", "lint")
_TYPES = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list",
}  # fmt: skip


def check_schema(document: dict[str, Any], kube_version: str = "1.33", number: int = 1) -> list[Finding]:
    """What is wrong with a manifest's fields. kube_version: of the cluster. number: which of several it is.

    If there is no schema of that release, the newest before it is taken, and a warning says so.

    Raises:
        MissingExtraError: kubernetes-validate is not installed.
        UsageError: kube_version is no version, or older than all schemas.
    """
    root = root_of(document, number, kube_version)
    if not isinstance(document, dict) or not document:
        return [root.error("is empty, or no mapping; write a manifest or leave it out")]
    missing = [key for key in ("kind", "apiVersion") if not root.text(key)]
    if missing:
        return [root.at(key).error("is missing; without it nothing can be checked") for key in missing]
    release, schemas = _release(kube_version)
    found = []
    if version(release) < version(kube_version):
        found.append(
            root.warning(f"checked against the schema of {release}, since none of {kube_version} is installed")
        )
    kind, api = root.text("kind"), root.text("apiVersion")
    validator = _validator(schemas, kind, api) if kind.isalnum() and "/" not in api.partition("/")[2] else None
    if validator is None:
        return [*found, _unknown_kind(root, api, release)]
    for error in sorted(validator.iter_errors(document), key=lambda error: [str(step) for step in error.absolute_path]):
        found.extend(_findings(root, error))
    return found


@cache
def _release(kube_version: str) -> tuple[str, str]:
    """The newest release with a schema that is not newer than the cluster's: ``1.33``, and the schemas' folder."""
    utils = library("kubernetes_validate.utils", *_FOR)
    wanted = version(kube_version)
    known = [each for each in utils.all_versions() if version(each) <= wanted]
    if not known:
        raise UsageError(f"there is no schema of Kubernetes {printable(kube_version)}; write for example 1.33")
    return utils.major_minor(known[-1]), f"v{known[-1]}-local-strict"


@cache
def _validator(schemas: str, kind: str, api: str) -> Any:
    """Of a kind, made once: the definitions are megabytes. None if there is no such kind."""
    utils = library("kubernetes_validate.utils", *_FOR)
    jsonschema = library("jsonschema", *_FOR)
    referencing = library("referencing", *_FOR)
    group, _, name = api.rpartition("/")
    prefix = f"{group.partition('.')[0]}-{name}" if group else name
    folder = f"kubernetes-json-schema/{schemas}"
    try:
        schema = utils.schema_contents(f"{folder}/{kind.lower()}-{prefix}.json", schemas)
    except (FileNotFoundError, utils.VersionNotSupportedError):
        return None
    registry = _definitions(folder) @ (referencing.Resource.from_contents(schema) @ referencing.Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


@cache
def _definitions(folder: str) -> Any:
    """What all kinds of a release share."""
    utils = library("kubernetes_validate.utils", *_FOR)
    referencing = library("referencing", *_FOR)
    return referencing.Resource.from_contents(utils.schema_contents(f"{folder}/_definitions.json", folder))


def _unknown_kind(root: Node, api: str, release: str) -> Finding:
    group = api.rpartition("/")[0]
    if "." in group and not group.endswith(".k8s.io"):
        return root.warning(
            f"there is no schema of {printable(api)}, which is not of Kubernetes; its fields are unchecked"
        )
    kind = printable(root.manifest.kind)
    return root.at("kind").error(f"Kubernetes {release} has no {kind} in {printable(api)}; see kubectl api-resources")


def _findings(root: Node, error: Any) -> list[Finding]:
    """One error of the validator as findings: it puts all unknown fields of an object into one."""
    node = root
    for step in error.absolute_path:
        node = Node(None, root.manifest, node, step)
    if error.validator == "additionalProperties" and isinstance(error.schema.get("properties"), dict):
        known = error.schema["properties"]
        return [no_such_field(node.at(str(name)), known) for name in error.instance if name not in known]
    if error.validator == "required":
        return [
            node.at(name).error("is missing, and must be there")
            for name in error.validator_value
            if name not in error.instance and not _defaulted(node, name)
        ]
    value = _shown(error.instance)
    if error.validator == "type":
        types = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
        wanted = " or ".join(_TYPES.get(each, each) for each in types if each != "null")
        return [node.error(f"{value} is not {wanted}")]
    if error.validator == "oneOf":
        return [node.error(f"{value} is neither a text nor a number")]
    return [node.error(printable(error.message))]


def _defaulted(node: Node, name: str) -> bool:
    """A condition's status, which the schemas before 1.34 require, and which servers take for True without."""
    return name == "status" and "onPodConditions" in node.path


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return printable(json.dumps(value, default=str))
