"""Rules on Jobs: indexes, retries, the pod failure policy, what the pods' template must be like.

Those of the API server (pkg/apis/batch/validation of Kubernetes), and a few on what it takes in silence.
Every rule takes the Job's ``spec``; the rules on whole objects take the document.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.k8s.limits import INDEXES, INDEXES_OF_MANY
from tarkit.k8s.lint.nodes import Finding, Node, repeated
from tarkit.k8s.names import index_name_budget, label_key
from tarkit.k8s.wellknown import MIN_PARALLELISM, QUEUE

_RULES = 20
_CODES = 255
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
"""Of the rules of a podFailurePolicy."""

_COUNTS = (
    "parallelism",
    "completions",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)


def counts(job: Node) -> Iterator[Finding]:
    """No number of a Job is negative."""
    for key in _COUNTS:
        if (number := job.whole(key)) is not None and number < 0:
            yield job.at(key).error(f"{number} is negative; write a number of 0 or more")


def completion_mode(job: Node) -> Iterator[Finding]:
    """An Indexed Job says how many indexes it has, and runs not more than 100,000 at a time."""
    mode = job.text("completionMode")
    if mode not in ("", "Indexed", "NonIndexed"):
        yield job.at("completionMode").error(f"{mode!r} is no mode; write Indexed or NonIndexed")
    if mode != "Indexed":
        return
    if not job.has("completions"):
        yield job.at("completions").error("is missing; an Indexed Job must say how many indexes it has")
    if (job.whole("parallelism") or 0) > INDEXES:
        yield job.at("parallelism").error(f"{job.whole('parallelism')} is too many; at most {INDEXES} pods at a time")


def per_index(job: Node) -> Iterator[Finding]:
    """backoffLimitPerIndex and maxFailedIndexes are of Indexed Jobs only, the latter only with the former."""
    if job.has("backoffLimitPerIndex"):
        if job.text("completionMode") != "Indexed":
            yield job.at("backoffLimitPerIndex").error(
                "works with completionMode: Indexed only; set that or leave it out"
            )
        policy = job.at("template", "spec").text("restartPolicy")
        if policy == "OnFailure" and not job.has("podFailurePolicy"):
            yield job.at("backoffLimitPerIndex").error(
                f"works with restartPolicy: Never only, not {policy}", "--restartpolicy"
            )
    elif job.has("maxFailedIndexes"):
        yield job.at("maxFailedIndexes").error("works with backoffLimitPerIndex only; set that too", "--retries")


def failed_indexes(job: Node) -> Iterator[Finding]:
    """maxFailedIndexes is within the completions, and within what a status can hold."""
    node, most = job.at("maxFailedIndexes"), job.whole("maxFailedIndexes")
    completions, parallelism = job.whole("completions"), job.whole("parallelism") or 0
    if most is not None and completions is not None and most > completions:
        yield node.error(f"{most} is more than the {completions} completions; write at most as many")
    if completions is None or completions <= INDEXES or not job.has("backoffLimitPerIndex"):
        if most is not None and most > INDEXES:
            yield node.error(f"{most} is too many; at most {INDEXES} can be")
        return
    many = f"with more than {INDEXES} completions and backoffLimitPerIndex"
    if most is None:
        yield node.error(f"must be there {many}, and be at most {INDEXES_OF_MANY}")
    elif most > INDEXES_OF_MANY:
        yield node.error(f"{most} is too many; {many} it is at most {INDEXES_OF_MANY}")
    if parallelism > INDEXES_OF_MANY:
        yield job.at("parallelism").error(f"{parallelism} is too many; {many} it is at most {INDEXES_OF_MANY}")


def restart_policy(job: Node) -> Iterator[Finding]:
    """Pods of Jobs do not run for ever."""
    node = job.at("template", "spec", "restartPolicy")
    if not job.at("template").has("spec"):
        return
    if node.value is None:
        yield node.error("is missing; pods of a Job need it: write Never")
    elif node.value == "Always":
        yield node.error("pods of a Job must end; write Never, or OnFailure to restart them in place")
    elif isinstance(node.value, str) and node.value not in ("Never", "OnFailure"):
        yield node.error(f"{node.value!r} is no such policy; write Never or OnFailure")
    elif node.value == "OnFailure" and job.has("podFailurePolicy"):
        yield node.error("a podFailurePolicy works with restartPolicy: Never only, not OnFailure")


def failure_policy(job: Node) -> Iterator[Finding]:
    """Each rule has an action, and one of exit codes and conditions."""
    rules = job.at("podFailurePolicy", "rules")
    if isinstance(rules.value, list) and len(rules.value) > _RULES:
        yield rules.error(f"has {len(rules.value)} rules; at most {_RULES} can be")
    names = {
        c.text("name") for key in ("containers", "initContainers") for c in job.at("template", "spec", key).items()
    }
    for rule in rules.items():
        action = rule.text("action")
        if action and action not in ACTIONS:
            yield rule.at("action").error(f"{action!r} is no action; write one of {', '.join(ACTIONS)}")
        if action == "FailIndex" and not job.has("backoffLimitPerIndex"):
            yield rule.at("action").error("FailIndex works with backoffLimitPerIndex only; set that too", "--retries")
        if rule.has("onExitCodes") == bool(rule.at("onPodConditions").value):
            yield rule.error("a rule has either onExitCodes or onPodConditions, one of them and not both")
        yield from _exit_codes(rule.at("onExitCodes"), names)
        yield from _conditions(rule.at("onPodConditions"))


def _exit_codes(codes: Node, names: set[str]) -> Iterator[Finding]:
    container, values = codes.text("containerName"), codes.at("values")
    # That there is no container at all is said elsewhere.
    if container and names and container not in names:
        there = ", ".join(sorted(names))
        yield codes.at("containerName").error(f"there is no container {container!r} in the pod; there is: {there}")
    operator = codes.text("operator")
    if operator and operator not in OPERATORS:
        yield codes.at("operator").error(f"{operator!r} is no operator; write {' or '.join(OPERATORS)}")
    if not isinstance(values.value, list):
        return
    numbers = [value for value in values.value if isinstance(value, int) and not isinstance(value, bool)]
    if not values.value:
        yield values.error("names no exit code; write at least one")
    if len(values.value) > _CODES:
        yield values.error(f"has {len(values.value)} exit codes; at most {_CODES} can be")
    if operator == "In" and 0 in numbers:
        yield values.error("0 is success, and no rule can be about it; leave it out")
    if numbers != sorted(set(numbers)):
        right = ", ".join(str(number) for number in sorted(set(numbers)))
        yield values.error(f"must be in order and each there once: write [{right}]")
    if any(not 0 <= number <= 255 for number in numbers):
        yield values.warning("no process exits with a code below 0 or above 255; leave it out")


def _conditions(conditions: Node) -> Iterator[Finding]:
    if isinstance(conditions.value, list) and len(conditions.value) > _RULES:
        yield conditions.error(f"has {len(conditions.value)} conditions; at most {_RULES} can be")
    for condition in conditions.items():
        if condition.text("status") not in ("", "True", "False", "Unknown"):
            yield condition.at("status").error('must be one of "True", "False" and "Unknown", in quotes')
        if (text := condition.text("type")) and (wrong := label_key(text)):
            yield condition.at("type").error(wrong)


def replacement(job: Node) -> Iterator[Finding]:
    """With a pod failure policy a pod is replaced when it has failed, not before."""
    node = job.at("podReplacementPolicy")
    if node.value is None:
        return
    if node.value not in ("Failed", "TerminatingOrFailed"):
        yield node.error("is neither Failed nor TerminatingOrFailed; write one of them")
    elif node.value != "Failed" and job.has("podFailurePolicy"):
        yield node.error("must be Failed when there is a podFailurePolicy")


def success_policy(job: Node) -> Iterator[Finding]:
    """Only Indexed Jobs have one, of 1 to 20 rules that say what is enough."""
    if not job.has("successPolicy"):
        return
    policy, completions = job.at("successPolicy"), job.whole("completions")
    if job.text("completionMode") != "Indexed":
        yield policy.error("works with completionMode: Indexed only; set that or leave it out", None)
    rules = policy.at("rules")
    if isinstance(rules.value, list) and not 1 <= len(rules.value) <= _RULES:
        yield rules.error(f"has {len(rules.value)} rules; 1 to {_RULES} can be")
    for rule in rules.items():
        count = rule.whole("succeededCount")
        if count is None and not rule.has("succeededIndexes"):
            yield rule.error("says nothing; write succeededCount or succeededIndexes")
        if count is not None and (count < 1 or (completions is not None and count > completions)):
            yield rule.at("succeededCount").error(f"{count} can not be; write 1 to {completions or 'the completions'}")


def selection(job: Node) -> Iterator[Finding]:
    """A Job finds its pods by itself; and who else may manage it has a domain's name."""
    if job.has("selector") and job.value.get("manualSelector") is not True:
        yield job.at("selector").error("a Job makes its own selector; leave it out", None)
    manager = job.text("managedBy")
    if manager and ("/" not in manager or len(manager) > 63 or label_key(manager) is not None):
        yield job.at("managedBy").error(
            f"{manager!r} is no name such as example.com/controller, of at most 63 characters"
        )


def idle(job: Node) -> Iterator[Finding]:
    """Jobs that are accepted, and do nothing."""
    queued = isinstance(job.manifest_label(QUEUE), str)
    if job.whole("parallelism") == 0:
        instead = "Kueue starts it when its turn comes" if queued else "suspend: true says so too"
        yield job.at("parallelism").warning(f"with 0 no pod ever starts; write how many may run at a time ({instead})")
    if job.whole("completions") == 0:
        yield job.at("completions").warning("with 0 the Job is complete at once, and nothing is run")
    if queued and job.has("suspend"):
        yield job.at("suspend").warning("Kueue sets it for Jobs with a queue's label; leave it out", None)


def queue(job: Node) -> Iterator[Finding]:
    """What Kueue needs to know: requests, and the smallest parallelism that is of use."""
    if not isinstance(job.manifest_label(QUEUE), str):
        return
    for container in job.at("template", "spec", "containers").items():
        resources = container.at("resources")
        if not any(resources.at(part).value for part in ("requests", "limits")):
            yield resources.warning("asks for nothing, so Kueue counts nothing; write requests", "--cpu and --memory")
    least = job.manifest_annotation(MIN_PARALLELISM)
    if least is None:
        return
    node = job.root().at("metadata", "annotations", MIN_PARALLELISM)
    if not isinstance(least, str) or not (least.isascii() and least.isdigit()):
        yield node.error('must be a whole number in quotes, such as "8"', "--min-parallelism")
        return
    most = job.whole("parallelism") if job.has("parallelism") else 1
    # No pods at all is said elsewhere.
    if most and int(least) > most:
        yield node.warning(f"{least} is more than the parallelism of {most}; write less", "--min-parallelism")


def hosts(job: Node) -> Iterator[Finding]:
    """Pods that run side by side do not share a name."""
    node = job.at("template", "spec", "hostname")
    if node.value is None:
        return
    if job.text("completionMode") == "Indexed":
        yield node.warning(
            "an Indexed Job calls its pods' hosts NAME-INDEX itself, and all would share this; leave it out"
        )
    elif (job.whole("parallelism") or 1) > 1:
        yield node.warning("all pods of the Job would share this name; leave it out")


def job_name(root: Node) -> Iterator[Finding]:
    """A Job's name is a label's value, and with an index a host's name."""
    spec, name = root.at("spec"), root.at("metadata").text("name")
    node = root.at("metadata", "name")
    if root.manifest.kind == "CronJob":
        if len(name) > 52:
            yield node.error(f"has {len(name)} characters; a CronJob's may have 52, since 11 are added to its Jobs'")
        return
    longest = 63
    indexes = spec.whole("completions") if spec.text("completionMode") == "Indexed" else None
    if indexes is not None:
        longest = index_name_budget(indexes)
    if 63 >= len(name) > longest:
        last = f"-{max((indexes or 1) - 1, 0)}"
        yield node.error(
            f"has {len(name)} characters; at most {longest} leave room for {last}, as the last pod is called"
        )
    elif len(name) > 63:
        yield node.error(f"has {len(name)} characters; a Job's may have {longest}")
    elif "." in name:
        if indexes is not None:
            yield node.error("has dots; an Indexed Job's pods are hosts of that name, so write - instead")
        else:
            yield node.warning("has dots, which make odd names of hosts; write - instead")


def same_object(roots: list[Node]) -> Iterator[Finding]:
    """Two documents of one name: the later one would change what the earlier one made."""
    seen: list[tuple[str, Node]] = []
    for root in roots:
        meta = root.at("metadata")
        if meta.text("name"):
            kind = f"{root.text('apiVersion').partition('/')[0]} {root.manifest.kind}"
            seen.append((f"{kind} {meta.text('namespace')} {meta.text('name')}", root.at("metadata", "name")))
    for _, node in repeated(seen):
        yield node.error("an earlier document has the same kind and name; give each its own")
