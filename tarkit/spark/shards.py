"""Run a Work over tar shards on Spark: an output and a done record for each shard."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tarkit.errors import UsageError
from tarkit.names.outputnames import plan_outputs
from tarkit.runs.counts import MISSING_NAMES, Counts
from tarkit.runs.engine import Reporter
from tarkit.runs.process import check_work, conclude, process_outputs, with_work_id
from tarkit.runs.runrecord import record_of
from tarkit.runs.work import Work
from tarkit.spark.tasks import current_context, on_all_machines, run_tasks
from tarkit.specs.inputslice import all_inputs
from tarkit.specs.outputcheck import check_pairs
from tarkit.specs.shardspec import expand

_ELSEWHERE = ("output", "slice", "list_sha256", "retry_failed", "working_dir", "report")
"""Fields of Work that have no meaning here."""


def process(
    work: Work, shards: str | Iterable[str] = (), *, context: Any = None, partitions: int | None = None
) -> Counts:
    """Run a command or a function over every sample of shards, on a Spark cluster.

    ::

        counts = tarkit.spark.process(Work(outdir="gs://b/grey", function=to_grey), "gs://b/train-{0000..0147}.tar")

    Each task makes the outputs of some shards, with ``work.parallel`` commands at once, as
    ``tarproc -O`` does: published whole, each with a done record. Shards that are done are skipped,
    whichever of the two made them.

    Args:
        work: work with an ``outdir`` at a place that all machines reach by the same name. Scripts
            and Python files that it names are at the same path on all of them; a callable is sent
            to them. ``max_errors`` is for each task.
        shards: paths, URLs, shard specs; by default those of ``work``.
        context: a SparkContext; None takes the one of this process, or makes it.
        partitions: number of tasks; None is one for each shard.

    Returns:
        The counts of all tasks. Shards that a lost task made count as done before.

    Raises:
        ShardsFailedError: some shards could not be made; the others are published.
        EmptyResultError: samples came in, and none came out of all tasks; ``allow_empty`` accepts
            it.
        TaskError: a task did not complete.
        UsageError: a field of ``work`` has a wrong value, or two shards have the same name.
        MissingExtraError: pyspark is not installed.
    """
    if work.outdir is None:
        raise UsageError("a Work on Spark needs outdir: it makes an output for each shard")
    for name in _ELSEWHERE:
        if getattr(work, name) is not None:
            raise UsageError(f"{name} is not for a Work on Spark: each task makes the outputs of some shards")
    if partitions is not None and partitions < 1:
        raise UsageError(f"partitions is {partitions}; it must be at least 1")
    check_work(work)
    specs = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    inputs = [on_all_machines(url) for url in expand(specs or work.inputs, allow_pipe_in_lists=work.allow_pipe)]
    once = work.has_callable and work.work_id is None
    work = with_work_id(replace(work, inputs=(), outdir=on_all_machines(work.outdir)))
    outputs = list(plan_outputs(inputs, str(work.outdir)))
    if not outputs:
        raise UsageError("name the input shards")
    check_pairs(outputs)
    if context is None:
        context = current_context()
    number = min(partitions or len(outputs), len(outputs))
    parts = [outputs[len(outputs) * each // number : len(outputs) * (each + 1) // number] for each in range(number)]
    counts = Counts()
    record_of(work, all_inputs(inputs, inputs), once=once).publish(str(work.outdir), time.time())
    for each in run_tasks(context, partial(_run, work), parts):
        counts.add(each)
    del counts.missing_names[MISSING_NAMES:]
    conclude(work, counts)
    return counts


def _run(work: Work, outputs: Sequence[tuple[str, str]]) -> Counts:
    """Process a list of shards in a task, and return the counts."""
    counts = Counts()
    process_outputs(work, outputs, counts, Reporter())
    # Of a shard that could not be read to its end: a method of its stream, which cannot be sent.
    counts.met.part_read = None
    return counts
