"""A file that can seek, of which a subclass reads any range of bytes."""

from __future__ import annotations

import io
from abc import abstractmethod


class SeekableFile(io.RawIOBase):
    """A file for reading with a position.

    Args:
        stop: offset where it ends, in bytes.
    """

    def __init__(self, stop: int) -> None:
        self._at, self._stop = 0, stop

    @abstractmethod
    def bytes_between(self, begin: int, end: int) -> bytes:
        """Return bytes from ``begin`` on, at least one and at most up to ``end``."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._stop)[whence])
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; b"" at the end."""
        end = self._stop if size is None or size < 0 else min(self._stop, self._at + size)
        data = self.bytes_between(self._at, end) if self._at < end else b""
        self._at += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Read at most ``size`` bytes from an offset on; the position is then behind them."""
        self.seek(offset)
        return self.read(size)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
