"""What is wrong with manifests, before a server reports it, and what servers accept in silence.

The rules on Jobs, indexes, names, quantities and volumes, and on what flags and ``--set`` can get wrong, in a table: a
rule is a function that takes a place in a manifest and yields what it finds there. An error is what servers of 1.33 to
1.37 refuse, and nothing else. The rules need no server and nothing installed. Fields, types, words and ranges are the
schema's; the rest is left to ``lint --server``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import MissingExtraError, UsageError, printable
from tarkit.k8s.lint import containers, jobs, objects, pods, volumes
from tarkit.k8s.lint.nodes import ERROR, WARNING, Finding, Node, root_of
from tarkit.k8s.lint.schema import NEWEST, check_schema
from tarkit.k8s.names import version
from tarkit.k8s.yamltext import Document

__all__ = ["ERROR", "RULES", "WARNING", "Finding", "lint", "verdict"]
Rule = Callable[[Node], Iterator[Finding]]

OLDEST = "1.33"
"""The oldest release that kubetpl is made for: the one that is meant where none is named."""

RULES: dict[str, tuple[Rule, ...]] = {
    "document": (objects.name, objects.selector, objects.size),
    "metadata": (objects.labels,),
    "named job": (jobs.job_name,),
    "job": (
        jobs.indexes, jobs.failed_indexes, jobs.restart_policy, jobs.failure_policy, jobs.success_policy,
        jobs.selection, jobs.queue, jobs.hosts,
    ),
    "pod": (
        pods.names, pods.tolerations, pods.security,
        volumes.volumes, volumes.mounts, volumes.memory_disks, volumes.lost_outputs, volumes.credentials,
    ),
    "container": (
        containers.image, containers.strings, containers.environment, containers.ports, containers.probes,
        containers.resources,
    ),
    "files": (objects.files,),
    "service": (objects.service,),
}  # fmt: skip
"""The rules, by what they are about."""


def verdict(
    documents: Sequence[Document], kube_version: str | None, unchecked: Callable[[MissingExtraError], None]
) -> list[Finding]:
    """What the rules report, and what the schema reports about places where they found no error.

    kube_version: the cluster's; None if it is not known: what only older servers refuse is then a warning.
    unchecked: is called if the library with the schemas is not installed, since only the rules were applied then.

    Raises:
        UsageError: as ``lint`` and ``check_schema``.
    """
    found = lint(documents, OLDEST if kube_version is None else kube_version)
    known = {finding.where for finding in found if finding.severity == ERROR}
    try:
        for number, document in enumerate(documents, 1):
            if isinstance(document, dict) and document:
                found += [each for each in _schema(document, kube_version, number) if each.where not in known]
    except MissingExtraError as error:
        unchecked(error)
    return found


def _schema(document: Document, kube_version: str | None, number: int) -> list[Finding]:
    found = check_schema(document, kube_version or OLDEST, number)
    if kube_version is not None or all(each.severity != ERROR for each in found):
        return found
    newest = {each.where for each in check_schema(document, NEWEST, number) if each.severity == ERROR}
    return [
        each if each.severity != ERROR or each.where in newest
        else dataclasses.replace(each, severity=WARNING, sentence=f"in Kubernetes {OLDEST}: {each.sentence}")
        for each in found
    ]  # fmt: skip


def lint(documents: Sequence[dict[str, Any]], kube_version: str = OLDEST) -> list[Finding]:
    """What the rules find wrong with the manifests, in their order. kube_version: the cluster's, such as ``1.33``.

    Manifests of kinds that are not known here are checked for their names and labels only.

    Raises:
        UsageError: kube_version is not a version.
    """
    if version(kube_version) == (0, 0):
        raise UsageError(f"{printable(kube_version)} is not a version of Kubernetes; write for example 1.33")
    found: list[Finding] = []
    roots = []
    for number, document in enumerate(documents, 1):
        root = root_of(document, number, kube_version)
        if not isinstance(document, dict) or not document:
            found.append(root.error("is empty, or no mapping; write a manifest or leave it out"))
            continue
        roots.append(root)
        found.extend(_document(root))
    seen: set[tuple[str, ...]] = set()
    for root in roots:
        meta, group = root.at("metadata"), root.text("apiVersion").partition("/")[0]
        named = (group, root.manifest.kind, meta.text("namespace"), meta.text("name"))
        if meta.text("name") and named in seen:
            found.append(meta.at("name").unusable("an earlier document has the same kind and name; give each its own"))
        seen.add(named)
    return found


def _document(root: Node) -> Iterator[Finding]:
    yield from _apply("document", root)
    kind = root.manifest.kind
    if "." in root.text("apiVersion") and kind != "JobSet":
        # Others have Jobs and Services of their own.
        yield from _apply("metadata", root.at("metadata"))
        return
    job_specs = list(_jobs(root))
    templates = [job.at("template") for job in job_specs]
    if kind in objects.SELECTING:
        templates.append(root.at("spec", "template"))
    pod_specs = [template.at("spec") for template in templates]
    if kind == "Pod":
        pod_specs.append(root.at("spec"))
    for metadata in (root.at("metadata"), *(template.at("metadata") for template in templates)):
        yield from _apply("metadata", metadata)
    if kind in ("Job", "CronJob"):
        yield from _apply("named job", root)
    for job in job_specs:
        yield from _apply("job", job)
    for pod in pod_specs:
        yield from _apply("pod", pod)
        for container in pods.containers(pod):
            yield from _apply("container", container)
    if kind in ("ConfigMap", "Secret"):
        yield from _apply("files", root)
    if kind == "Service":
        yield from _apply("service", root)


def _apply(scope: str, node: Node) -> Iterator[Finding]:
    for rule in RULES[scope]:
        yield from rule(node)


def _jobs(root: Node) -> Iterator[Node]:
    """The specs of the Jobs that a document is, or makes."""
    kind = root.manifest.kind
    if kind == "Job":
        yield root.at("spec")
    elif kind == "CronJob":
        yield root.at("spec", "jobTemplate", "spec")
    elif kind == "JobSet":
        for job in root.at("spec", "replicatedJobs").items():
            yield job.at("template", "spec")
