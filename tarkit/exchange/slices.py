"""One slice of one stage of an exchange, as a pod of a cluster runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import takewhile
from typing import TypeVar

from tarkit.errors import MissingInputError, TemporaryStreamError, counted
from tarkit.exchange.earlieroutputs import earlier_outputs
from tarkit.exchange.exchange import Exchange, Result, SlicesFailedError
from tarkit.exchange.plan import Plan, check_plan, make_plan, read_plan
from tarkit.exchange.stagefiles import RUN_FILES, StageFiles
from tarkit.exchange.workfolder import remove_work
from tarkit.names.outputnames import done_record_url
from tarkit.runs.donerecord import DoneRecord
from tarkit.specs.shardspec import take_slice
from tarkit.store.entries import entries

LOOK_SOON, LOOK_EVERY = 0.5, 30.0
"""Seconds between two looks for what another process has to make first: the pause doubles, since a
plan is there soon.
"""

T = TypeVar("T")


class ExchangeSlice(Exchange):
    """An exchange of which this process runs slices, and other processes the others.

    All processes have the same arguments, and the same work folder.

    Attributes:
        wait: seconds to wait for what other processes make.
        sleep: function that waits for some seconds.
        clock: function that returns seconds since any time.
    """

    wait: float = 0.0
    sleep: Callable[[float], object] = staticmethod(time.sleep)
    clock: Callable[[], float] = staticmethod(time.monotonic)

    def scatter(self, number: int, slices: int) -> Result:
        """Scatter one slice of the inputs.

        Slice 0 makes the plan; the others wait for it.

        Args:
            number: number of the slice, from 0.
            slices: number of slices.

        Raises:
            TemporaryStreamError: there is no plan yet.
            SlicesFailedError: an input cannot be read.
            UsageError: a folder has the run files or shards of another exchange.
        """
        plan = self._plan_of_scatter(number, slices)
        # With fewer inputs than slices, the last slices have none.
        numbers = range(number, min(number + 1, plan.slices))
        mem = self.mem * self.parallel
        return self._made(plan, RUN_FILES, numbers, lambda each: self._scatter(plan, each, mem))

    def _plan_of_scatter(self, number: int, slices: int) -> Plan:
        """Return the plan, which slice 0 makes."""
        if number:
            return self._waited(self._own_plan, "slice 0 has not made the plan yet")
        fresh = make_plan(self.request, self.urls, slices=slices, mem=self.mem * self.parallel)
        plan = self._plan_to_resume(fresh)
        self._check_outputs(fresh)
        if plan is None:
            plan = self._agreed_plan(fresh)
        self._publish_names(plan, RUN_FILES)
        return plan

    def _check_outputs(self, fresh: Plan) -> None:
        """Check that the folder of the outputs has none of another run."""
        self._check_folder(fresh, earlier_outputs(self.outdir, self.outputs))

    def gather(self, number: int, slices: int) -> Result:
        """Make one slice of the outputs.

        The process that makes the last output removes the run files.

        Args:
            number: number of the slice, from 0.
            slices: number of slices.

        Raises:
            TemporaryStreamError: slices of the scatter are missing, or have failed.
            TarkitError: the errors of :meth:`run`.
        """
        try:
            return self._gather_slice(number, slices)
        except MissingInputError:
            # Another process may finish the exchange at any time, and remove the run files.
            if (found := self._gathered_before(number, slices)) is None:
                raise
            return found

    def _gather_slice(self, number: int, slices: int) -> Result:
        def looked(found: T | None) -> T | None:
            if found is None and self._gathered_before(number, slices) is not None:
                raise MissingInputError("another process has finished the exchange", url=self.work)
            return found

        plan = self._waited(lambda: looked(self._own_plan()), "slice 0 of the scatter has not made the plan yet")
        self._check_folder(plan, earlier_outputs(self.outdir, self.outputs))
        runs = self._waited(lambda: looked(self._all_made(plan, RUN_FILES)), lambda: self._why_not_scattered(plan))
        scattered = self._scattered(runs)
        cuts = scattered.cuts(self.outputs)
        outputs = take_slice(cuts.count, number, slices)
        if cuts.count and not outputs:
            # The others may remove the run files at any time.
            return Result(cuts.count)
        # A slice with outputs checks a part of the keys, before run files can be removed.
        part, parts = (number, slices) if slices <= cuts.count else (outputs.start, max(1, cuts.count))
        self._check_keys(scattered, part, parts, 1)
        result = self._gather(plan, scattered, cuts, outputs)
        names = {entry.name for entry in entries(self.outdir)}
        everything = range(cuts.count)
        # Without outputs, the other slices could not know that all is done.
        if (
            (everything or slices == 1)
            and all(done_record_url(self.outputs.name(each)) in names for each in everything)
            and all(self._records(plan, everything))
        ):
            remove_work(self.work)
        return result

    def _gathered_before(self, number: int, slices: int) -> Result | None:
        """Return the result of this slice if it is done, and the run files are gone."""
        if read_plan(self.work) is not None:
            return None
        runs = earlier_outputs(self.outdir, self.outputs).runs
        # The id of a plan does not depend on its slices, but on the inputs as they are now.
        plan = make_plan(self.request, self.urls, slices=slices, mem=self.mem) if runs else None
        return self._finished(plan, runs, number, slices) if plan else None

    def _own_plan(self) -> Plan | None:
        plan = read_plan(self.work)
        if plan is not None:
            check_plan(plan, self.work, self.request, self.urls)
        return plan

    def _made(self, plan: Plan, files: StageFiles, numbers: range, make: Callable[[int], DoneRecord]) -> Result:
        """Make some files of a stage that are not made yet.

        Raises:
            SlicesFailedError: one cannot be made.
        """
        result = Result()
        for number in numbers:
            before = files.record(plan, self.work, number)
            record = before or make(number)
            if record.state != "done":
                raise SlicesFailedError({number: record})
            result.enter(record, before=before is not None)
        return result

    def _all_made(self, plan: Plan, files: StageFiles) -> list[DoneRecord] | None:
        """Return the records of all files of a stage, or None if one is missing."""
        found = [*takewhile(bool, files.records(plan, self.work))]
        return [record for record in found if record] if len(found) == plan.slices else None

    def _why_not_scattered(self, plan: Plan) -> str:
        return self._why_not(plan, RUN_FILES, "slice", "scattered")

    def _why_not(self, plan: Plan, files: StageFiles, unit: str, made: str) -> str:
        """Return which files of a stage are missing, as in "3 slices of 9 not scattered yet"."""
        state = files.state(plan, self.work)
        why = next((f"; one has failed: {error}" for error in state.failed.values()), "")
        return f"{counted(len(state.missing), unit)} of {plan.slices} not {made} yet ({state.shown()}){why}"

    def _waited(self, look: Callable[[], T | None], why: str | Callable[[], str]) -> T:
        """Return what another process makes, when it is there."""
        end, pause = self.clock() + self.wait, LOOK_SOON
        while (found := look()) is None:
            left = end - self.clock()
            if left <= 0:
                reason = why if isinstance(why, str) else why()
                hint = "wait longer (--wait SECONDS), or run the missing slices again"
                raise TemporaryStreamError(reason, url=self.work, hint=hint)
            self.sleep(min(pause, left))
            pause = min(2 * pause, LOOK_EVERY)
        return found
