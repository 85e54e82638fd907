"""What is known of a Job that runs, or ran, on this machine, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.local.plan import Work
from tarkit.k8s.local.pod import LocalPod
from tarkit.k8s.local.policy import JobLedger


@dataclass(frozen=True)
class PodFailure:
    """A pod that failed. action: what became of it: Count, FailIndex ... log: path. message: the end of the log."""

    job: str
    index: int
    attempt: int
    exit_code: int
    reason: str
    action: str
    log: str
    message: str


class JobRun:
    """One Job of the run: its ledger, and its pods that are alive."""

    def __init__(self, work: Work, ledger: JobLedger) -> None:
        self.work = work
        self.ledger = ledger
        self.pods: dict[int, tuple[LocalPod, int]] = {}
        self.began: float | None = None
        self.ended: float | None = None

    @property
    def set_aside_only(self) -> bool:
        """Whether all that it failed by is samples that were set aside, and every index came to its end."""
        codes = self.ledger.last_exit.values()
        return bool(codes) and set(codes) == {EXIT_SET_ASIDE} and not self.ledger.waiting

    def status(self) -> dict[str, Any]:
        """As the API's JobStatus."""
        ledger = self.ledger
        status: dict[str, Any] = {
            "startTime": _stamp(self.began),
            "active": len(ledger.running),
            "succeeded": len(ledger.done),
            "failed": ledger.failures,
        }
        if ledger.rules.indexed:
            status["completedIndexes"] = format_indexes(ledger.done)
        if ledger.rules.per_index is not None:
            status["failedIndexes"] = format_indexes(ledger.failed)
        if ledger.outcome is not None:
            first = "FailureTarget" if ledger.outcome.type == "Failed" else "SuccessCriteriaMet"
            status["conditions"] = [
                {
                    "type": kind,
                    "status": "True",
                    "lastTransitionTime": _stamp(self.ended),
                    "reason": ledger.outcome.reason,
                    "message": ledger.outcome.message,
                }
                for kind in (first, ledger.outcome.type)
            ]
            if ledger.outcome.type == "Complete":
                status["completionTime"] = _stamp(self.ended)
        return {key: value for key, value in status.items() if value is not None}


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Result:
    """The end of a run. logs: their folder. interrupted: it was told to stop before all was over."""

    jobs: Sequence[JobRun]
    logs: str
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """0 if all Jobs are complete, 3 if all that failed did so with 3, else 1."""
        bad = [job for job in self.jobs if job.ledger.outcome is None or job.ledger.outcome.type != "Complete"]
        if not bad:
            return EXIT_OK
        return EXIT_SET_ASIDE if all(job.set_aside_only for job in bad) else EXIT_FAILED


class Reporter(Protocol):
    """Who is told what happens."""

    def note(self, text: str) -> None:
        """A sentence on what is other than in a cluster."""

    def pod_failed(self, failure: PodFailure) -> None:
        """A pod failed."""

    def progress(self, jobs: Sequence[JobRun]) -> None:
        """Called often."""
