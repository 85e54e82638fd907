"""What is wrong with manifests, before a server says it, and what servers take in silence.

The rules on Jobs, indexes, names, quantities and volumes, and on what flags and ``--set`` can get wrong, in tables: a
rule is a function that takes a place in a manifest and yields what it finds there. An error is what servers of 1.33 to
1.37 refuse, and nothing else. Nothing is asked of a server, and nothing needs to be installed. Fields, types and words
are the schema's; what neither knows is a matter for ``lint --server``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.lint import containers, files, jobs, meta, pods, resources, services, volumes
from tarkit.k8s.lint.nodes import ERROR, WARNING, Finding, Node, root_of
from tarkit.k8s.names import version

__all__ = ["ERROR", "RULES", "WARNING", "Finding", "lint"]
Rule = Callable[[Node], Iterator[Finding]]

RULES: dict[str, tuple[Rule, ...]] = {
    "document": (meta.kind, meta.name, meta.selector, meta.size),
    "metadata": (meta.labels,),
    "named job": (jobs.job_name,),
    "job": (
        jobs.counts, jobs.completion_mode, jobs.per_index, jobs.failed_indexes, jobs.restart_policy,
        jobs.failure_policy, jobs.replacement, jobs.success_policy, jobs.selection, jobs.idle, jobs.queue, jobs.hosts,
    ),
    "pod": (
        pods.container_names, pods.who, pods.node_selector, pods.tolerations, pods.names_of_servers, pods.security,
        volumes.volumes, volumes.mounts, volumes.memory_disks, volumes.lost_outputs, volumes.credentials,
    ),
    "container": (
        containers.image, containers.words, containers.environment, containers.ports, containers.probes,
        resources.resources,
    ),
    "files": (files.entries, files.total, files.keys_of_people),
    "service": (services.selector, services.ports),
}  # fmt: skip
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
    found.extend(jobs.same_object(roots))
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
    if kind in meta.SELECTING:
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
