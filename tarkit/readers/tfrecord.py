"""Records of TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.formats.tfrecord import read_records
from tarkit.readers.ranged import RangedDataReader
from tarkit.store.rangedfile import RangedFile, offsets_from

_AROUND = 16
"""Number of bytes of a record besides its content: its length, and two checksums."""


class TFRecordDataReader(RangedDataReader):
    """A reader of TFRecord files; each record is bytes, and both of its checksums are verified."""

    def offsets(self, url: str) -> Iterator[int]:
        offset = 0
        for record in read_records(url):
            yield offset
            offset += len(record) + _AROUND

    def read_from(self, url: str, offset: int) -> Iterator[bytes]:
        if not offset:
            yield from read_records(url)
            return
        with offsets_from(offset, url), RangedFile(url) as file:
            file.seek(offset)
            yield from read_records(file, compression=None)  # type: ignore[arg-type]
