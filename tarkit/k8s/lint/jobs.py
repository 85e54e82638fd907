"""Rules on Jobs: indexes, retries, the pod failure policy, what the pods' template must be like.

The rules of the API server (pkg/apis/batch/validation of Kubernetes), and a few on what it accepts in silence.
Every rule takes the Job's ``spec``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.indexset import INDEXES, INDEXES_OF_MANY
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.names import LABEL_LENGTH, index_name_budget
from tarkit.k8s.wellknown import MIN_PARALLELISM, QUEUE

_INDEXED = "works with completionMode: Indexed only; set that or leave it out"


def indexes(job: Node) -> Iterator[Finding]:
    """An Indexed Job has its number of indexes, and runs at most 100,000 at a time; others have no indexes."""
    indexed = job.text("completionMode") == "Indexed"
    for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if job.has(key) and not indexed:
            yield job.at(key).error(_INDEXED)
    # Without both a server takes 1 for both.
    if indexed and not job.has("completions") and job.has("parallelism"):
        yield job.at("completions").error("is missing; an Indexed Job needs the number of its indexes")
    if indexed and (job.whole("parallelism") or 0) > INDEXES:
        yield job.at("parallelism").error(f"{job.whole('parallelism')} is too many; at most {INDEXES} pods at a time")
    if job.has("maxFailedIndexes") and not job.has("backoffLimitPerIndex") and indexed:
        yield job.at("maxFailedIndexes").error("works with backoffLimitPerIndex only; set that too", "--retries")
    restarts = job.at("template", "spec").text("restartPolicy") == "OnFailure"
    if job.has("backoffLimitPerIndex") and restarts and not job.has("podFailurePolicy"):
        yield job.at("backoffLimitPerIndex").unusable(
            "is made for restartPolicy: Never; with OnFailure a pod fails for good only after its own restarts",
            "--restartpolicy",
        )


def failed_indexes(job: Node) -> Iterator[Finding]:
    """maxFailedIndexes is within the completions, and within what a status can hold."""
    node, most = job.at("maxFailedIndexes"), job.whole("maxFailedIndexes")
    completions, parallelism = job.whole("completions"), job.whole("parallelism") or 0
    if job.text("completionMode") != "Indexed":
        return
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


def restart_policy(job: Node) -> Iterator[Finding]:
    """Pods of Jobs end."""
    node = job.at("template", "spec", "restartPolicy")
    if node.value in (None, "", "Always"):
        yield node.error("pods of a Job must end; write Never, or OnFailure to restart them in place")
    elif node.value == "OnFailure" and job.has("podFailurePolicy"):
        yield node.error("a podFailurePolicy works with restartPolicy: Never only, not OnFailure")


def failure_policy(job: Node) -> Iterator[Finding]:
    """Each rule has an action, and either exit codes or conditions; a failed pod is replaced, not one that ends."""
    rules = job.at("podFailurePolicy", "rules")
    spec = job.at("template", "spec")
    names = {c.text("name") for key in ("containers", "initContainers") for c in spec.at(key).items()}
    for rule in rules.items():
        if rule.text("action") == "FailIndex" and not job.has("backoffLimitPerIndex"):
            yield rule.at("action").error("FailIndex works with backoffLimitPerIndex only; set that too", "--retries")
        if rule.has("onExitCodes") == bool(rule.at("onPodConditions").value):
            yield rule.error("a rule has either onExitCodes or onPodConditions, one of them and not both")
        if rule.has("onExitCodes"):
            yield from _exit_codes(rule.at("onExitCodes"), names)
    replacement = job.at("podReplacementPolicy")
    if replacement.value == "TerminatingOrFailed" and job.has("podFailurePolicy"):
        yield replacement.error("must be Failed when there is a podFailurePolicy")


def _exit_codes(codes: Node, names: set[str]) -> Iterator[Finding]:
    container, values = codes.text("containerName"), codes.at("values")
    # A pod without containers is reported elsewhere.
    if codes.has("containerName") and names and container not in names:
        there = ", ".join(sorted(names))
        yield codes.at("containerName").error(f"no container {container!r} in the pod; there is: {there}")
    numbers = [node.value for node in values.members() if type(node.value) is int]
    if codes.text("operator") == "In" and 0 in numbers:
        yield values.error("0 is success, and a rule cannot be about it; leave it out")
    if numbers != sorted(set(numbers)):
        right = ", ".join(str(number) for number in sorted(set(numbers)))
        yield values.error(f"must be in order and each there once: write [{right}]")
    if any(not 0 <= number <= 255 for number in numbers):
        yield values.warning("no process exits with a code below 0 or above 255; leave it out")


def queue(job: Node) -> Iterator[Finding]:
    """Jobs that are accepted and do nothing, and what Kueue needs: requests, and the smallest useful parallelism."""
    document = job.root().at("metadata")
    queued = isinstance(document.at("labels", QUEUE).value, str)
    if job.whole("parallelism") == 0:
        instead = "Kueue starts it when its turn comes" if queued else "or write suspend: true"
        yield job.at("parallelism").warning(f"with 0 no pod ever starts; write how many may run at a time ({instead})")
    if job.whole("completions") == 0:
        yield job.at("completions").warning("with 0 the Job is complete at once, and nothing is run")
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


def hosts(job: Node) -> Iterator[Finding]:
    """Pods that run at the same time do not share a name."""
    node = job.at("template", "spec", "hostname")
    if node.value is not None and (job.text("completionMode") == "Indexed" or (job.whole("parallelism") or 1) > 1):
        yield node.warning("all pods of the Job would share this name; leave it out")


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
