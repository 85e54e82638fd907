"""The interface of a place: its functions, readers, writers, entries and identities.

A place is a module that has some of these functions, and is named in :mod:`tarkit.store.registry`:

- ``open_read(url, name, retry)``: return a :class:`RawReader` of a file's bytes.
- ``open_sink(url, name, *, if_absent, sync)``: return a :class:`Sink`, all or nothing.
- ``stat(url)``: return an :class:`Entry`.
- ``entries(url, recursive)``: yield the entries of a folder, by name.
- ``identify(url)``: return an :class:`Identity`.
- ``remove(url, name, is_folder)``: remove a file, or a folder and all files in it.
- ``read_range(url, name, start, stop, size, retry)``: read a range of a file of ``size`` bytes.
- ``open_ranges(url, name)``: return a :class:`RangeReader`, or None for a file that it cannot read
  so; only if a range can be read and its file identified by one request.
- ``glob(url)``: return the URLs that match a pattern, sorted.
- ``pinned(url)``: return the URL or pattern with the current version in it; only if URLs can name a
  version.
- ``check(url)``: raise an error for a URL that can never be written to; only if that must be
  checked.
- ``remove_unfinished(url, older_than, now)``: abort uploads that were never finished; yield their
  URLs.

They raise the errors of :mod:`tarkit.errors`, without secrets.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RawReader(Protocol):
    """A source of bytes.

    ``read(n)`` returns at most n bytes, and b"" only if the source was read to its verified end.

    Attributes:
        size: size in bytes, None if it is not known.
    """

    @property
    def size(self) -> int | None: ...
    def read(self, count: int, /) -> bytes: ...
    def close(self) -> None: ...


class RangeReader(Protocol):
    """A reader of ranges of one file, by one request each, for any number of threads.

    Attributes:
        identity: identity of the file.
    """

    @property
    def identity(self) -> Identity: ...
    def read(self, start: int, stop: int, /) -> bytes | None:
        """Return bytes from ``start`` up to, not including, ``stop`` of the file with the identity.

        None for any answer that does not prove to be these bytes.
        """


class Sink(Protocol):
    """A target of bytes: write accepts all of them, commit publishes, discard leaves nothing."""

    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def commit(self) -> None: ...
    def discard(self) -> None: ...


class Entry(NamedTuple):
    """A file or folder.

    Attributes:
        url: URL to open it by; it may have secrets.
        name: name relative to the listed folder, without a slash at the ends.
        is_folder: True for a folder.
        size: size in bytes, None if it is not known, and for folders.
        mtime: time of change in seconds since 1970, None if it is not known.
        checksum: checksum of the store, ``NAME:VALUE``; None if it has none.
    """

    url: str
    name: str
    is_folder: bool
    size: int | None
    mtime: float | None
    checksum: str | None


class Identity(NamedTuple):
    """The identity of the content under a URL.

    Attributes:
        size: size in bytes, None if the store does not report it.
        tag: a text that changes when the content does (ETag, generation, checksum, time of change),
            or None.
    """

    size: int | None
    tag: str | None
