"""How often a data set was begun, by each worker that reads it; and the seeds of its steps in each epoch."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from tarkit.errors import UsageError
from tarkit.trainers.world import loader_worker

_WORKERS = 255


def shared_counts(values: int | list[int]) -> Any:
    """So many zeros, or these numbers, in memory that can be shared."""
    from multiprocessing.sharedctypes import RawArray  # which few programs need

    return RawArray("q", values)


def spawning() -> bool:
    """Whether something is being pickled for a process that is started."""
    from multiprocessing.context import get_spawning_popen

    return get_spawning_popen() is not None


class Epochs:
    """Counts in memory that forked and spawned workers share with the process that made the data set.

    A DataLoader makes new workers for each epoch, or keeps them and sends them nothing; both go on counting here."""

    def __init__(self) -> None:
        self._begun = shared_counts(1 + _WORKERS)

    def begin(self) -> int:
        """The number of the epoch that begins. Raises: UsageError: more than 255 workers."""
        epoch = self.next()
        self._begun[_slot()] = epoch + 1
        return epoch

    def next(self) -> int:
        """The number of the epoch that begins next, here. Raises: UsageError: more than 255 workers."""
        epoch: int = self._begun[_slot()]
        return epoch

    def set_mine(self, epoch: int) -> None:
        """What begins next, here only."""
        self._begun[_slot()] = epoch

    def in_workers(self) -> bool:
        """Whether workers of a DataLoader have begun more epochs than this process."""
        return any(each > self._begun[0] for each in self._begun[1:])

    def set(self, epoch: int) -> None:
        """What begins next."""
        self._begun[:] = [epoch] * len(self._begun)

    def __getstate__(self) -> dict[str, Any]:
        # Memory can be shared only with a process that is being started; any other copy counts by itself.
        begun = self._begun if spawning() else list(self._begun)
        return {"begun": begun}

    def __setstate__(self, state: dict[str, Any]) -> None:
        begun = state["begun"]
        self._begun = shared_counts(begun) if isinstance(begun, list) else begun


def _slot() -> int:
    worker = loader_worker()
    slot = 0 if worker is None else 1 + worker.number
    if slot > _WORKERS:
        raise UsageError(f"a WebDataset is read by at most {_WORKERS} workers of a DataLoader")
    return slot


class Draw(NamedTuple):
    """Stands for the seed of a step, which is another one in each epoch. seed: None is that of the data set."""

    seed: int | None

    def seed_of(self, default: int | None) -> int:
        """The seed from which those of the epochs are made; default: that of the data set."""
        return default or 0 if self.seed is None else self.seed

    def at(self, default: int | None, *place: int) -> int:
        """The seed there: in an epoch, of a step, in a rank and worker."""
        made = repr((self.seed_of(default), *place)).encode()
        return int.from_bytes(blake2b(made, digest_size=8).digest(), "big")
