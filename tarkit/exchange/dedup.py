"""``tarkit dedup``: leave out samples whose content an earlier sample has.

Digests alone are exchanged: scatter and match find the samples to leave out. Then each input is
read again, and the other samples are copied to an output of the same name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

from tarkit.errors import DataError, UsageError, counted, printable
from tarkit.exchange.digests import DigestReader, Digests
from tarkit.exchange.earlieroutputs import check_alone, remove_other_runs, run_ids, shards_of_other_runs
from tarkit.exchange.exchange import Exchange, StageProgress
from tarkit.exchange.filtering import DUPLICATES, DedupResult, Filter
from tarkit.exchange.matching import DUPLICATE, REFUSED, UNCOMPARED, Match, read_marks
from tarkit.exchange.merge import Merge
from tarkit.exchange.plan import REMOVE, Plan, make_plan
from tarkit.exchange.runfile import RunFile
from tarkit.exchange.scatter import Scatter
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.stagefiles import MARK_FILES, RUN_FILES, finished_records
from tarkit.exchange.tasks import task_results
from tarkit.exchange.workfolder import remove_work
from tarkit.mapping.scratch import Scratch
from tarkit.names.outputnames import DONE_SUFFIX, FAILED_SUFFIX, INDEX_SUFFIX, SHARD_SUFFIX, output_name, plan_outputs
from tarkit.names.redaction import redact
from tarkit.names.url import one_name
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.runrecord import RunRecord
from tarkit.specs.inputset import InputSet
from tarkit.specs.outputcheck import check_folder, check_other_than, check_pairs
from tarkit.specs.shardspec import take_slice
from tarkit.store.publish import open_publish

_FILTERS = 4
"""Number of tasks of the filter for each process."""


class Dedup(Exchange):
    """A dedup: outputs of the same names as the inputs, without samples that equal earlier ones.

    Args:
        step: how samples are compared.
        urls: names of the input shards.
        outdir: path or URL of the folder for the outputs.
        key_rule: key rule.
        index: write the index of each output whose name ends in ``.tar`` beside it.
        max_errors: limit of failed samples: a number, or a percentage such as ``1%``.
        listing: path or URL of a file of JSON lines that lists what is left out; None for none.
        dry_run: find what would be left out, and write only the listing.
        work: path or URL of the work folder; None: a folder in ``outdir``.
        parallel: number of processes.
        mem: bytes of memory for digests, of all processes.
        force: replace the outputs of another run, and remove its run files.
        report: called with the progress.

    Raises:
        UsageError: there is no input, an input is in the folder of the outputs or is the listing,
            or two have the same name.
    """

    step: Digests

    def __init__(
        self,
        step: Digests,
        urls: Sequence[str],
        outdir: str,
        *,
        key_rule: str = "first-dot",
        index: bool = True,
        max_errors: str = "100",
        listing: str | None = None,
        dry_run: bool = False,
        work: str | None = None,
        parallel: int = 1,
        mem: int = 1 << 30,
        force: bool = False,
        report: StageProgress = lambda stage, done, total: None,
    ) -> None:
        if not urls:
            raise UsageError("there are no input shards")
        settings = ExchangeSettings(shards=len(urls), key_rule=key_rule, index=index, max_errors=max_errors)
        super().__init__(
            step, urls, outdir, settings, work=work, parallel=parallel, mem=mem, force=force, report=report
        )
        pairs = [*plan_outputs(self.urls, outdir)]
        check_pairs(pairs)
        self._output_urls = [output for _, output in pairs]
        self._names = [output_name(output) for output in self._output_urls]
        self._listing, self._dry_run = listing, dry_run
        if listing is not None:
            check_folder(listing)
            check_other_than([listing], self.urls)
            self._check_listing(listing)

    def _check_listing(self, listing: str) -> None:
        """Check that the listing is not a file of an output, which would replace it.

        Raises:
            UsageError: it is.
        """
        folder, _, name = listing.rpartition("/")
        # Endings of the files beside a shard are added to its name, or replace that of a tar.
        shards = {name, *(name.removesuffix(end) for end in (DONE_SUFFIX, FAILED_SUFFIX))}
        shards |= {name.removesuffix(INDEX_SUFFIX), f"{name.removesuffix(INDEX_SUFFIX)}{SHARD_SUFFIX}"}
        if one_name(folder or ".") == one_name(self.outdir) and shards & {*self._names}:
            raise UsageError(f"{printable(redact(listing))} is a file of an output; name another one for the report")

    def run(self) -> DedupResult:
        """Run all stages, and remove the work folder; finished parts of an earlier run are kept.

        Raises:
            UsageError: the folder has outputs of another run, or the work folder has its run files.
            SlicesFailedError: an input cannot be read.
            DataError: no sample has a field by which samples are compared.
            TarkitError: other errors of the store.
        """
        fresh = make_plan(self.request, self.urls, slices=None, mem=self.mem)
        if self._dry_run:
            with Scratch() as scratch:
                self.work = f"{scratch.path}/work"
                return self._found(*self._compared(fresh))
        plan = self._plan_to_resume(fresh)
        records = self.finished(fresh, range(len(self.urls)))
        if all(records) and self._listing is None:
            result = self._result(records)
        else:
            # In a run that resumes, outputs without a record are its own.
            self._check_folder_of([plan is not None or record is not None for record in records])
            if plan is None:
                plan = self._agreed_plan(fresh)
            with self._useless_files_removed(plan):
                _, marks = self._compared(plan)
            result = self.filter(plan, marks, range(len(self.urls)))
        if self._force:
            remove_other_runs(self.outdir, {*self._names}, fresh.id)
        if plan is not None:
            remove_work(self.work)
        return result

    def _check_folder_of(self, own: Sequence[bool]) -> None:
        """Check that all shards in the folder of the outputs are of this run.

        Args:
            own: for each output, True if it is, or does not exist.

        Raises:
            UsageError: some are not, and they are not to be replaced.
        """
        others = shards_of_other_runs(self.outdir, dict(zip(self._names, own, strict=True)))
        if others and not self._force:
            raise UsageError(
                f"{printable(redact(self.outdir))} has {counted(len(others), 'shard')} of another run, such as "
                f"{printable(others[0])}; use another folder, or {REMOVE}"
            )

    def _compared(self, plan: Plan) -> tuple[int, list[RunFile]]:
        """Run the stages before the filter; return the number of samples, and the marks."""
        records = self._stage("scatter", RUN_FILES, plan, partial(self.write_digests, plan))
        digests = self.digests(records)
        records = self._stage("match", MARK_FILES, plan, partial(self.write_marks, plan, digests))
        marks = self.marks(records)
        self.write_listing(marks)
        return digests.samples, marks

    def write_digests(self, plan: Plan, number: int) -> DoneRecord:
        """Write the digests of a slice of the inputs, and return the record."""
        source = DigestReader(plan, self.step, self.settings, self.urls, number)
        return Scatter(plan, source, RUN_FILES, number, self.work, self.mem).run()

    def digests(self, records: Sequence[DoneRecord]) -> Merge:
        """Return the digests of all slices, from their records.

        Raises:
            SlicesFailedError: a slice has failed.
            TooManyFailedError: too many samples have failed.
            DataError: no sample has a digest.
        """
        scattered = self._scattered(records)
        outputs = [record.output or {} for record in records]
        samples = scattered.merge.samples
        if samples and sum(each["uncompared"] for each in outputs) == samples:
            why = next(each["first_uncompared"] for each in outputs if each["uncompared"])
            raise DataError(f"no sample can be compared, the first: {why}", hint="name another field")
        return scattered.merge

    def write_marks(self, plan: Plan, digests: Merge, number: int) -> DoneRecord:
        """Write the marks of a part of the digests, and return the record."""
        source = Match(digests, number, plan.slices)
        return Scatter(plan, source, MARK_FILES, number, self.work, self.mem).run()

    def marks(self, records: Sequence[DoneRecord]) -> list[RunFile]:
        """Return the marks of all parts, from their records."""
        return MARK_FILES.opened(self.work, records)

    def finished(self, plan: Plan, numbers: Iterable[int]) -> list[DoneRecord | None]:
        """Return the records of outputs that were made by this plan; None for the others.

        Raises:
            StreamError, TemporaryStreamError: a record cannot be read.
        """
        return [*finished_records((self._output_urls[number], plan.id) for number in numbers)]

    def filter(self, plan: Plan, marks: Sequence[RunFile], numbers: range) -> DedupResult:
        """Write the outputs of some inputs that are not made yet.

        Args:
            plan: the plan.
            marks: the marks of all parts.
            numbers: numbers of the inputs.
        """
        record = RunRecord(InputSet.of_names(self.urls), plan.id, version("tarkit"), slices=plan.slices)
        before = run_ids(self.outdir)
        record.publish(self.outdir, time.time())
        records = dict(zip(numbers, self.finished(plan, numbers), strict=True))
        result = self._result([record for record in records.values() if record])
        missing = [number for number, record in records.items() if record is None]
        tasks = min(len(missing), _FILTERS * self.parallel)
        parts = [[missing[each] for each in take_slice(len(missing), part, tasks)] for part in range(tasks)]

        def write(part: int) -> list[dict[str, Any]]:
            made = Filter(plan, self.step, self.settings, self.urls, self._output_urls, marks, self.mem)
            return [asdict(record) for record in made.run(parts[part])]

        for found in task_results(write, range(tasks), self.parallel):
            for each in found:
                result.enter(DoneRecord(**each), before=False)
            self._report("filter", result.done + result.done_before, len(numbers))
        check_alone(self.outdir, plan.id, before)
        return result

    def _result(self, records: Sequence[DoneRecord | None]) -> DedupResult:
        result = DedupResult(len(self._output_urls))
        for record in records:
            if record is not None:
                result.enter(record, before=True)
        return result

    def _found(self, samples: int, marks: Sequence[RunFile]) -> DedupResult:
        """Return the result of a run that writes no outputs."""
        result = DedupResult(len(self._output_urls))
        counts = result.counts
        for mark in read_marks(marks, range(len(self.urls)), self.mem):
            counts.filtered += mark.kind == DUPLICATE
            counts.failed += mark.kind == REFUSED
            if mark.kind == UNCOMPARED:
                result.keep({mark.reason: (1, mark.key)}, redact(self.urls[mark.shard]))
        counts.read, counts.out = samples, samples - counts.filtered - counts.failed
        result.dropped[DUPLICATES] = counts.filtered
        return result

    def write_listing(self, marks: Sequence[RunFile]) -> None:
        """Write the listing, if there is to be one: the samples that are left out, in input order.

        Args:
            marks: the marks of all parts.
        """
        if self._listing is None:
            return
        shards = [redact(url) for url in self.urls]
        with open_publish(self._listing) as stream:
            for mark in read_marks(marks, range(len(shards)), self.mem):
                if mark.kind == DUPLICATE:
                    line = {
                        "key": mark.key, "shard": shards[mark.shard],
                        "equals_key": mark.first_key, "equals_shard": shards[mark.first], "digest": mark.digest.hex(),
                    }  # fmt: skip
                    stream.write(json.dumps(line).encode() + b"\n")
