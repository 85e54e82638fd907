"""Which module is a format of records: one line for each.

A module of this table has ``SUFFIXES``, the ends of its files' names; ``looks_like(head)``, whether a file that begins
with these bytes is one; ``read_records(source, on_damage=, tally=)`` and ``RecordWriter(target)``. One whose records
have names or keys has instead ``read_named(source, on_damage=, tally=)``, which gives (name, content), and
``NamedWriter(target)``, whose ``write`` takes them. One whose names are those of files has ``Archive(url)``, too, with
``names()`` and ``read(name)``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.formats.tally import Tally
from tarkit.store.read import open_read
from tarkit.store.url import is_stream, split_query

FORMATS = {
    "har": "har",
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
    """The format of a file: by the end of its name, else by its first bytes; ``tar`` if it is none of the others.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError: it cannot be read.
    """
    if is_stream(url):
        return "tar"
    for name in FORMATS:
        if split_query(url)[0].rstrip("/").endswith(format_module(name).SUFFIXES):
            return name
    with open_read(url, read_ahead=0) as stream:
        head = stream.read(_HEAD)
    return next((name for name in FORMATS if format_module(name).looks_like(head)), "tar")


def read_named(name: str, source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str | None, bytes]]:
    """(name or key, content) of each record of a file; None where records have no names."""
    module = format_module(name)
    if has_names(name):
        yield from module.read_named(source, on_damage=on_damage, tally=tally)
    else:
        for record in module.read_records(source, on_damage=on_damage, tally=tally):
            yield None, record


def has_names(name: str) -> bool:
    """Whether the records of a format have names or keys."""
    return hasattr(format_module(name), "NamedWriter")


def holds_files(name: str) -> bool:
    """Whether the names in a format are those of files."""
    return name != "tar" and hasattr(format_module(name), "Archive")


def named_writer(name: str, target: str) -> Any:
    """A context manager whose ``write(name, content)`` takes a record; the file appears whole at its end."""
    module = format_module(name)
    return module.NamedWriter(target) if has_names(name) else _Unnamed(module.RecordWriter(target))


class _Unnamed:
    """Drops the names."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __enter__(self) -> _Unnamed:
        self._writer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def write(self, name: str, content: bytes) -> None:
        """One record."""
        self._writer.write(content)
