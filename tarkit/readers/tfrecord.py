"""Records of TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.formats.tfrecord import read_records
from tarkit.readers.files import FileDataReader
from tarkit.readers.ranged import is_compressed, offsets_from
from tarkit.store.rangedfile import RangedFile

_EVERY = 1024
"""Records between two offsets that are remembered."""
_AROUND = 16
"""Bytes of a record beside its content: its length, and two checksums."""


class TFRecordDataReader(FileDataReader):
    """Records of TFRecord files, bytes; both checksums of each are verified."""

    def __init__(self, data_dir: str, records_per_task: int | None = None, **kwargs: Any) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._offsets: dict[str, list[int]] = {}
        """Of each file that is not compressed: where every 1024th record begins."""

    def count(self, url: str) -> int:
        offsets: list[int] = []
        number = offset = 0
        for number, record in enumerate(read_records(url), 1):
            if number % _EVERY == 1:
                offsets.append(offset)
            offset += len(record) + _AROUND
        if not is_compressed(url):
            self._offsets[url] = offsets
        return number

    def read(self, url: str, start: int, end: int) -> Iterator[bytes]:
        offsets = self._offsets.get(url, [])
        known = max(0, min(start // _EVERY, len(offsets) - 1))
        if not known:
            yield from islice(read_records(url), start, None)
            return
        with offsets_from(offsets[known], url), RangedFile(url) as file:
            file.seek(offsets[known])
            yield from islice(read_records(file, compression=None), start - known * _EVERY, None)  # type: ignore[arg-type]
