"""The rules about Jobs that the API server enforces; written from the facts, not from tarkit."""

from __future__ import annotations

from typing import Any

from apierrors import Cause, missing, too_many, twice, unsupported, wrong
from apistore import clone
from podrules import label, named_containers, pod_template

Json = dict[str, Any]
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MOST = 100_000
_MOST_WHEN_MANY = 10_000
_IMMUTABLE = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_ACTIONS = ["Count", "FailIndex", "FailJob", "Ignore"]


def job(thing: Json) -> list[Cause]:
    """What is wrong with a new Job, apart from its metadata."""
    spec, name = thing["spec"], thing["metadata"].get("name", "")
    causes = job_spec(spec)
    completions = spec.get("completions")
    if spec["completionMode"] == "Indexed" and completions:
        longest = f"{name}-{completions - 1}"
        if label(longest):
            said = f"will not able to create pod with invalid DNS label: {longest}"
            causes.insert(0, wrong("metadata.name", name, said))
    return causes


def job_spec(spec: Json) -> list[Cause]:
    causes = []
    for field in _COUNTS:
        if spec.get(field, 0) < 0:
            causes.append(wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(missing("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    mode = spec["completionMode"]
    if mode == "Indexed":
        causes += _indexed(spec)
    else:
        if mode != "NonIndexed":
            causes.append(unsupported("spec.completionMode", mode, ["Indexed", "NonIndexed"]))
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                causes.append(wrong(f"spec.{field}", spec[field], "requires indexed completion mode"))
    causes += _failure_policy(spec)
    causes += _replacement(spec)
    causes += pod_template(spec["template"], "spec.template")
    return causes + _restart(spec)


def _indexed(spec: Json) -> list[Cause]:
    causes = []
    completions, parallelism, most_failed = spec.get("completions"), spec["parallelism"], spec.get("maxFailedIndexes")
    if completions is None:
        causes.append(missing("spec.completions", "when completion mode is Indexed"))
    if parallelism > _MOST:
        said = f"must be less than or equal to {_MOST} when completion mode is Indexed"
        causes.append(wrong("spec.parallelism", parallelism, said))
    if completions is not None and most_failed is not None and most_failed > completions:
        causes.append(wrong("spec.maxFailedIndexes", most_failed, "must be less than or equal to completions"))
    if most_failed is not None and most_failed > _MOST:
        causes.append(wrong("spec.maxFailedIndexes", most_failed, f"must be less than or equal to {_MOST}"))
    if completions is not None and completions > _MOST and spec.get("backoffLimitPerIndex") is not None:
        tail = f"when completions are above {_MOST} and used with backoff limit per index"
        said = f"must be less than or equal to {_MOST_WHEN_MANY} {tail}"
        if most_failed is None:
            causes.append(missing("spec.maxFailedIndexes", f"must be specified when completions is above {_MOST}"))
        if parallelism > _MOST_WHEN_MANY:
            causes.append(wrong("spec.parallelism", parallelism, said))
        if most_failed is not None and most_failed > _MOST_WHEN_MANY:
            causes.append(wrong("spec.maxFailedIndexes", most_failed, said))
    return causes


def _failure_policy(spec: Json) -> list[Cause]:
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return []
    rules, path = policy.get("rules", []), "spec.podFailurePolicy.rules"
    causes = [too_many(path, len(rules), 20)] if len(rules) > 20 else []
    names = named_containers(spec["template"]["spec"])
    for number, rule in enumerate(rules):
        causes += _rule(spec, rule, f"{path}[{number}]", names)
    return causes


def _rule(spec: Json, rule: Json, path: str, names: set[str]) -> list[Cause]:
    causes = []
    action, codes, conditions = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions")
    if not action:
        causes.append(missing(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        causes.append(wrong(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in _ACTIONS:
        causes.append(unsupported(f"{path}.action", action, _ACTIONS))
    if codes is not None:
        causes += _exit_codes(codes, f"{path}.onExitCodes", names)
    for number, pattern in enumerate(conditions or []):
        status = pattern.get("status", "")
        if status not in ("False", "True", "Unknown"):
            here = f"{path}.onPodConditions[{number}].status"
            causes.append(unsupported(here, status, ["False", "True", "Unknown"]))
    said = "specifying both OnExitCodes and OnPodConditions is not supported"
    if codes is not None and conditions:
        causes.append(Cause(path, "FieldValueInvalid", f"Invalid value: {said}"))
    if codes is None and not conditions:
        said = "specifying one of OnExitCodes and OnPodConditions is required"
        causes.append(Cause(path, "FieldValueInvalid", f"Invalid value: {said}"))
    return causes


def _exit_codes(codes: Json, path: str, names: set[str]) -> list[Cause]:
    causes = []
    operator, values, container = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    if operator not in ("In", "NotIn"):
        causes.append(unsupported(f"{path}.operator", operator, ["In", "NotIn"]))
    if container is not None and container not in names:
        said = "must be one of the container or initContainer names in the pod template"
        causes.append(wrong(f"{path}.containerName", container, said))
    if not values:
        causes.append(wrong(f"{path}.values", values, "at least one value is required"))
    elif len(values) > 255:
        causes.append(too_many(f"{path}.values", len(values), 255))
    for number, value in enumerate(values):
        if operator == "In" and value == 0:
            causes.append(wrong(f"{path}.values[{number}]", value, "must not be 0 for the In operator"))
        if value in values[:number]:
            causes.append(twice(f"{path}.values[{number}]", value))
    if values != sorted(values):
        causes.append(wrong(f"{path}.values", values, "must be ordered"))
    return causes


def _replacement(spec: Json) -> list[Cause]:
    choices = ["Failed"] if spec.get("podFailurePolicy") is not None else ["Failed", "TerminatingOrFailed"]
    value = spec["podReplacementPolicy"]
    return [] if value in choices else [unsupported("spec.podReplacementPolicy", value, choices)]


def _restart(spec: Json) -> list[Cause]:
    path, value = "spec.template.spec.restartPolicy", spec["template"]["spec"].get("restartPolicy", "")
    if value in ("", "Always"):
        return [missing(path, 'valid values: "OnFailure", "Never"')]
    if value not in ("OnFailure", "Never"):
        return [unsupported(path, value, ["OnFailure", "Never"])]
    for field in ("podFailurePolicy", "backoffLimitPerIndex"):
        # The sentence about backoffLimitPerIndex is modelled on the other; that it is refused was measured.
        if spec.get(field) is not None and value != "Never":
            return [wrong(path, value, f'only "Never" is supported when {field} is specified')]
    return []


def job_update(new: Json, old: Json) -> list[Cause]:
    """What may not change. Parallelism, backoffLimit, suspend, deadlines may; of a suspended Job also resources,
    node selectors, tolerations, affinity (1.36)."""
    causes = job_spec(new["spec"])
    if new["spec"].get("completions") != old["spec"].get("completions"):
        causes += _elastic(new["spec"], old["spec"])
    for field in _IMMUTABLE:
        before, after = old["spec"].get(field), new["spec"].get(field)
        if field == "template" and _may_edit_template(old):
            before, after = _without_editable(before), _without_editable(after)
        if before != after:
            causes.append(wrong(f"spec.{field}", new["spec"].get(field), "field is immutable"))
    return causes


def _elastic(new: Json, old: Json) -> list[Cause]:
    """Completions of an Indexed Job may follow parallelism, if the two are equal."""
    completions = new.get("completions")
    if new["completionMode"] == "Indexed" and completions is not None and completions == new["parallelism"]:
        return []
    said = "field is immutable"
    if new["completionMode"] == "Indexed" and old.get("completions") is not None:
        said = "can only be modified in tandem with spec.parallelism"
    return [wrong("spec.completions", completions, said)]


def _may_edit_template(old: Json) -> bool:
    active = old.get("status", {}).get("active", 0)
    return bool(old["spec"].get("suspend")) and not active


def _without_editable(template: Any) -> Any:
    kept = clone(template)
    spec = kept.get("spec", {})
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        spec.pop(field, None)
    spec.get("affinity", {}).pop("nodeAffinity", None)
    if not spec.get("affinity", True):
        del spec["affinity"]
    for field in ("labels", "annotations"):
        kept.get("metadata", {}).pop(field, None)
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            container.pop("resources", None)
    return kept
