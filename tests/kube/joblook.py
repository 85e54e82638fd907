"""One look at a Job: which of its pods have ended and how that counts, which indexes are next, how the Job will end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apistore import Json, stamp
from apitables import seconds_since
from jobpods import (
    failures_of,
    format_indexes,
    index_of,
    is_going,
    is_over,
    is_ready,
    is_tracked,
    match_policy,
    parse_indexes,
)

NEVER = float("inf")


@dataclass
class Failures:
    """How often an index (-1: a Job without per-index limits) failed, and when it did last."""

    counted: int = 0
    ignored: int = 0
    last: float = 0.0


@dataclass
class Memory:
    """What the controller knows of a Job beyond its status."""

    failed: dict[int, Failures] = field(default_factory=dict)
    refused: int = 0
    retry_at: float = 0.0
    fails_because: tuple[str, str] | None = None


@dataclass
class Look:
    """A Job, its pods, and the status that it is to get."""

    job: Json
    pods: list[Json]
    memory: Memory
    status: Json
    backoff: float
    due: float = NEVER

    @property
    def spec(self) -> Json:
        spec: Json = self.job["spec"]
        return spec

    @property
    def indexed(self) -> bool:
        return bool(self.spec["completionMode"] == "Indexed")

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def active(self) -> list[Json]:
        return [pod for pod in self.pods if not is_over(pod) and not is_going(pod)]

    @property
    def going(self) -> list[Json]:
        return [pod for pod in self.pods if is_going(pod)]

    @property
    def completed(self) -> set[int]:
        return {index for index in parse_indexes(self.status.get("completedIndexes", "")) if self.has(index)}

    @property
    def failed_indexes(self) -> set[int]:
        return {index for index in parse_indexes(self.status.get("failedIndexes", "")) if self.has(index)}

    def has(self, index: int) -> bool:
        """Whether it is an index of the Job: an elastic one that was made smaller has lost its last ones."""
        return not self.indexed or index < self.spec["completions"]

    @property
    def wanted(self) -> int:
        """How many pods are to be active."""
        done, parallelism = self.status.get("succeeded", 0), int(self.spec["parallelism"])
        if self.spec.get("completions") is None:
            return len(self.active) if done else parallelism
        return max(0, min(parallelism, self.spec["completions"] - done))

    def surplus(self, wanted: int) -> list[Json]:
        """Active pods that are to go: those beyond the last index, then as many as are too many."""
        beyond = [pod for pod in self.active if not self.has(index_of(pod))]
        rest = sorted(
            (pod for pod in self.active if self.has(index_of(pod))), key=lambda pod: (is_ready(pod), -index_of(pod))
        )
        return beyond + rest[: max(0, len(rest) - wanted)]

    def wake(self, when: float) -> None:
        self.due = min(self.due, when)

    def condition(self, kind: str) -> Json | None:
        found = [one for one in self.status.get("conditions", []) if one["type"] == kind and one["status"] == "True"]
        return found[0] if found else None

    def set(self, kind: str, reason: str, message: str, value: str = "True") -> None:
        """Adds or changes a condition."""
        now = stamp()
        conditions = self.status.setdefault("conditions", [])
        found = next((one for one in conditions if one["type"] == kind), None)
        if found is not None and found["status"] == value:
            return
        fresh = {"type": kind, "status": value, "reason": reason, "message": message}
        fresh.update(lastProbeTime=now, lastTransitionTime=now)
        if found is None:
            conditions.append(fresh)
        else:
            found.update(fresh)


def begin(look: Look, event: Callable[[Json, str, str], None]) -> None:
    """Start time, suspension and resumption, the deadline."""
    status, was_suspended = look.status, look.condition("Suspended")
    if look.suspended:
        if not was_suspended:
            look.set("Suspended", "JobSuspended", "Job suspended")
            event(look.job, "Suspended", "Job suspended")
        status.pop("startTime", None)
    elif was_suspended or not status.get("startTime"):
        status["startTime"] = stamp()
        if was_suspended:
            look.set("Suspended", "JobResumed", "Job resumed", "False")
            event(look.job, "Resumed", "Job resumed")
    deadline = look.spec.get("activeDeadlineSeconds")
    if deadline is not None and status.get("startTime"):
        left = deadline - seconds_since(status["startTime"])
        if left <= 0:
            look.memory.fails_because = ("DeadlineExceeded", "Job was active longer than specified deadline")
        else:
            look.wake(time.monotonic() + left)


def count(look: Look) -> list[Json]:
    """Every ended pod once: its finalizer says that it is still to count. Returns those counted now."""
    completed, failed = look.completed, look.failed_indexes
    replaces_early = look.spec["podReplacementPolicy"] == "TerminatingOrFailed"
    counted = []
    for pod in sorted(look.pods, key=index_of):
        phase, index = pod["status"].get("phase"), index_of(pod)
        if not is_tracked(pod):
            continue
        if phase == "Succeeded":
            look.memory.failed.pop(index if look.spec.get("backoffLimitPerIndex") is not None else -1, None)
            if not look.indexed:
                look.status["succeeded"] = look.status.get("succeeded", 0) + 1
            elif look.has(index):
                completed.add(index)
        elif phase == "Failed" or (is_going(pod) and (replaces_early or not pod["spec"].get("nodeName"))):
            if look.has(index):
                _count_failure(look, pod, index, failed)
        else:
            continue
        counted.append(pod)
    if look.indexed:
        look.status["completedIndexes"] = format_indexes(completed)
        look.status["succeeded"] = len(completed)
        if look.spec.get("backoffLimitPerIndex") is not None:
            look.status["failedIndexes"] = format_indexes(failed - completed)
    for key in ("completedIndexes", "succeeded"):
        if not look.status.get(key):
            look.status.pop(key, None)
    return counted


def _count_failure(look: Look, pod: Json, index: int, failed: set[int]) -> None:
    action, message = match_policy(look.job, pod) if is_over(pod) else ("Count", "")
    per_index: int | None = look.spec.get("backoffLimitPerIndex")
    before = look.memory.failed.setdefault(index if per_index is not None else -1, Failures())
    before.last = time.monotonic()
    if action == "Ignore":
        before.ignored += 1
        return
    look.status["failed"] = look.status.get("failed", 0) + 1
    before.counted += 1
    if action == "FailJob" and look.memory.fails_because is None:
        look.memory.fails_because = ("PodFailurePolicy", message)
    if per_index is not None and (action == "FailIndex" or failures_of(pod) >= per_index):
        failed.add(index)


def verdict(look: Look) -> tuple[str, str, str] | None:
    """FailureTarget or SuccessCriteriaMet with reason and message, once it is known how the Job will end."""
    for kind in ("FailureTarget", "SuccessCriteriaMet"):
        earlier = look.condition(kind)
        if earlier:
            return kind, earlier["reason"], earlier["message"]
    spec, failed = look.spec, look.failed_indexes
    wanted: Any = spec.get("completions")
    if look.memory.fails_because:
        return ("FailureTarget", *look.memory.fails_because)
    if look.status.get("failed", 0) > spec["backoffLimit"]:
        return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if spec.get("maxFailedIndexes") is not None and len(failed) > spec["maxFailedIndexes"]:
        said = "Job has exceeded the specified maximal number of failed indexes"
        return "FailureTarget", "MaxFailedIndexesExceeded", said
    if look.indexed and failed and len(failed | look.completed) >= wanted:
        return "FailureTarget", "FailedIndexes", "Job has failed indexes"
    done = look.status.get("succeeded", 0)
    if (wanted is not None and done >= wanted) or (wanted is None and done and not look.active):
        return "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def wanted_indexes(look: Look, held: list[Json], room: int, now: float) -> list[int]:
    """The indexes to make pods for now: the lowest ones whose delay after a failure is over; -1 without indexes."""
    per_index = look.spec.get("backoffLimitPerIndex") is not None
    if not per_index and _delayed(look, -1, now):
        return []
    if not look.indexed:
        wanted = look.spec.get("completions")
        done = look.status.get("succeeded", 0)
        left = room if wanted is None else min(room, wanted - done - len(held))
        return [] if wanted is None and done else [-1] * max(0, left)
    taken = look.completed | look.failed_indexes | {index_of(pod) for pod in held}
    found: list[int] = []
    for index in range(look.spec["completions"]):
        if len(found) >= room:
            break
        if index not in taken and not (per_index and _delayed(look, index, now)):
            found.append(index)
    return found


def _delayed(look: Look, index: int, now: float) -> bool:
    """A while after a failure, doubling; with the real controller's 10 s that ends at 10 minutes."""
    failures = look.memory.failed.get(index)
    if failures is None or not failures.counted + failures.ignored:
        return False
    times = failures.counted + failures.ignored
    ready = failures.last + look.backoff * min(60, 2 ** (times - 1))
    if ready <= now:
        return False
    look.wake(ready)
    return True
