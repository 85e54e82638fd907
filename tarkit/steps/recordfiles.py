"""Write records to a numbered series of RecordIO files in a folder, each published whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain, islice

from tarkit.errors import MissingInputError, UsageError, counted, printable
from tarkit.formats.recordio import RecordWriter
from tarkit.names.redaction import redact
from tarkit.names.url import join
from tarkit.specs.outputcheck import check_other_than
from tarkit.store.entries import entries, remove

RECORDS_PER_FILE = 1024


def write_record_files(
    records: Iterable[bytes],
    folder: str,
    prefix: str = "data",
    *,
    digits: int = 5,
    records_per_file: int = RECORDS_PER_FILE,
    if_absent: bool = False,
    published: Callable[[str, int], object] = lambda name, records: None,
) -> int:
    """Write ``PREFIX-00000``, ``PREFIX-00001`` …; return the number of records.

    The memory used does not depend on the number of records. Without records no file is written,
    and no file is empty.

    Args:
        folder: folder at any place of the store.
        if_absent: raise an error instead of replacing an existing file.
        published: called with the name of each file and its number of records, after the file was
            published.

    Raises:
        UsageError: records_per_file is not positive.
        AlreadyPublishedError: a file exists, with ``if_absent``.
        TarkitError: a record cannot be read, or a file cannot be written. Published files stay, the
            current one is discarded.
    """
    if records_per_file < 1:
        raise UsageError(f"records_per_file is {records_per_file}; it must be at least 1")
    rest = iter(records)
    number = total = 0
    while (first := next(rest, None)) is not None:
        name = join(folder, f"{prefix}-{number:0{digits}d}")
        with RecordWriter(name, if_absent=if_absent) as writer:
            writer.write_batch(chain([first], islice(rest, records_per_file - 1)))
        published(name, writer.records)
        total += writer.records
        number += 1
    return total


def clear_record_files(folder: str, *, force: bool = False, sources: Iterable[str] = ()) -> int:
    """Check that no file of an earlier run would count as one of this run.

    How many were removed.

    Raises:
        UsageError: such files exist and ``force`` is not set, or one of them is a source.
    """
    pattern = re.compile(r"data(-\d+)+")
    try:
        found = [entry for entry in entries(folder) if not entry.is_folder and pattern.fullmatch(entry.name)]
    except MissingInputError:
        return 0
    if found and not force:
        raise UsageError(
            f"{printable(redact(folder))} has {counted(len(found), 'file')} of an earlier run, such as "
            f"{printable(found[0].name)}; --force replaces them"
        )
    check_other_than([entry.url for entry in found], sources)
    for entry in found:
        remove(entry.url)
    return len(found)
