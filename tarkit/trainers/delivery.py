"""A batch on its way from a worker to the training loop, and what the loop has used of them."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tarkit.trainers.auditlog import Evidence


class Delivery(NamedTuple):
    """What a worker sends. worker: its number. number: of the batch; of a service, among those of this worker. empty:
    there is no batch now, ask again. value: the batch. evidence: for an audit."""

    worker: int
    number: int
    empty: bool
    value: Any
    evidence: Evidence | None = None


@dataclass
class UseCounts:
    """Numbers that the process of the training loop and its workers share, all of the iteration ``turn[0]``.

    used: of each worker, how many of its batches the loop has used. settled: how many of these are on the service's
    disk. Each number has one writer: of ``settled`` the worker, of all else the process of the loop.
    """

    turn: MutableSequence[Any]
    used: MutableSequence[Any]
    settled: MutableSequence[Any]

    def begin(self) -> None:
        """Begin an iteration: workers of earlier ones report nothing more."""
        self.turn[0] = int(self.turn[0]) + 1
        for worker in range(len(self.used)):
            self.used[worker] = self.settled[worker] = 0


def counts_of_process() -> UseCounts:
    """For a loop without other processes."""
    return UseCounts([0], [0], [0])
