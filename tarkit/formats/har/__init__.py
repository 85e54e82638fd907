"""Hadoop archives (HAR, versions 1 to 3): many files in a few, with an index; ``docs/formats/har.md`` is the page.

A folder ``NAME.har`` holds ``part-0`` and so on, the contents one behind the other; ``_index``, a line for each file
and folder, in the order of a hash of its path; and ``_masterindex``, the version, and which hashes are where in
``_index``. :class:`HarArchive` reads one, :class:`HarWriter` writes version 3.
"""

from __future__ import annotations

from tarkit.formats.har.index import HarEntry
from tarkit.formats.har.read import HarArchive
from tarkit.formats.har.write import HarWriter

__all__ = ["HarArchive", "HarEntry", "HarWriter"]
