"""Records of RecordIO files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tarkit.formats.recordio import RecordIndex, read_index, read_records
from tarkit.readers.files import FileDataReader


class RecordIODataReader(FileDataReader):
    """Records of RecordIO files, bytes. Of a file, only the chunks of a task are read."""

    def __init__(self, data_dir: str, records_per_task: int | None = None, **kwargs: Any) -> None:
        super().__init__(data_dir, records_per_task, **kwargs)
        self._indexes: dict[str, RecordIndex] = {}

    def count(self, url: str) -> int:
        return self._index(url).records

    def read(self, url: str, start: int, end: int) -> Iterator[bytes]:
        return read_records(url, start=start, stop=end, index=self._index(url))

    def _index(self, url: str) -> RecordIndex:
        if url not in self._indexes:
            self._indexes[url] = read_index(url)
        return self._indexes[url]
