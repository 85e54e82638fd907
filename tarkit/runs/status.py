"""Status of the shards of a folder, from their done records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import EXIT_SET_ASIDE, DataError, MissingInputError, TarkitError
from tarkit.names.outputnames import DONE_SUFFIX, output_name, plan_outputs
from tarkit.names.url import join
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.runs.runrecord import RunRecord, is_run_record, read_run_record
from tarkit.runs.usedfiles import UsedFile, sha256_of_file
from tarkit.store.entries import Entry, entries, identify
from tarkit.store.retry import GoneStores
from tarkit.store.waits import Workers

_AT_ONCE = 16
"""Number of records that are read at the same time."""

_AHEAD = 2_000
"""Number of records that are requested ahead: each takes some kilobytes."""


class RunProgress(NamedTuple):
    """A run that has begun.

    Attributes:
        record: name of its file in the folder.
        asked: number of shards that it must make.
        missing: number of them without a done record; a lower bound if their names are not known.
    """

    record: str
    asked: int
    missing: int


@dataclass
class Progress:
    """Names of shards by their state, and counts of the samples of done shards.

    Attributes:
        stale: name -> reason.
        failed: name -> error.
        set_aside: name -> number of failed samples.
        damaged: done shards whose input had damage that was skipped, or fields that were dropped.
        missing: shards without a record; known only if inputs were given, or there are records of
            ``runs``.
        not_compared: reason why files of shards are not compared -> number of done shards.
    """

    done: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    runs: list[RunProgress] = field(default_factory=list)
    not_compared: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0

    @property
    def unfinished(self) -> bool:
        """True if a run would have work to do."""
        return bool(self.missing or self.stale or self.failed or any(run.missing for run in self.runs))

    @property
    def empty(self) -> bool:
        """True if all shards are done, samples came in, and none came out."""
        return not self.unfinished and self.counts.nothing_came_out

    @property
    def lost_samples(self) -> bool:
        """True if done shards lack samples."""
        return bool(self.set_aside or self.damaged)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a report."""
        return {
            "done": len(self.done),
            "missing": self.missing,
            "stale": self.stale,
            "failed": self.failed,
            "set_aside": self.set_aside,
            "damaged": self.damaged,
            "empty": self.empty,
            "emptied_fields": self.counts.emptied,
            "runs": [run._asdict() for run in self.runs],
            "not_compared": dict(self.not_compared),
            # Nothing, where shards of other runs are counted too.
            "samples": self.counts.as_dict() if self.bytes else {},
            "bytes": self.bytes,
        }


def progress_of(
    folder: str,
    inputs: Iterable[str] | None = None,
    work: str | None = None,
    *,
    as_named: bool = False,
    check_inputs: bool = True,
    of_runs: bool = False,
    compare_files: bool = False,
) -> Progress:
    """Read all done records of a folder, and return the progress.

    Args:
        folder: path or URL.
        inputs: inputs of the run, from which missing shards are derived; records of other inputs
            are ignored.
        check_inputs: check whether each input has changed since.
        work: fingerprint of the run's work; shards made by other work are stale.
        as_named: ``inputs`` are named as the run names them; shards made from other names are
            stale.
        of_runs: compare with the records of the folder's runs: with that of the last run that was
            to make the shard. Without ``inputs``, missing shards are derived from them, too.
        compare_files: compare with the files on this machine.

    Raises:
        MissingInputError: the folder does not exist and no inputs are given; with inputs, all
            shards are missing.
        StreamError, TemporaryStreamError: a record cannot be read.
    """
    found = Progress()
    sources: dict[str, str] | None = None
    if inputs is not None:
        sources = {output_name(url): url for url, _ in plan_outputs(inputs, folder)}
    sizes: dict[str, int | None] = {}
    runs: list[Entry] = []
    try:
        for entry in entries(folder):
            if of_runs and is_run_record(entry.name):
                runs.append(entry)
            elif not entry.is_folder:
                sizes[entry.name] = entry.size
    except MissingInputError:
        if sources is None:
            raise
    names = sorted(name.removesuffix(DONE_SUFFIX) for name in sizes if name.endswith(DONE_SUFFIX))
    recorded = set(names)
    asked = _asked_by_runs(found, runs, recorded if sources is None else None)
    found.missing = [name for name in (asked if sources is None else sources) if name not in recorded]
    if sources is not None:
        names = [name for name in names if name in sources]

    gone = GoneStores()

    def size_of(name: str) -> int | None:
        if name not in sizes:
            raise MissingInputError("no such file", url=name)
        return sizes[name]

    def look(name: str) -> tuple[str, DoneRecord | None, str | None]:
        """Return the name, the record, and why the shard is stale or its record cannot be read."""
        try:
            record = read_record(join(folder, name + DONE_SUFFIX))
        except DataError as problem:
            return name, None, str(problem)
        if record is None or record.state != "done":
            return name, record, None
        source = None
        try:
            if sources is not None and check_inputs:
                with gone.asking(sources[name]):
                    source = identify(sources[name])
        except MissingInputError:
            return name, record, "the input is gone"
        except TarkitError as problem:
            return name, record, f"the input cannot be asked: {problem}"
        wanted: dict[str, Any] = {"url": sources[name] if sources is not None and as_named else None, "work": work}
        if name in asked:
            url, run = asked[name]
            wanted = {"work": run.work, "tarkit": run.tarkit, "files": run.files}
            wanted["url"] = url if sources is None else None
        why = record.why_stale(lambda: size_of(name), source=source, **wanted)
        return name, record, why or (record.changed_file(_files_here(record)) if compare_files else None)

    with Workers(_AT_ONCE, "records") as executor:
        for name, record, problem in executor.ahead(look, names, _AHEAD):
            _enter(found, name, record, problem, compare_files)
    return found


def _asked_by_runs(
    found: Progress, runs: Iterable[Entry], recorded: set[str] | None
) -> dict[str, tuple[str, RunRecord]]:
    """Return the outputs that runs were to make: name -> input, and the last of these runs.

    Args:
        found: the runs, and the records that cannot be read, are added to it.
        runs: records of the runs.
        recorded: names with a done record; None counts no missing ones.
    """
    asked: dict[str, tuple[str, RunRecord]] = {}
    records = []
    for entry in runs:
        try:
            records.append(read_run_record(entry))
        except DataError as problem:
            found.failed[entry.name] = str(problem)
    for run in sorted(records, key=lambda each: (each.begun or 0.0, each.name)):
        names: list[str] = []
        try:
            for url in run.inputs.urls() or ():
                names.append(output_name(url))
                asked[names[-1]] = url, run
        except TarkitError as problem:
            found.failed[run.name] = f"what this run is to make is not known: {problem}"
        if recorded is not None:
            # Where their names are not known, the folder must have at least so many records.
            made = sum(name in recorded for name in names) if names else len(recorded)
            found.runs.append(RunProgress(run.name, run.inputs.count, max(0, run.inputs.count - made)))
    return asked


def _files_here(record: DoneRecord) -> list[UsedFile] | None:
    """Return the files that the shard was made with, as they are on this machine.

    None if no files were recorded.
    """
    if record.files is None:
        return None
    here = []
    for each in record.files:
        with suppress(OSError):
            here.append({**each, "sha256": sha256_of_file(each["path"])})
    return here


def _enter(found: Progress, name: str, record: DoneRecord | None, problem: str | None, compare_files: bool) -> None:
    if record is None:
        if problem is None:
            found.stale[name] = "its record is of another version"
        else:
            found.failed[name] = problem
    elif record.state != "done" or record.output is None:
        found.failed[name] = record.error or "unknown"
    elif problem is not None:
        found.stale[name] = problem
    else:
        found.done.append(name)
        if reason := record.not_compared(_files_here(record) if compare_files else None):
            found.not_compared[reason] += 1
        found.bytes += record.output["size"]
        found.counts.add(Counts.of(record))
        if record.failed:
            found.set_aside[name] = len(record.failed)
        elif record.exit_code == EXIT_SET_ASIDE:
            found.damaged.append(name)
