"""What a Job's own status says: indexes by state, speed, and where its shards are.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from tarkit.errors import UsageError
from tarkit.k8s.indexset import parse_indexes
from tarkit.k8s.podfields import main_container
from tarkit.k8s.tarprocwork import work_in
from tarkit.k8s.wellknown import INDEX, INPUTS, LIST, OUTDIR, RETRY_OF, RUN, SHARDS, SLICES

Object = Mapping[str, Any]

ENDED = ("complete", "failed")
"""The states in which no pod of a Job will run again."""
_ENDINGS = {"Complete": "complete", "Failed": "failed"}
# How a Job will end is certain, but its last pods are ending or being counted: the status may say 0 of 1 done.
_ENDING_SOON = ("SuccessCriteriaMet", "FailureTarget")


@dataclass(frozen=True)
class Plan:
    """What a Job made by kubetpl works on, as it says itself; None where it does not.

    inputs: shard specs as tarproc got them. list_name: the ConfigMap that holds them. list_sha256: by which its pods
    know their list.
    """

    shards: int | None = None
    slices: int | None = None
    outdir: str | None = None
    inputs: tuple[str, ...] | None = None
    list_name: str | None = None
    list_sha256: str | None = None


@dataclass(frozen=True)
class JobView:
    """A Job in numbers. Times in seconds since 1970; rates in indexes per minute.

    state: complete, failed, ending (how is certain, its last pods are not gone), suspended, running, or waiting
    (nothing runs, nothing has ended it).
    total: indexes, None if the Job has no fixed number. done, failed, running, pending, left: indexes; pending
    ones have a pod that does not run yet, left ones have neither ended nor a pod.
    """

    name: str
    namespace: str
    state: str
    reason: str
    message: str
    total: int | None
    done: int
    failed: int
    running: int
    pending: int
    left: int
    parallelism: int
    completed_indexes: str
    failed_indexes: str
    started: float | None
    ended: float | None
    seconds: float | None
    per_minute: float | None
    seconds_left: float | None
    run: str
    retry_of: str | None
    plan: Plan

    @property
    def finished(self) -> bool:
        """Whether no pod of it will run again."""
        return self.state in ENDED

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return asdict(self)


def job_view(job: Object, pods: Iterable[Object] | None, now: float) -> JobView:
    """The view of a Job as the API gives it. pods: its pods; None if they may not be read."""
    metadata, spec, status = job.get("metadata") or {}, job.get("spec") or {}, job.get("status") or {}
    total = spec.get("completions")
    indexed = spec.get("completionMode") == "Indexed"
    failed_indexes = str(status.get("failedIndexes") or "")
    failed = sum(1 for _ in parse_indexes(failed_indexes))
    done = int(status.get("succeeded") or 0)
    if indexed:
        done = sum(1 for _ in parse_indexes(str(status.get("completedIndexes") or "")))
    state, reason, message = state_of(job)
    if not indexed and state == "failed" and total is not None:
        failed = total - done
    running, pending = _alive(status, pods)
    started, ended = timestamp(status.get("startTime")), _end_of(status)
    seconds = None if started is None else max(0.0, (ended or now) - _begin(job, started))
    ended_indexes = done + failed
    left = 0 if total is None else max(0, total - ended_indexes - running - pending)
    rate = ended_indexes * 60 / seconds if seconds and ended_indexes else None
    eta = None
    if rate is not None and total is not None and state == "waiting" and spec.get("parallelism") != 0:
        eta = (total - ended_indexes) * 60 / rate
    return JobView(
        name=name_of(job), namespace=str(metadata.get("namespace") or "default"),
        state="running" if state == "waiting" and running else state, reason=reason, message=message,
        total=total, done=done, failed=failed, running=running, pending=pending, left=left,
        parallelism=1 if spec.get("parallelism") is None else int(spec["parallelism"]),
        completed_indexes=str(status.get("completedIndexes") or ""), failed_indexes=failed_indexes,
        started=started, ended=ended, seconds=seconds, per_minute=rate,
        seconds_left=eta,
        run=run_of(job),
        retry_of=(metadata.get("annotations") or {}).get(RETRY_OF), plan=plan_of(job),
    )  # fmt: skip


def plan_of(job: Object) -> Plan:
    """What its annotations and arguments say.

    Raises:
        UsageError: one of them is not what kubetpl writes.
    """
    notes = (job.get("metadata") or {}).get("annotations") or {}
    try:
        inputs = None if INPUTS not in notes else tuple(json.loads(notes[INPUTS]))
        if inputs is not None and not all(isinstance(each, str) for each in inputs):
            raise ValueError
        numbers = [int(notes[each]) if each in notes else None for each in (SHARDS, SLICES)]
    except (ValueError, TypeError):
        raise UsageError(
            f"Job {name_of(job)}: the annotations {INPUTS}, {SHARDS}, {SLICES} are not as kubetpl writes them"
        ) from None
    return Plan(numbers[0], numbers[1], notes.get(OUTDIR), inputs, notes.get(LIST), _list_sha256(job))


def _list_sha256(job: Object) -> str | None:
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    try:
        work = work_in(main_container(dict(pod)))
    except UsageError:
        # Arguments that another version had; a retry refuses them.
        return None
    return None if work is None else work.list_sha256


def name_of(thing: Object) -> str:
    """The name of a Job, pod or the like."""
    return str((thing.get("metadata") or {}).get("name"))


def uid_of(thing: Object) -> str:
    """By which a Job or a pod differs from another one that had its name."""
    return str((thing.get("metadata") or {}).get("uid"))


def run_of(job: Object) -> str:
    """The run that a Job is of; its own name if it is of none."""
    return str(((job.get("metadata") or {}).get("labels") or {}).get(RUN) or name_of(job))


def state_of(job: Object) -> tuple[str, str, str]:
    """(state, reason, message): how a Job stands by its conditions; waiting if they say nothing."""
    for kinds in (_ENDINGS, dict.fromkeys(_ENDING_SOON, "ending")):
        for kind, state in kinds.items():
            condition = condition_of(job, kind)
            if condition is not None and condition.get("status") == "True":
                return state, str(condition.get("reason") or ""), str(condition.get("message") or "")
    if (job.get("spec") or {}).get("suspend"):
        return "suspended", "", ""
    return "waiting", "", ""


def condition_of(thing: Object, kind: str) -> Object | None:
    """The condition of a kind that a Job or pod has."""
    for condition in (thing.get("status") or {}).get("conditions") or []:
        if condition.get("type") == kind:
            return dict(condition)
    return None


def index_of(pod: Object) -> int | None:
    """The completion index of a pod; None if it has none."""
    metadata = pod.get("metadata") or {}
    text = str((metadata.get("labels") or {}).get(INDEX) or (metadata.get("annotations") or {}).get(INDEX) or "")
    return int(text) if text.isascii() and text.isdigit() else None


def container_statuses(pod: Object) -> list[Object]:
    """What a pod says of its containers; init containers come first, as they did."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def timestamp(text: str | None) -> float | None:
    """Seconds since 1970 of a time as the API writes it; None of none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _alive(status: Object, pods: Iterable[Object] | None) -> tuple[int, int]:
    """(running, pending) pods; without their list, those that are ready and those that are not."""
    active = int(status.get("active") or 0)
    if pods is None:
        ready = min(active, int(status.get("ready") or 0))
        return ready, active - ready
    # As in the Job's own status, a pod that is being ended is not active.
    staying = [pod for pod in pods if not (pod.get("metadata") or {}).get("deletionTimestamp")]
    phases = [(pod.get("status") or {}).get("phase") for pod in staying]
    return phases.count("Running"), phases.count("Pending")


def _end_of(status: Object) -> float | None:
    if status.get("completionTime"):
        return timestamp(status["completionTime"])
    for condition in status.get("conditions") or []:
        if condition.get("type") in ("Failed", "Complete") and condition.get("status") == "True":
            return timestamp(condition.get("lastTransitionTime"))
    return None


def _begin(job: Object, started: float) -> float:
    """Since when the indexes that have ended were worked on: startTime is set anew when a Job is resumed."""
    resumed = condition_of(job, "Suspended")
    created = timestamp((job.get("metadata") or {}).get("creationTimestamp"))
    return started if resumed is None or created is None else min(started, created)
