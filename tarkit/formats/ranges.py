"""The rest of a file from some byte on, read in parts: nothing before it is asked for."""

from __future__ import annotations

from tarkit.errors import StreamError
from tarkit.store.entries import identify
from tarkit.store.read import read_range
from tarkit.store.url import display_name

_PART = 8 << 20


class RangeReader:
    """A path or URL from byte ``start`` on; of a place that can be read in parts.

    Raises:
        UsageError: the place cannot be read in parts. MissingInputError, StreamError, TemporaryStreamError.
    """

    def __init__(self, url: str, start: int) -> None:
        self._url = url
        self._identity = identify(url)
        self._at = start
        self._part = b""

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes; b"" at the end of the file.

        Raises:
            StreamError: the file was replaced while it was read. Others as above.
        """
        size = self._identity.size
        if size is None:
            raise StreamError("its length is not known, so it cannot be read in parts", url=display_name(self._url))
        if not self._part:
            stop = min(size, self._at + _PART)
            if self._at < stop:
                self._part = read_range(self._url, self._at, stop, size=size)
                self._at = stop
            if identify(self._url) != self._identity:
                raise StreamError("it was replaced while it was read", url=display_name(self._url))
        data, self._part = self._part[:count], self._part[count:]
        return data
