"""When to try again, how long to wait, when to give up. Uploads in parts have numbers of their own (``parts``).

Waits grow exponentially with full jitter (M. Brooker, "Exponential Backoff And Jitter": a wait
is drawn evenly from 0 to its limit), so that a thousand readers that lost the same server do
not come back in step. What a server asks for by Retry-After is the least that is waited.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tarkit.errors import TemporaryStreamError, UsageError

_SLICE = 0.1
# Processes that were forked from one another must not draw the same waits.
_JITTER = random.SystemRandom().random


@dataclass(frozen=True)
class Retry:
    """How a stream over a network is tried again.

    attempts: failures in a row, without one byte of progress between them, after which it is
    given up. deadline: seconds since the first of them, waits included. base, cap: the n-th wait
    is at most base * 2**(n-1) seconds, and at most cap. timeout: seconds for one answer of the
    system: a connection, a piece of data. sleep, clock, now, random: where waits, seconds passed,
    seconds since 1970 and numbers in [0, 1) come from.

    Raises:
        UsageError: a number that makes no sense.
    """

    attempts: int = 8
    deadline: float = 300.0
    base: float = 0.5
    cap: float = 30.0
    timeout: float = 60.0
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = _JITTER

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"attempts of a retry is {self.attempts}; it must be at least 1")
        for name in ("deadline", "base", "cap", "timeout"):
            value = getattr(self, name)
            if not value >= 0 or (name == "timeout" and not value):
                raise UsageError(f"{name} of a retry is {value!r}; it must be a positive number of seconds")

    def wait_before(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (1 or more); drawn anew by each call."""
        # The exponent is bounded: 2.0 ** 1100 is an error.
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


DEFAULT_RETRY = Retry()


class Dropped(Exception):
    """An attempt failed in a way that the next one may mend. Never leaves the package.

    reason: a phrase without secrets. retry_after: seconds that the other side asked for.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after


class Patience:
    """Counts the failures since the last progress of one stream, waits, and gives up."""

    def __init__(self, retry: Retry, name: str) -> None:
        self._retry = retry
        self._name = name
        self._since = 0.0
        self.failures = 0

    def progress(self) -> None:
        """Something came: the count begins anew."""
        self.failures = 0

    def failed(self, drop: Dropped, offset: int | None, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until the next attempt is due; at once if ``stopped`` turns true.

        Raises:
            TemporaryStreamError: enough; with the last reason and the number of attempts.
        """
        retry = self._retry
        now = retry.clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        wait = retry.wait_before(self.failures)
        asked = ""
        if drop.retry_after is not None and drop.retry_after > wait:
            wait = drop.retry_after
            asked = f", asking to wait {wait:.0f} s"
        if self.failures >= retry.attempts or now - self._since + wait > retry.deadline:
            tries = "1 attempt" if self.failures == 1 else f"{self.failures} attempts in a row"
            raise TemporaryStreamError(
                f"{drop.reason}{asked}; given up after {tries} within {now - self._since:.0f} s",
                url=self._name,
                offset=offset,
            ) from None
        self._pause(wait, stopped)

    def _pause(self, seconds: float, stopped: Callable[[], bool]) -> None:
        # In slices, so that closing a stream need not wait for the end of a long wait.
        while seconds > 0 and not stopped():
            self._retry.sleep(min(seconds, _SLICE))
            seconds -= _SLICE
