"""The Job controller's rules without a cluster: the state of a Job after each end of a pod.

Nothing here runs anything or looks at a clock: a runner reports what happened and when, and asks
which index to start. Source of the rules, reasons and messages: Kubernetes' pkg/controller/job
(``job_controller.go``, ``pod_failure_policy.go``, ``indexed_job_utils.go``, ``backoff_utils.go``)
of 1.33 and later.
"""

from __future__ import annotations

import copy
import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, UsageError, counted, printable
from tarkit.k8s.apiobject import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    next_stage_of,
    part_of,
    run_of,
    spec_of,
    stage_of,
)
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.wellknown import ELASTIC

_DEFAULT_BACKOFF_LIMIT = 6
_DOUBLINGS = 6
_MOST_PODS = 1_000_000
"""Largest number of pods of a Job that one run counts: some 100 bytes each."""


class Condition(NamedTuple):
    """The end of a Job.

    Attributes:
        type: Complete or Failed; reason and message have the words of Kubernetes.
    """

    type: str
    reason: str
    message: str


class LocalJob:
    """A Job, or a Pod as a Job of one pod: its document, and the fields that decide about its end.

    A Job that is not Indexed has numbered places instead of indexes.

    Attributes:
        per_index: backoffLimitPerIndex.
        restarts: a failed container is restarted in its pod (restartPolicy OnFailure).
        elastic: its number of indexes may change while it runs.
        uid: a new one for each run.
        where: kind and name, for messages.
        role: value of the label ``role`` of its pods, which elastic training jobs have.
        sidecars: its init containers, each as a Job of that container alone.
        stage, next_stage: of a Job of a verb with stages, its own stage and the next one.
    """

    def __init__(self, document: Object) -> None:
        self.name, self.is_pod, self.uid = name_of(document), document.get("kind") == "Pod", str(uuid4())
        self.where = f"{'Pod' if self.is_pod else 'Job'} {printable(self.name)}"
        self.namespace = str(part_of(document, "metadata").get("namespace") or "default")
        self.elastic = ELASTIC in annotations_of(document)
        self.stage, self.next_stage = stage_of(document), next_stage_of(document)
        self.run = run_of(document)
        self.spec = spec_of(document)
        self.template = document if self.is_pod else part_of(self.spec, "template")
        self.container: Object = (spec_of(self.template).get("containers") or [{}])[0]
        self.role = labels_of(self.template).get("role")
        self.restarts = spec_of(self.template).get("restartPolicy") == "OnFailure"
        self.rules: list[Object] = part_of(self.spec, "podFailurePolicy").get("rules") or []
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.completions, self.parallelism = self._whole("completions", 1), self._whole("parallelism", 1)
        self.per_index = self._whole("backoffLimitPerIndex", None)
        limit = _DEFAULT_BACKOFF_LIMIT if self.per_index is None else None
        if self.is_pod:
            limit = None if self.restarts else 0
        self.backoff_limit = self._whole("backoffLimit", limit)
        self.max_failed_indexes = self._whole("maxFailedIndexes", None)
        self.deadline = self._whole("activeDeadlineSeconds", None)
        endless = self.spec.get("completions") is None and (self.indexed or self.parallelism > 1)
        if endless or not 0 < self.completions <= _MOST_PODS or self.parallelism < 1:
            wanted = f"completions {self.spec.get('completions')} with parallelism {self.parallelism}"
            raise UsageError(f"{self.where}: {wanted} is not done here")
        self.sidecars = [self._beside(each) for each in spec_of(self.template).get("initContainers") or ()]

    def _beside(self, container: Object) -> LocalJob:
        found = copy.copy(self)
        found.container, found.sidecars = container, []
        return found

    def _whole(self, key: str, default: int | None) -> Any:
        value = self.spec.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return default if value is None else value
        raise UsageError(f"{self.where}: spec.{key} is {printable(repr(value))}, not a whole number")

    def is_before(self, other: LocalJob) -> bool:
        """Return True if another Job waits for this one: it has the next stage of the run."""
        return self.next_stage is not None and (self.run, self.next_stage) == (other.run, other.stage)

    def judge(self, pod: str, code: int) -> tuple[str, str]:
        """Return the action of the first rule that matches a failed pod, and FailJob's message.

        The action is Count if no rule matches. A rule on conditions never matches, since no pod is
        evicted here.
        """
        name = self.container.get("name")
        for number, rule in enumerate(self.rules):
            codes = part_of(rule, "onExitCodes")
            matches = codes and (code in codes.get("values", ())) == (codes.get("operator") == "In")
            if matches and codes.get("containerName") in (None, name):
                failed = f"Container {name} for pod {self.namespace}/{pod} failed with exit code {code}"
                return rule["action"], f"{failed} matching {rule['action']} rule at index {number}"
        return "Count", ""


@dataclass
class JobLedger:
    """One run of a Job: its waiting, running, done and failed indexes, and its end.

    Args:
        job: the Job with its rules.
        at_once: number of pods at once.
        retry_delay: seconds before the first retry; it doubles, up to 64 times as much.
    """

    job: LocalJob
    at_once: int
    retry_delay: float = 10.0
    done: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    failures: int = 0
    last_exit: dict[int, int] = field(default_factory=dict)
    outcome: Condition | None = None
    samples_lost: int = 0
    """Number of samples that came into its slices, if none came out and ``--allow-empty`` is not
    set.
    """

    def __post_init__(self) -> None:
        self.wanted: int = self.job.completions
        self._ready = list(range(self.wanted))
        self._due: dict[int, float] = {}
        self._counts: Counter[int] = Counter()
        self._began: float | None = None
        self._conclude()

    @property
    def exit_code(self) -> int:
        """Exit code: 0 complete, 3 complete without samples or with failed samples only, else 1.

        Failed samples give 3 only if every index has ended.
        """
        if self.outcome is not None and self.outcome.type == "Complete":
            return EXIT_SET_ASIDE if self.samples_lost else EXIT_OK
        over = len(self.done) + len(self.failed) >= self.wanted
        return EXIT_SET_ASIDE if over and set(self.last_exit.values()) <= {EXIT_OK, EXIT_SET_ASIDE} else EXIT_FAILED

    def summary(self) -> str:
        """Return a sentence about the end of the Job."""
        kind, reason, message = self.outcome or ("not finished", "the run was ended", "")
        done, failed = format_indexes(self.done), format_indexes(self.failed)
        parts = (
            f"{self.job.name}: {kind} ({reason}): done {len(self.done)} of {self.wanted}",
            f"completedIndexes {done}" if self.job.indexed and done else "",
            f"failedIndexes {failed}" if failed else "",
            counted(self.failures, "pod failed", "pods failed") if self.failures else "",
            message if kind == "Failed" else "",
            f"{self.samples_lost} samples came in, and none came out (exit code 3); if that is meant, make the Job "
            "with -- --allow-empty" if self.samples_lost else "",
        )  # fmt: skip
        return "; ".join(filter(None, parts))

    def take(self, now: float) -> int | None:
        """Return the lowest index that can start now, and mark it as running, or None."""
        if self._began is None:
            self._began = now
        if self.check(now) is not None or len(self.running) >= self.at_once:
            return None
        for index in [index for index, due in self._due.items() if due <= now]:
            heapq.heappush(self._ready, index)
            del self._due[index]
        if not self._ready:
            return None
        index = heapq.heappop(self._ready)
        self.running.add(index)
        return index

    def resize(self, number: int) -> None:
        """Set the number of indexes of an elastic Job.

        The caller ends the pods of the indexes above it.
        """
        # One that is still about to end begins again when it has ended.
        added = [index for index in range(self.wanted, number) if index not in self.running]
        self.wanted = self.at_once = number
        for indexes in (self.done, self.failed):
            indexes.intersection_update(range(number))
        self._due = {index: due for index, due in self._due.items() if index < number}
        self._ready = sorted([*(index for index in self._ready if index < number), *added])
        self._conclude()

    def check(self, now: float) -> Condition | None:
        """Return the condition in which the Job ended, or None; also ends it at its deadline."""
        deadline = self.job.deadline
        if self.outcome is None and deadline is not None and self._began is not None and now - self._began >= deadline:
            self.fail("DeadlineExceeded", "Job was active longer than specified deadline")
        return self.outcome

    def finish(self, index: int, pod: str, code: int, now: float) -> str:
        """Note that a pod ended by itself; return the action that was taken, "" if it succeeded."""
        job = self.job
        self.running.discard(index)
        self.last_exit[index] = code
        if not code:
            self.done.add(index)
            self._conclude()
            return ""
        action, message = job.judge(pod, code)
        if action == "Ignore":
            self._due[index] = now
            return action
        self.failures += 1
        self._counts[index] += 1
        self._due[index] = now + self.retry_delay * 2.0 ** min(self._counts[index] - 1, _DOUBLINGS)
        if action == "FailJob":
            self.fail("PodFailurePolicy", message)
        elif action == "FailIndex" or (job.per_index is not None and self._counts[index] > job.per_index):
            self.failed.add(index)
            del self._due[index]
        self._conclude()
        return action

    def stop(self, index: int) -> None:
        """Note that a pod ended because it was asked to: it neither succeeded nor failed."""
        self.running.discard(index)
        if index < self.wanted:
            heapq.heappush(self._ready, index)
        self._conclude()

    def _conclude(self) -> None:
        """End the Job if it is over, with the checks in the controller's order."""
        job = self.job
        if self.outcome is not None:
            return
        over = len(self.failed) + len(self.done) >= self.wanted
        failures, limit = self.failures, job.backoff_limit
        if job.restarts and limit is not None:
            # The restarts of pods that have not ended, which are to be fewer than the limit.
            failures, limit = sum(n for index, n in self._counts.items() if index not in self.done), max(limit - 1, 0)
        if limit is not None and failures > limit:
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif job.max_failed_indexes is not None and len(self.failed) > job.max_failed_indexes:
            self.fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        elif self.failed and over:
            self.fail("FailedIndexes", "Job has failed indexes")
        elif over:
            self.outcome = Condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")

    def fail(self, reason: str, message: str) -> None:
        """Mark the Job as failed: no more pods of it are started."""
        self.outcome = Condition("Failed", reason, message)
