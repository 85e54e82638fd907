"""Rules on Jobs: indexes, retries, the pod failure policy, what the pods' template must be like.

Every rule takes the Job's ``spec``; those on single fields, and on which go together, are in ``fieldrules``."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.indexset import INDEXES, INDEXES_OF_MANY
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import LABEL_LENGTH, index_name_budget
from tarkit.k8s.wellknown import MIN_PARALLELISM, QUEUE


def indexes(job: Node) -> Iterator[Finding]:
    """Numbers of indexes and pods are within the completions, and within what a status can hold."""
    node, most = job.at("maxFailedIndexes"), job.whole("maxFailedIndexes")
    completions, parallelism = job.whole("completions"), job.whole("parallelism") or 0
    if job.text("completionMode") != "Indexed":
        return
    if parallelism > INDEXES:
        yield job.at("parallelism").error(f"{parallelism} is too many; at most {INDEXES} pods at a time")
    for rule in job.at("successPolicy", "rules").items():
        count = rule.whole("succeededCount")
        if count is not None and completions is not None and count > completions:
            yield rule.at("succeededCount").error(f"{count} is more than the {completions} completions")
    if most is not None and completions is not None and most > completions:
        yield node.error(f"{most} is more than the {completions} completions; write at most as many")
    if completions is None or completions <= INDEXES or not job.has("backoffLimitPerIndex"):
        if most is not None and most > INDEXES:
            yield node.error(f"{most} is too many; at most {INDEXES} are allowed")
        return
    many = f"at most {INDEXES_OF_MANY} are allowed with more than {INDEXES} completions and backoffLimitPerIndex"
    if most is None or most > INDEXES_OF_MANY:
        yield node.error(f"{'is missing' if most is None else f'{most} is too many'}; {many}")
    if parallelism > INDEXES_OF_MANY:
        yield job.at("parallelism").error(f"{parallelism} is too many; {many}")


def failure_policy(job: Node) -> Iterator[Finding]:
    """Each rule has an action, and either exit codes, in order, or conditions."""
    spec = job.at("template", "spec")
    names = {c.text("name") for key in ("containers", "initContainers") for c in spec.at(key).items()}
    for rule in job.at("podFailurePolicy", "rules").items():
        if rule.text("action") == "FailIndex" and not job.has("backoffLimitPerIndex"):
            yield rule.at("action").error("FailIndex works with backoffLimitPerIndex only; set that too", "--retries")
        if rule.has("onExitCodes") == bool(rule.at("onPodConditions").value):
            yield rule.error("a rule has either onExitCodes or onPodConditions, one of them and not both")
        name, values = rule.at("onExitCodes", "containerName"), rule.at("onExitCodes", "values")
        # A pod without containers is reported elsewhere.
        if isinstance(name.value, str) and names and name.value not in names:
            yield name.error(f"no container {name.value!r} in the pod; there is: {', '.join(sorted(names))}")
        numbers = [node.value for node in values.members() if type(node.value) is int]
        if numbers != sorted(set(numbers)):
            yield values.error(f"must be in order and each there once: write {sorted(set(numbers))}")
        if any(not 0 <= number <= 255 for number in numbers):
            yield values.warning("no process exits with a code below 0 or above 255; leave it out")


def queue(job: Node) -> Iterator[Finding]:
    """Jobs that are accepted and do nothing, and what Kueue needs: requests, and the smallest useful parallelism."""
    document = job.root().at("metadata")
    queued = isinstance(document.at("labels", QUEUE).value, str)
    if job.whole("parallelism") == 0:
        instead = "Kueue starts it when its turn comes" if queued else "or write suspend: true"
        yield job.at("parallelism").warning(f"with 0 no pod ever starts; write how many may run at a time ({instead})")
    if not queued:
        return
    if job.has("suspend"):
        yield job.at("suspend").warning("Kueue sets it for Jobs with a queue's label; leave it out", None)
    for container in job.at("template", "spec", "containers").items():
        resources = container.at("resources")
        if not any(resources.at(part).value for part in ("requests", "limits")):
            yield resources.warning("asks for nothing, so Kueue counts nothing; write requests", "--cpu and --memory")
    node = document.at("annotations", MIN_PARALLELISM)
    least, most = node.value, job.whole("parallelism") if job.has("parallelism") else 1
    if least is None:
        return
    if not isinstance(least, str) or not (least.isascii() and least.isdigit()):
        yield node.unusable('must be a whole number in quotes, such as "8"', "--min-parallelism")
    # That there are no pods at all is reported elsewhere.
    elif most and int(least) > most:
        yield node.warning(f"{least} is more than the parallelism of {most}; write less", "--min-parallelism")


def job_name(job: Node) -> Iterator[Finding]:
    """A Job's name is a label's value, and with an index a host's name."""
    root = job.root()
    name, node = root.at("metadata").text("name"), root.at("metadata", "name")
    if root.manifest.kind == "CronJob":
        if len(name) > 52:
            yield node.error(f"has {len(name)} characters; a CronJob's may have 52, since 11 are added to its Jobs'")
        return
    indexes = 0
    if job.text("completionMode") == "Indexed":
        indexes = 1 if not job.has("completions") else job.whole("completions") or 0
    longest = index_name_budget(indexes) if indexes > 0 else LABEL_LENGTH
    if LABEL_LENGTH >= len(name) > longest:
        yield node.error(
            f"has {len(name)} characters; at most {longest} leave room for -{indexes - 1} of the last pod's name"
        )
    elif len(name) > LABEL_LENGTH:
        # It is the value of a label, unless the Job has labels of its own.
        if job.at("manualSelector").value is not True:
            yield node.error(f"has {len(name)} characters; a Job's may have {longest}")
    elif "." in name:
        if indexes > 0:
            yield node.error("has dots; an Indexed Job's pods are hosts of that name, so write - instead")
        else:
            yield node.warning("has dots, which make odd names of hosts; write - instead")
