"""Hadoop archives (HAR, versions 1 to 3): many files in a few, with an index.

``docs/formats/har.md`` is the page.

A folder ``NAME.har`` holds ``part-0`` and so on, the concatenated contents; ``_index``, a line for
each file and folder, in the order of a hash of its path; and ``_masterindex``, the version, and
which hashes are where in ``_index``. :class:`HarArchive` reads one, :class:`HarWriter` writes
version 3.
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
    """Never: an archive is a folder, known by its name."""
    return False


def read_named(source: str, *, on_damage: str, tally: Tally, mem: int) -> Iterator[tuple[str, bytes]]:
    """(path, content) of each file, in the order of their contents; see :meth:`HarArchive.items`."""
    return HarArchive(source).items(on_damage=on_damage, tally=tally, mem=mem)


def read_sizes(source: str, *, on_damage: str, tally: Tally) -> Iterator[tuple[str, int]]:
    """(path, size) of each file, in the order of their contents; contents are not read."""
    return HarArchive(source).sizes(on_damage=on_damage, tally=tally)
