"""The files of an exchange in its work folder: plan, run files and records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

from tarkit.errors import DataError, MissingInputError, UsageError, printable
from tarkit.exchange.plan import PLAN, PLAN_FORMAT
from tarkit.exchange.runfile import PREFIX
from tarkit.formats.tar.headers import BLOCK
from tarkit.names.redaction import redact
from tarkit.names.url import local_path
from tarkit.runs.runrecord import is_run_record, read_run_record
from tarkit.store.entries import Entry, entries, remove
from tarkit.store.read import read_range, read_whole
from tarkit.store.trees import remove_if_empty

_OF_STAGE = r"(run|match)-[0-9]{6,}\.tar"
_OF_WORK = re.compile(rf"plan\.json|{_OF_STAGE}(\.done\.json)?")
_NAMES_OF_STAGE = re.compile(r"(run|match)-\{0{6,}\.\.")


def check_work_folder(folder: str) -> None:
    """Check that a folder without a plan has no files of other programs that would be replaced.

    Raises:
        UsageError: a file has the name of a run file, or of its record, and is another one.
        StreamError, TemporaryStreamError: the folder cannot be read.
    """
    for entry in entries_of(folder):
        if _OF_WORK.fullmatch(entry.name) and not _is_of_exchange(entry):
            raise UsageError(
                f"{printable(redact(folder))} has a file {entry.name} that is not of an exchange, and would be "
                "replaced; use --work for another folder"
            )


def remove_work(folder: str) -> None:
    """Remove the files of an exchange from its work folder, and the folder if it is empty then.

    The plan goes last: while it is there, a run that was killed meanwhile is resumed.
    """
    all_entries = [*entries_of(folder)]
    # Where a plan was written, no other file has such a name; see check_work_folder().
    is_known = any(entry.name == PLAN and _is_of_exchange(entry) for entry in all_entries)
    found = list[Entry]()
    for entry in all_entries:
        if _OF_WORK.fullmatch(entry.name):
            if is_known or _is_of_exchange(entry):
                found.append(entry)
        elif is_run_record(entry.name) and _is_of_stage(entry):
            found.append(entry)
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


def _is_of_exchange(entry: Entry) -> bool:
    """Return True if a file is what its name says: a plan, a run file, or the record of a slice."""
    try:
        if not entry.name.endswith(".json"):
            size = entry.size or 0
            return read_range(entry.url, 0, min(size, BLOCK), size=size).startswith(PREFIX.encode())
        document = json.loads(read_whole(entry.url, compression=None))
        if entry.name == PLAN:
            return str(document["format"]).startswith(PLAN_FORMAT)
        # That of a shard that was read has its size, too.
        return [*document["input"]] == ["url"] and re.fullmatch(_OF_STAGE, document["input"]["url"]) is not None
    except MissingInputError:
        return True  # removed by its run in this moment
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DataError):
        return False


def _is_of_stage(entry: Entry) -> bool:
    """Return True if a run record is that of a stage in a work folder."""
    try:
        return all(_NAMES_OF_STAGE.match(pattern) for pattern in read_run_record(entry).inputs.patterns or ("",))
    except (MissingInputError, DataError):
        return False


def entries_of(folder: str) -> Iterator[Entry]:
    """Yield the entries of a folder; none if it does not exist."""
    with suppress(MissingInputError):
        yield from entries(folder)
