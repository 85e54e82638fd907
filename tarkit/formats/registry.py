"""Select the module of a record format: one line for each format.

A module of this table has ``SUFFIXES``, the endings of its files' names; ``looks_like(head)``, True
if these bytes can be the beginning of such a file; ``read_records(source, on_damage=, tally=,
mem=)`` and ``RecordWriter(target)``.

- A format whose records have names or keys has instead ``read_named(source, on_damage=, tally=,
  mem=)``, which yields (name, content), and ``NamedWriter(target)``, whose ``write`` takes both;
  and ``read_sizes(source, on_damage=, tally=)`` if it knows the sizes of contents that it does not
  read.
- A format whose names are those of files also has ``Archive(url)`` with ``names()`` and
  ``read(name)``.
- A format whose records are rows of named values has instead ``read_rows(source, columns=, mem=)``,
  which yields dicts, ``RowWriter(target, columns=)``, whose ``write`` takes a dict, and
  ``read_sizes``.
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
"""Format -> module below ``tarkit.formats``. They are converted from and to ``tar``."""

_HEAD = 512


def format_module(name: str) -> Any:
    """Return the module of a format.

    Raises:
        UsageError: the format does not exist.
    """
    if name not in FORMATS:
        raise UsageError(f"{printable(repr(name))} is not a format; formats are tar, {', '.join(FORMATS)}")
    return importlib.import_module(f"tarkit.formats.{FORMATS[name]}")


def format_of(url: str) -> str:
    """Return the format of a file: by the ending of its name, or else by its first bytes.

    ``tar`` if it is none of the other formats. A file that can be read only once, such as standard
    input or a named pipe, is taken for a tar unless its name has another ending.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    named = format_by_name(url)
    if named is not None or reads_once(url):
        return named or "tar"
    return _format_by_head(first_bytes(url, _HEAD)) or "tar"


def is_tar_name(url: str) -> bool:
    """Return True if a name is that of a tar, compressed or not."""
    name = base_name(url)
    return name.endswith((".tar", ".tgz", ".tzst", ".tbz2", ".txz")) or ".tar." in name


def format_by_name(url: str) -> str | None:
    """Return the format that the ending of a name shows; None if it shows none."""
    path = "" if is_stream(url) else split_query(url)[0].rstrip("/")
    found = (name for name in FORMATS if path.endswith(format_module(name).SUFFIXES))
    return next(found, "tar" if path and is_tar_name(url) else None)


def check_output_name(url: str, to: str) -> None:
    """Reject a name by which the output would be taken for another format.

    Raises:
        UsageError: the format does not exist; or the name has the ending of another format, or is
            not that of an archive.
    """
    if to == "tar":
        check_tar_name(url)
    else:
        format_module(to)
    named = format_by_name(url)
    if named not in (None, to):
        raise UsageError(f"{display_name(url)} has the name of a {named} file, but would be {to}; rename the output")
    if named is None and holds_files(to) and not is_stream(url):
        (suffix,) = format_module(to).SUFFIXES
        raise UsageError(f"{display_name(url)}: an archive is recognized by its name, which must end with {suffix}")


def input_files(names: Iterable[str], tally: Tally) -> Iterator[str]:
    """Yield names of files, and for a folder the names of its data files.

    An archive, which is a folder, is yielded as one name.

    Raises:
        MissingInputError: a folder has no data.
        StreamError: a folder cannot be listed.
        TemporaryStreamError: a folder cannot be listed now.
    """
    archives = tuple(suffix for each in FORMATS if holds_files(each) for suffix in format_module(each).SUFFIXES)
    for name in names:
        known = format_by_name(name)
        is_one = known is not None and (known == "tar" or holds_files(known))
        yield from data_files(name, tally, archives) if not is_one and is_folder(name) else [name]


def read_named(
    name: str, source: str, *, on_damage: str, tally: Tally, mem: int = DEFAULT_MEM
) -> Iterator[tuple[str | None, bytes]]:
    """Yield (name or key, content) of each record of a file; None if records have no names.

    Args:
        name: the format.
        source: path or URL of the file.
        on_damage: error, or skip.
        tally: filled with counts and damage.
        mem: largest size of a record in bytes.
    """
    module = format_module(name)
    with _format_in_errors(name, source):
        if has_names(name):
            yield from module.read_named(source, on_damage=on_damage, tally=tally, mem=mem)
        else:
            for record in module.read_records(source, on_damage=on_damage, tally=tally, mem=mem):
                yield None, record


@contextmanager
def _format_in_errors(name: str, source: str) -> Iterator[None]:
    """Add to an error at the first byte of a file the format that the file seems to have."""
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
    """Yield (name or key, size in bytes) of each record; None if records have no names."""
    module = format_module(name)
    if hasattr(module, "read_sizes"):
        with _format_in_errors(name, source):
            yield from module.read_sizes(source, on_damage=on_damage, tally=tally)
    else:
        for key, content in read_named(name, source, on_damage=on_damage, tally=tally):
            yield key, len(content)


def has_names(name: str) -> bool:
    """Return True if the records of a format have names or keys."""
    return hasattr(format_module(name), "NamedWriter")


def holds_rows(name: str) -> bool:
    """Return True if the records of a format are rows of named values."""
    return name != "tar" and hasattr(format_module(name), "RowWriter")


def holds_samples(name: str) -> bool:
    """Return True if the records of a format are samples: a tar, or rows of named values."""
    return name == "tar" or holds_rows(name)


def holds_files(name: str) -> bool:
    """Return True if the names in a format are those of files."""
    return name != "tar" and hasattr(format_module(name), "Archive")


@contextmanager
def named_writer(name: str, target: str) -> Iterator[Callable[[str, bytes], object]]:
    """Open a file to write; return a function that writes a record by its name and content.

    The file appears whole at the end. Some formats drop the name.
    """
    module = format_module(name)
    with (module.NamedWriter if has_names(name) else module.RecordWriter)(target) as writer:
        yield writer.write if has_names(name) else lambda _, content: writer.write(content)
