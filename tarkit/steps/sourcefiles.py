"""List the files of a folder or of a tar, from which records are prepared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tarkit.formats.registry import is_tar_name
from tarkit.formats.tally import Tally
from tarkit.names.url import reads_once
from tarkit.samples.read import read_members
from tarkit.store.entries import entries
from tarkit.store.read import open_read, read_whole


class SourceFile(NamedTuple):
    """A file to prepare.

    Attributes:
        url: URL of the file, None in a tar.
        read: function that returns its content.
    """

    name: str
    url: str | None
    read: Callable[[], bytes]


def files_of(source: str, tally: Tally, *, on_damage: str = "error") -> Iterator[SourceFile]:
    """Yield all files of a folder at any depth, sorted by name, or of a tar in its order.

    Hidden files are skipped and counted.

    Args:
        on_damage: for a tar; skip continues after damage, and records the loss in ``tally``.

    Raises:
        DataError: the tar is damaged.
        MissingInputError, StreamError, TemporaryStreamError: the source cannot be read.
    """
    if is_tar_name(source):
        with open_read(source) as stream:
            for name, content, _ in read_members(stream.read, url=stream.name, tally=tally, on_damage=on_damage):
                if is_hidden(name):
                    tally.skip("hidden")
                elif name:
                    yield SourceFile(name, None, functools.partial(bytes, content))
    else:
        yield from files_of_folder(source, tally)


def files_of_folder(folder: str, tally: Tally) -> Iterator[SourceFile]:
    """Yield all files of a folder at any depth, sorted by name.

    Hidden files and symbolic links to folders are skipped and counted.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError: the folder cannot be listed.
    """
    for entry in sorted(entries(folder, recursive=True), key=lambda entry: entry.name):
        if is_hidden(entry.name):
            tally.skip("hidden")
        elif entry.is_folder:
            # A link: other folders are listed as what is in them.
            tally.skip("linked-folder")
        elif reads_once(entry.url):
            # Such as a named pipe, whose reader would wait for ever.
            tally.skip("not-a-file")
        else:
            yield SourceFile(entry.name, entry.url, functools.partial(read_whole, entry.url, compression=None))


def is_hidden(name: str) -> bool:
    """Return True if a file or one of its folders has a name that begins with a dot."""
    return any(part.startswith(".") and part != "." for part in name.split("/"))
