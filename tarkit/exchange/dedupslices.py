"""One slice of one stage of a dedup, as a pod of a cluster runs it."""

from __future__ import annotations

from collections.abc import Callable

from tarkit.errors import counted
from tarkit.exchange.dedup import Dedup
from tarkit.exchange.exchange import Result, SlicesFailedError
from tarkit.exchange.matching import finished_match
from tarkit.exchange.plan import Plan, make_plan, read_plan
from tarkit.exchange.scatter import finished_run
from tarkit.exchange.slices import ExchangeSlice
from tarkit.exchange.workfolder import remove_work
from tarkit.runs.donerecord import DoneRecord
from tarkit.specs.shardspec import take_slice

_SHOWN = 5


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
        if number == 0:
            fresh = make_plan(self.request, self.urls, slices=slices, mem=self.mem * self.parallel)
            is_begun = read_plan(self.work) is not None
            records = self.finished(fresh, range(len(self.urls)))
            self._check_folder_of([is_begun or record is not None for record in records])
            plan = self._agreed_plan(fresh)
        else:
            plan = self._waited(self._own_plan, "slice 0 has not made the plan yet")
        return self._made(plan, range(number, min(number + 1, plan.slices)), finished_run, self.write_digests)

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
        runs = self._waited(lambda: self._all_runs(plan), lambda: self._why_not_scattered(plan))
        digests = self.digests(runs)
        parts = take_slice(plan.slices, number, slices)
        return self._made(plan, parts, finished_match, lambda plan, part: self.write_marks(plan, digests, part))

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
        marks = self.marks(self._waited(lambda: self._all_matches(plan), lambda: self._why_not_matched(plan)))
        if number == 0:
            self.write_listing(marks)
        result = self.filter(plan, marks, own)
        if all(self.finished(plan, everything)):
            remove_work(self.work)
        return result

    def _made(
        self,
        plan: Plan,
        numbers: range,
        finished: Callable[[Plan, str, int], DoneRecord | None],
        make: Callable[[Plan, int], DoneRecord],
    ) -> Result:
        """Make the files of a stage that are not made yet."""
        result = Result()
        for number in numbers:
            before = finished(plan, self.work, number)
            record = before or make(plan, number)
            if record.state != "done":
                raise SlicesFailedError({number: record})
            result.enter(record, before=before is not None)
        return result

    def _all_matches(self, plan: Plan) -> list[DoneRecord] | None:
        """Return the records of all parts, or None if one is missing."""
        found = [finished_match(plan, self.work, number) for number in range(plan.slices)]
        return None if None in found else [record for record in found if record is not None]

    def _why_not_matched(self, plan: Plan) -> str:
        missing = [number for number in range(plan.slices) if finished_match(plan, self.work, number) is None]
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        return f"{counted(len(missing), 'part')} of {plan.slices} not matched yet ({shown})"
