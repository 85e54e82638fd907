"""Run an exchange on Spark: its shuffle sorts the samples, and each task writes one output."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from tarkit.errors import StreamError, UsageError, counted
from tarkit.exchange.cuts import Cuts
from tarkit.exchange.exchange import Exchange, Result
from tarkit.exchange.keys import BUCKETS, check_samples
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import shard_and_number
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.step import Step
from tarkit.extras import library
from tarkit.names.outputnames import failed_samples_url, index_url, output_name
from tarkit.names.redaction import redact
from tarkit.names.url import join
from tarkit.spark.exchangetasks import (
    KEYS,
    PLACE,
    SUMMARY,
    Beginning,
    ExchangeJob,
    OutputSearch,
    SliceSummary,
    of_kind,
    place_of_bound,
    place_of_bucket,
    place_of_output,
    range_bounds,
    repeated,
    size_of_range,
)
from tarkit.spark.tasks import current_context, on_all_machines, task_outcomes
from tarkit.specs.shardspec import expand
from tarkit.store.entries import entries, remove

_MAXCOUNT = 10_000
"""Samples of an output, as for ``tarkit shuffle``."""
_RANGE = 500_000
"""Number of positions that a task sorts."""


def exchange(
    step: Step,
    inputs: str | Iterable[str],
    outdir: str,
    *,
    settings: ExchangeSettings | None = None,
    force: bool = False,
    context: Any = None,
) -> Result:
    """Run an exchange, such as a shuffle of all samples, on a Spark cluster.

    ::

        from tarkit.exchange.shuffle import Shuffle

        result = tarkit.spark.exchange(Shuffle(seed=1), "gs://b/train-{0000..0147}.tar", "gs://b/shuffled")

    The outputs, their indexes and their done records have the same bytes as those of the same
    exchange on one machine. Outputs that are done are not made again, whichever of the two made
    them.

    Args:
        step: the step; it is sent to the tasks, with functions of a notebook in it.
        inputs: paths, URLs, shard specs, at places that all machines reach by the same name.
        outdir: path or URL of the folder for the outputs, at such a place.
        settings: how outputs are cut, and so on; None: 10,000 samples in each, or the outputs that
            the step names.
        force: replace the outputs of another exchange.
        context: a SparkContext; None takes the one of this process, or makes it.

    Returns:
        The counts of all outputs.

    Raises:
        UsageError: the folder has outputs of another exchange, or an argument has a wrong value.
        RepeatedKeyError: samples have the same key.
        TaskError: a task did not complete; the outputs that are there stay.
        StreamError: the machines do not share the folder.
        MissingExtraError: pyspark is not installed.
    """
    specs = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    urls = [*expand(specs)]
    if not urls:
        raise UsageError("name the input shards")
    if settings is None:
        settings = ExchangeSettings(maxcount=None if step.outputs else _MAXCOUNT)
    return SparkExchange(step, urls, outdir, settings, force=force, context=context).run()


class SparkExchange(Exchange):
    """An exchange whose samples Spark sorts; the work folder has only its plan.

    Args:
        context: a SparkContext, or None.
    """

    def __init__(
        self,
        step: Step,
        urls: Sequence[str],
        outdir: str,
        settings: ExchangeSettings,
        *,
        force: bool = False,
        context: Any = None,
    ) -> None:
        super().__init__(step, urls, on_all_machines(outdir), settings, force=force)
        # The plan has the names as they were given, so that it is the one of a run on this machine.
        self._shared_urls = [on_all_machines(url) for url in self.urls]
        self._spark = library("pyspark", "an exchange on Spark", "spark")
        self._context = current_context() if context is None else context

    def _make(self, plan: Plan) -> Result:
        """Make all outputs of a plan that are not made yet."""
        job = ExchangeJob(plan, self.step, self.outputs, self._shared_urls, self.outdir)
        places = self._slices(plan).mapPartitions(job.places)
        places = places.persist(self._spark.StorageLevel.MEMORY_AND_DISK)
        try:
            found: list[SliceSummary] = task_outcomes(places.mapPartitions(partial(of_kind, SUMMARY)))
            samples, size = sum(each.samples for each in found), sum(each.size for each in found)
            first_failure = next((each.first_failure for each in found if each.first_failure), "")
            failed = sum(each.failed for each in found)
            self._check_failed(failed, samples, first_failure)
            placed = sum((Counter(each.placed) for each in found), Counter[int]())
            size -= sum(each.failed_size for each in found)
            largest = max((each.largest for each in found), default=0)
            cuts = self.outputs.cuts(samples - failed, size, largest, placed)
            self._check_repeated(job, places, samples)
            beginnings = self._beginnings(places, found, cuts)
        finally:
            places.unpersist()
        result = self._gather_outputs(job, cuts.count, samples, beginnings)
        result.counts.met.skipped = dict(sum((Counter(each.skipped) for each in found), Counter[str]()))
        return result

    def _slices(self, plan: Plan) -> Any:
        """Return an RDD of the numbers of the slices, one in each task."""
        return self._context.parallelize(range(plan.slices), plan.slices)

    def _tasks(self, samples: int) -> int:
        """Return the number of tasks that sort a number of positions, or of digests."""
        return max(1, int(self._context.defaultParallelism), samples // _RANGE)

    def _check_repeated(self, job: ExchangeJob, places: Any, samples: int) -> None:
        """Check that keys are not repeated, if the step asks for it."""
        if not self.step.needs_keys(self.settings):
            return
        tasks = min(BUCKETS, self._tasks(samples))
        digests = places.mapPartitions(partial(of_kind, KEYS)).repartitionAndSortWithinPartitions(
            tasks, partial(place_of_bucket, BUCKETS, tasks)
        )
        twice = set[int]().union(*task_outcomes(digests.mapPartitions(repeated)))
        if twice:
            found = task_outcomes(self._slices(job.plan).mapPartitions(partial(job.with_keys, twice)))
            check_samples(sorted(found, key=lambda each: shard_and_number(each[1])), [redact(url) for url in self.urls])

    def _beginnings(self, places: Any, found: Sequence[SliceSummary], cuts: Cuts) -> list[Beginning]:
        """Return where the outputs from 1 on begin; the last ones may have no beginning."""
        ranges = self._tasks(sum(each.samples for each in found))
        bounds = range_bounds(found, ranges, in_groups=self.step.in_groups)
        positions = places.mapPartitions(partial(of_kind, PLACE)).repartitionAndSortWithinPartitions(
            len(bounds) + 1, partial(place_of_bound, bounds)
        )
        sizes = task_outcomes(positions.mapPartitions(size_of_range))
        search = OutputSearch.of(sizes, cuts, in_groups=self.step.in_groups)
        return search.beginnings(task_outcomes(positions.mapPartitionsWithIndex(search.find)), cuts.count)

    def _gather_outputs(self, job: ExchangeJob, count: int, samples: int, beginnings: Sequence[Beginning]) -> Result:
        self._publish_record(job.plan, self.outdir, self.outputs.names(count), job.plan.id)
        result, missing = self._made_before(job.plan, count, range(count))
        if missing:
            self._remove_earlier(missing)
            starts = [each.position for each in beginnings]
            ends = [0, *(each.samples for each in beginnings)]
            ends += [samples] * (count + 1 - len(ends))
            expected = [end - start for start, end in pairwise(ends)]
            wanted = {number: place for place, number in enumerate(missing)}
            payload = self._slices(job.plan).mapPartitions(partial(job.payload, starts, wanted))
            shuffled = payload.repartitionAndSortWithinPartitions(
                len(missing), partial(place_of_output, starts, wanted)
            )
            gather = partial(job.gather, missing, [expected[number] for number in missing])
            for record in task_outcomes(shuffled.mapPartitionsWithIndex(gather)):
                result.enter(record, before=False)
            self._check_shared(missing)
        return result

    def _remove_earlier(self, numbers: Sequence[int]) -> None:
        """Remove the indexes and failed samples of other outputs, which a new one may not have.

        A task that did it could be killed as the slower of two attempts, and leave the output of
        the other one without them.
        """
        if self._replaces:
            names = {entry.name for entry in entries(self.outdir)}
            for url in (join(self.outdir, self.outputs.name(number)) for number in numbers):
                for each in (failed_samples_url(url), index_url(url)):
                    if output_name(each) in names:
                        remove(each)

    def _check_shared(self, numbers: Sequence[int]) -> None:
        """Check that the outputs of the tasks are in the folder."""
        names = {entry.name for entry in entries(self.outdir)}
        missing = [name for number in numbers if (name := self.outputs.name(number)) not in names]
        if missing:
            raise StreamError(
                f"{missing[0]} was written on another machine and is not here ({counted(len(missing), 'file')} in all)",
                url=self.outdir,
                hint="name a folder that all machines share",
            )
