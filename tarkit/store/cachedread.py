"""Read remote files from front to back through a local cache of their parts."""

from __future__ import annotations

from tarkit.names.url import display_name, local_path, reads_once
from tarkit.store.cache import PartCache, range_part
from tarkit.store.ranges import Ranges
from tarkit.store.read import ReadStream, open_read

_PART = 16 << 20


def open_through_cache(url: str, cache: PartCache, *, mem: int) -> ReadStream:
    """Open a stream like :func:`tarkit.store.read.open_read`, with parts of 16 MiB in a cache.

    A local file, a command, or a file without a version or time is read without the cache, because
    a replaced one could not be detected.

    Args:
        url: path or URL of the file.
        cache: cache that keeps the parts.
        mem: largest window of a compressed stream in bytes, as for ``open_read``.

    Raises:
        StreamError: the file cannot be read, or was replaced while it was read.
        TemporaryStreamError: the file cannot be read now.
        MissingInputError: the file does not exist.
    """
    if local_path(url) is not None or reads_once(url):
        return open_read(url, mem=mem)
    ranges = Ranges(url)
    return open_read(url if None in ranges.identity else _CachedFile(ranges, cache), mem=mem)  # type: ignore[arg-type]


class _CachedFile:
    """The file object that ``open_read`` reads from."""

    def __init__(self, ranges: Ranges, cache: PartCache) -> None:
        self.name = display_name(ranges.url)
        self._ranges, self._cache = ranges, cache
        self._next = 0
        self._part = memoryview(b"")

    def read(self, count: int) -> bytes:
        """Read 1 to ``count`` bytes; b"" at the end."""
        if not self._part:
            self._part = memoryview(self._following())
        data, self._part = bytes(self._part[:count]), self._part[count:]
        return data

    def _following(self) -> bytes:
        start, stop = self._next, min(self._next + _PART, self._ranges.identity.size or 0)
        if start == stop:
            return b""
        part = range_part(self._ranges.url, self._ranges.identity, start, stop)
        data = self._cache.get(part, lambda: self._ranges.read(start, stop))
        self._next = stop
        return data
