"""Rules and schema together, each thing reported once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tarkit.errors import MissingExtraError
from tarkit.k8s.lint.nodes import ERROR, WARNING, Finding, root_of
from tarkit.k8s.lint.rules import lint
from tarkit.k8s.lint.schema import check_schema
from tarkit.k8s.yamltext import Document

OLDEST = "1.33"
"""The oldest release that kubetpl is made for: what is meant where no release is named."""

_NEWEST = "1.9999"


def verdict(
    documents: Sequence[Document], kube_version: str | None, unchecked: Callable[[MissingExtraError], None]
) -> list[Finding]:
    """What the rules report, and what the schema reports of places in which they found no error.

    kube_version: of the cluster; None if it is not known: what only older servers refuse is a warning then.
    unchecked: is called if the library with the schemas is not installed; only the rules have looked then.

    Raises:
        UsageError: as ``lint`` and ``check_schema``.
    """
    found = lint(documents, kube_version or OLDEST)
    known = {finding.where for finding in found if finding.severity == ERROR}
    try:
        for number, document in enumerate(documents, 1):
            label = root_of(document, number, OLDEST).manifest.label
            if known.isdisjoint((label, f"{label} kind", f"{label} apiVersion")):
                found += [each for each in _schema(document, kube_version, number) if each.where not in known]
    except MissingExtraError as error:
        unchecked(error)
    return found


def _schema(document: Document, kube_version: str | None, number: int) -> list[Finding]:
    found = check_schema(document, kube_version or OLDEST, number)
    if kube_version is not None or all(each.severity != ERROR for each in found):
        return found
    newest = {each.where for each in check_schema(document, _NEWEST, number) if each.severity == ERROR}
    return [
        each if each.severity != ERROR or each.where in newest
        else dataclasses.replace(each, severity=WARNING, sentence=f"in Kubernetes {OLDEST} {each.sentence}")
        for each in found
    ]  # fmt: skip
