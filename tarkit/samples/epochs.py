"""How often a data set was begun, by each worker that reads it; and the seeds of its steps in each epoch."""

from __future__ import annotations

import operator
from hashlib import blake2b
from typing import Any, NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.trainers.world import loader_worker

_WORKERS = 255
_MOST = 1 << 62


def checked_number(name: str, value: Any, least: int = 0) -> int:
    """A whole number. Raises: UsageError: the value, which has this name, is not one, or too small or too
    great for memory that is shared."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number < _MOST:
        raise UsageError(f"{name} is {printable(repr(value))}; it must be a whole number from {least} to below 2**62")
    return number


def spawning() -> bool:
    """Whether something is being pickled for a process that is started."""
    from multiprocessing.context import get_spawning_popen

    return get_spawning_popen() is not None


class SharedNumbers:
    """Numbers in memory that forked and spawned workers share with the process that made it; from 0, or a list of them.

    Memory can be shared only with a process that is being started: any other copy has numbers of its own."""

    def __init__(self, values: int | list[int]) -> None:
        from multiprocessing.sharedctypes import RawArray  # which few programs need

        self._memory: Any = RawArray("q", values)

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, at: Any) -> Any:
        return self._memory[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._memory[at] = value

    def part(self) -> None:
        """Have memory of its own in this process and those that it starts from now on."""
        SharedNumbers.__init__(self, self._memory[:])

    def __getstate__(self) -> dict[str, Any]:
        return {"memory": self._memory if spawning() else self._memory[:]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = state["memory"]
        if isinstance(memory, list):
            SharedNumbers.__init__(self, memory)
        else:
            self._memory = memory


class Epochs(SharedNumbers):
    """How often each worker began.

    A DataLoader makes new workers for each epoch, or keeps them and sends them nothing; both go on counting here."""

    def __init__(self) -> None:
        super().__init__(1 + _WORKERS)

    def begin(self) -> int:
        """The number of the epoch that begins. Raises: UsageError: more than 255 workers."""
        epoch = self.next()
        self[_slot()] = epoch + 1
        return epoch

    def next(self) -> int:
        """The number of the epoch that begins next, here. Raises: UsageError: more than 255 workers."""
        epoch: int = self[_slot()]
        return epoch

    def set_mine(self, epoch: int) -> None:
        """What begins next, here only."""
        self[_slot()] = epoch

    def in_workers(self) -> bool:
        """Whether workers of a DataLoader have begun more epochs than this process."""
        return any(each > self[0] for each in self[1:])

    def set(self, epoch: int) -> None:
        """What begins next. Raises: UsageError: not a whole number from 0 on."""
        self[:] = [checked_number("epoch", epoch)] * len(self)


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
