"""Status of an exchange whose work folder is still there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from tarkit.errors import DataError, MissingInputError, counted
from tarkit.exchange.plan import WORK, read_plan
from tarkit.exchange.stagefiles import MARK_FILES, RUN_FILES, StageState
from tarkit.exchange.workfolder import entries_of
from tarkit.names.url import display_name, join
from tarkit.runs.runrecord import is_run_record, read_run_record

_STAGES = {"scatter": RUN_FILES, "match": MARK_FILES}


class WorkStatus(NamedTuple):
    """The stages of an exchange before the gather.

    Attributes:
        work: URL of the work folder, without secrets.
        step: name of the verb.
        slices: number of slices.
        stages: name of each stage that has begun -> state of its files.
    """

    work: str
    step: str
    slices: int
    stages: dict[str, StageState]

    def lines(self) -> list[str]:
        """Return a line for each failed slice, and one for the exchange."""
        states = self.stages.items()
        failed = [
            f"failed slice {number} of {stage}: {error}"
            for stage, state in states
            for number, error in state.failed.items()
        ]
        found = ", ".join(
            f"{stage} {self.slices - len(state.missing)} of {counted(self.slices, 'slice')} done"
            + (f" (missing {state.shown()})" if state.missing else "")
            for stage, state in states
        )
        return [*failed, f"{self.step} in {self.work}: {found or 'no slice has begun'}"]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        stages = {name: state._asdict() for name, state in self.stages.items()}
        return {"work": self.work, "step": self.step, "slices": self.slices, "stages": stages}


def work_status(folder: str) -> WorkStatus | None:
    """Return the status of an exchange, or None if no exchange is in progress.

    Args:
        folder: path or URL of the folder of its outputs, with the work folder in it; or of the work
            folder.

    Raises:
        StreamError, TemporaryStreamError: a record cannot be read.
    """
    for work in (join(folder, WORK), folder):
        with suppress(DataError):  # a file of this name that is not a plan
            if (plan := read_plan(work)) is not None:
                begun = list[object]()
                for entry in entries_of(work):
                    if is_run_record(entry.name):
                        with suppress(DataError, MissingInputError):
                            begun.append(read_run_record(entry).inputs)
                stages = {
                    name: files.state(plan, work) for name, files in _STAGES.items() if files.names(plan) in begun
                }
                return WorkStatus(display_name(work), str(plan.request.get("step")), plan.slices, stages)
    return None
