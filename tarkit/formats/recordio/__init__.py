"""RecordIO: files of records in chunks, in the dialect of Go and ElasticDL or of pyrecordio.

The format is described in docs/formats/recordio.md.
"""

from tarkit.formats.recordio.chunk import MAGIC
from tarkit.formats.recordio.index import IndexedChunk, RecordIndex, read_index
from tarkit.formats.recordio.read import read_batches, read_records
from tarkit.formats.recordio.write import RecordWriter

__all__ = ["IndexedChunk", "RecordIndex", "RecordWriter", "looks_like", "read_batches", "read_index", "read_records"]

SUFFIXES = (".recordio", ".rio")


def looks_like(head: bytes) -> bool:
    """Return True if a file begins as a RecordIO file does."""
    return head.startswith(MAGIC)
