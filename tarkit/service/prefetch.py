"""How many shards a worker has ahead of their use: enough that it never waits, few enough that others find some."""

from __future__ import annotations

_SPAN = 0.1
"""Seconds of work that are fetched ahead: longer than a call takes, too short for other workers to miss it."""
_MOST = 64
_WEIGHT = 0.25
"""Of the last shard in the mean time of a shard."""


class Prefetch:
    """A fixed number of shards; or with None, as many as callers use in a tenth of a second, from 1 to 64.

    The time in which any caller waits for a shard is not use, so a slow service does not lower the number.
    """

    def __init__(self, fixed: int | None) -> None:
        self.number = 1 if fixed is None else fixed
        self._fixed = fixed is not None
        self._waiting = 0
        self._used = 0.0
        self._since: float | None = None
        self._mean: float | None = None

    def asked(self, now: float) -> None:
        """A caller asks for a shard. now: seconds of a clock that never goes back."""
        if not self._waiting and self._since is not None:
            self._used += now - self._since
        self._waiting += 1

    def answered(self, now: float, shards: int) -> None:
        """A caller goes on, with a shard (1) or without (0)."""
        self._waiting -= 1
        first, self._since = self._since is None, now
        if not shards or self._fixed or first:
            return
        mean = self._used if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (self._used - mean)
        self._used = 0.0
        self.number = max(1, int(_SPAN / max(self._mean, _SPAN / _MOST)))
