"""One slice of one stage of a dedup, as a pod of a cluster runs it."""

from __future__ import annotations

from functools import partial

from tarkit.exchange.dedup import Dedup
from tarkit.exchange.exchange import Result
from tarkit.exchange.plan import Plan, make_plan, read_plan
from tarkit.exchange.slices import ExchangeSlice
from tarkit.exchange.stagefiles import MARK_FILES, RUN_FILES
from tarkit.exchange.workfolder import remove_work
from tarkit.specs.shardspec import take_slice


class DedupSlice(Dedup, ExchangeSlice):
    """A dedup of which this process runs slices, and other processes the others.

    All processes have the same arguments, and the same work folder.
    """

    def scatter(self, number: int, slices: int) -> Result:
        """Write the digests of one slice of the inputs.

        Slice 0 makes the plan; the others wait for it.

        Args:
            number: number of the slice, from 0.
            slices: number of slices.

        Raises:
            TemporaryStreamError: there is no plan yet.
            SlicesFailedError: an input cannot be read.
            UsageError: a folder has the run files or shards of another run.
        """
        plan = self._plan_of_scatter(number, slices)
        numbers = range(number, min(number + 1, plan.slices))
        return self._made(plan, RUN_FILES, numbers, partial(self.write_digests, plan))

    def _check_outputs(self, fresh: Plan) -> None:
        is_begun = read_plan(self.work) is not None
        records = self.finished(fresh, range(len(self.urls)))
        self._check_folder_of([is_begun or record is not None for record in records])

    def match(self, number: int, slices: int) -> Result:
        """Write the marks of one slice of the digests.

        Args:
            number: number of the slice, from 0.
            slices: number of slices, which need not be that of the scatter.

        Raises:
            TemporaryStreamError: slices of the scatter are missing, or have failed.
            SlicesFailedError: the marks cannot be written.
        """
        plan = self._waited(self._own_plan, "slice 0 of the scatter has not made the plan yet")
        runs = self._waited(lambda: self._all_made(plan, RUN_FILES), lambda: self._why_not_scattered(plan))
        digests = self.digests(runs)
        parts = take_slice(plan.slices, number, slices)
        return self._made(plan, MARK_FILES, parts, partial(self.write_marks, plan, digests))

    def gather(self, number: int, slices: int) -> Result:
        """Write the outputs of one slice of the inputs; slice 0 writes the listing, too.

        The process that makes the last output removes the run files.

        Args:
            number: number of the slice, from 0.
            slices: number of slices, which need not be those of the other stages.

        Raises:
            TemporaryStreamError: slices of the match are missing.
            TarkitError: the errors of :meth:`run`.
        """
        everything = range(len(self.urls))
        own = take_slice(len(everything), number, slices)
        if read_plan(self.work) is None:
            fresh = make_plan(self.request, self.urls, slices=slices, mem=self.mem)
            if all(records := self.finished(fresh, own)):
                return self._result(records)
        plan = self._waited(self._own_plan, "slice 0 of the scatter has not made the plan yet")
        matched = self._waited(
            lambda: self._all_made(plan, MARK_FILES), lambda: self._why_not(plan, MARK_FILES, "part", "matched")
        )
        marks = self.marks(matched)
        if number == 0:
            self.write_listing(marks)
        result = self.filter(plan, marks, own)
        if all(self.finished(plan, everything)):
            remove_work(self.work)
        return result
