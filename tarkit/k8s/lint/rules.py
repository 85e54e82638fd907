"""What is wrong with manifests, before a server reports it, and what servers accept in silence.

A rule is a function that takes a place in a manifest and yields what it finds there, or a row of ``fieldrules``. An
error is what servers of 1.33 to 1.37 refuse, and nothing else. The rules need no server and nothing installed. Fields,
types, words and ranges are the schema's; the rest is left to ``lint --server``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import MissingExtraError, UsageError, printable
from tarkit.k8s.lint import containers, jobs, objects, pods
from tarkit.k8s.lint.fieldrules import field_rules, rows_of
from tarkit.k8s.lint.nodes import ERROR, Finding, Node, root_of
from tarkit.k8s.lint.schema import OLDEST, check_schema
from tarkit.k8s.names import version
from tarkit.k8s.podfields import POD_PATHS
from tarkit.k8s.yamltext import Document

Rule = Callable[[Node], Iterator[Finding]]

RULES: dict[str, tuple[Rule, ...]] = {
    "document": (objects.name, objects.selector, objects.byte_limits, objects.files),
    "service": (objects.ports,),
    "jobset": (jobs.queue,),
    "metadata": (objects.labels,),
    "job": (jobs.job_name, jobs.indexes, jobs.failure_policy, jobs.queue),
    "pod": (
        pods.names, pods.security, pods.volumes, pods.memory_disks, pods.lost_outputs, pods.credentials,
    ),
    "container": (containers.image, containers.strings, containers.environment, containers.resources),
}  # fmt: skip
"""The rules that are functions, by what they are about."""


def verdict(
    documents: Sequence[Document], kube_version: str | None, unchecked: Callable[[MissingExtraError], None]
) -> list[Finding]:
    """What the rules report, and what the schema reports about places where they found no error.
    kube_version: the cluster's; None if it is not known: what only older servers refuse is then a warning. unchecked:
    is called if the library with the schemas is not installed, since only the rules were applied then."""
    found = lint(documents, kube_version)
    known = {finding.where for finding in found if finding.severity == ERROR}
    try:
        for number, document in enumerate(documents, 1):
            if isinstance(document, dict) and document:
                found += [each for each in check_schema(document, kube_version, number) if each.where not in known]
    except MissingExtraError as error:
        unchecked(error)
    return found


def lint(documents: Sequence[dict[str, Any]], kube_version: str | None = None) -> list[Finding]:
    """What the rules find wrong with the manifests, in their order. kube_version: as for ``verdict``.
    Manifests of kinds that are not known here are checked for their names and labels only."""
    kube_version = OLDEST if kube_version is None else kube_version
    if version(kube_version) == (0, 0):
        raise UsageError(f"{printable(kube_version)} is not a version of Kubernetes; write for example 1.33")
    found: list[Finding] = []
    seen: set[tuple[str, ...]] = set()
    for number, document in enumerate(documents, 1):
        root = root_of(document, number, kube_version)
        if not isinstance(document, dict) or not document:
            found.append(root.error("is empty, or no mapping; write a manifest or leave it out"))
            continue
        for scope, place in _places(root):
            found += dict.fromkeys(field_rules(place, rows_of(scope)))
            found += [finding for rule in RULES[scope] for finding in rule(place)]
        meta, group = root.at("metadata"), root.text("apiVersion").partition("/")[0]
        named = (group, root.manifest.kind, meta.text("namespace"), meta.text("name"))
        if meta.text("name") and named in seen:
            found.append(meta.at("name").unusable("an earlier document has the same kind and name; give each its own"))
        seen.add(named)
    return found


def _places(root: Node) -> Iterator[tuple[str, Node]]:
    """What rules are about in a document, by their names in ``RULES``."""
    yield "document", root
    yield "metadata", root.at("metadata")
    kind, path = root.manifest.kind, POD_PATHS.get(root.manifest.kind)
    if kind == "JobSet":
        # Its server fills in what Jobs must have, so that only warnings are true of it.
        yield from (("jobset", job.at("template", "spec")) for job in root.at("spec", "replicatedJobs").items())
    # Groups with a domain have Jobs and Services of their own.
    is_own = "." not in root.text("apiVersion")
    if kind == "Service" and is_own:
        yield "service", root.at("spec")
    if path is None or not is_own:
        return
    if kind in ("Job", "CronJob"):
        yield "job", root.at(*path[:-1])
    template = root.at(*path)
    if path:
        yield "metadata", template.at("metadata")
    pod = template.at("spec")
    yield "pod", pod
    for container in pods.containers(pod):
        yield "container", container
