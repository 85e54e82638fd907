"""Check of the types of all fields by the API's own schema, where its package is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tarkit.errors import UsageError, printable
from tarkit.extras import library
from tarkit.k8s.apiobject import grouped
from tarkit.k8s.yamltext import Document

_NAME = re.compile("[A-Za-z0-9]{1,80} ([a-z0-9.-]{1,80}/)?[a-z0-9]{1,20}")


def check_types(documents: Iterable[Document], strict: bool = False) -> None:
    """Refuse manifests with values of other types than the newest release has.

    Kinds that it does not have are left to a server.

    Args:
        strict: fields that it does not have are refused, too.

    Raises:
        MissingExtraError: kubernetes-validate is not installed.
        UsageError: a value has a wrong type, or a field is missing or unknown.
    """
    schemas = library("kubernetes_validate.utils", "checking manifests against the API's schema", "schema")
    for name, items in grouped(documents, _kind_and_version).items():
        kind, version = name.split(" ", 1)
        try:
            if _NAME.fullmatch(name):
                # As one list, since the schemas are read anew for each call.
                of_all = {"kind": f"{kind}List", "apiVersion": version, "items": items}
                schemas.validate(of_all, schemas.latest_version(), strict=strict)
        except (schemas.SchemaNotFoundError, schemas.VersionNotSupportedError):
            continue
        except schemas.ValidationError as error:
            _, number, *path = error.absolute_path
            about = items[number].get("metadata")
            named = f"{kind} {about.get('name') if isinstance(about, dict) else number + 1}"
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
            release = f"by the schema of Kubernetes {error.version}"
            raise UsageError(printable(f"{named}: {place}: {error.message} ({release})")) from None


def _kind_and_version(document: Document) -> str:
    kind = str(document["kind"])
    return f"{kind} {document.get('apiVersion') or ('batch/v1' if kind in ('Job', 'CronJob') else 'v1')}"
