"""How far the shards of a folder are: from their done records alone, whichever run made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import EXIT_SET_ASIDE, DataError, MissingInputError, TarkitError
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.specs.outputnames import DONE_SUFFIX, output_name, plan_outputs
from tarkit.store.entries import entries, identify
from tarkit.store.retry import GoneStores
from tarkit.store.url import join
from tarkit.store.waits import Workers

_AT_ONCE = 16
"""Records that are read at the same time."""

_AHEAD = 2_000
"""Records that are asked for before their turn: each that waits takes some kilobytes."""


@dataclass
class Progress:
    """Names of shards by what is known of them, and counts of the samples of those that are done.
    stale: name -> why. failed: name -> error. set_aside: name -> number of failed samples. damaged: of those done, the
    ones whose input had damage that was skipped, or fields that were dropped. missing is known only where the inputs
    were given."""

    done: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether a run would have something to do."""
        return bool(self.missing or self.stale or self.failed)

    @property
    def empty(self) -> bool:
        """Whether samples came into the shards that are done, and none came out."""
        return self.counts.nothing_came_out

    @property
    def lost_samples(self) -> bool:
        """Whether shards that are done lack samples."""
        return bool(self.set_aside or self.damaged)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "done": len(self.done),
            "missing": self.missing,
            "stale": self.stale,
            "failed": self.failed,
            "set_aside": self.set_aside,
            "damaged": self.damaged,
            "empty": self.empty,
            "emptied_fields": self.counts.emptied,
            # Nothing, where shards of other runs are counted too.
            "samples": self.counts.as_dict() if self.bytes else {},
            "bytes": self.bytes,
        }


def progress_of(
    folder: str,
    inputs: Iterable[str] | None = None,
    work: str | None = None,
    made_of: Mapping[str, str] | None = None,
    *,
    check_inputs: bool = True,
) -> Progress:
    """Look at every done record of a folder.

    Args:
        folder: path or URL. inputs: what the run was given, to know what is missing; records of others are left out.
        check_inputs: ask each input whether it changed since. work: fingerprint of what the run does; shards made by
            anything else are stale.
        made_of: output's name -> its input, as the run names it; shards made of anything else are stale.

    Raises:
        MissingInputError: no such folder (never where inputs are given: then all are missing).
        StreamError, TemporaryStreamError: a record cannot be read.
    """
    found = Progress()
    sources: dict[str, str] | None = None
    if inputs is not None:
        sources = {output_name(url): url for url, _ in plan_outputs(inputs, folder)}
    try:
        sizes = {entry.name: entry.size for entry in entries(folder) if not entry.is_folder}
    except MissingInputError:
        if sources is None:
            raise
        sizes = {}
    names = sorted(name.removesuffix(DONE_SUFFIX) for name in sizes if name.endswith(DONE_SUFFIX))
    if sources is not None:
        recorded = set(names)
        found.missing = [name for name in sources if name not in recorded]
        names = [name for name in names if name in sources]

    gone = GoneStores()

    def size_of(name: str) -> int | None:
        if name not in sizes:
            raise MissingInputError("no such file", url=name)
        return sizes[name]

    def look(name: str) -> tuple[str, DoneRecord | None, str | None]:
        """Name, record, and why the shard is stale, or its record cannot be read."""
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
        url = None if made_of is None else made_of.get(name)
        return name, record, record.why_stale(lambda: size_of(name), url=url, source=source, work=work)

    with Workers(_AT_ONCE, "records") as executor:
        for name, record, problem in executor.ahead(look, names, _AHEAD):
            _enter(found, name, record, problem)
    return found


def _enter(found: Progress, name: str, record: DoneRecord | None, problem: str | None) -> None:
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
        found.bytes += record.output["size"]
        found.counts.add(Counts.of(record.samples))
        found.counts.emptied += record.emptied_fields
        if record.failed:
            found.set_aside[name] = len(record.failed)
        elif record.exit_code == EXIT_SET_ASIDE:
            found.damaged.append(name)
