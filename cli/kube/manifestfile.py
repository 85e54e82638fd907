"""Manifests from files and standard input, for the commands of kubetpl that read them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from tarkit.errors import MissingExtraError, UsageError, counted

from ..shared.program import say

if TYPE_CHECKING:
    from tarkit.k8s.lint.nodes import Finding


def manifest_documents(name: str) -> list[dict[str, Any]]:
    """The manifests in a file; a UsageError if it holds none."""
    from tarkit.k8s.yamltext import load_documents

    return load_documents(manifest_text(name), shown(name))


def refuse_wrong_types(documents: list[dict[str, Any]]) -> None:
    """Refuse manifests that could not be followed, as ``refuse_types``; one line reports it if nothing was checked."""
    from tarkit.k8s.lint.schema import refuse_types

    try:
        refuse_types(documents)
    except MissingExtraError as error:
        unchecked(error)


def findings_of(documents: list[dict[str, Any]], kube_version: str | None, with_schema: bool = True) -> list[Finding]:
    """What lint reports about manifests, without the API's schema if it is not wanted or not installed."""
    from tarkit.k8s.lint.rules import lint, verdict

    return verdict(documents, kube_version, unchecked) if with_schema else lint(documents, kube_version)


def accepted(findings: list[Finding]) -> bool:
    """Whether a server would take the manifests, and pods could do their work; what is wrong goes to stderr."""
    refused = [finding for finding in findings if finding.severity == "error" or finding.unusable]
    for finding in findings:
        say("kubetpl", f"{'error' if finding in refused else finding.severity}: {finding}")
    if refused:
        say("kubetpl", f"nothing was printed: {counted(len(refused), 'error')} above; --no-lint prints it anyway")
    return not refused


def unchecked(error: MissingExtraError) -> None:
    """Report that the API's schema is not installed."""
    say("kubetpl", f"warning: fields, their types and words are not checked: {error}")


def manifest_text(name: str) -> str:
    """The text of a file in UTF-8; ``-`` is standard input. A byte order mark is left out."""
    from tarkit.k8s.yamlreading import read_bytes, utf8

    if name == "-" and os.isatty(0):
        raise UsageError("no manifest: name a file, or pipe one in")
    return utf8(sys.stdin.buffer.read() if name == "-" else read_bytes(name), shown(name))


def shown(name: str) -> str:
    """The name of a file in messages."""
    return "standard input" if name == "-" else name
