"""Samples of an epoch that failed: listed by key, up to a limit that ends the epoch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tarkit.errors import LocatedError, TarkitError, counted, printable
from tarkit.names.url import display_name
from tarkit.runs.counts import Limit, TooManyErrorsError

_log = logging.getLogger(__name__)

MOST_LISTED = 1000
"""Largest number of samples that are listed in an epoch; all are counted."""
_MOST_LOGGED, _MOST_SHOWN = 10, 3


class Skipped(NamedTuple):
    """A sample that was left out because it failed.

    Attributes:
        url: path or URL of its shard.
        key: its key; None if the shard cannot be opened, as without its index.
        reason: what failed, on one line of about 200 characters at most.
    """

    url: str
    key: str | None
    reason: str

    def __str__(self) -> str:
        return self.url if self.key is None else f"{self.url}, key {printable(self.key)!r}"


def skipped_sample(url: str, key: str | None, error: TarkitError) -> Skipped:
    """Return a sample that failed with an error.

    Args:
        url: URL of the shard.
        key: key of the sample, if it is known.
    """
    found, reason = (error.key, error.reason) if isinstance(error, LocatedError) else (None, str(error))
    return Skipped(display_name(url), key if found is None else found, printable(reason))


class SkippedSamples:
    """The samples of one epoch that failed, of the batches that a loop was given.

    Args:
        limit: limit of failed samples.
        epoch: number of the epoch.
        samples: number of samples of the epoch for this rank, of which a percentage is taken.

    Attributes:
        epoch: number of the epoch.
        listed: the first 1000 of them.
    """

    def __init__(self, limit: Limit, epoch: int, samples: int) -> None:
        self.epoch, self._limit, self._samples = epoch, limit, samples
        self._failed = 0
        self.listed: list[Skipped] = []

    def add(self, batch: int, found: Iterable[Skipped]) -> None:
        """Count the failed samples of a batch.

        Raises:
            TooManyErrorsError: these are more than the limit allows.
        """
        for each in found:
            self._failed += 1
            if len(self.listed) < MOST_LISTED:
                self.listed.append(each)
        if self._limit.exceeded(self._failed, self._samples, at_end=True):
            # The samples of a shard that cannot be opened have one reason.
            reasons = dict.fromkeys(f"{each}: {each.reason}" for each in self.listed)
            some = "; ".join(list(reasons)[:_MOST_SHOWN])
            count = (
                f"{counted(self._failed, 'sample')} failed in the batches of this rank, and max_errors is {self._limit}"
            )
            raise TooManyErrorsError(f"epoch {self.epoch}, batch {batch}: {count}; the first: {some}")

    def log(self, counts: Counter[str], number: int) -> None:
        """Log the number of samples that are missing in the batches up to one, and failed keys."""
        if counts:
            shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            _log.warning("samples of epoch %d, up to batch %d: %s", self.epoch, number, shown)
        if self.listed:
            names = Counter(map(str, self.listed)).most_common(_MOST_LOGGED)
            some = "; ".join(f"{name} ({times} samples)" if times > 1 else name for name, times in names)
            left = self._failed - sum(times for _, times in names)
            _log.warning("failed samples of epoch %d: %s%s", self.epoch, some, f"; and {left} more" if left else "")
