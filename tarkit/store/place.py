"""What a kind of place gives: the readers, the writers, and what it reports about a file.

A place is a module that has some of these functions, and is named in :mod:`tarkit.store.registry`:

- ``open_read(url, name, retry)``: a :class:`RawReader` of a file's bytes.
- ``open_sink(url, name, *, if_absent, sync)``: a :class:`Sink`, all or nothing.
- ``stat(url)``: an :class:`Entry`. ``entries(url, recursive)``: those in a folder, by name.
- ``identify(url)``: an :class:`Identity`.
- ``remove(url, name, is_folder)``: remove a file, or a folder with all that is in it.
- ``read_range(url, name, start, stop, size, retry)``: some bytes of a file that has ``size``.
- ``glob(url)``: the URLs that match a pattern, sorted.
- ``pinned(url)``: the same URL or pattern, with the version in it that is there now; where URLs can name one.
- ``check(url)``: refuse a URL that can never be written to; where nothing has to be looked at, there is none.
- ``remove_unfinished(url, older_than, now)``: abort uploads that were never finished; the URLs of these.

They raise the errors of :mod:`tarkit.errors`, without secrets.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RawReader(Protocol):
    """Bytes to read.

    ``read(n)`` gives at most n bytes, and b"" only when the source was read to its verified end.

    Attributes:
        size: length in bytes, None if it is not known.
    """

    @property
    def size(self) -> int | None: ...
    def read(self, count: int, /) -> bytes: ...
    def close(self) -> None: ...


class Sink(Protocol):
    """Bytes to write: write takes all of them, commit publishes, discard leaves nothing."""

    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def commit(self) -> None: ...
    def discard(self) -> None: ...


class Entry(NamedTuple):
    """A file or folder.

    Attributes:
        url: to open it by; it may hold secrets.
        name: relative to what was listed, without a slash at the ends.
        size: bytes, None if it is not known, and for folders.
        mtime: seconds since 1970, None if it is not known.
        checksum: ``NAME:VALUE`` as the store gives it.
    """

    url: str
    name: str
    is_folder: bool
    size: int | None
    mtime: float | None
    checksum: str | None


class Identity(NamedTuple):
    """Which content is under a URL.

    Attributes:
        size: in bytes, or None if the store does not give it.
        tag: changes when the content does (ETag, generation, checksum, time of change), or None.
    """

    size: int | None
    tag: str | None
