"""Time that passes only when somebody waits."""

from __future__ import annotations

import random

from tarkit.store.retry import Retry


class Times:
    """A clock that stands still, but for the waits, which take no time at all.

    Attributes:
        waited: seconds, all in all.
    """

    def __init__(self) -> None:
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        """Let this time pass."""
        self.waited += seconds

    def clock(self) -> float:
        """Seconds since the beginning."""
        return self.waited

    def now(self) -> float:
        """Seconds since 1970."""
        return 1_700_000_000 + self.waited


def fast(times: Times | None = None, *, seed: int = 1, timeout: float = 5.0, **more: float) -> Retry:
    """A Retry on such a clock.

    ``timeout`` is in true seconds: it is the system that waits for a silent server.
    """
    times = Times() if times is None else times
    draw = random.Random(seed).random
    numbers = {"attempts": int(more.pop("attempts", 8)), "timeout": timeout}
    return Retry(sleep=times.sleep, clock=times.clock, now=times.now, random=draw, **numbers, **more)  # type: ignore[arg-type]
