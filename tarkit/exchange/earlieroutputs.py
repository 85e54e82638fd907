"""Outputs that runs have left in their folder, with the records of the runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import MissingInputError, TarkitError, printable
from tarkit.exchange.cuts import Outputs, numbered_names
from tarkit.exchange.plan import REMOVE
from tarkit.exchange.workfolder import entries_of
from tarkit.names.outputnames import DONE_SUFFIX, done_record_url, failed_samples_url
from tarkit.names.redaction import redact
from tarkit.names.url import join
from tarkit.runs.runrecord import is_run_record, read_run_record
from tarkit.steps.shardsoutput import remove_shard
from tarkit.store.entries import remove

_OUTPUT = re.compile(r"shard-([0-9]{6,})\.tar")


class MixedOutputsError(TarkitError):
    """Two runs have written into the same folder."""


class FinishedRun(NamedTuple):
    """An exchange that was run into a folder.

    Attributes:
        id: id of its plan.
        outputs: number of its outputs.
        url: URL of its record.
    """

    id: str
    outputs: int
    url: str


class Earlier(NamedTuple):
    """What is in a folder of outputs.

    Attributes:
        shards: names of shards.
        runs: exchanges that were run into it.
    """

    shards: Sequence[str]
    runs: Sequence[FinishedRun]


def earlier_outputs(folder: str, outputs: Outputs) -> Earlier:
    """Return the shards in a folder of outputs, and the exchanges that made them.

    These are the numbered ones, and those with the names that the step gives.

    Raises:
        StreamError, TemporaryStreamError: the folder cannot be listed.
    """
    shards, runs, named = list[str](), list[FinishedRun](), {*outputs.named}
    for entry in entries_of(folder):
        if _OUTPUT.fullmatch(entry.name) or entry.name in named:
            shards.append(entry.name)
        elif is_run_record(entry.name):
            record = read_run_record(entry)
            count = record.inputs.count
            patterns = numbered_names(count).patterns, outputs.names(count).patterns
            if record.work is not None and record.inputs.patterns in patterns:
                runs.append(FinishedRun(record.work, count, entry.url))
    return Earlier(shards, runs)


def run_ids(folder: str) -> set[str | None]:
    """Return the ids of the runs that have a record in a folder.

    Raises:
        DataError, StreamError, TemporaryStreamError: the folder, or a record, cannot be read.
    """
    return {read_run_record(entry).work for entry in entries_of(folder) if is_run_record(entry.name)}


def check_alone(folder: str, plan: str, before: Collection[str | None]) -> None:
    """Check that no other run has begun to write into a folder since this one has begun.

    Each run writes its record before its outputs. So of several runs, the one that ends last finds
    the records of the others, or misses its own.

    Args:
        folder: folder of the outputs.
        plan: id of the plan of this run.
        before: ids of the runs that had records when this run began to write.

    Raises:
        MixedOutputsError: another run has.
        DataError, StreamError, TemporaryStreamError: the folder, or a record, cannot be read.
    """
    found = run_ids(folder)
    if plan not in found or found - {plan, *before}:
        raise MixedOutputsError(
            f"{printable(redact(folder))}: another run has written into this folder at the same time, so its shards "
            f"may be of both; run one of the commands again, with {REMOVE}"
        )


def remove_other_outputs(folder: str, plan: str, count: int, outputs: Outputs) -> None:
    """Remove the outputs of other exchanges that were not replaced, and their records.

    Args:
        folder: folder of the outputs.
        plan: id of the plan whose outputs stay.
        count: number of these.
        outputs: the outputs of its exchange.
    """
    found, named = earlier_outputs(folder, outputs), {*outputs.named}
    for name in found.shards:
        match = _OUTPUT.fullmatch(name)
        if name not in named if named else match is not None and int(match[1]) >= count:
            url = join(folder, name)
            for each in (done_record_url(url), failed_samples_url(url)):
                with suppress(MissingInputError):
                    remove(each)
            remove_shard(url)
    for run in found.runs:
        if run.id != plan or run.outputs != count:
            with suppress(MissingInputError):
                remove(run.url)


def shards_of_other_runs(folder: str, outputs: Mapping[str, bool]) -> list[str]:
    """Return the names of shards in a folder that runs other than this one have made.

    Args:
        folder: folder of the outputs.
        outputs: name of each output of this run -> True if this run has made it.

    Raises:
        StreamError, TemporaryStreamError: the folder cannot be listed.
    """
    names = {entry.name for entry in entries_of(folder)}
    recorded = {name.removesuffix(DONE_SUFFIX) for name in names if name.endswith(DONE_SUFFIX)}
    return sorted((recorded - outputs.keys()) | {name for name in names if not outputs.get(name, True)})


def remove_other_runs(folder: str, outputs: Collection[str], plan: str) -> None:
    """Remove the recorded shards that are not outputs of this run, and the records of other runs.

    Args:
        folder: folder of the outputs.
        outputs: names of the outputs of this run.
        plan: id of its plan.
    """
    for entry in [*entries_of(folder)]:
        name = entry.name.removesuffix(DONE_SUFFIX)
        if name != entry.name and name not in outputs:
            url = join(folder, name)
            remove_shard(url)
            for each in (failed_samples_url(url), entry.url):
                with suppress(MissingInputError):
                    remove(each)
        elif is_run_record(entry.name) and read_run_record(entry).work != plan:
            with suppress(MissingInputError):
                remove(entry.url)
