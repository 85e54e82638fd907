"""What a command printed: small texts in memory, long ones in the file they were printed to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

IN_MEMORY = 64 * 1024
_PIECE = 1024 * 1024


class Output:
    """Bytes that a command printed, kept until somebody wants them or discards them."""

    def __init__(self, text: bytes = b"", *, path: str | None = None, size: int = 0) -> None:
        self._text = text
        self._path = path
        self.size = size if path is not None else len(text)

    @classmethod
    def of_file(cls, path: str) -> Output:
        """Take over the file a command printed to: a short one is read and removed at once."""
        size = os.path.getsize(path)
        if size > IN_MEMORY:
            return cls(path=path, size=size)
        text = b""
        if size:
            with open(path, "rb") as file:
                text = file.read(IN_MEMORY)
        os.unlink(path)
        return cls(text)

    @property
    def held(self) -> int:
        """Bytes of it that are in memory."""
        return len(self._text)

    def pieces(self) -> Iterator[bytes]:
        """All of it, in pieces of at most 1 MiB."""
        if self._path is None:
            if self._text:
                yield self._text
            return
        with open(self._path, "rb") as file:
            # No further than it was when the command ended: something it left behind may go on.
            left = self.size
            while left and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece

    def read(self) -> bytes:
        """All of it at once."""
        return b"".join(self.pieces())

    def tail(self, size: int) -> bytes:
        """The last ``size`` bytes."""
        if self._path is None:
            return self._text[max(0, len(self._text) - size) :]
        with open(self._path, "rb") as file:
            file.seek(max(0, self.size - size))
            return file.read(size)

    def show(self, write: Callable[[bytes], object]) -> None:
        """Hand all of it to ``write``, then discard it."""
        try:
            for piece in self.pieces():
                write(piece)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path, self._text, self.size = None, b"", 0
