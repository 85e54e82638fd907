"""A file that is read front to back: the bytes that were read and not used yet."""

from __future__ import annotations

from collections.abc import Callable

PIECE = 1 << 20
"""Bytes asked for at a time."""


class Window:
    """buffer: bytes of the file. at: the next one to use, in it. base: offset in the file of its first byte.

    A length that a file gives is never allocated before the bytes are there: they come in pieces.
    """

    def __init__(self, read: Callable[[int], bytes], base: int = 0) -> None:
        self._read = read
        self.buffer = b""
        self.at = 0
        self.base = base

    @property
    def offset(self) -> int:
        """Where in the file the next byte is."""
        return self.base + self.at

    def have(self, count: int) -> bool:
        """Read until ``count`` bytes are at hand; False if the file ends before."""
        missing = count - (len(self.buffer) - self.at)
        if missing <= 0:
            return True
        pieces = [self.buffer[self.at :]]
        while missing > 0 and (piece := self._read(PIECE)):
            pieces.append(piece)
            missing -= len(piece)
        self.buffer = b"".join(pieces)
        self.base += self.at
        self.at = 0
        return missing <= 0

    def find(self, mark: bytes) -> bool:
        """Go to the next place of ``mark``; if there is none, to the end of the file, and return False."""
        while True:
            found = self.buffer.find(mark, self.at)
            if found >= 0:
                self.at = found
                return True
            # The mark may begin in the last bytes that are at hand.
            self.at = max(self.at, len(self.buffer) - len(mark) + 1)
            if not self.have(len(mark)):
                self.at = len(self.buffer)
                return False

    def skip_to(self, offset: int) -> None:
        """Pass over what is before this offset, or to the end of the file."""
        while self.offset < offset:
            self.at = min(len(self.buffer), offset - self.base)
            if self.offset < offset and not self.have(1):
                return
