"""Records of RecordIO files."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.formats.recordio import RecordIndex, read_index, read_records
from tarkit.readers.files import FileDataReader


class RecordIODataReader(FileDataReader):
    """A reader of RecordIO files; each record is bytes.

    Only the chunks of a task are read from a file.
    """

    _indexes: dict[str, RecordIndex]

    def count(self, url: str) -> int:
        self._indexes[url] = read_index(url)
        return self._indexes[url].records

    def read(self, url: str, start: int, end: int) -> Iterator[bytes]:
        if url not in self._indexes:
            self.count(url)
        return read_records(url, start=start, stop=end, index=self._indexes[url])
