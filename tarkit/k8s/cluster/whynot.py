"""Reasons why nothing runs, or less than was requested: from a Job, its pods and events.

Source of the messages: Kubernetes' scheduler, kubelet and admission plugins, measured on 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarkit.errors import counted
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.jobview import ENDED, state_of
from tarkit.k8s.wellknown import KUEUE_JOB, QUEUE

_CREATING_SECONDS = 60.0
_LONG = 600
_CREATING = ("", "ContainerCreating", "PodInitializing")
ADVICE = (
    # In the words of the admission plugins, which refuse pods.
    (r"violates PodSecurity", "--security restricted"),
    (r"must specify [\w.,\-]*memory", "-M --memory: the quota requires it"),
    (r"must specify [\w.,\-]*limits\.cpu",
     "--set 'spec.template.spec.containers[main].resources.limits.cpu=2': the quota requires a limit; -C sets none"),
    (r"must specify [\w.,\-]*requests\.cpu", "-C --cpu: the quota requires it"),
    (r"exceeded quota", "scale -j to what fits, ask for less by -C --cpu and -M --memory, or wait"),
    (r"(maximum|minimum) memory usage", "-M --memory within the namespace's limits"),
    (r"(maximum|minimum) cpu usage", "-C --cpu within the namespace's limits"),
    (r"(maximum|minimum) (?!cpu|memory)[\w.\-]+ usage|limit to request ratio", "ask for what the namespace allows"),
    (r"serviceaccount \S+ not found|error looking up service account",
     "--service-account NAME that exists in this namespace"),
    (r"no PriorityClass with name", "--priority-class NAME that exists"),
    (r"admission webhook", "what the webhook asks for, by --set or --template"),
    # Of the scheduler.
    (r"Insufficient cpu", "-C --cpu"),
    (r"Insufficient memory", "-M --memory"),
    (r"Insufficient ephemeral-storage", "--scratch"),
    (r"Insufficient pods|Too many pods", "the nodes are full of pods: wait, or larger nodes"),
    (r"Insufficient [\w.\-]+/[\w.\-]+", "-G --gpu, --gpu-resource"),
    (r"didn't match Pod's node affinity/selector|didn't match node selector", "--node-selector, -A --accelerator"),
    (r"untolerated taint|had taint", "--toleration"),
    (r"persistentvolumeclaim|PersistentVolumeClaims", "the volume of --template or --set"),
    (r"topology spread", "topologySpreadConstraints by --set"),
    # Of a kubelet.
    (r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable",
     "-I --image, --image-pull-secret"),
    (r"CrashLoopBackOff", "see kubetpl logs"),
    (r'configmap "\S*-shards-',
     "apply all that kubetpl indexed or retry printed: the ConfigMap with the shards comes before the Job"),
    (r'configmap "(?!\S*-shards-)', "create the ConfigMap (kubetpl configmap), or --config-map"),
    (r'secret "', "create the Secret, or --secret"),
    (r"runAsNonRoot|run as root|non-numeric user", "--run-as UID"),
)  # fmt: skip
"""Patterns in a message, and the change that they suggest."""


@dataclass(frozen=True)
class Reason:
    """A reason why pods do not run.

    Attributes:
        text: a phrase.
        advice: what to change; "" if waiting is enough.
    """

    text: str
    advice: str = ""
    count: int = 1

    @property
    def line(self) -> str:
        """Return the reason as a line of text."""
        many = f" (×{self.count})" if self.count > 1 else ""
        return f"not running: {self.text}{many}" + (f" → {self.advice}" if self.advice else "")


def why_not(
    job: Object, pods: Iterable[Object] | None, events: Mapping[str, Sequence[Object]] | None, now: float
) -> list[Reason]:
    """Return the reasons why a Job's pods do not run, the outermost first.

    The list is empty if the Job has ended, or if all of its pods run.

    Args:
        pods: pods of the Job; None if they may not be read.
        events: events of the Job and its pods, by the object that they are about (``grouped`` by
            ``subject_of``); None if they may not be read.
        now: seconds since 1970.
    """
    if state_of(job) in (*ENDED, "ending"):
        return []
    if api.spec_of(job).get("suspend"):
        return [_suspended(job)]
    if api.spec_of(job).get("parallelism") == 0:
        return [Reason("parallelism is 0", "kubetpl scale -j P")]
    wanted = _wanted(job)
    about = events or {}
    found = _refusals(about.get(api.uid_of(job), ())) if api.active_pods(job) < wanted else []
    waiting = ((pod, about.get(api.uid_of(pod), ())) for pod in _pending(pods))
    found += _together(reason for pod, own in waiting if (reason := _why_pending(pod, own, now)) is not None)
    if not found and not api.active_pods(job) and wanted:
        found.append(_between(api.status_of(job), events))
    return found


def events_wanted(job: Object, pods: Iterable[Object] | None) -> bool:
    """Return True if events may explain why less runs than was requested."""
    if state_of(job) != "waiting" or api.spec_of(job).get("parallelism") == 0:
        return False
    return api.active_pods(job) < _wanted(job) or bool(_pending(pods))


def _wanted(job: Object) -> int:
    """Return the number of pods that should exist now."""
    spec, done = api.spec_of(job), int(api.status_of(job).get("succeeded") or 0)
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    return parallelism if spec.get("completions") is None else min(parallelism, int(spec["completions"]) - done)


def _pending(pods: Iterable[Object] | None) -> list[Object]:
    return [pod for pod in pods or () if api.phase_of(pod) == "Pending"]


def _message(thing: Object) -> str:
    """Return the message of an event, condition or state: on one line, shortened."""
    text = "".join(c if c.isprintable() else " " for c in " ".join(str(thing.get("message") or "").split()))
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _advised(text: str, count: int = 1) -> Reason:
    """Return a reason with all the advice that matches its text."""
    return Reason(text, ", ".join(advice for pattern, advice in ADVICE if re.search(pattern, text)), count)


def _suspended(job: Object) -> Reason:
    if queue := api.labels_of(job).get(QUEUE):
        why = f"kubectl describe workloads -l {KUEUE_JOB}={api.uid_of(job)} says why"
        return Reason(f"queue {queue} has not admitted it", f"{why}; wait, ask for less, or another --queue")
    return Reason("the Job is suspended (spec.suspend)", "kubetpl cancel --undo")


def _refusals(events: Sequence[Object]) -> list[Reason]:
    """Return the last error of creating pods of a Job, unless pods were created since."""
    since = max((_when(each) for each in events if each.get("reason") == "SuccessfulCreate"), default=0.0)
    refused = [each for each in events if each.get("reason") == "FailedCreate" and _when(each) >= since]
    if not refused:
        return []
    count = sum(int(each.get("count") or 1) for each in refused)
    return [_advised(f"pods are refused: {_message(max(refused, key=_when))}", count)]


def _why_pending(pod: Object, events: Sequence[Object], now: float) -> Reason | None:
    """Return the reason why one pod does not run yet, or None if it was only just created."""
    scheduled = api.condition_of(pod, "PodScheduled")
    if scheduled is not None and not api.is_true(pod, "PodScheduled"):
        if scheduled.get("reason") == "SchedulingGated":
            return Reason("pods wait behind a scheduling gate", "wait for the queue, or see spec.schedulingGates")
        return _advised(f"no node takes it: {_message(scheduled)}")
    for container in api.container_statuses(pod):
        waiting = api.part_of(container, "state", "waiting")
        kind = str(waiting.get("reason") or "")
        if kind not in _CREATING:
            image = f", {container.get('image')}" if "Image" in kind else ""
            return _advised(": ".join(filter(None, (kind + image, _message(waiting)))))
    failed = [each for each in events if str(each.get("reason") or "").startswith("Failed")]
    if failed:
        last = max(failed, key=_when)
        return _advised(f"{last['reason']}: {_message(last)}")
    begun = api.timestamp(api.status_of(pod).get("startTime")) or api.timestamp(api.created(pod))
    if begun is None or now - begun <= _CREATING_SECONDS:
        return None
    word = "have not been looked at by a scheduler"
    if api.spec_of(pod).get("nodeName"):
        word = "are still being created: the image is pulled, or a volume mounted"
    return Reason(f"pods {word}; for over {int(_CREATING_SECONDS)} s")


def _between(status: Object, events: object) -> Reason:
    """Return the reason if there is no pod, and no event explains it."""
    if number := int(status.get("terminating") or 0):
        text = f"{counted(number, 'pod is', 'pods are')} still ending, and the next ones begin when they have ended"
        return Reason(text)
    if status.get("failed"):
        return Reason("failed indexes are tried again after a pause, of 10 s at first and 10 min at most")
    if events is None:
        return Reason("no pod exists, and events may not be read")
    return Reason("no pod exists yet; if it stays so, no Job controller is at work, or spec.managedBy is set")


def _together(reasons: Iterable[Reason]) -> list[Reason]:
    """Merge equal reasons into one with their number; names of pods in them are ignored."""
    groups: dict[str, list[Reason]] = {}
    for each in reasons:
        groups.setdefault(re.sub(r"[\w\-]+-[a-z0-9]{5}\b", "POD", each.text), []).append(each)
    return sorted((replace(alike[0], count=len(alike)) for alike in groups.values()), key=lambda each: -each.count)


def subject_of(event: Object) -> str:
    """Return the uid of the object that an event is about."""
    return str(api.part_of(event, "involvedObject").get("uid"))


def _when(event: Object) -> float:
    times = (api.part_of(event, "series").get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"),
             api.created(event))  # fmt: skip
    return next((found for each in times if (found := api.timestamp(each)) is not None), 0.0)
