"""Hadoop archives (HAR, versions 1 to 3): many files in a few large files, with an index.

The format: ``docs/formats/har.md``.

A folder ``NAME.har`` holds ``part-0`` and so on, the concatenated contents; ``_index``, a line for
each file and folder, in the order of a hash of its path; and ``_masterindex``, the version and the
places of ranges of hashes in ``_index``. :class:`HarArchive` reads an archive, :class:`HarWriter`
writes version 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.formats.har.index import HarEntry
from tarkit.formats.har.read import HarArchive
from tarkit.formats.har.write import HarWriter
from tarkit.formats.tally import Tally

__all__ = ["HarArchive", "HarEntry", "HarWriter", "NamedWriter", "looks_like", "read_named", "read_sizes"]

SUFFIXES = (".har",)
Archive = HarArchive
NamedWriter = HarWriter


def looks_like(head: bytes) -> bool:
    """Return False: an archive is a folder, recognized by its name."""
    return False


def read_named(source: str, *, on_damage: str, tally: Tally, mem: int) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of each file, in the order of the contents.

    See :meth:`HarArchive.items`.
    """
    return HarArchive(source).items(on_damage=on_damage, tally=tally, mem=mem)


def read_sizes(source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str, int]]:
    """Yield (path, size) of each file, in the order of the contents, which are not read."""
    return HarArchive(source).sizes(on_damage=on_damage, tally=tally)
