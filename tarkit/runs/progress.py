"""The progress of a run, and a reporter that shows it as a bar."""

from __future__ import annotations

import time
from collections.abc import Callable

from tarkit.formats.tally import Tally
from tarkit.runs.counts import Counts
from tarkit.runs.engine import Reporter
from tarkit.runs.progressbar import ProgressBar
from tarkit.runs.work import Work

_EVERY = 0.2  # seconds


class ProgressReporter(Reporter):
    """A reporter that measures the progress of the run."""

    def __init__(self, work: Work) -> None:
        self.counts = Counts()
        self._work = work
        self._begun = self._read = self._failed = 0
        self._tally = Tally()
        self._shards: int | None = None

    def started(self, counts: Counts, shards: int | None, *, failed_are_kept: bool) -> None:
        self.counts, self._shards = counts, shards

    def reading(self, tally: Tally) -> None:
        self._begun += 1
        self._tally = tally

    def advanced(self, read: int, failed: int) -> None:
        self._read, self._failed = read, failed

    def text(self) -> str:
        """Return the numbers of samples and shards so far."""
        text, counts = f"{self._read} samples so far, {self._failed} failed", self.counts
        if self._work.outdir is not None:
            done = counts.shards_done + counts.shards_before + counts.shards_failed
            text += f", {done}{f' of {self._shards}' if self._shards else ''} shards done"
        return text

    def part(self) -> float | None:
        """Return the completed part of the run, 0.0 to 1.0; None if it is not known."""
        known = []
        if self._work.count:
            known.append(self._read / self._work.count)
        # What needs no work shows nothing of how long the rest will take.
        to_do = (self._shards or 0) - self.counts.shards_before - self.counts.shards_missing
        if to_do > 0:
            known.append((max(0, self._begun - 1) + self._tally.shards_read()) / to_do)
        return min(1.0, max(known)) if known else None


class BarReporter(ProgressReporter):
    """A bar for runs in Python programs and notebooks; a short run shows none.

    Args:
        clock: function that returns seconds since any time.
    """

    def __init__(self, work: Work, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(work)
        self._clock, self._begin = clock, clock()
        self._next = self._begin + _EVERY
        self._bar: ProgressBar | None = None

    def advanced(self, read: int, failed: int) -> None:
        super().advanced(read, failed)
        if (now := self._clock()) >= self._next:
            self._next = now + _EVERY
            self._bar = self._bar or ProgressBar(now - self._begin)
            self._bar.show(self.text(), self.part())

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
