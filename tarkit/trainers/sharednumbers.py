"""Numbers that a training loop and its workers share, and a check of given numbers."""

from __future__ import annotations

import math
import operator
from typing import Any

from tarkit.errors import UsageError, printable

_MOST = 1 << 62


def checked_number(name: str, value: Any, least: int = 0) -> int:
    """Return a value if it is a whole number within bounds.

    Args:
        name: name of the value, for the message.
        least: smallest value that is allowed.

    Raises:
        UsageError: the value is not a whole number, too small, or too large for shared memory.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number < _MOST:
        raise UsageError(f"{name} is {printable(repr(value))}; it must be a whole number from {least} to below 2**62")
    return number


def checked_seconds(name: str, value: Any) -> float:
    """Return a number of seconds from 0 on; 0.0 for None.

    Args:
        name: name of the value, for the message.

    Raises:
        UsageError: the value is not such a number.
    """
    seconds = 0.0 if value is None else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is {printable(repr(value))}; it must be a number of seconds from 0 on")
    return float(seconds)


class SharedNumbers:
    """Numbers in memory that forked and spawned workers share with the process that made it.

    They begin at 0, or at the values of a list. Memory can be shared only with a process that is
    being started: any other copy has separate numbers.
    """

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
        """Use separate memory in this process and those that it starts from now on."""
        SharedNumbers.__init__(self, self._memory[:])

    def __getstate__(self) -> dict[str, Any]:
        from multiprocessing.context import get_spawning_popen

        is_spawning = get_spawning_popen() is not None
        return {"memory": self._memory if is_spawning else self._memory[:]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = state["memory"]
        if isinstance(memory, list):
            SharedNumbers.__init__(self, memory)
        else:
            self._memory = memory
