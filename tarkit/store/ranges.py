"""Read ranges of one remote file whose identity is known, with one request each where possible."""

from __future__ import annotations

from tarkit.errors import TemporaryStreamError
from tarkit.names.url import display_name
from tarkit.store import waits
from tarkit.store.entries import Identity, identify
from tarkit.store.forks import Owner
from tarkit.store.place import RangeReader
from tarkit.store.read import read_range
from tarkit.store.registry import offered

_MOST_FAILURES = 3


class Ranges:
    """A file at any place of the store, read by ranges, which must be the same file in all of them.

    A place may read a range and identify its file by one request. If such an answer is not what it
    should be, the range is read again by the requests that explain errors and retry: one more for
    the range, and others for the identity before and after it.

    Args:
        url: path or URL of the file.

    Attributes:
        url: its path or URL.
        identity: size and tag of the file when it was opened.

    Raises:
        MissingInputError: the file does not exist.
        UsageError: the place cannot identify files.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._failures = 0
        self._open()
        self.identity = self._identity

    def _open(self) -> None:
        self._owner = Owner()
        self._reader, self._identity = _opened(self.url)

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes from ``start`` up to, not including, ``stop``.

        Raises:
            MissingInputError: the file does not exist any more.
            DataError: the file has a different size.
            StreamError: the file cannot be read.
            TemporaryStreamError: the file was replaced, or cannot be read now.
        """
        if start >= stop:
            return b""
        if not self._owner.is_here():  # connections stay with the parent process
            self._open()
            self._check()
        if self._reader is not None and self._failures < _MOST_FAILURES:
            data = waits.call(self._reader.read, start, stop)
            if data is not None:
                self._failures = 0
                return data
            self._failures += 1
        data = read_range(self.url, start, stop, size=self.identity.size or 0)
        self._identity = _opened(self.url)[1]
        self._check()
        return data

    def _check(self) -> None:
        if self._identity != self.identity:
            raise TemporaryStreamError("was replaced while it was read", url=display_name(self.url))


def _opened(url: str) -> tuple[RangeReader | None, Identity]:
    open_ranges = offered(url, "open_ranges")
    reader: RangeReader | None = None if open_ranges is None else open_ranges(url, display_name(url))
    return reader, identify(url) if reader is None else reader.identity
