"""Which module is a format of records: one line for each.

A module of this table has ``SUFFIXES``, the ends of its files' names; ``looks_like(head)``, whether
a file that begins with these bytes is one; ``read_records(source, on_damage=, tally=, mem=)`` and
``RecordWriter(target)``. One whose records have names or keys has instead ``read_named(source,
on_damage=, tally=, mem=)``, which gives (name, content), and ``NamedWriter(target)``, whose
``write`` takes them; and ``read_sizes(source, on_damage=, tally=)`` if it knows sizes of more than
it gives the content of. One whose names are those of files has ``Archive(url)`` with ``names()``
and ``read(name)``, too. One whose records are rows of named values has instead ``read_rows(source,
columns=, mem=)``, which gives dicts, ``RowWriter(target, columns=)``, whose ``write`` takes them,
and ``read_sizes``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tarkit.errors import DataError, UsageError, printable
from tarkit.formats.datafolder import data_files, is_folder
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.formats.tar import headers
from tarkit.formats.tar.walk import MAGIC
from tarkit.names.url import base_name, display_name, is_stream, reads_once, split_query
from tarkit.store.compression import check_tar_name
from tarkit.store.read import first_bytes

FORMATS = {
    "har": "har",
    "parquet": "parquet",
    "recordio": "recordio",
    "sequencefile": "sequencefile",
    "tfrecord": "tfrecord",
}
"""Format -> module below ``tarkit.formats``. ``tar`` is what they are converted from and to."""

_HEAD = 512


def format_module(name: str) -> Any:
    """The module of a format.

    Raises:
        UsageError: no such format.
    """
    if name not in FORMATS:
        raise UsageError(f"{printable(repr(name))} is not a format; formats are tar, {', '.join(FORMATS)}")
    return importlib.import_module(f"tarkit.formats.{FORMATS[name]}")


def format_of(url: str) -> str:
    """The format of a file: by the end of its name, else by its first bytes.

    ``tar`` if it is none of the others. What can be read only once, such as standard input or a
    named pipe, is taken for a tar if its name does not say.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError: it cannot be read.
    """
    named = format_by_name(url)
    if named is not None or reads_once(url):
        return named or "tar"
    return _format_by_head(first_bytes(url, _HEAD)) or "tar"


def is_tar_name(url: str) -> bool:
    """Whether a name says that this is a tar."""
    name = base_name(url)
    return name.endswith((".tar", ".tgz", ".tzst", ".tbz2", ".txz")) or ".tar." in name


def format_by_name(url: str) -> str | None:
    """The format that the end of a name shows; None if it shows none."""
    path = "" if is_stream(url) else split_query(url)[0].rstrip("/")
    found = (name for name in FORMATS if path.endswith(format_module(name).SUFFIXES))
    return next(found, "tar" if path and is_tar_name(url) else None)


def check_output_name(url: str, to: str) -> None:
    """Refuse a name by which the output would be taken for another format.

    Raises:
        UsageError: no such format; the name ends as those of another format, or is not that of an
            archive.
    """
    if to == "tar":
        check_tar_name(url)
    else:
        format_module(to)
    named = format_by_name(url)
    if named not in (None, to):
        raise UsageError(f"{display_name(url)} is by its name {named}, and would be {to}; give the output another name")
    if named is None and holds_files(to) and not is_stream(url):
        (suffix,) = format_module(to).SUFFIXES
        raise UsageError(f"{display_name(url)}: an archive is known by its name only, which must end with {suffix}")


def input_files(names: Iterable[str], tally: Tally) -> Iterator[str]:
    """Names of files; of folders, their data.

    An archive, which is a folder, is one.

    Raises:
        MissingInputError: no data in a folder.
        StreamError, TemporaryStreamError: it cannot be listed.
    """
    archives = tuple(suffix for each in FORMATS if holds_files(each) for suffix in format_module(each).SUFFIXES)
    for name in names:
        known = format_by_name(name)
        is_one = known is not None and (known == "tar" or holds_files(known))
        yield from data_files(name, tally, archives) if not is_one and is_folder(name) else [name]


def read_named(
    name: str, source: str, *, on_damage: str, tally: Tally, mem: int = DEFAULT_MEM
) -> Iterator[tuple[str | None, bytes]]:
    """(name or key, content) of each record of a file; None where records have no names.

    Args:
        mem: bytes of a record.
    """
    module = format_module(name)
    with _named_for_what_it_is(name, source):
        if has_names(name):
            yield from module.read_named(source, on_damage=on_damage, tally=tally, mem=mem)
        else:
            for record in module.read_records(source, on_damage=on_damage, tally=tally, mem=mem):
                yield None, record


@contextmanager
def _named_for_what_it_is(name: str, source: str) -> Iterator[None]:
    """An error at the first byte of a file that does not begin as one of its format says what it
    seems to be.
    """
    try:
        yield
    except DataError as error:
        if error.offset == 0 and not (reads_once(source) or holds_files(name)):
            head = first_bytes(source, _HEAD)
            found = _format_by_head(head) or ("tar" if head[257:262] == MAGIC else None)
            looks = f"it looks like {found}" if found else headers.known_look(head)
            if looks is not None and found != name:
                error.reason = f"{error.reason}; {looks}"
                error.hint = f"name its format, with --from {found}" if found else None
        raise


def _format_by_head(head: bytes) -> str | None:
    return next((name for name in FORMATS if format_module(name).looks_like(head)), None)


def read_sizes(name: str, source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str | None, int]]:
    """(name or key, bytes of content) of each record of a file; None where records have no names."""
    module = format_module(name)
    if hasattr(module, "read_sizes"):
        with _named_for_what_it_is(name, source):
            yield from module.read_sizes(source, on_damage=on_damage, tally=tally)
    else:
        for key, content in read_named(name, source, on_damage=on_damage, tally=tally):
            yield key, len(content)


def has_names(name: str) -> bool:
    """Whether the records of a format have names or keys."""
    return hasattr(format_module(name), "NamedWriter")


def holds_rows(name: str) -> bool:
    """Whether the records of a format are rows of named values."""
    return name != "tar" and hasattr(format_module(name), "RowWriter")


def holds_samples(name: str) -> bool:
    """Whether the records of a format are samples: a tar, or rows of named values."""
    return name == "tar" or holds_rows(name)


def holds_files(name: str) -> bool:
    """Whether the names in a format are those of files."""
    return name != "tar" and hasattr(format_module(name), "Archive")


@contextmanager
def named_writer(name: str, target: str) -> Iterator[Callable[[str, bytes], object]]:
    """Writes a record, by its name and content; the file appears whole at the end.

    Some formats drop the name.
    """
    module = format_module(name)
    with (module.NamedWriter if has_names(name) else module.RecordWriter)(target) as writer:
        yield writer.write if has_names(name) else lambda _, content: writer.write(content)
