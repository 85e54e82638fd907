"""Stand-ins for Spark's context, and a model file."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

MODEL = "def prepare_data_for_a_single_file(file, name):\n    return file.read()\n"


class Context:
    """Runs tasks as Spark does, one by one, in this process.

    Args:
        again: tasks that are run twice.
    """

    def __init__(self, again: int = 0) -> None:
        self.again = again
        self.tasks = 0

    def getConf(self) -> dict[str, str]:
        return {}

    def parallelize(self, items: list[Any], number: int) -> Context:
        assert len(items) == number
        self.items, self.tasks = items, number
        return self

    def mapPartitions(self, function: Callable[[list[Any]], Iterator[Any]]) -> Context:
        self.function = pickle.dumps(function)
        return self

    def collect(self) -> list[Any]:
        found: list[Any] = []
        for number, item in enumerate(self.items):
            for _ in range(2 if number < self.again else 1):
                result = list(pickle.loads(self.function)([pickle.loads(pickle.dumps(item))]))
            found += pickle.loads(pickle.dumps(result))
        return found


class ShufflingContext:
    """Runs tasks as Spark does, with its shuffle, in this process.

    Args:
        again: tasks that are run twice, of each RDD.

    Attributes:
        sorted: records that went through a shuffle.
        kept: RDDs that are persisted.
    """

    defaultParallelism = 3

    def __init__(self, again: int = 0) -> None:
        self.again, self.sorted, self.kept = again, 0, 0

    def parallelize(self, items: Sequence[Any], number: int) -> Pieces:
        assert len(items) == number
        return Pieces(self, lambda: [[item] for item in items])


class Pieces:
    """A stand-in for an RDD, which is computed each time that it is asked for."""

    def __init__(self, context: ShufflingContext, parts: Callable[[], list[list[Any]]]) -> None:
        self.context, self.parts = context, parts

    def mapPartitionsWithIndex(self, function: Callable[[int, Iterator[Any]], Iterable[Any]]) -> Pieces:
        sent = pickle.dumps(function)

        def parts() -> list[list[Any]]:
            made = []
            for number, part in enumerate(self.parts()):
                for _ in range(2 if number < self.context.again else 1):
                    found = list(pickle.loads(sent)(number, iter(pickle.loads(pickle.dumps(part)))))
                made.append(found)
            return made

        return Pieces(self.context, parts)

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> Pieces:
        return self.mapPartitionsWithIndex(_WithoutIndex(function))

    def repartitionAndSortWithinPartitions(self, number: int, place: Callable[[Any], int]) -> Pieces:
        sent = pickle.dumps(place)

        def parts() -> list[list[Any]]:
            made: list[list[Any]] = [[] for _ in range(number)]
            # Blocks come from the other machines in any order.
            for part in reversed(self.parts()):
                for key, value in part:
                    made[pickle.loads(sent)(key)].append((key, value))
                    self.context.sorted += 1
            return [sorted(part, key=lambda pair: pair[0]) for part in made]

        return Pieces(self.context, parts)

    def persist(self, level: Any) -> Pieces:
        self.context.kept += 1
        self.parts = functools.cache(self.parts)
        return self

    def unpersist(self) -> None:
        self.context.kept -= 1

    def collect(self) -> list[Any]:
        return [pickle.loads(pickle.dumps(item)) for part in self.parts() for item in part]


class _WithoutIndex:
    def __init__(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> None:
        self.function = function

    def __call__(self, index: int, items: Iterator[Any]) -> Iterable[Any]:
        return self.function(items)
