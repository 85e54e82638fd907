"""Epoch after epoch, with a state that goes on in the middle of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tarkit.trainers.source import BatchSource


class EpochLoader:
    """Each iteration is the next epoch of a source. ``len`` is the number of batches of an epoch.

    A state taken after batch k was delivered goes on with batch k + 1, whatever was read ahead. An iteration that is
    left early is over: the next one is of the next epoch.
    """

    def __init__(self, source: BatchSource) -> None:
        self.source = source
        self._next = self._at = 0, 0
        """Epoch and batch with which the next iteration begins, and with which this one goes on."""

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        epoch, number = self._at = self._next
        self._next = epoch + 1, 0
        for batch in self._epoch(epoch, number):
            number += 1
            self._at = (epoch, number) if number < len(self) else self._next
            yield batch
        if number != len(self):
            raise RuntimeError(f"epoch {epoch} has {len(self)} batches, and {number} came")

    def _epoch(self, epoch: int, first: int) -> Iterable[Any]:
        return self.source.epoch_batches(epoch, first)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration; without it, the one after the last."""
        self._next = self._at = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the training is: under 1 kB, the same for each rank."""
        return self.source.state(*self._at)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there, with any number of ranks and workers. Raises: UsageError: see the source's ``place_in``."""
        self._next = self._at = self.source.place_in(state)
