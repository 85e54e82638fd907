"""Run an exchange: both stages on this machine, or one slice of one stage."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any, ClassVar, Protocol

from tarkit.errors import (
    MissingInputError,
    TarkitError,
    UsageError,
    counted,
    exit_code_of_all,
    printable,
)
from tarkit.exchange.cuts import Cuts, Outputs
from tarkit.exchange.earlieroutputs import (
    Earlier,
    FinishedRun,
    check_alone,
    earlier_outputs,
    remove_other_outputs,
    run_ids,
)
from tarkit.exchange.gather import Gather, Scattered
from tarkit.exchange.keys import BUCKETS, check_keys
from tarkit.exchange.plan import AGAIN, REMOVE, WORK, Plan, agreed_plan, check_plan, make_plan, read_plan
from tarkit.exchange.positions import MOST_SHARDS
from tarkit.exchange.scatter import Scatter
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.slicereader import SliceReader
from tarkit.exchange.stagefiles import RUN_FILES, StageFiles, finished_records
from tarkit.exchange.step import Step
from tarkit.exchange.tasks import needs_other_options, task_results
from tarkit.exchange.workfolder import check_work_folder, entries_of, remove_work
from tarkit.names.outputnames import DONE_SUFFIX
from tarkit.names.redaction import redact
from tarkit.names.url import join, local_path, one_name
from tarkit.runs.counts import Counts, Limit
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.runrecord import RunRecord
from tarkit.samples.sample import key_rule
from tarkit.specs.inputset import InputSet
from tarkit.specs.outputcheck import outside
from tarkit.specs.shardspec import take_slice
from tarkit.store.entries import remove

_log = logging.getLogger(__name__)
_SHARE = 0.6
"""Part of the memory that is for samples."""
_READS = 8
"""Number of run files in a store that a process reads at once."""
_FEW_KEYS = 100_000
"""Number of keys that are compared before other processes have started."""
_GATHERS = 2
"""Number of tasks of a gather for each process."""


class SlicesFailedError(TarkitError):
    """Slices of the inputs could not be scattered.

    Args:
        failed: number of the slice -> its record.
    """

    def __init__(self, failed: dict[int, DoneRecord]) -> None:
        first = next(iter(failed.values()))
        more = f" (and {counted(len(failed) - 1, 'more slice')})" if len(failed) > 1 else ""
        self.exit_code = exit_code_of_all(record.exit_code for record in failed.values())
        super().__init__(f"{first.error}{more}; nothing was gathered. After it is fixed, {AGAIN}")


class TooManyFailedError(TarkitError):
    """More samples have no position than the limit allows.

    Args:
        message: one line.
        of_all: no sample has a position, so a higher limit would not help.
    """

    def __init__(self, message: str, *, of_all: bool = False) -> None:
        super().__init__(message)
        self.of_all = of_all


@dataclass
class Result:
    """Result of an exchange, or of a slice of a stage.

    Attributes:
        outputs: number of outputs of the exchange.
        done: number of outputs, or of run files, that were made now.
        done_before: number of those that an earlier run made.
        counts: counts of the samples of these.
        dropped: reason -> number of samples that were left out.
        noted: numbers of samples that the step counts in addition, by their names.
        size: bytes of the outputs.
    """

    outputs: int = 0
    done: int = 0
    done_before: int = 0
    counts: Counts = field(default_factory=Counts)
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    size: int = 0

    def enter(self, record: DoneRecord, *, before: bool) -> None:
        """Count an output or a run file."""
        self.done += not before
        self.done_before += before
        self.counts.add(Counts.of(record))
        self.counts.met.skipped = dict(Counter(self.counts.met.skipped) + Counter(record.skipped_members))
        output = record.output or {}
        self.dropped.update(output.get("dropped", {}))
        self.size += output.get("size", 0)
        self.noted.update(output.get("noted", {}))


class StageProgress(Protocol):
    """Function that is called when a task of a stage is done."""

    def __call__(self, stage: str, done: int, total: int) -> object:
        """Show the progress: the stage, and how many of its tasks are done."""


def _silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


class Exchange:
    """An exchange: a step over all samples of some shards.

    Args:
        step: the step.
        urls: names of the input shards.
        outdir: path or URL of the folder for the outputs.
        settings: how outputs are cut, and so on.
        work: path or URL of the work folder; None: a folder in ``outdir``.
        parallel: number of processes.
        mem: bytes of memory for samples, of all processes.
        force: replace the outputs of another exchange, and remove its run files.
        report: called with the progress.

    Attributes:
        in_one_pass: there are no run files.
        mem: bytes of memory for the samples of each process.
        outputs: names and cuts of the outputs.
        request: step and settings that decide them.

    Raises:
        UsageError: an input is in the folder of the outputs, there are too many, or the step does
            not go with the settings.
    """

    in_one_pass: ClassVar[bool] = False

    def __init__(
        self,
        step: Step,
        urls: Sequence[str],
        outdir: str,
        settings: ExchangeSettings,
        *,
        work: str | None = None,
        parallel: int = 1,
        mem: int = 1 << 30,
        force: bool = False,
        report: StageProgress = _silent,
    ) -> None:
        self.step, self.outdir, self.settings = step, outdir, settings
        self.outputs = Outputs(step.outputs, settings)
        self.work = join(outdir, WORK) if work is None else work
        self.urls = [*outside([outdir, self.work], urls)]
        if one_name(self.work) == one_name(outdir):
            raise UsageError(f"--work is {printable(redact(outdir))}, the folder of the outputs; name another folder")
        if len(self.urls) >= MOST_SHARDS:
            raise UsageError(f"{len(self.urls)} inputs are more than {MOST_SHARDS - 1}; run an exchange for each part")
        if (reason := step.why_not(self.urls, settings)) is not None:
            raise UsageError(reason)
        self.parallel, self.mem = max(1, parallel), int(mem * _SHARE) // max(1, parallel)
        self._force, self._report = force, report
        # As the plan has it when it is read.
        self.request = json.loads(json.dumps({"step": step.name, **settings.request(), **step.options()}))
        self._replaces = False

    def run(self) -> Result:
        """Run both stages, and remove the work folder; finished parts of an earlier run are kept.

        Raises:
            UsageError: the folder has outputs of another exchange, or the work folder has its run
                files.
            SlicesFailedError: an input cannot be read.
            RepeatedKeyError: samples have the same key.
            TarkitError: other errors of the step or the store.
        """
        fresh = make_plan(self.request, self.urls, slices=None, mem=self.mem)
        earlier = earlier_outputs(self.outdir, self.outputs)
        plan = self._plan_to_resume(fresh)
        result = self._finished(fresh, earlier.runs)
        if result is None:
            self._check_folder(fresh, earlier)
            if plan is None:
                plan = self._agreed_plan(fresh)
            self._replaces = self._force
            with self._useless_files_removed(plan):
                result = self._make(plan)
        if self._force:
            remove_other_outputs(self.outdir, fresh.id, result.outputs, self.outputs)
        # Without a plan, too: the slower one of two runs may have written run files after it.
        remove_work(self.work)
        return result

    @contextmanager
    def _useless_files_removed(self, plan: Plan) -> Iterator[None]:
        """Remove the work folder after an error that the same command would meet again.

        The options have to change then, and with other options its files would be refused.
        """
        try:
            yield
        except SlicesFailedError:
            if not any(RUN_FILES.records(plan, self.work)):
                remove_work(self.work)
            raise
        except TarkitError as error:
            if needs_other_options(error) or (isinstance(error, TooManyFailedError) and error.of_all):
                remove_work(self.work)
            raise

    def _check_folder(self, plan: Plan, earlier: Earlier) -> None:
        """Check that all shards in the folder of the outputs are of this exchange.

        Raises:
            UsageError: some may be of another one, which is not to be replaced.
        """
        is_other = {run.id for run in earlier.runs} != {plan.id}
        if earlier.shards and is_other and not self._force:
            raise UsageError(
                f"{printable(redact(self.outdir))} has {counted(len(earlier.shards), 'shard')} of another run, such as "
                f"{printable(earlier.shards[0])}; use another folder, or {REMOVE}"
            )

    def _begin_outputs(self, plan: Plan, names: InputSet) -> set[str | None]:
        """Write the record of this run, before its first output; return the ids of earlier runs.

        Raises:
            UsageError: another run has written outputs since this one was begun.
        """
        earlier = earlier_outputs(self.outdir, self.outputs)
        self._check_folder(plan, earlier)
        for run in earlier.runs:
            if run.id != plan.id and not earlier.shards:
                # Its shards were removed; with its record, this run could not be resumed.
                with suppress(MissingInputError):
                    remove(run.url)
        before = run_ids(self.outdir)
        self._publish_record(plan, self.outdir, names, plan.id)
        return before

    def _make(self, plan: Plan) -> Result:
        """Make all outputs of a plan that are not made yet."""
        scattered = self._scatter_all(plan)
        result = self._gather_all(plan, scattered)
        result.counts.met.skipped = dict(scattered.skipped)
        return result

    def _plan_to_resume(self, fresh: Plan) -> Plan | None:
        """Return the plan in the work folder if it is that of this exchange, or None.

        Inputs that were changed are entered into it: the run files of their slices are made again.

        Raises:
            UsageError: it is that of another exchange, or there are outputs of the earlier inputs.
        """
        plan = read_plan(self.work)
        if plan is None:
            return None
        try:
            check_plan(plan, self.work, self.request, self.urls)
        except UsageError:
            if not self._force:
                raise
            remove_work(self.work)
            return None
        changed = [now[0] for now, then in zip(fresh.inputs, plan.inputs, strict=True) if now != then]
        if changed:
            has_outputs = any(entry.name.endswith(DONE_SUFFIX) for entry in entries_of(self.outdir))
            if has_outputs and plan.id in run_ids(self.outdir) and not self._force:
                raise UsageError(
                    f"{printable(changed[0])} was changed since this exchange was begun, and shards were made of it; "
                    f"use another folder, or {REMOVE}"
                )
            many = counted(len(changed), "changed input")
            _log.warning("%s since this exchange was begun, such as %s: read again", many, printable(changed[0]))
            plan = replace(plan, inputs=fresh.inputs)
            plan.publish(self.work)
        return plan

    def _agreed_plan(self, fresh: Plan) -> Plan:
        """Return the plan of the work folder, and write it if there is none."""
        if read_plan(self.work) is None:
            check_work_folder(self.work)
        return agreed_plan(self.work, self.request, self.urls, fresh)

    def _finished(self, plan: Plan, runs: Sequence[FinishedRun], number: int = 0, slices: int = 1) -> Result | None:
        """Return the result of a slice of an earlier run of the same exchange.

        None if there was no such run, or the slice is not complete.
        """
        for run in runs:
            if run.id == plan.id:
                found = Result(run.outputs)
                for record in self._records(plan, take_slice(run.outputs, number, slices)):
                    if record is None:
                        return None
                    found.enter(record, before=True)
                return found
        return None

    def _records(self, plan: Plan, numbers: Iterable[int]) -> Iterator[DoneRecord | None]:
        """Yield the records of outputs that are made by this plan, and None for the others."""
        return finished_records((join(self.outdir, self.outputs.name(number)), plan.id) for number in numbers)

    def _made_before(self, plan: Plan, count: int, numbers: range) -> tuple[Result, list[int]]:
        """Return the result of the outputs that are made, and the numbers of those that are not.

        Args:
            count: number of all outputs.
            numbers: numbers of those that are asked for.
        """
        result, missing = Result(count), list[int]()
        for number, record in zip(numbers, self._records(plan, numbers), strict=True):
            if record is None:
                missing.append(number)
            else:
                result.enter(record, before=True)
        return result, missing

    def _scatter_all(self, plan: Plan) -> Scattered:
        """Scatter all slices that are not scattered yet."""
        return self._scattered(
            self._stage("scatter", RUN_FILES, plan, lambda number: self._scatter(plan, number, self.mem))
        )

    def _scatter(self, plan: Plan, number: int, mem: int) -> DoneRecord:
        source = SliceReader(plan, self.step, self.settings, self.urls, number)
        return Scatter(plan, source, RUN_FILES, number, self.work, mem).run()

    def _stage(self, stage: str, files: StageFiles, plan: Plan, make: Callable[[int], DoneRecord]) -> list[DoneRecord]:
        """Make the files of a stage that are not made yet, and return the records of all.

        Raises:
            SlicesFailedError: some cannot be made.
        """
        self._publish_names(plan, files)
        records = dict(enumerate(files.records(plan, self.work)))
        missing = [number for number, record in records.items() if record is None]
        results = task_results(lambda number: asdict(make(number)), missing, self.parallel)
        for done, (number, found) in enumerate(zip(missing, results, strict=True), 1 + len(records) - len(missing)):
            records[number] = DoneRecord(**found)
            self._report(stage, done, len(records))
        made = {number: record for number, record in records.items() if record is not None}
        if failed := {number: record for number, record in made.items() if record.state != "done"}:
            raise SlicesFailedError(failed)
        return [*made.values()]

    def _scattered(self, records: Sequence[DoneRecord]) -> Scattered:
        """Return the result of the scatter; check that not too many samples have failed."""
        reads = 1 if local_path(self.work) is not None else _READS
        scattered = Scattered(records, self.work, self.mem, reads)
        self._check_failed(scattered.failed, scattered.merge.samples, scattered.first_failure)
        return scattered

    def _check_failed(self, failed: int, samples: int, first: str) -> None:
        """Check that not too many samples have no position."""
        limit = Limit.parse(self.settings.max_errors)
        if failed and (failed == samples or limit.exceeded(failed, samples, at_end=True)):
            raise TooManyFailedError(
                f"{failed} of {samples} samples failed, the first: {first}; "
                f"--max-errors is {limit}; nothing was gathered",
                of_all=failed == samples,
            )

    def _gather_all(self, plan: Plan, scattered: Scattered) -> Result:
        """Make all outputs that are not made yet."""
        cuts = scattered.cuts(self.outputs)
        parallel = self.parallel if scattered.merge.samples > _FEW_KEYS else 1
        self._check_keys(scattered, 0, 1, parallel)
        return self._gather(plan, scattered, cuts, range(cuts.count))

    def _check_keys(self, scattered: Scattered, number: int, count: int, parallel: int) -> None:
        """Check that keys are not repeated, in a part of the range of their digests."""
        if not scattered.keys:
            return
        shards = [redact(url) for url in self.urls]
        rule = key_rule(self.settings.key_rule)

        def check(part: int) -> None:
            buckets = take_slice(BUCKETS, part, count * parallel)
            check_keys(scattered.keys, buckets, shards, rule, self.mem)

        for _ in task_results(check, range(number * parallel, (number + 1) * parallel), parallel):
            pass

    def _gather(self, plan: Plan, scattered: Scattered, cuts: Cuts, numbers: range) -> Result:
        before = self._begin_outputs(plan, self.outputs.names(cuts.count))
        result = self._gathered(plan, scattered, cuts, numbers)
        if cuts.count:
            check_alone(self.outdir, plan.id, before)
        return result

    def _gathered(self, plan: Plan, scattered: Scattered, cuts: Cuts, numbers: range) -> Result:
        result, missing = self._made_before(plan, cuts.count, numbers)
        made = Gather(
            plan, self.step, self.outputs, scattered, cuts, self.outdir,
            replaces=self._replaces, parallel=self.parallel,
        )  # fmt: skip
        if self.step.runs_commands:
            for part in _adjacent(missing, len(missing)):
                for record in made.run(part):
                    result.enter(record, before=False)
                    self._report("gather", result.done + result.done_before, len(numbers))
            return result
        parts = _adjacent(missing, max(1, -(-len(missing) // (_GATHERS * self.parallel))))

        def gather(part: int) -> list[dict[str, Any]]:
            return [asdict(record) for record in made.run(parts[part])]

        for found in task_results(gather, range(len(parts)), self.parallel, apart=self.step.runs_functions):
            for each in found:
                result.enter(DoneRecord(**each), before=False)
            self._report("gather", result.done + result.done_before, len(numbers))
        return result

    def _publish_names(self, plan: Plan, files: StageFiles) -> None:
        """Write the run record of the files of a stage, each of which is of other work."""
        self._publish_record(plan, self.work, files.names(plan), None)

    def _publish_record(self, plan: Plan, folder: str, names: InputSet, work: str | None) -> None:
        """Write a run record, by which ``tarkit status`` knows what is missing."""
        if names.count:
            RunRecord(names, work, version("tarkit"), slices=plan.slices).publish(folder, time.time())


def _adjacent(numbers: Sequence[int], most: int) -> list[list[int]]:
    """Cut sorted numbers into lists of adjacent ones."""
    parts = list[list[int]]()
    for number in numbers:
        if parts and len(parts[-1]) < most and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return parts
