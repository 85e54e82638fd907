"""Read the content of a file through a cache that keeps it in parts.

A part of a plain file is a range of its bytes. A part of a compressed file has the content of whole
frames, which are decoded before they are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tarkit.errors import CompressionError
from tarkit.store.cache import Part, PartCache, range_part
from tarkit.store.ranges import Ranges


class EpochParts:
    """What a process knows of the parts of several files since an epoch began.

    Attributes:
        fetched: names of the parts that were fetched or found in the cache, as far as possible.
        damaged: names of those with a damaged frame, of which only what is read is decoded.
        again: bytes of parts that were fetched again.
        read: bytes that were read.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin an epoch: each part may be fetched once more if it is not in the cache.

        Within an epoch, parts that were removed from the cache are fetched again only as long as
        this does not more than double the bytes fetched; what is read of the others is not kept.
        """
        self.fetched, self.damaged = set[str](), set[str]()
        self.again = self.read = 0


class CachedParts:
    """The content of a file, which a cache keeps in parts.

    Args:
        cache: the cache.
        file: the file, of which size and tag are known.
        bounds: offset of the content where each part begins, and the end of the last one.
        read: function that reads the content from an offset up to another one, from any thread.
        epoch: notes on the parts that the process has read in this epoch.
        more: further values that distinguish these parts from others of the file.

    Attributes:
        size: size of the content in bytes, up to the end of the last part.
    """

    def __init__(
        self,
        cache: PartCache,
        file: Ranges,
        bounds: Sequence[int],
        read: Callable[[int, int], bytes],
        epoch: EpochParts,
        *more: object,
    ) -> None:
        self.size = bounds[-1]
        self._cache, self._file, self._bounds, self._fetch = cache, file, bounds, read
        self._epoch, self._more = epoch, more
        self._parts: dict[int, Part] = {}

    def parts(self, begin: int, end: int) -> list[Part]:
        """Return the parts that have the content from ``begin`` up to ``end``, behind it."""
        return [self._part(at) for at in range(bisect_right(self._bounds, begin) - 1, bisect_left(self._bounds, end))]

    def _part(self, at: int) -> Part:
        part = self._parts.get(at)
        if part is None:
            begin, end = self._bounds[at : at + 2]
            part = range_part(self._file.url, self._file.identity, begin, end, *self._more)
            self._parts[at] = part
        return part

    def note(self, part: Part) -> None:
        """Record that a part was fetched."""
        self._epoch.fetched.add(part.name)

    def missing(self, begin: int, end: int) -> list[Part]:
        """Return those parts of a range that were not fetched in this epoch."""
        return [part for part in self.parts(begin, end) if part.name not in self._epoch.fetched]

    def keep(self, part: Part) -> bytes | None:
        """Fetch and keep a part, unless it is in the cache; return its content if it was fetched.

        Raises:
            CompressionError: a frame of the part is damaged.
            StreamError: the file cannot be read, or was replaced.
        """
        try:
            data = self._cache.keep(part, lambda: self._fetch(part.start, part.start + part.size))
        except CompressionError:
            self._epoch.damaged.add(part.name)
            self.note(part)
            raise
        self.note(part)
        return data

    def keep_now(self, parts: Sequence[Part]) -> int | None:
        """Fetch and keep neighbouring parts at once, and wait for no other process.

        It returns what :meth:`tarkit.store.cache.PartCache.keep_now` returns, and raises the errors
        of :meth:`keep`.
        """
        return self._cache.keep_now(parts, self._fetch)

    def kept(self, begin: int, end: int) -> bytes | None:
        """Return the content from ``begin`` up to ``end`` if the cache has all of it."""
        found: list[bytes] = []
        for part in self.parts(begin, end):
            data = self._cache.read(part, max(begin, part.start), min(end, part.start + part.size))
            if data is None:
                return None
            found.append(data)
        self._epoch.read += end - begin
        return found[0] if len(found) == 1 else b"".join(found)

    def bytes_between(self, begin: int, end: int) -> bytes:
        """Return the content from ``begin`` up to ``end``; see :meth:`pieces`."""
        return b"".join(self.pieces(begin, end))

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the content from ``begin`` up to ``end``; parts that are not kept are fetched.

        Raises:
            CompressionError: a frame that has some of it is damaged.
            StreamError: the file cannot be read, or was replaced.
        """
        for part in self.parts(begin, end):
            yield self._piece(part, max(begin, part.start), min(end, part.start + part.size))

    def _piece(self, part: Part, begin: int, end: int) -> bytes:
        data = self._cache.read(part, begin, end)
        if data is None and self._may_fetch(part):
            with suppress(CompressionError):  # of any frame of the part, perhaps not of a wanted one
                whole = self.keep(part)
                at = begin - part.start
                data = self._cache.read(part, begin, end) if whole is None else whole[at : at + end - begin]
        if data is None:
            if part.name not in self._epoch.damaged and not self._cache.closed:
                gone = "parts are removed from it before their samples are read"
                self._cache.warn_small(f"{gone}, which are then read one by one")
            data = self._fetch(begin, end)
        self._epoch.read += end - begin
        return data

    def _may_fetch(self, part: Part) -> bool:
        epoch = self._epoch
        if part.name in epoch.damaged or (part.name in epoch.fetched and epoch.again + part.size > epoch.read):
            return False
        epoch.again += part.size if part.name in epoch.fetched else 0
        return True
