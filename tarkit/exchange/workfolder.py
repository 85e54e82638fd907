"""What earlier runs left: outputs in their folder, and run files in the work folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import MissingInputError
from tarkit.exchange.plan import PLAN
from tarkit.exchange.settings import OUTPUT_PATTERN, ExchangeSettings
from tarkit.names.outputnames import DONE_SUFFIX, done_record_url, failed_samples_url
from tarkit.names.url import join, local_path
from tarkit.runs.runrecord import is_run_record, read_run_record
from tarkit.steps.shardsoutput import remove_shard
from tarkit.store.entries import Entry, entries, remove
from tarkit.store.trees import remove_if_empty

_OF_WORK = re.compile(r"plan\.json|(run|match)-[0-9]{6,}\.tar(\.done\.json)?")
_OUTPUT = re.compile(r"shard-([0-9]{6,})\.tar")


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


def earlier_outputs(folder: str, settings: ExchangeSettings) -> Earlier:
    """Return the shards in a folder of outputs, and the exchanges that made them.

    These are the numbered ones, and those with the names of the settings.

    Raises:
        StreamError, TemporaryStreamError: the folder cannot be listed.
    """
    shards, runs, named = list[str](), list[FinishedRun](), {*settings.outputs}
    for entry in _entries(folder):
        if _OUTPUT.fullmatch(entry.name) or entry.name in named:
            shards.append(entry.name)
        elif is_run_record(entry.name):
            record = read_run_record(entry)
            count = record.inputs.count
            patterns = (OUTPUT_PATTERN.format(count - 1),), settings.names(count).patterns
            if record.work is not None and record.inputs.patterns in patterns:
                runs.append(FinishedRun(record.work, count, entry.url))
    return Earlier(shards, runs)


def remove_other_outputs(folder: str, plan: str, outputs: int, settings: ExchangeSettings) -> None:
    """Remove the outputs of other exchanges that were not replaced, and their records.

    Args:
        folder: folder of the outputs.
        plan: id of the plan whose outputs stay.
        outputs: number of these.
    """
    found, named = earlier_outputs(folder, settings), {*settings.outputs}
    for name in found.shards:
        match = _OUTPUT.fullmatch(name)
        if name not in named if named else match is not None and int(match[1]) >= outputs:
            url = join(folder, name)
            for each in (done_record_url(url), failed_samples_url(url)):
                with suppress(MissingInputError):
                    remove(each)
            remove_shard(url)
    for run in found.runs:
        if run.id != plan or run.outputs != outputs:
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
    names = {entry.name for entry in _entries(folder)}
    recorded = {name.removesuffix(DONE_SUFFIX) for name in names if name.endswith(DONE_SUFFIX)}
    return sorted((recorded - outputs.keys()) | {name for name in names if not outputs.get(name, True)})


def remove_other_runs(folder: str, outputs: Collection[str], plan: str) -> None:
    """Remove the recorded shards that are not outputs of this run, and the records of other runs.

    Args:
        folder: folder of the outputs.
        outputs: names of the outputs of this run.
        plan: id of its plan.
    """
    for entry in [*_entries(folder)]:
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


def remove_work(folder: str) -> None:
    """Remove the files of an exchange from its work folder, and the folder if it is empty then.

    The plan goes last: while it is there, a run that was killed meanwhile is resumed.
    """
    found = [entry for entry in _entries(folder) if _OF_WORK.fullmatch(entry.name) or is_run_record(entry.name)]
    found.sort(key=lambda entry: (entry.name == PLAN, not entry.name.endswith(".json")))
    for entry in found:
        with suppress(MissingInputError):
            remove(entry.url)
    path = local_path(folder)
    if path is not None:
        # It stays if it is a mount point, or in a folder of another user; another process may have
        # removed it.
        with suppress(OSError):
            remove_if_empty(path)


def _entries(folder: str) -> Iterator[Entry]:
    with suppress(MissingInputError):
        yield from entries(folder)
