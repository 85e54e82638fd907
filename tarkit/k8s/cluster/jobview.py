"""View of a Job's own status: its state, its indexes by state, the time left, its shards.

The states of a Job, in ``status``, ``wait``, ``cancel``, ``scale`` and ``retry``:

- ``complete``: it has ended; its condition ``Complete`` is true.
- ``failed``: it has ended; its condition ``Failed`` is true.
- ``ending``: its result is certain (``SuccessCriteriaMet``, ``FailureTarget``), but its last pods
  still exist.
- ``suspended``: ``spec.suspend`` is set, by ``kubetpl cancel``, by a queue, or by hand.
- ``running``: one of its pods runs.
- ``waiting``: none of these; no pod runs yet.

The states of an index: ``done`` (its pod succeeded), ``failed`` (its retries are used up),
``running`` (its pod runs), ``pending`` (its pod does not run yet), ``left`` (none of these). The
sums over a run's Jobs have two more states: ``retried`` (failed or suspended, and a later Job
counts instead), ``deleted`` (removed before it had ended). The states of a shard are those of its
done record (``tarkit.runs.status``): done, missing, stale, failed.

Source of the fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tarkit.errors import UsageError
from tarkit.k8s import apiobject as api
from tarkit.k8s.apiobject import Object
from tarkit.k8s.podfields import main_container, work_in
from tarkit.k8s.wellknown import INPUTS, LIST, OUTDIR, SERVICE, SHARDS

ENDED = ("complete", "failed")
"""The states in which no pod of a Job will run again."""
_BY_CONDITION = {"Complete": "complete", "Failed": "failed", "SuccessCriteriaMet": "ending", "FailureTarget": "ending"}


@dataclass(frozen=True)
class JobPlan:
    """Inputs, outputs and slices of a Job, from its annotations; None if they are missing.

    Attributes:
        inputs: shard specs as passed to tarproc.
        list_name: name of the ConfigMap that holds them.
        list_sha256: SHA-256 by which its pods recognize their list.
    """

    shards: int | None = None
    outdir: str | None = None
    inputs: tuple[str, ...] | None = None
    list_name: str | None = None
    list_sha256: str | None = None


@dataclass(frozen=True)
class JobView:
    """A Job in numbers.

    Attributes:
        state: a state of the table above.
        total: number of indexes, None if the Job has no fixed number.
        done, failed, running, pending, left: numbers of indexes.
        ending: number of pods that were asked to end, and have not ended yet.
    """

    name: str
    state: str
    reason: str
    message: str
    total: int | None
    done: int
    failed: int
    running: int
    pending: int
    left: int
    seconds: float | None
    seconds_left: float | None
    run: str
    ending: int = 0

    @property
    def is_service(self) -> bool:
        """Return True if the Job is the shard service of an elastic training job."""
        return bool(self.run) and self.name == f"{self.run}-{SERVICE}"

    @property
    def finished(self) -> bool:
        """Return True if no pod of the Job will run again."""
        return self.state in ENDED


def job_view(job: Object, pods: Iterable[Object] | None, now: float) -> JobView:
    """Return the view of a Job from the objects of the API.

    Args:
        pods: pods of the Job; None if they may not be read.
    """
    spec, status = api.spec_of(job), api.status_of(job)
    total = spec.get("completions")
    indexed = spec.get("completionMode") == "Indexed"
    state, condition = _decided(job)
    failed = len(api.indexes_of(job, "failedIndexes"))
    done = len(api.indexes_of(job, "completedIndexes")) if indexed else int(status.get("succeeded") or 0)
    if not indexed and state == "failed" and total is not None:
        failed = total - done
    running, pending, ending = _alive(job, pods)
    started = api.timestamp(status.get("startTime"))
    ended = api.timestamp(condition.get("lastTransitionTime")) if state in ENDED else None
    seconds = None if started is None else max(0.0, (ended or now) - _begin(job, started))
    over = done + failed
    held = state != "waiting" or spec.get("parallelism") == 0
    to_do = 0 if total is None or held else total - over
    return JobView(
        name=api.name_of(job), state="running" if state == "waiting" and running else state,
        reason=str(condition.get("reason") or ""), message=str(condition.get("message") or ""), total=total, done=done,
        failed=failed, running=running, pending=pending,
        left=0 if total is None else max(0, total - over - running - pending),
        seconds=seconds, seconds_left=to_do * seconds / over if to_do and over and seconds else None,
        run=api.run_of(job), ending=ending,
    )  # fmt: skip


def state_of(job: Object) -> str:
    """Return the state of a Job by its conditions alone, so that waiting counts as running."""
    return _decided(job)[0]


def _decided(job: Object) -> tuple[str, Object]:
    """Return the state of a Job, and the condition that decides it (empty if there is none)."""
    for kind, state in _BY_CONDITION.items():
        if api.is_true(job, kind):
            return state, api.condition_of(job, kind) or {}
    return "suspended" if api.spec_of(job).get("suspend") else "waiting", {}


def has_ended(job: Object) -> bool:
    """Return True if no pod of the Job will run again."""
    return state_of(job) in ENDED


def job_plan(job: Object) -> JobPlan:
    """Return the plan from a Job's annotations and arguments."""
    notes = api.annotations_of(job)
    try:
        inputs = None if INPUTS not in notes else tuple(json.loads(notes[INPUTS]))
        if inputs is not None and not all(isinstance(each, str) for each in inputs):
            raise ValueError
        shards = int(notes[SHARDS]) if SHARDS in notes else None
    except (ValueError, TypeError):
        raise UsageError(
            f"Job {api.name_of(job)}: the annotations {INPUTS}, {SHARDS} are not as kubetpl writes them"
        ) from None
    work = None
    # Arguments that another version had are refused by a retry.
    with suppress(UsageError):
        work = work_in(main_container(api.part_of(job, "spec", "template", "spec")))
    sha256 = None if work is None else work.list_sha256
    return JobPlan(shards, notes.get(OUTDIR), inputs, notes.get(LIST), sha256)


def _alive(job: Object, pods: Iterable[Object] | None) -> tuple[int, int, int]:
    """Return the numbers of pods that are running, pending and ending.

    Without a list of the pods, ready pods count as running and others as pending. As in the Job's
    own status, a pod that is being deleted is not active.
    """
    if pods is None:
        active, status = api.active_pods(job), api.status_of(job)
        ready = min(active, int(status.get("ready") or 0))
        return ready, active - ready, int(status.get("terminating") or 0)
    asked = [(api.phase_of(pod), bool(api.part_of(pod, "metadata").get("deletionTimestamp"))) for pod in pods]
    ending = asked.count(("Running", True)) + asked.count(("Pending", True))
    return asked.count(("Running", False)), asked.count(("Pending", False)), ending


def _begin(job: Object, started: float) -> float:
    """Return the time since which the ended indexes were processed.

    It is not the startTime, which is reset when a Job is resumed.
    """
    first = api.timestamp(api.created(job))
    return started if api.condition_of(job, "Suspended") is None or first is None else min(started, first)
