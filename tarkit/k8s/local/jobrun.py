"""One Job of a run on this machine: its pods, and how far it is, as the API reports it; and the result of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE
from tarkit.k8s.apiobject import time_text
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.local.kubelet import LocalPod
from tarkit.k8s.local.policy import JobLedger


class JobRun:
    """One Job of the run: its ledger, and its pods that are alive, by index. samples_lost: how many samples came into
    its slices, if none came out of all of them and that is not meant."""

    def __init__(self, ledger: JobLedger) -> None:
        self.job = ledger.job
        self.ledger = ledger
        self.pods: dict[int, LocalPod] = {}
        self.began: float | None = None
        self.ended: float | None = None
        self.samples_lost = 0

    @property
    def exit_code(self) -> int:
        """0 if it is complete, or 3 if no sample came out; 3 if it failed only since samples were set aside, and every
        index came to its end."""
        outcome = self.ledger.outcome
        if outcome is not None and outcome.type == "Complete":
            return EXIT_SET_ASIDE if self.samples_lost else EXIT_OK
        set_aside = set(self.ledger.last_exit.values()) == {EXIT_SET_ASIDE} and not self.ledger.left
        return EXIT_SET_ASIDE if set_aside else EXIT_FAILED

    def status(self) -> dict[str, Any]:
        """As the API's JobStatus."""
        ledger, outcome = self.ledger, self.ledger.outcome
        status: dict[str, Any] = {
            "startTime": time_text(self.began), "active": len(ledger.running), "succeeded": len(ledger.done),
            "failed": ledger.failures,
        }  # fmt: skip
        if self.job.indexed:
            status["completedIndexes"] = format_indexes(ledger.done)
        if self.job.per_index is not None:
            status["failedIndexes"] = format_indexes(ledger.failed)
        if outcome is not None:
            first = "FailureTarget" if outcome.type == "Failed" else "SuccessCriteriaMet"
            end = {"lastTransitionTime": time_text(self.ended), "reason": outcome.reason, "message": outcome.message}
            status["conditions"] = [{"type": kind, "status": "True", **end} for kind in (first, outcome.type)]
            if outcome.type == "Complete":
                status["completionTime"] = time_text(self.ended)
        return {key: value for key, value in status.items() if value is not None}


class LocalResult(NamedTuple):
    """The end of a run. logs: their folder. interrupted: it was stopped before all was over."""

    jobs: Sequence[JobRun]
    logs: str
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """0 if all Jobs are complete, 3 if all that failed did so with 3, else 1."""
        codes = {job.exit_code for job in self.jobs} - {EXIT_OK}
        return codes.pop() if len(codes) == 1 else EXIT_FAILED if codes else EXIT_OK
