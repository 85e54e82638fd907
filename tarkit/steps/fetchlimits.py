"""Limits of concurrent downloads: memory for their bodies, and requests to one host."""

from __future__ import annotations

import asyncio

from tarkit.store.http.guarded import FailedFetch


class NoRoom(Exception):
    """A body needs more memory than there is now.

    Args:
        size: bytes that it needs.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Room:
    """Memory for bodies, in bytes; the oldest row gets more than there is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._oldest = 0

    def admits(self, row: int, size: int = 0) -> bool:
        """Return True if a row may take some bytes."""
        return self._held + size <= self._limit or row == self._oldest

    def take(self, size: int) -> None:
        """Take some bytes."""
        self._held += size

    async def wait(self, row: int, size: int) -> None:
        """Take some bytes as soon as the row may have them."""
        while not self.admits(row, size):
            change = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            await change
        self.take(size)

    def give(self, size: int, oldest: int | None = None) -> None:
        """Give back some bytes; ``oldest`` is the number of the row that is the oldest now."""
        self._held -= size
        self._oldest = self._oldest if oldest is None else oldest
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
        self._waiting.clear()


class Host:
    """A host: its slots for requests, and until when it is left alone (times of the loop).

    Attributes:
        users: requests that are made, or wait for a slot.
        until: time until which it asked to wait, by an answer with the reason ``reason``.
        silent: requests in a row without an answer.
        gone_until: time until which it is not asked, since it did not answer.
    """

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.users = 0
        self.until = 0.0
        self.reason = ""
        self.silent = 0
        self.gone_until = 0.0

    async def pause(self, now: float, longest: float) -> None:
        """Wait as long as the host asked for.

        Raises:
            FailedFetch: that is too long, or the host did not answer other requests.
        """
        if self.gone_until > now:
            detail = f"not tried, because its host did not answer {self.silent} requests in a row"
            raise FailedFetch("connect", detail)
        left = self.until - now
        if left > longest:
            raise FailedFetch(self.reason, f"not tried, because its host asked to wait {left:.0f} s")
        if left > 0:
            await asyncio.sleep(left)
