"""JobSets: several Jobs as one object, of which one may wait until another is complete.

Source: https://jobset.sigs.k8s.io/docs/, API jobset.x-k8s.io/v1alpha2; ``dependsOn`` since 0.8.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, annotations_of, labels_of, name_of, part_of, spec_of
from tarkit.k8s.wellknown import STAGE
from tarkit.k8s.yamltext import Document

KIND = "JobSet"
_TTL = "ttlSecondsAfterFinished"


def jobset_of(template: Document, name: str, jobs: Sequence[Object], labels: Mapping[str, str]) -> Document:
    """Return a JobSet of the Jobs of all stages, each of which waits for the one before.

    Args:
        template: a JobSet, whose Jobs are replaced.
        name: its name.
        jobs: the Jobs in their order.
        labels: labels of the JobSet alone.
    """
    made = copy.deepcopy(template)
    metadata, spec = made["metadata"], made["spec"]
    metadata["name"] = name
    if (namespace := part_of(jobs[0], "metadata").get("namespace")) is not None:
        metadata["namespace"] = namespace
    metadata["labels"] = {**labels_of(jobs[0]), **labels}
    spec["replicatedJobs"] = []
    before = None
    for job in jobs:
        stage, own = str(part_of(job, "metadata", "annotations")[STAGE]), dict(spec_of(job))
        ttl = own.pop(_TTL, None)
        if ttl is None:
            spec.pop(_TTL, None)
        else:
            spec[_TTL] = ttl
        own_metadata = {key: part_of(job, "metadata")[key] for key in ("labels", "annotations")}
        entry: Document = {"name": stage, "replicas": 1}
        if before is not None:
            entry["dependsOn"] = [{"name": before, "status": "Complete"}]
        entry["template"] = {"metadata": own_metadata, "spec": own}
        spec["replicatedJobs"].append(entry)
        before = stage
    return made


def with_jobs_of_sets(documents: Sequence[Object]) -> list[Object]:
    """Return documents in which the Jobs of each JobSet, as its controller makes them, replace it.

    Raises:
        UsageError: a JobSet has other fields than those of kubetpl.
    """
    found: list[Object] = []
    for document in documents:
        if document.get("kind") != KIND:
            found.append(document)
            continue
        where = f"JobSet {printable(name_of(document))}"
        _known(spec_of(document), ("replicatedJobs", "failurePolicy", "network", _TTL), where)
        for entry in spec_of(document).get("replicatedJobs") or ():
            _known(entry, ("name", "replicas", "dependsOn", "template"), where)
            if entry.get("replicas", 1) != 1:
                raise UsageError(f"{where}: replicas {entry['replicas']} are not done here; write 1")
            template = part_of(entry, "template")
            if entry.get("dependsOn") and STAGE not in annotations_of(template):
                raise UsageError(f"{where}: dependsOn is done here only for the stages of kubetpl; use a cluster")
            metadata = {**part_of(template, "metadata"), "name": f"{name_of(document)}-{entry.get('name')}-0"}
            if namespace := part_of(document, "metadata").get("namespace"):
                metadata["namespace"] = namespace
            found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec_of(template)})
    return found


def _known(thing: Object, names: Sequence[str], where: str) -> None:
    other = next((key for key in thing if key not in names), None)
    if other is not None:
        raise UsageError(f"{where}: {printable(str(other))} is not done here; remove it, or use a cluster")
