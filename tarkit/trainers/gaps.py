"""How many samples a batch lacks, and why, from the process that makes it to the loop that is given it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tarkit.samples.epochs import shared_counts, spawning

KINDS = "failed", "filtered", "filled"
"""Samples of a rank's part of a batch that could not be read or decoded; that the transform dropped; and places of
these that have another sample of the batch."""
_ROWS = 8192


class GapCounts:
    """The numbers of the last 8192 batches, in memory that forked and spawned workers share. A row has one writer, the
    worker that makes the batch, and is read when the batch was received."""

    def __init__(self) -> None:
        self._rows = shared_counts(len(KINDS) * _ROWS)

    def note(self, batch: int, counts: Counter[str]) -> None:
        """What a batch that was made lacks."""
        at = batch % _ROWS * len(KINDS)
        self._rows[at : at + len(KINDS)] = [counts[kind] for kind in KINDS]

    def of(self, batch: int) -> Counter[str]:
        """What a batch that was received lacks; kinds of which there are none are left out."""
        at = batch % _ROWS * len(KINDS)
        return +Counter(dict(zip(KINDS, self._rows[at : at + len(KINDS)], strict=True)))

    def __getstate__(self) -> dict[str, Any]:
        # Memory can be shared only with a process that is being started; any other copy counts by itself.
        return {"_rows": self._rows} if spawning() else {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state)
