"""What is wrong with manifests, before a server says it, and what servers take in silence.

All rules of Kubernetes 1.33 to 1.37 that concern what kubetpl prints, in tables: a rule is a function that takes a
place in a manifest and tells what it finds there. Nothing is asked of a server, and nothing needs to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s import (
    lintcontainers,
    lintfiles,
    lintjobs,
    lintmeta,
    lintpods,
    lintresources,
    lintservices,
    linttypes,
    lintvolumes,
)
from tarkit.k8s.lintnodes import ERROR, WARNING, Finding, Node, root_of
from tarkit.k8s.names import version

__all__ = ["ERROR", "RULES", "WARNING", "Finding", "lint"]
Rule = Callable[[Node], Iterator[Finding]]

RULES: dict[str, tuple[Rule, ...]] = {
    "document": (lintmeta.kind, lintmeta.name, lintmeta.size, linttypes.fields),
    "metadata": (lintmeta.labels,),
    "named job": (lintjobs.job_name,),
    "job": (
        lintjobs.counts,
        lintjobs.completion_mode,
        lintjobs.per_index,
        lintjobs.failed_indexes,
        lintjobs.restart_policy,
        lintjobs.failure_policy,
        lintjobs.replacement,
        lintjobs.success_policy,
        lintjobs.selection,
        lintjobs.idle,
        lintjobs.queue,
        lintjobs.hosts,
    ),
    "pod": (
        lintpods.container_names,
        lintpods.who,
        lintpods.ends,
        lintpods.node_selector,
        lintpods.tolerations,
        lintpods.spread,
        lintpods.preferred_nodes,
        lintpods.security,
        lintvolumes.volumes,
        lintvolumes.mounts,
        lintvolumes.memory_disks,
        lintvolumes.credentials,
    ),
    "container": (
        lintcontainers.image,
        lintcontainers.words,
        lintcontainers.terminal,
        lintcontainers.environment,
        lintcontainers.ports,
        lintresources.resources,
        lintresources.small_memory,
    ),
    "files": (lintfiles.entries, lintfiles.total, lintfiles.keys_of_people),
    "service": (lintservices.addresses, lintservices.selector, lintservices.ports),
}
"""The rules, by what they are about."""


def lint(documents: Sequence[dict[str, Any]], kube_version: str = "1.33") -> list[Finding]:
    """What is wrong with the manifests, in their order. kube_version: of the cluster, such as ``1.33``.

    Manifests of kinds that are not known here are checked for their names and labels only.

    Raises:
        UsageError: kube_version is no version.
    """
    if version(kube_version) == (0, 0):
        raise UsageError(f"{printable(kube_version)} is no version of Kubernetes; write for example 1.33")
    found: list[Finding] = []
    roots = []
    for number, document in enumerate(documents, 1):
        root = root_of(document, number, kube_version)
        if not isinstance(document, dict) or not document:
            found.append(root.error("is empty, or no mapping; write a manifest or leave it out"))
            continue
        roots.append(root)
        found.extend(_document(root))
    found.extend(lintjobs.same_object(roots))
    return found


def _document(root: Node) -> Iterator[Finding]:
    yield from _apply("document", root)
    kind = root.manifest.kind
    metas, jobs, pods = [root.at("metadata")], list(_jobs(root)), []
    if kind == "Pod":
        pods.append(root.at("spec"))
    templates = [job.at("template") for job in jobs]
    if kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"):
        templates.append(root.at("spec", "template"))
    metas += [template.at("metadata") for template in templates]
    pods += [template.at("spec") for template in templates]
    for meta in metas:
        yield from _apply("metadata", meta)
    if kind in ("Job", "CronJob"):
        yield from _apply("named job", root)
    for job in jobs:
        if isinstance(job.value, dict):
            yield from _apply("job", job)
    for pod in pods:
        if isinstance(pod.value, dict):
            yield from _apply("pod", pod)
            for container in lintpods.containers(pod):
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
