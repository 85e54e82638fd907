"""Rules and schema together, each thing said once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarkit.errors import MissingExtraError
from tarkit.k8s.lint.nodes import ERROR, Finding
from tarkit.k8s.lint.rules import lint
from tarkit.k8s.lint.schema import check_schema
from tarkit.k8s.yamltext import Document


def verdict(
    documents: Sequence[Document], kube_version: str, unchecked: Callable[[MissingExtraError], None]
) -> list[Finding]:
    """What the rules say, and what the schema says of places in which they found no error.

    unchecked: is told if the library with the schemas is not installed; the rules alone have spoken then.

    Raises:
        UsageError: as ``lint`` and ``check_schema``.
    """
    found = lint(documents, kube_version)
    known = {finding.where for finding in found if finding.severity == ERROR}
    try:
        for number, document in enumerate(documents, 1):
            found += [each for each in check_schema(document, kube_version, number) if each.where not in known]
    except MissingExtraError as error:
        unchecked(error)
    return found
