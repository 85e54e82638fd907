"""Hadoop's SequenceFile: pairs of keys and values, versions 1 to 6.

The format: ``docs/formats/sequencefile.md``.

:func:`read_pairs` reads files, parts of files and folders; :class:`PairWriter` writes version 6.
"""

from __future__ import annotations

from tarkit.formats.sequencefile.header import Header
from tarkit.formats.sequencefile.named import SUFFIXES, NamedWriter, looks_like, read_named, read_sizes
from tarkit.formats.sequencefile.read import PairIndex, header_of, read_index, read_pairs
from tarkit.formats.sequencefile.write import PairWriter

__all__ = [
    "SUFFIXES",
    "Header",
    "NamedWriter",
    "PairIndex",
    "PairWriter",
    "header_of",
    "looks_like",
    "read_index",
    "read_named",
    "read_pairs",
    "read_sizes",
]
