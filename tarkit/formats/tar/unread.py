"""Read the headers of a tar without its content, where the place of the file can read ranges.

A skip over large content costs no request of its own: the next header is requested alone. Requests
grow while nothing is skipped, so that a shard of small members is read in few large pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tarkit.errors import DataError
from tarkit.formats.tar.large import SkipLarge
from tarkit.formats.tar.walk import LargeMembers
from tarkit.names.url import display_name, local_path
from tarkit.store.compression import SNIFF_BYTES, sniff
from tarkit.store.entries import Identity, check_same
from tarkit.store.rangedfile import identity_for_parts
from tarkit.store.read import open_read, read_range

_FIRST = 64 << 10
_LEAST, _MOST = 4 << 10, 4 << 20
_SAVED_LOCALLY, _SAVED_REMOTELY = 16 << 10, 256 << 10
"""Smallest number of bytes for which a skip takes less time than reading them.

A request to a store takes about as long as it takes to send some 100 kB to 3 MB.
"""


class SkippingReader:
    """A reader from front to back that does not request skipped bytes.

    Args:
        url: path or URL of the file.
        identity: its identity, with a size.
    """

    def __init__(self, url: str, identity: Identity) -> None:
        self._url = url
        self._size = identity.size or 0
        self._at = 0
        self._block = memoryview(b"")
        self._step = _FIRST
        self._saved = _SAVED_REMOTELY if local_path(url) is None else _SAVED_LOCALLY

    def head(self) -> bytes:
        """Return the first bytes without taking them."""
        self._fill()
        return bytes(self._block[:SNIFF_BYTES])

    def _fill(self) -> None:
        if not self._block and self._at < self._size:
            end = min(self._size, self._at + self._step)
            self._block = memoryview(read_range(self._url, self._at, end, size=self._size))
            self._at, self._step = end, min(_MOST, 2 * self._step)

    def read(self, count: int) -> bytes:
        """Return 1 to ``count`` bytes; b"" at the end."""
        self._fill()
        piece, self._block = bytes(self._block[:count]), self._block[count:]
        return piece

    def skip(self, count: int) -> bool:
        """Skip bytes; False if reading them takes no longer, or if the file ends before."""
        beyond = count - len(self._block)
        if beyond < self._saved or self._at + beyond > self._size:
            return False
        self._at, self._block, self._step = self._at + beyond, memoryview(b""), _LEAST
        return True


class Headers(NamedTuple):
    """A shard that is opened for its headers.

    Attributes:
        read: function that reads up to n bytes.
        name: URL for messages.
        large: policy that the reader of ``read`` must have.
        identity: identity of the file; None if all of it is read.
    """

    read: Callable[[int], bytes]
    name: str
    large: LargeMembers
    identity: Identity | None = None


@contextmanager
def open_headers(url: str) -> Iterator[Headers]:
    """Open a shard for its headers: in parts, or whole if it is compressed or a stream.

    It is read whole as well if its place cannot read ranges.

    Raises:
        MissingInputError: the shard does not exist.
        StreamError: the shard cannot be read, or was changed while it was read.
        TemporaryStreamError: the shard cannot be read now.
    """
    identity = identity_for_parts(url)
    reader = None if identity is None else SkippingReader(url, identity)
    if identity is None or reader is None or sniff(reader.head()) is not None:
        with open_read(url) as stream:
            yield Headers(stream.read, stream.name, SkipLarge())
        return
    try:
        yield Headers(reader.read, display_name(url), SkipLarge(skip=reader.skip), identity)
    except DataError:
        # Apparent damage may be a mix of old and new content.
        check_same(url, identity)
        raise
    check_same(url, identity)
