"""Why nothing runs, or less than was asked for: from a Job, its pods and what events say.

Source of the messages: Kubernetes' scheduler, kubelet and admission plugins; facts measured on 1.36."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarkit.errors import UsageError, counted, printable
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.jobview import ENDED, state_of
from tarkit.k8s.quantity import parse_quantity
from tarkit.k8s.wellknown import CANCELLED, QUEUE

_CREATING_SECONDS = 60.0
_ASKED_PODS = 10
"""Pods that wait whose events are looked at; the others wait for the same, nearly always."""
_LONG = 600
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
# Refusals of pods, in the words of the admission plugins, and the flag that helps against each.
_REFUSALS = (
    (r"violates PodSecurity", "pod security", "--security restricted"),
    (r"must specify [\w.,\-]*memory", "quota", "-M --memory: the quota requires it"),
    (r"must specify [\w.,\-]*limits\.cpu", "quota",
     "--set 'spec.template.spec.containers[main].resources.limits.cpu=2': the quota requires a limit; -C sets none"),
    (r"must specify [\w.,\-]*cpu", "quota", "-C --cpu: the quota requires it"),
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
# What a container cannot be made without, in the words of a kubelet, and what provides it.
_MISSING = (
    ("configmap.*-shards-|-shards-.*configmap",
     "apply all that kubetpl indexed or retry printed: the ConfigMap with the shards comes before the Job"),
    ("configmap", "create the ConfigMap (kubetpl configmap), or --config-map"),
    ("secret", "create the Secret, or --secret"),
    ("runasnonroot|run as root|non-numeric user", "--run-as UID"),
    ("volume|mount", "the volumes of the manifest"),
)  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why pods do not run. kind: a word or two. text: the sentence. advice: what to change, "" if to wait."""

    kind: str
    text: str
    advice: str = ""
    count: int = 1

    @property
    def line(self) -> str:
        """As people read it."""
        many = f" (×{self.count})" if self.count > 1 else ""
        return f"not running: {self.text}{many}" + (f" → {self.advice}" if self.advice else "")


def why_not(
    job: Object, pods: Iterable[Object] | None, events: Mapping[str, Sequence[Object]] | None, now: float,
    workload: Object | None = None,
) -> list[Reason]:  # fmt: skip
    """Reasons, the outermost first; none if the Job has ended, or all that was asked for runs.
    pods, events: of the Job and of its pods, events by what they are about (``grouped`` by ``subject_of``); None if
    they may not be read. workload: Kueue's object for the Job. now: seconds since 1970."""
    if state_of(job) in (*ENDED, "ending"):
        return []
    if api.spec_of(job).get("suspend"):
        return [_suspended(job, workload)]
    if api.spec_of(job).get("parallelism") == 0:
        return [Reason("paused", "parallelism is 0", "kubetpl scale -j P")]
    wanted = _wanted(job)
    about = events or {}
    found = _refusals(about.get(api.uid_of(job), ())) if api.active_pods(job) < wanted else []
    waiting = ((pod, about.get(api.uid_of(pod), ())) for pod in _pending(pods))
    found += _together(reason for pod, own in waiting for reason in _why_pending(pod, own, now))
    if not found and not api.active_pods(job) and wanted:
        found.append(_between(api.status_of(job), events))
    return found


def subjects(job: Object, pods: Iterable[Object] | None) -> list[str]:
    """The uids of what events may say why less runs than was asked for: the Job, and its first pods that wait."""
    if state_of(job) != "waiting" or api.spec_of(job).get("parallelism") == 0:
        return []
    waiting = [api.uid_of(pod) for pod in _pending(pods)]
    return [*([api.uid_of(job)] if api.active_pods(job) < _wanted(job) else []), *waiting[:_ASKED_PODS]]


def _wanted(job: Object) -> int:
    """How many pods there should be now."""
    spec, done = api.spec_of(job), int(api.status_of(job).get("succeeded") or 0)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    return parallelism if spec.get("completions") is None else min(parallelism, int(spec["completions"]) - done)


def _pending(pods: Iterable[Object] | None) -> list[Object]:
    return [pod for pod in pods or () if api.phase_of(pod) == "Pending"]


def _message(thing: Object) -> str:
    """The message of an event, a condition or a state: on one line, not longer than people read."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(str(thing.get("message") or "").split()))
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _suspended(job: Object, workload: Object | None) -> Reason:
    by = api.annotations_of(job).get(CANCELLED)
    if by:
        return Reason("cancelled", f"suspended by kubetpl cancel ({printable(str(by))})", "kubetpl cancel --undo")
    queue = api.labels_of(job).get(QUEUE)
    if not queue:
        return Reason("suspended", "the Job is suspended (spec.suspend)", "kubetpl cancel --undo")
    if workload is None:
        text = f"queue {queue} has not admitted it; its Workload object cannot be read or is not there"
        return Reason("queue", text, "see whether the queue exists and has room; --queue names another")
    for kind in ("QuotaReserved", "Admitted", "Evicted"):
        if said := _message(api.condition_of(workload, kind) or {}):
            text = f"queue {queue} has not admitted it: {said}"
            return Reason("queue", text, "wait, ask for less, or another --queue")
    return Reason("queue", f"queue {queue} has not looked at it yet", "see whether the queue exists; --queue")


def _refusals(events: Sequence[Object]) -> list[Reason]:
    """The last refusal to create pods of a Job, unless pods were created since. events: about the Job."""
    since = max((_when(each) for each in events if each.get("reason") == "SuccessfulCreate"), default=0.0)
    refused = [each for each in events if each.get("reason") == "FailedCreate" and _when(each) >= since]
    if not refused:
        return []
    message = _message(max(refused, key=_when))
    count = sum(int(each.get("count") or 1) for each in refused)
    known = ((kind, advice) for pattern, kind, advice in _REFUSALS if re.search(pattern, message))
    kind, advice = next(known, ("refused", ""))
    return [Reason(kind, f"pods are refused: {message}", _beyond_quota(message) or advice, count)]


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


def _why_pending(pod: Object, events: Sequence[Object], now: float) -> list[Reason]:
    """Why one pod does not run yet; nothing if it has only just been made."""
    scheduled = api.condition_of(pod, "PodScheduled")
    if scheduled is not None and not api.is_true(pod, "PodScheduled"):
        if scheduled.get("reason") == "SchedulingGated":
            advice = "wait for the queue, or see spec.schedulingGates"
            return [Reason("gated", "pods wait behind a scheduling gate", advice)]
        message = _message(scheduled)
        flags = [flag for pattern, flag in _MISFITS if re.search(pattern, message)]
        return [Reason("unschedulable", f"no node takes it: {message}", ", ".join(flags))]
    for container in api.container_statuses(pod):
        waiting = api.part_of(container, "state", "waiting")
        kind, said = str(waiting.get("reason") or ""), _message(waiting)
        tail = f": {said}" if said else ""
        if kind in _IMAGE:
            return [Reason("image", f"{kind}, {container.get('image')}{tail}", "-I --image, --image-pull-secret")]
        if kind in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            return [Reason("container", f"{kind}{tail}", _missing_source(said))]
        if kind == "CrashLoopBackOff":
            return [Reason("crashing", f"{kind}{tail}", "see kubetpl logs")]
    return _creating(pod, events, now)


def _creating(pod: Object, events: Sequence[Object], now: float) -> list[Reason]:
    troubles = [each for each in events if str(each.get("reason") or "").startswith("Failed")]
    if troubles:
        last = max(troubles, key=_when)
        return [Reason(str(last["reason"]), f"{last['reason']}: {_message(last)}", _missing_source(_message(last)))]
    begun = api.timestamp(api.status_of(pod).get("startTime")) or api.timestamp(api.created(pod))
    if begun is None or now - begun <= _CREATING_SECONDS:
        return []
    word = "have not been looked at by a scheduler"
    if api.spec_of(pod).get("nodeName"):
        word = "are still being created: the image is pulled, or a volume mounted"
    return [Reason("creating", f"pods {word}; for over {int(_CREATING_SECONDS)} s")]


def _missing_source(message: str) -> str:
    """The flag that names a thing which a container cannot be made without."""
    return next((advice for pattern, advice in _MISSING if re.search(pattern, message.lower())), "")


def _between(status: Object, events: object) -> Reason:
    """No pod, and no event says why."""
    if number := int(status.get("terminating") or 0):
        text = f"{counted(number, 'pod is', 'pods are')} still ending, and the next ones begin when they have ended"
        return Reason("ending", text)
    if status.get("failed"):
        return Reason("back-off", "failed indexes are tried again after a pause, of 10 s at first and 10 min at most")
    if events is None:
        return Reason("unknown", "no pod exists, and events may not be read")
    return Reason("new", "no pod exists yet; if it stays so, no Job controller is at work, or spec.managedBy is set")


def _together(reasons: Iterable[Reason]) -> list[Reason]:
    """Alike reasons once, with their number; pods' own names in them do not count."""
    groups: dict[tuple[str, str], list[Reason]] = {}
    for each in reasons:
        groups.setdefault((each.kind, re.sub(r"[\w\-]+-[a-z0-9]{5}\b", "POD", each.text)), []).append(each)
    return sorted((replace(alike[0], count=len(alike)) for alike in groups.values()), key=lambda each: -each.count)


def subject_of(event: Object) -> str:
    """The uid of what an event is about."""
    return str(api.part_of(event, "involvedObject").get("uid"))


def _when(event: Object) -> float:
    times = (api.part_of(event, "series").get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
             api.created(event))  # fmt: skip
    return next((found for each in times if (found := api.timestamp(each)) is not None), 0.0)
