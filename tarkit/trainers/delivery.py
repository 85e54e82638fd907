"""A batch on its way from a worker to the training loop, and the numbers that both see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tarkit.trainers.auditlog import Evidence
from tarkit.trainers.sharednumbers import SharedNumbers
from tarkit.trainers.skipped import Skipped

KINDS = "failed", "filtered", "filled"
"""Kinds of gaps in a rank's part of a batch: samples that could not be read or decoded; samples
that the transform dropped; and gaps that were filled with another sample of the batch.
"""
_ROWS = 8192
_NUMBER_BITS = 40
"""Number of bits of the number of a batch, below those of its iteration."""


class Delivery(NamedTuple):
    """Message of a worker: a batch, or that there is none now.

    Attributes:
        worker: number of the worker.
        number: number of the batch; with a service, among those of this worker.
        empty: there is no batch now, ask again.
        value: the batch.
        evidence: evidence for an audit.
        skipped: samples of the batch that failed.
    """

    worker: int
    number: int
    empty: bool
    value: Any
    evidence: Evidence | None = None
    skipped: Sequence[Skipped] = ()


class UseCounts:
    """Numbers of used batches, of the iteration ``turn[0]``.

    Attributes:
        used: for each worker, how many of its batches the loop has used; written by the process of
            the loop, as is ``turn``. Each worker writes how many of these are on the service's
            disk, together with its iteration, since a worker of an earlier one may write late.
    """

    def __init__(self, workers: int = 1) -> None:
        self.turn, self.used, self._settled = map(SharedNumbers, (1, workers, workers))

    def begin(self) -> None:
        """Begin an iteration: later reports of earlier workers do not count any more."""
        self.turn[0] += 1
        self.used[:] = [0] * len(self.used)

    def number_of(self, worker: int, number: int) -> int:
        """Return the number of a worker's batch among those of all workers."""
        return number * len(self.used) + worker

    def settle(self, worker: int, turn: int, number: int) -> None:
        """Record how many batches of a worker, of iteration ``turn``, are on the service's disk."""
        if turn == self.turn[0]:
            self._settled[worker] = turn << _NUMBER_BITS | number

    @property
    def settled(self) -> bool:
        """True if the service has stored everything that was used."""
        turn = self.turn[0] << _NUMBER_BITS
        return all(not used or turn | used == found for used, found in zip(self.used[:], self._settled[:], strict=True))


class GapCounts(SharedNumbers):
    """Numbers of missing samples in each of the last 8192 batches, by reason.

    A batch has one writer, the worker that makes it, and is read when it was received.
    """

    def __init__(self) -> None:
        super().__init__(len(KINDS) * _ROWS)

    def note(self, batch: int, counts: Counter[str]) -> None:
        """Record the gaps of a batch that was made."""
        at = batch % _ROWS * len(KINDS)
        self[at : at + len(KINDS)] = [counts[kind] for kind in KINDS]

    def of(self, batch: int) -> Counter[str]:
        """Return the gaps of a batch that was received, without kinds of 0."""
        at = batch % _ROWS * len(KINDS)
        return +Counter(dict(zip(KINDS, self[at : at + len(KINDS)], strict=True)))
