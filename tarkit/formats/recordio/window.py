"""The part of a stream that is held: what was read and not used yet."""

from __future__ import annotations

from collections.abc import Callable

_PIECE = 1 << 20


class Window:
    """buffer: bytes that are held. position: in it, of the next byte to use. base: offset of the buffer in the stream.

    read: gives some bytes, b"" at the end.
    """

    __slots__ = ("_read", "base", "buffer", "position")

    def __init__(self, read: Callable[[int], bytes], base: int = 0, buffer: bytes = b"") -> None:
        self.buffer = buffer
        self.position = 0
        self.base = base
        self._read = read

    @property
    def offset(self) -> int:
        """Of the next byte, in the stream."""
        return self.base + self.position

    @property
    def held(self) -> int:
        """How many bytes are there from the position on."""
        return len(self.buffer) - self.position

    def fill(self, count: int) -> bool:
        """Hold ``count`` bytes from the position on; False if the stream ends before. What was used is dropped.

        Bytes are asked for as they are needed, 1 MiB at a time: a length that lies takes no memory.
        """
        missing = count - len(self.buffer) + self.position
        if missing <= 0:
            return True
        pieces = [self.buffer[self.position :]]
        while missing > 0 and (piece := self._read(_PIECE)):
            pieces.append(piece)
            missing -= len(piece)
        self.base += self.position
        self.buffer, self.position = b"".join(pieces), 0
        return missing <= 0

    def peek(self, count: int) -> bytes:
        """The next bytes; fewer than ``count`` only at the end of the stream."""
        self.fill(count)
        return self.buffer[self.position : self.position + count]

    def find(self, mark: bytes, start: int) -> int:
        """How far from the position ``mark`` begins, at ``start`` or behind, in what is held; -1: nowhere."""
        found = self.buffer.find(mark, self.position + start)
        return found - self.position if found >= 0 else -1
