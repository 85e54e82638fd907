"""Records of RecordIO files."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.formats.recordio import RecordIndex, read_index, read_records
from tarkit.readers.files import FileDataReader
from tarkit.store.entries import Identity, identify


class RecordIODataReader(FileDataReader):
    """Records of RecordIO files, bytes. Of a file, only the chunks of a task are read."""

    _indexes: dict[str, tuple[Identity, RecordIndex]]
    """Of each file, and which content it is of."""

    def count(self, url: str) -> int:
        return self._index(url).records

    def read(self, url: str, start: int, end: int) -> Iterator[bytes]:
        return read_records(url, start=start, stop=end, index=self._index(url))

    def _index(self, url: str) -> RecordIndex:
        identity = identify(url)
        known = self._indexes.get(url)
        if known is None or known[0] != identity:
            known = self._indexes[url] = identity, read_index(url)
        return known[1]
