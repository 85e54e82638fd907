"""The answers of an API server that say no: a Status object with the code, reason and wording of the real one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from apiresources import Resource


class Cause(NamedTuple):
    """One broken rule: where, which kind of rule (FieldValueInvalid ...), and the sentence about it."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """A refused request, as an HTTP code and a Status object."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            status["details"] = self.details
        return status


def _details(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    details = {"name": name, "kind": resource.plural, **more}
    if resource.group:
        details["group"] = resource.group
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', _details(resource, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> ApiError:
    return ApiError(410, "Expired", message)


def invalid(resource: Resource, name: str, causes: list[Cause]) -> ApiError:
    sentences = [f"{cause.field}: {cause.message}" for cause in causes]
    kind = resource.kind + (f".{resource.group}" if resource.group else "")
    said = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    details = _details(resource, name, kind=resource.kind)
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {said}', details)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def wrong(field: str, value: Any, why: str) -> Cause:
    """A value that breaks a rule."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def missing(field: str, why: str = "") -> Cause:
    """A value that has to be there."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {why}" if why else ""))


def unsupported(field: str, value: Any, choices: list[str]) -> Cause:
    """A value that is none of a list."""
    listed = ", ".join(_shown(choice) for choice in choices)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {listed}")


def twice(field: str, value: Any) -> Cause:
    """A value that has to be unique and is not."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list that is too long."""
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def not_there(field: str, value: Any) -> Cause:
    """A name that refers to nothing."""
    return Cause(field, "FieldValueNotFound", f"Not found: {_shown(value)}")


def not_allowed(field: str, why: str) -> Cause:
    """A change that may not be."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")
