"""How the steps of a WebDataset run: epoch after epoch, in workers, and on from the middle of an epoch."""

from __future__ import annotations

import itertools
import logging
import operator
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from types import NoneType
from typing import Any, TypeVar

from tarkit.errors import DataError, UsageError, printable
from tarkit.samples.epochs import Draw, Epochs, checked_number, spawning
from tarkit.samples.handlers import Handler, handled
from tarkit.trainers.world import Consumer, consumer, loader_worker

_log = logging.getLogger(__name__)

Step = tuple[Callable[..., Iterable[Any]], tuple[Any, ...]]
"""A function and what it is given after the samples."""
Self = TypeVar("Self", bound="Pipeline")

_VERSION = 1
_DEALING = {"shuffle", "rsample", "islice", "take", "batched", "unbatched", "lists", "unlisted"}
"""Steps on which it depends which items come, and what an item is."""
_EXACT = "tarkit.trainers.torch.ShardDataset goes on with any number of ranks and workers"
# What webdataset 1.0.2 has and this has not -> what to use.
_LEFT_OUT = {
    "lmdb_cached": "it keeps pickles, and reading a pickle can run any code; write shards with tarkit.ShardWriter",
    "append": "compose(step) gives a data set with one more step",
    "stage": "the steps are the methods that were called",
    "pipeline": "the steps are the methods that were called; compose(step) adds one",
    "invoke": "compose(step) gives a data set with one more step",
    "iterator": "iterate over the data set",
    "iterator1": "iterate over the data set",
}


class Pipeline:
    """What makes samples, and the steps that they go through."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._fresh = seed is None
        self._steps: tuple[Step, ...] = ()
        self._epochs = Epochs()
        self._placed: Consumer | None = None
        self._passes: int | None = 1
        self._limit: int | None = None
        self._length: int | None = None
        self._begun: tuple[int, Iterator[int], int] | None = None
        """The epoch of this iteration, what moves on with each of its items, and those used before."""
        self._digest: str | None = None
        self._done = 0
        """Items of the next iteration that a state says were used."""
        self.handled: Counter[str] = Counter()

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                "a WebDataset does not know its length; with_length(n) sets it. If a DataLoader asks: import torch "
                "before the WebDataset is made, or use tarkit.trainers.torch.ShardDataset"
            )
        return self._length

    def __bool__(self) -> bool:
        return True

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass  # an iteration closes what it opened

    def close(self) -> None:
        """Do nothing: an iteration closes what it opened."""

    def __getattr__(self, name: str) -> Any:
        if name in _LEFT_OUT:
            raise AttributeError(f"{type(self).__name__} has no {name!r}: {_LEFT_OUT[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[Any]:
        done, self._done = self._done, 0
        ticks = iter(range(1, sys.maxsize))
        self._begun = self._epochs.next(), ticks, done
        if self._passes == 1 and self._limit is None:
            items: Iterator[Any] = self._counted(self._pass())
        else:
            items = islice(self._endless(), self._limit)
        # Counts at the speed of C. Items that a state says were used are read again, and not given.
        counted = itertools.compress(items, ticks)
        return self._rest(counted, done) if done else counted

    def _rest(self, items: Iterator[Any], done: int) -> Iterator[Any]:
        found = sum(1 for _ in islice(items, done))
        if found < done:
            raise DataError(
                f"the state says that {done} items of this epoch were used, and it has {found}",
                hint="the shards have other samples than when the state was made",
            )
        yield from items

    def _endless(self) -> Iterator[Any]:
        for _ in itertools.repeat(None) if self._passes is None else range(self._passes):
            empty = True
            for sample in self._counted(self._pass()):
                empty = False
                yield sample
            if empty and self._passes is None:
                raise DataError("an epoch without end is to be made of passes, and one has no samples")

    def _counted(self, samples: Iterator[Any]) -> Iterator[Any]:
        before = self.handled.total()
        try:
            yield from samples
        finally:
            if self.handled.total() > before:
                _log.warning("handlers have passed over errors: %s", dict(self.handled))

    def _pass(self) -> Iterator[Any]:
        place = (self._epochs.begin(), *self._reader())
        samples = iter(self._read((*place, 0)))
        for number, (function, arguments) in enumerate(self._steps, 1):
            drawn = (each.at(self.seed, *place, number) if isinstance(each, Draw) else each for each in arguments)
            samples = iter(function(samples, *drawn))
        return samples

    def _reader(self) -> tuple[int, int]:
        """Rank and worker, 0 where they are to read the same."""
        raise NotImplementedError

    def _read(self, place: tuple[int, ...]) -> Iterator[Any]:
        raise NotImplementedError

    def _named(self) -> list[str]:
        """What is read, for a state."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that the next iteration is, in this process and in workers; else it counts.
        Raises: UsageError: not a whole number from 0 on."""
        self._epochs.set(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this iteration is, in this process: epoch, seed, and the items that it gave.

        In a worker of a DataLoader it is the worker's, which torchdata's StatefulDataLoader keeps.

        Raises:
            UsageError: the workers of a DataLoader have read the data set, and this is not one of them.
        """
        if loader_worker() is None and self._begun is None and self._epochs.in_workers():
            raise UsageError(
                "workers of a DataLoader read this WebDataset, and only they know where they are: use torchdata's "
                f"StatefulDataLoader and its state_dict(). {_EXACT}"
            )
        epoch, items = self._epochs.next(), self._done
        if self._begun is not None:
            epoch, ticks, done = self._begun
            items = max(done, sys.maxsize - 1 - operator.length_hint(ticks))
        return {**self._identity(), "seed": self.seed, "steps": self._dealing(), "epoch": epoch, "items": items}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there: the next iteration reads the items that were used again, and gives the rest of the epoch.

        A seed that was drawn is taken from the state.

        Raises:
            UsageError: the state is of other shards, another seed, another rank or worker, or other steps that shuffle,
                pick or batch; or one of its values cannot be.
        """
        if not isinstance(state, Mapping):
            raise UsageError(f"this is not the state of a WebDataset, but a {type(state).__name__}")
        mine = {**self._identity(), "seed": state.get("seed") if self._fresh else self.seed}
        mine["steps"] = self._dealing()
        for name, value in mine.items():
            if state.get(name) != value:
                found = printable(repr(state.get(name)))
                raise UsageError(
                    f"the state is of another WebDataset: {name} is {value!r}, and it has {found}. {_EXACT}"
                )
        epoch, items = (checked_number(f"{name} of the state", state.get(name)) for name in ("epoch", "items"))
        if not isinstance(mine["seed"], (int, NoneType)):
            raise UsageError(f"seed of the state is {printable(repr(mine['seed']))}; it must be a whole number")
        self.seed, self._done, self._begun = mine["seed"], items, None
        self._epochs.set_mine(epoch)

    def _identity(self) -> dict[str, Any]:
        worker = loader_worker()
        if self._digest is None:  # a state is taken after each batch
            names = "\n".join(self._named()).encode("utf-8", "surrogateescape")
            self._digest = blake2b(names, digest_size=8).hexdigest()
        of = 0 if worker is None else worker.number, 1 if worker is None else worker.workers
        return {"version": _VERSION, "shards": self._digest, "rank": list(self._rank()), "worker": list(of)}

    def _dealing(self) -> str:
        """The steps on which it depends which items come, as a state names them."""
        found = [] if (self._passes, self._limit) == (1, None) else [f"passes{self._passes, self._limit}"]
        for function, given in self._steps:
            name = getattr(function, "__name__", "")
            if name in _DEALING:
                numbers = (each.seed if isinstance(each, Draw) else each for each in given)
                found.append(f"{name}{(*(each for each in numbers if isinstance(each, (int, float, NoneType))),)}")
        return " ".join(found)

    def _rank(self) -> Consumer:
        return consumer(sent=self._placed)

    def _add(self, function: Callable[..., Iterable[Any]], *arguments: Any) -> None:
        checked = (each.seed_of(self.seed) if isinstance(each, Draw) else each for each in arguments)
        function((), *checked)  # checks the step's arguments here, where they were written
        self._steps = (*self._steps, (function, arguments))

    def _copied(self: Self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._epochs, other._begun = Epochs(), None
        return other

    def _then(
        self: Self, function: Callable[..., Iterable[Any]], *arguments: Any, handler: Handler | None = None
    ) -> Self:
        other = self._copied()
        other._add(function, *arguments)
        if handler is not None:
            other._steps = (*self._steps, (handled, (function, arguments, handler, self.handled)))
        return other

    def _repeated(self: Self, passes: int, limit: int) -> Self:
        other = self._copied()
        other._passes, other._limit = passes if passes > 0 else None, limit if limit > 0 else None
        return other

    def _draw(self, seed: int | None, step: str) -> Draw:
        if seed is None and self.seed is None:
            self.seed = secrets.randbits(32)
            _log.warning("%s: no seed was given; seed=%d gives this order again", step, self.seed)
        return Draw(seed)

    def __getstate__(self) -> dict[str, Any]:
        if spawning():
            for name, value in self._given():
                _check_pickled(name, value)
        # A spawned process has no process group to ask.
        return self.__dict__ | {"_placed": self._rank(), "_begun": None}

    def _given(self) -> list[tuple[str, object]]:
        steps = [given if function is handled else (function, given) for function, given in self._steps]
        return [(getattr(step[0], "__name__", "a step").lstrip("_"), step) for step in steps]


def _check_pickled(name: str, value: object) -> None:
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(value)
    except Exception as error:  # pickle raises what the object's own methods raise
        raise UsageError(
            f"WebDataset goes to a process that is spawned, and what {name} was given cannot be pickled ({error}): "
            "use functions defined at the top of a module, or DataLoader(multiprocessing_context='fork')"
        ) from error
