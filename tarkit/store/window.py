"""A buffer over a stream that is read from front to back."""

from __future__ import annotations

from collections.abc import Callable

_PIECE = 1 << 20


class Window:
    """A stream with a buffer of the bytes that were read and not used.

    A size that a file states is never allocated before the bytes arrive: they come in pieces.

    Args:
        read: function that returns some bytes, b"" at the end; it may return more than requested.
            Its error is raised again by every later read.
        base: offset in the stream of the buffer's first byte.
        buffer: bytes of the stream that were read already.

    Attributes:
        at: index in the buffer of the next byte to use.
    """

    def __init__(self, read: Callable[[int], bytes], base: int = 0, buffer: bytes = b"") -> None:
        self.buffer = buffer
        self.at = 0
        self.base = base
        self._ask = read
        self._error: BaseException | None = None

    @property
    def offset(self) -> int:
        """Offset in the stream of the next byte."""
        return self.base + self.at

    @property
    def held(self) -> int:
        """Number of bytes in the buffer that were not used."""
        return len(self.buffer) - self.at

    def read(self, count: int) -> bytes:
        """Read at most ``count`` > 0 bytes; b"" only at the end.

        The buffer still holds them.
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
        """Read until ``count`` bytes are in the buffer; False if the stream ends before.

        Used bytes are dropped.
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
        """Return the next bytes without using them; fewer than ``count`` only at the end."""
        self.have(count)
        return self.buffer[self.at : self.at + count]

    def find(self, mark: bytes, start: int) -> int:
        """Find ``mark`` in the buffer, at least ``start`` bytes from the next byte.

        Returns:
            Its distance from the next byte; -1 if it is not in the buffer.
        """
        found = self.buffer.find(mark, self.at + start)
        return found - self.at if found >= 0 else -1

    def go_to(self, mark: bytes, stop: int | None = None) -> bool:
        """Skip to the next ``mark``; without one, skip to the end and return False.

        Args:
            mark: the bytes to find.
            stop: offset in the stream; a mark after it is not found, and the window is after it
                then.
        """
        while self.have(len(mark)):
            found = self.find(mark, 0)
            # The mark may begin in the last bytes of the buffer.
            self.at += found if found >= 0 else self.held - len(mark) + 1
            if found >= 0 or (stop is not None and self.offset > stop):
                return found >= 0 and (stop is None or self.offset <= stop)
        self.at = len(self.buffer)
        return False

    def skip_to(self, offset: int) -> None:
        """Skip the bytes before this offset, or all up to the end of the stream."""
        while self.offset < offset:
            self.at = min(len(self.buffer), offset - self.base)
            if self.offset < offset and not self.have(1):
                return
