"""A stream that is read front to back: the bytes that were read and not used yet."""

from __future__ import annotations

from collections.abc import Callable

_PIECE = 1 << 20


class Window:
    """Args:
        buffer: bytes of the stream.
        base: offset in the stream of its first byte. A length that a file gives is never allocated
            before the bytes are there: they come in pieces.
        read: gives some bytes, at most as many as it is asked for or as many as it likes; b"" is
            the end. Its error comes again with every later read.

    Attributes:
        at: the next one to use, in it.
    """

    def __init__(self, read: Callable[[int], bytes], base: int = 0, buffer: bytes = b"") -> None:
        self.buffer = buffer
        self.at = 0
        self.base = base
        self._ask = read
        self._error: BaseException | None = None

    @property
    def offset(self) -> int:
        """Where in the stream the next byte is."""
        return self.base + self.at

    @property
    def held(self) -> int:
        """How many bytes are at hand."""
        return len(self.buffer) - self.at

    def read(self, count: int) -> bytes:
        """At most ``count`` > 0 bytes; b"" only at the end.

        The buffer goes on to hold them.
        """
        if self.at >= len(self.buffer):
            piece = self._next(count)
            self.base += len(self.buffer)
            self.buffer = piece
            if len(piece) <= count:
                self.at = len(piece)
                return piece
            self.at = 0
        data = self.buffer[self.at : self.at + count]
        self.at += len(data)
        return data

    def have(self, count: int) -> bool:
        """Read until ``count`` bytes are at hand; False if the stream ends before.

        What was used is dropped.
        """
        missing = count - len(self.buffer) + self.at
        if missing <= 0:
            return True
        pieces = [self.buffer[self.at :]]
        while missing > 0 and (piece := self._next(_PIECE)):
            pieces.append(piece)
            missing -= len(piece)
        self.base += self.at
        self.buffer, self.at = b"".join(pieces), 0
        return missing <= 0

    def _next(self, count: int) -> bytes:
        if self._error is not None:
            raise self._error
        try:
            return self._ask(count)
        except BaseException as error:
            self._error = error
            raise

    def peek(self, count: int) -> bytes:
        """The next bytes; fewer than ``count`` only at the end of the stream."""
        self.have(count)
        return self.buffer[self.at : self.at + count]

    def find(self, mark: bytes, start: int) -> int:
        """How far from the next byte ``mark`` begins, at ``start`` or behind, in what is at hand.

        -1: nowhere.
        """
        found = self.buffer.find(mark, self.at + start)
        return found - self.at if found >= 0 else -1

    def go_to(self, mark: bytes, stop: int | None = None) -> bool:
        """Go to the next place of ``mark``; if there is none, to the end, and return False.

        Args:
            stop: an offset of the stream; a mark behind it is not looked for, and the window is
                behind it then.
        """
        while self.have(len(mark)):
            found = self.find(mark, 0)
            # The mark may begin in the last bytes that are at hand.
            self.at += found if found >= 0 else self.held - len(mark) + 1
            if found >= 0 or (stop is not None and self.offset > stop):
                return found >= 0 and (stop is None or self.offset <= stop)
        self.at = len(self.buffer)
        return False

    def skip_to(self, offset: int) -> None:
        """Pass over what is before this offset, or to the end of the stream."""
        while self.offset < offset:
            self.at = min(len(self.buffer), offset - self.base)
            if self.offset < offset and not self.have(1):
                return
