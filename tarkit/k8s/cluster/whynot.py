"""Why nothing runs, or less than was asked for: from a Job, its pods and what events say.

Source of the messages: Kubernetes' scheduler, kubelet and admission plugins; facts measured on 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.cluster.jobview import ENDED, condition_of, container_statuses, state_of, timestamp, uid_of
from tarkit.k8s.quantity import parse_quantity
from tarkit.k8s.wellknown import CANCELLED, QUEUE

Object = Mapping[str, Any]

_CREATING_SECONDS = 60.0
_ASKED_PODS = 10
"""Pods that wait whose events are looked at; the others wait for the same, nearly always."""
_LONG = 600
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
# Refusals of pods, in the words of the admission plugins, and the flag that mends each.
_REFUSALS = (
    (r"violates PodSecurity", "pod security", "--security restricted"),
    (r"must specify [\w.,\-]*memory", "quota", "-M --memory: the quota wants it to be said"),
    (r"must specify [\w.,\-]*limits\.cpu", "quota",
     "--set 'spec.template.spec.containers[main].resources.limits.cpu=2': the quota wants a limit, and -C sets none"),
    (r"must specify [\w.,\-]*cpu", "quota", "-C --cpu: the quota wants it to be said"),
    (r"exceeded quota", "quota", "scale -j to what fits, ask for less by -C --cpu and -M --memory, or wait"),
    (r"(maximum|minimum) memory usage", "LimitRange", "-M --memory within the namespace's limits"),
    (r"(maximum|minimum) cpu usage", "LimitRange", "-C --cpu within the namespace's limits"),
    (r"(maximum|minimum) [\w.\-]+ usage|limit to request ratio", "LimitRange", "ask for what the namespace allows"),
    (r"serviceaccount \S+ not found|error looking up service account", "service account",
     "--service-account NAME that exists in this namespace"),
    (r"no PriorityClass with name", "priority class", "--priority-class NAME that exists"),
    (r"admission webhook", "admission webhook", "what the webhook asks for, by --set or --template"),
)  # fmt: skip
_SIZES = {"cpu": "-C --cpu", "memory": "-M --memory", "ephemeral-storage": "--scratch"}
# Parts of the scheduler's sentence, and the flag for each.
_MISFITS = (
    (r"Insufficient cpu", "-C --cpu"),
    (r"Insufficient memory", "-M --memory"),
    (r"Insufficient ephemeral-storage", "--scratch"),
    (r"Insufficient pods|Too many pods", "the nodes are full of pods: wait, or larger nodes"),
    (r"Insufficient [\w.\-]+/[\w.\-]+", "-G --gpu, --gpu-resource"),
    (r"didn't match Pod's node affinity/selector|didn't match node selector", "--node-selector, -A --accelerator"),
    (r"untolerated taint|had taint", "--toleration, --spot"),
    (r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim", "the volume of --template or --set"),
    (r"topology spread", "topologySpreadConstraints by --set"),
)


@dataclass(frozen=True)
class Reason:
    """Why pods do not run. kind: a word or two. text: the sentence. advice: what to change, "" if to wait."""

    kind: str
    text: str
    advice: str = ""
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return asdict(self)


def why_not(
    job: Object,
    pods: Iterable[Object] | None,
    events: Sequence[Object] | None,
    now: float,
    workload: Object | None = None,
) -> list[Reason]:
    """Reasons, the outermost first; none if all that was asked for runs.

    pods, events: of the Job and of its pods; None if they may not be read. workload: Kueue's object
    for the Job. now: seconds since 1970.
    """
    spec, status = job.get("spec") or {}, job.get("status") or {}
    state, reason, message = state_of(job)
    if state in ENDED:
        said = f": {reason}" + (f", {shortened(message)}" if message else "") if reason or message else ""
        return [Reason("finished", f"the Job is {state}{said}")]
    if state == "ending":
        return []
    if spec.get("suspend"):
        return [_suspended(job, workload)]
    if spec.get("parallelism") == 0:
        return [Reason("paused", "parallelism is 0", "kubetpl scale -j P")]
    wanted = _wanted(spec, status)
    found: list[Reason] = []
    if int(status.get("active") or 0) < wanted:
        found += _refusals(job, events or ())
    waiting = [pod for pod in pods or () if (pod.get("status") or {}).get("phase") == "Pending"]
    found += _together(reason for pod in waiting for reason in _pending(pod, events or (), now))
    if not found and not status.get("active") and wanted:
        found.append(_between(status, events))
    return found


def subjects(job: Object, pods: Iterable[Object] | None) -> list[str]:
    """The uids of what events may say why less runs than was asked for: the Job, and its first pods that wait."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    if state_of(job)[0] != "waiting" or spec.get("parallelism") == 0:
        return []
    waiting = [uid_of(pod) for pod in pods or () if (pod.get("status") or {}).get("phase") == "Pending"]
    return [*([uid_of(job)] if int(status.get("active") or 0) < _wanted(spec, status) else []), *waiting[:_ASKED_PODS]]


def shortened(text: str) -> str:
    """A message on one line, not longer than people read."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _wanted(spec: Object, status: Object) -> int:
    """How many pods there should be now."""
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    total = spec.get("completions")
    return parallelism if total is None else min(parallelism, int(total) - int(status.get("succeeded") or 0))


def _suspended(job: Object, workload: Object | None) -> Reason:
    metadata = job.get("metadata") or {}
    who = (metadata.get("annotations") or {}).get(CANCELLED)
    if who:
        return Reason("cancelled", f"suspended by kubetpl cancel ({printable(str(who))})", "kubetpl cancel --undo")
    queue = (metadata.get("labels") or {}).get(QUEUE)
    if not queue:
        return Reason("suspended", "the Job is suspended (spec.suspend)", "kubetpl cancel --undo")
    if workload is None:
        text = f"queue {queue} has not admitted it; its Workload object cannot be read or is not there"
        return Reason("queue", text, "see whether the queue exists and has room; --queue names another")
    for kind in ("QuotaReserved", "Admitted", "Evicted"):
        condition = condition_of(workload, kind)
        if condition is not None and condition.get("message"):
            said = shortened(str(condition["message"]))
            return Reason(
                "queue", f"queue {queue} has not admitted it: {said}", "wait, ask for less, or another --queue"
            )
    return Reason("queue", f"queue {queue} has not looked at it yet", "see whether the queue exists; --queue")


def _refusals(job: Object, events: Sequence[Object]) -> list[Reason]:
    """The last refusal to create pods of this Job, unless pods were created since."""
    uid = (job.get("metadata") or {}).get("uid")
    own = [event for event in events if (event.get("involvedObject") or {}).get("uid") == uid]
    created = max((_when(each) for each in own if each.get("reason") == "SuccessfulCreate"), default=0.0)
    refused = [each for each in own if each.get("reason") == "FailedCreate" and _when(each) >= created]
    if not refused:
        return []
    last = max(refused, key=_when)
    message = shortened(str(last.get("message") or ""))
    count = sum(int(each.get("count") or 1) for each in refused)
    for pattern, kind, advice in _REFUSALS:
        if re.search(pattern, message):
            return [Reason(kind, f"pods are refused: {message}", _beyond_quota(message) or advice, count)]
    return [Reason("refused", f"pods are refused: {message}", "", count)]


def _beyond_quota(message: str) -> str:
    """What to do where one pod asks for more than the whole quota: waiting does not help; "" where it may."""
    lists = re.search(r"exceeded quota: .*?requested: (.*?), used: .*?, limited: (\S*)", message)
    if lists is None:
        return ""
    asked, limited = (dict(pair.partition("=")[::2] for pair in text.split(",")) for text in lists.groups())
    for resource, quantity in asked.items():
        try:
            if parse_quantity(quantity) <= parse_quantity(limited[resource]):
                continue
        except (KeyError, UsageError):
            continue
        flag = next((flag for word, flag in _SIZES.items() if word in resource), "ask for less")
        whole = limited[resource]
        return f"{flag}: a pod alone asks for {resource}={quantity}, the whole quota is {whole}: none ever runs"
    return ""


def _pending(pod: Object, events: Sequence[Object], now: float) -> list[Reason]:
    """Why one pod does not run yet; nothing if it has only just been made."""
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        message = shortened(str(scheduled.get("message") or ""))
        if scheduled.get("reason") == "SchedulingGated":
            return [
                Reason("gated", "pods wait behind a scheduling gate", "wait for the queue, or see spec.schedulingGates")
            ]
        flags = [flag for pattern, flag in _MISFITS if re.search(pattern, message)]
        return [Reason("unschedulable", f"no node takes it: {message}", ", ".join(flags))]
    for container in container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        kind, said = str(waiting.get("reason") or ""), shortened(str(waiting.get("message") or ""))
        tail = f": {said}" if said else ""
        if kind in _IMAGE:
            return [Reason("image", f"{kind}, {container.get('image')}{tail}", "-I --image, --image-pull-secret")]
        if kind in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            return [Reason("container", f"{kind}{tail}", _missing_source(said))]
        if kind == "CrashLoopBackOff":
            return [Reason("crashing", f"{kind}{tail}", "see kubetpl logs")]
    return _creating(pod, events, now)


def _creating(pod: Object, events: Sequence[Object], now: float) -> list[Reason]:
    metadata = pod.get("metadata") or {}
    own = [event for event in events if (event.get("involvedObject") or {}).get("uid") == metadata.get("uid")]
    troubles = [event for event in own if str(event.get("reason") or "").startswith("Failed")]
    if troubles:
        last = max(troubles, key=_when)
        message = shortened(str(last.get("message") or ""))
        return [Reason(str(last["reason"]), f"{last['reason']}: {message}", _missing_source(message))]
    begun = timestamp((pod.get("status") or {}).get("startTime")) or timestamp(metadata.get("creationTimestamp"))
    if begun is not None and now - begun > _CREATING_SECONDS:
        word = "are still being created: the image is pulled, or a volume mounted" if scheduled_on(pod) else (
            "have not been looked at by a scheduler"
        )  # fmt: skip
        return [Reason("creating", f"pods {word}; for over {int(_CREATING_SECONDS)} s")]
    return []


def scheduled_on(pod: Object) -> str:
    """The node of a pod; "" if it has none yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _missing_source(message: str) -> str:
    """The flag that names a thing which a container cannot be made without."""
    lowered = message.lower()
    if "configmap" in lowered and "-shards-" in lowered:
        return "apply all that kubetpl indexed or retry printed: the ConfigMap with the shards comes before the Job"
    if "configmap" in lowered:
        return "create the ConfigMap (kubetpl configmap), or --config-map"
    if "secret" in lowered:
        return "create the Secret, or --secret"
    if "runasnonroot" in lowered or "run as root" in lowered or "non-numeric user" in lowered:
        return "--run-as UID"
    return "the volumes of the manifest" if "volume" in lowered or "mount" in lowered else ""


def _between(status: Object, events: Sequence[Object] | None) -> Reason:
    """No pod, and no event says why."""
    if status.get("terminating"):
        number = int(status["terminating"])
        text = "1 pod is" if number == 1 else f"{number} pods are"
        return Reason("ending", f"{text} still ending, and the next ones begin when they have ended")
    if status.get("failed"):
        return Reason("back-off", "failed indexes are tried again after a pause, of 10 s at first and 10 min at most")
    if events is None:
        return Reason("unknown", "there is no pod, and events may not be read")
    return Reason("new", "there is no pod yet; if it stays so, no Job controller is at work, or spec.managedBy is set")


def _together(reasons: Iterable[Reason]) -> list[Reason]:
    """Alike reasons once, with their number; pods' own names in them do not count."""
    groups: dict[tuple[str, str], Reason] = {}
    for each in reasons:
        key = (each.kind, re.sub(r"[\w\-]+-[a-z0-9]{5}\b", "POD", each.text))
        first = groups.get(key, each)
        groups[key] = Reason(first.kind, first.text, first.advice, first.count + 1 if key in groups else 1)
    return sorted(groups.values(), key=lambda each: -each.count)


def _when(event: Object) -> float:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
             (event.get("metadata") or {}).get("creationTimestamp"))  # fmt: skip
    return next((found for each in times if (found := timestamp(each)) is not None), 0.0)
