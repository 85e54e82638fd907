"""How far the shards of a folder are: from their done records alone, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tarkit.donerecord import SUFFIX, DoneRecord, read_record
from tarkit.entries import entries, remove
from tarkit.errors import MissingInputError, TarkitError, redact
from tarkit.identity import identify
from tarkit.shardrun import plan_outputs
from tarkit.sources import local_path

TEMPORARY_MARK = ".tarkit-"
"""In the names under which outputs are written before they are published."""


@dataclass
class Progress:
    """Names of shards by what is known of them, and totals of those that are done.

    stale: name -> why. failed: name -> error. set_aside: name -> number of failed samples.
    missing is known only where the inputs were given.
    """

    done: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    set_aside: dict[str, int] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.missing or self.stale or self.failed or self.set_aside)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "done": len(self.done),
            "missing": self.missing,
            "stale": self.stale,
            "failed": self.failed,
            "set_aside": self.set_aside,
            "samples": self.samples,
            "bytes": self.bytes,
        }


def progress_of(folder: str, inputs: Iterable[str] | None = None) -> Progress:
    """Look at every done record of a folder.

    Args:
        folder: path or URL. inputs: what the run was given, to know what is missing, and whether
            an input changed since.

    Raises:
        MissingInputError: there is no such folder. DataError: a record is damaged.
    """
    listing = {entry.name: entry for entry in entries(folder) if not entry.is_folder}
    base = folder.rstrip("/")
    found = Progress()
    sources = None if inputs is None else {output.rpartition("/")[2]: url for url, output in plan_outputs(inputs, base)}
    names = sorted(name.removesuffix(SUFFIX) for name in listing if name.endswith(SUFFIX))
    for name in names:
        if sources is not None and name not in sources:
            continue
        record = read_record(f"{base}/{name}{SUFFIX}")
        if record is None:
            found.stale[name] = "its record is of another version"
            continue
        entry = listing.get(name)
        size = None if entry is None else entry.size
        _enter(found, name, record, entry is not None, size, None if sources is None else sources[name])
    if sources is not None:
        found.missing = [name for name in sources if name not in set(names)]
    return found


def _enter(found: Progress, name: str, record: DoneRecord, there: bool, size: int | None, source: str | None) -> None:
    if record.state != "done" or record.output is None:
        found.failed[name] = record.error or "unknown"
        return
    if not there:
        found.stale[name] = "the output is gone"
    elif size is not None and size != record.output["size"]:
        found.stale[name] = "the output has another size"
    elif source is not None and (why := _changed(source, record)) is not None:
        found.stale[name] = why
    else:
        found.done.append(name)
        found.bytes += record.output["size"]
        for kind, count in record.samples.items():
            found.samples[kind] = found.samples.get(kind, 0) + count
        if record.failed:
            found.set_aside[name] = len(record.failed)


def _changed(source: str, record: DoneRecord) -> str | None:
    try:
        now = identify(source)
    except MissingInputError:
        return "the input is gone"
    except TarkitError as problem:
        return f"the input can not be asked: {problem}"
    if (record.input.get("size"), record.input.get("tag")) != (now.size, now.tag):
        return "the input changed"
    return None


def clean(folder: str, *, older_than: float, now: float) -> Iterator[str]:
    """Remove what killed runs left in a folder under temporary names; the names, as they may be shown.

    A local file that a living run still writes is locked, and stays. Elsewhere nobody can tell a dead
    writer from a slow one, so only what is older than ``older_than`` seconds at the time ``now``
    goes; on S3 that is also parts of uploads that were never finished.
    """
    for entry in list(entries(folder)):
        if entry.is_folder or not entry.name.startswith(".") or TEMPORARY_MARK not in entry.name:
            continue
        path = local_path(entry.url)
        young = entry.mtime is None or now - entry.mtime < older_than
        if is_locked(path) if path is not None else young:
            continue
        remove(entry.url)
        yield redact(entry.url)


def is_locked(path: str) -> bool:
    """Whether a living process writes a temporary file."""
    import fcntl
    import os

    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)
