"""What becomes of a Job when one of its pods ends: the Job controller's rules, without a cluster.

Nothing here runs anything or looks at a clock: a runner tells what happened and when, and asks what
is to be started. Source of the rules, reasons and messages: Kubernetes' pkg/controller/job
(``job_controller.go``, ``pod_failure_policy.go``, ``indexed_job_utils.go``, ``backoff_utils.go``) of 1.33
and later, and the fields of batch/v1 JobSpec."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.k8s.apiobject import Object, part_of, spec_of
from tarkit.k8s.wellknown import TRAINERS

_DEFAULT_BACKOFF_LIMIT = 6
_DOUBLINGS = 6
_MOST_PLACES = 1_000_000
"""Pods of a Job that one run keeps count of: some 100 bytes each."""


class Action(Enum):
    """What the end of a pod means. RESTART: its containers are started again in the same pod."""

    SUCCEEDED = "Succeeded"
    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"
    RESTART = "Restart"


class Condition(NamedTuple):
    """How a Job ended. type: Complete or Failed; reason and message as Kubernetes words them."""

    type: str
    reason: str
    message: str


class PodEnd(NamedTuple):
    """A pod that ended. exit_codes: by container, init containers last. conditions: types of those that are True.
    over_time: its own activeDeadlineSeconds have passed, so its containers are not restarted."""

    pod: str
    exit_codes: Mapping[str, int]
    conditions: Collection[str] = ()
    over_time: bool = False

    @property
    def exit_code(self) -> int:
        """Of the first container that failed, or 0."""
        return next((code for code in self.exit_codes.values() if code), 0)


class LocalJob:
    """A Job, or a Pod as a Job of one: its spec, and the fields that decide how it ends, with the API's defaults.
    completions: None is a work queue, which any pod that succeeds ends. per_index: backoffLimitPerIndex. restarts:
    containers are restarted in their pods (restartPolicy OnFailure). template: of its pods. elastic: it may be given
    another number of indexes while it runs."""

    def __init__(
        self, name: str, spec: Object, namespace: str = "default", *, is_pod: bool = False, elastic: bool = False
    ) -> None:
        self.name, self.spec, self.namespace, self.is_pod, self.elastic = name, spec, namespace, is_pod, elastic
        self.template = part_of(spec, "template")
        self.rules: list[Object] = part_of(spec, "podFailurePolicy").get("rules") or []
        self._refuse_unknown_word(spec, "completionMode", "Indexed", "NonIndexed")
        self._refuse_unknown_word(spec_of(self.template), "restartPolicy", "Never", "OnFailure", "Always")
        for rule in self.rules:
            self._refuse_unknown_word(rule, "action", "Count", "FailIndex", "FailJob", "Ignore")
            self._refuse_unknown_word(part_of(rule, "onExitCodes"), "operator", "In", "NotIn")
        self.indexed = spec.get("completionMode") == "Indexed"
        self.restarts = spec_of(self.template).get("restartPolicy") in ("OnFailure", "Always")
        self.completions, parallelism = self._whole("completions"), self._whole("parallelism")
        self.parallelism = 1 if parallelism is None else parallelism
        self.backoff_limit, self.per_index = self._whole("backoffLimit"), self._whole("backoffLimitPerIndex")
        self.max_failed_indexes, self.deadline = self._whole("maxFailedIndexes"), self._whole("activeDeadlineSeconds")
        if self.indexed and self.completions is None:
            raise UsageError(f"Job {printable(name)}: completionMode Indexed needs spec.completions (--slices)")
        if self.per_index is not None and not self.indexed:
            raise UsageError(f"Job {printable(name)}: backoffLimitPerIndex needs completionMode: Indexed")
        if self.completions is None and parallelism is None:
            self.completions = 1
        if self.backoff_limit is None and self.per_index is None:
            self.backoff_limit = _DEFAULT_BACKOFF_LIMIT

    def _refuse_unknown_word(self, fields: Object, key: str, *words: str) -> None:
        """Refuse a word that a server does not know, of which the rest would be followed in another sense."""
        if fields.get(key) not in (None, "", *words):
            wrong = f"{printable(repr(fields[key]))} is not one of {', '.join(words)}"
            raise UsageError(f"Job {printable(self.name)}: {key}: {wrong}")

    def _whole(self, key: str) -> int | None:
        value = self.spec.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        wrong = f"spec.{key} is {printable(repr(value))}; it must be a whole number"
        raise UsageError(f"Job {printable(self.name)}: {wrong}")

    @property
    def container(self) -> Object:
        """The one of its pods."""
        container: Object = spec_of(self.template)["containers"][0]
        return container

    @property
    def trains(self) -> bool:
        """Whether its pods take shards of a shard service."""
        return part_of(self.template, "metadata", "labels").get("role") in TRAINERS

    def judge(self, end: PodEnd) -> tuple[Action, str]:
        """What the first rule that matches says of a failed pod; with the message where it fails the Job."""
        for number, rule in enumerate(self.rules):
            what = self._matched(rule, end)
            if what is None:
                continue
            action = Action(rule.get("action") or "Count")
            # Without limits per index no index to fail: the API refuses such a Job.
            if action is Action.FAIL_INDEX and self.per_index is None:
                continue
            return action, f"{what} matching {action.value} rule at index {number}"
        return Action.COUNT, ""

    def _matched(self, rule: Object, end: PodEnd) -> str | None:
        if codes := rule.get("onExitCodes"):
            values = codes.get("values") or ()
            for container, code in end.exit_codes.items():
                wanted = codes.get("containerName") in (None, container)
                if wanted and code and (code in values) == (codes.get("operator") == "In"):
                    return f"Container {container} for pod {self.namespace}/{end.pod} failed with exit code {code}"
            return None
        for condition in rule.get("onPodConditions") or ():
            if condition.get("type") in end.conditions and (condition.get("status") or "True") == "True":
                return f"Pod {self.namespace}/{end.pod} has condition {condition.get('type')}"
        return None


@dataclass
class JobLedger:
    """One run of a Job: which indexes are to be started, run, are done or failed, and how it ended.

    Jobs that are not Indexed have numbered places instead of indexes, so that all is one.

    Args:
        job: what decides. parallelism: pods at once, instead of the Job's.
        retry_delay: seconds before the first retry; it doubles, up to 64 times as much.
        only: the indexes to run; None means all.
        done_before: indexes that are complete, from an earlier run.
    """

    job: LocalJob
    parallelism: int | None = None
    retry_delay: float = 10.0
    only: Collection[int] | None = None
    done_before: Collection[int] = ()
    done: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    failures: int = 0
    last_exit: dict[int, int] = field(default_factory=dict)
    outcome: Condition | None = None
    leaving: set[int] = field(default_factory=set)
    """Those that run and are to be ended, since the Job was made smaller; they may be wanted again meanwhile."""

    def __post_init__(self) -> None:
        job = self.job
        self.at_once = job.parallelism if self.parallelism is None else self.parallelism
        places = range(self.at_once if job.completions is None else job.completions)
        if self.only is None and len(places) > _MOST_PLACES:
            raise UsageError(
                f"Job {printable(job.name)}: {len(places):,} pods are too many for one machine; run some of "
                "them: --index 0-99"
            )
        chosen = sorted(places if self.only is None else set(self.only))
        if self.only is not None and (not job.indexed or not chosen or chosen[-1] not in places):
            why = f"has indexes 0-{len(places) - 1}" if job.indexed else "is not Indexed, so it has no indexes"
            raise UsageError(f"Job {printable(job.name)} {why}; correct --index")
        self.wanted = len(chosen)
        self.done.update(set(self.done_before).intersection(chosen))
        self._fresh = deque(index for index in chosen if index not in self.done)
        self._due: dict[int, float] = {}
        self._counts: Counter[int] = Counter()
        self._restarts: Counter[int] = Counter()
        self._in_a_row = 0
        self._held_until = float("-inf")
        self._began: float | None = None
        self._conclude()

    @property
    def left(self) -> int:
        """How many indexes are neither done, failed, nor running."""
        return self.wanted - len(self.done) - len(self.failed) - len(self.running - self.leaving)

    def take(self, now: float) -> int | None:
        """The lowest index that is to be started now, if there is room; from here on it runs."""
        if self._began is None:
            self._began = now
        self.check(now)
        queue_is_done = self.job.completions is None and self.done
        full = len(self.running) >= self.at_once
        if self.outcome is not None or full or queue_is_done or now < self._held_until:
            return None
        ripe = min((index for index, due in self._due.items() if due <= now), default=None)
        if ripe is not None and (not self._fresh or ripe < self._fresh[0]):
            del self._due[ripe]
            index = ripe
        elif self._fresh:
            index = self._fresh.popleft()
        else:
            return None
        self.running.add(index)
        return index

    def resize(self, number: int) -> None:
        """Have so many indexes from now on, as an elastic Job does; the caller ends those that are ``leaving``."""
        # One that is still about to end begins again when it has ended.
        added = (index for index in range(self.wanted, number) if index not in self.running)
        self.wanted = self.at_once = number
        self.leaving |= {index for index in self.running if index >= number}
        for indexes in (self.done, self.failed):
            indexes.intersection_update(range(number))
        self._due = {index: due for index, due in self._due.items() if index < number}
        self._fresh = deque([*(index for index in self._fresh if index < number), *added])
        self._conclude()

    def check(self, now: float) -> Condition | None:
        """How the Job ended, if it did; also looks whether its time is up."""
        deadline = self.job.deadline
        if self.outcome is None and deadline is not None and self._began is not None and now - self._began >= deadline:
            self._fail("DeadlineExceeded", "Job was active longer than specified deadline")
        return self.outcome

    def finish(self, index: int, end: PodEnd, now: float) -> Action:
        """A pod ended by itself. RESTART: it is to be started again in its place, after ``restart_delay``."""
        if not end.exit_code:
            self.running.discard(index)
            self.done.add(index)
            self.last_exit.pop(index, None)
            self._in_a_row = 0
            self._conclude()
            return Action.SUCCEEDED
        self.last_exit[index] = end.exit_code
        if self.job.restarts and not end.over_time:
            return self._restarted(index)
        self.running.discard(index)
        self._restarts.pop(index, None)
        action, message = self.job.judge(end)
        if action is Action.IGNORE:
            self._due[index] = now
            return action
        self.failures += 1
        if action is Action.FAIL_JOB:
            self._fail("PodFailurePolicy", message)
        self._count(index, action, now)
        self._conclude()
        return action

    def stop(self, index: int) -> None:
        """A pod was ended because its Job ended, or the run, or it is ``leaving``: it is neither done nor failed."""
        if index in self.running:
            self.running.discard(index)
            self.failures += self.outcome is not None
            if index in self.leaving:
                self.leaving.discard(index)
                self._fresh.extend([index] if index < self.wanted else [])
            self._conclude()

    def restart_delay(self, index: int) -> float:
        """Seconds before containers of this pod are started again."""
        return self._delay(self._restarts[index] or 1)

    def _restarted(self, index: int) -> Action:
        self._restarts[index] += 1
        limit = None if self.job.is_pod else self.job.backoff_limit
        restarts = sum(self._restarts[each] for each in self.running)
        if limit is not None and restarts >= max(limit, 1):
            self.running.discard(index)
            self.failures += 1
            self._fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
            return Action.COUNT
        return Action.RESTART

    def _count(self, index: int, action: Action, now: float) -> None:
        """A failure counts: for its index where limits are per index, for the Job where not."""
        self._counts[index] += 1
        if self.job.per_index is not None:
            if action is Action.FAIL_INDEX or self._counts[index] > self.job.per_index:
                self.failed.add(index)
                return
            self._due[index] = now + self._delay(self._counts[index])
        else:
            self._in_a_row += 1
            self._due[index] = self._held_until = now + self._delay(self._in_a_row)

    def _delay(self, failures: int) -> float:
        return self.retry_delay * 2.0 ** min(failures - 1, _DOUBLINGS)

    def _conclude(self) -> None:
        """Whether the Job is over, in the order in which the controller asks."""
        job = self.job
        if self.outcome is not None:
            return
        over = len(self.failed) + len(self.done) >= self.wanted
        if job.backoff_limit is not None and self.failures > job.backoff_limit:
            self._fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif job.max_failed_indexes is not None and len(self.failed) > job.max_failed_indexes:
            self._fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        elif self.failed and over:
            self._fail("FailedIndexes", "Job has failed indexes")
        elif over or (job.completions is None and self.done and not self.running):
            self.outcome = Condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")

    def _fail(self, reason: str, message: str) -> None:
        self.outcome = Condition("Failed", reason, message)
