"""A stand-in for Spark's context, and a model file."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
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
