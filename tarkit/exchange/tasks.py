"""Run numbered tasks in several processes."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarkit.errors import EXIT_FAILED, DuplicateFieldError, RepeatedKeyError, TarkitError, UsageError
from tarkit.mapping.parallel import Batch, ordered_map
from tarkit.mapping.scratch import Scratch, sweep
from tarkit.samples.sample import Sample

_WINDOW = 1 << 30
_OF_OPTIONS = (UsageError, RepeatedKeyError, DuplicateFieldError)


class StageTaskError(TarkitError):
    """A task failed in its process.

    Args:
        message: one line.
        code: exit code.
        of_options: see :func:`needs_other_options`.
    """

    def __init__(self, message: str, code: int, *, of_options: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.of_options = code, of_options


def needs_other_options(error: TarkitError) -> bool:
    """Return True if the same command would meet an error again, until an option is another."""
    return error.of_options if isinstance(error, StageTaskError) else isinstance(error, _OF_OPTIONS)


def _show(text: bytes) -> None:
    """Show what a function of the user printed in its process; standard output is the program's."""
    sys.stderr.write(text.decode("utf-8", "replace"))


def task_results(
    task: Callable[[int], Any], numbers: Sequence[int], parallel: int, *, apart: bool = False
) -> Iterator[Any]:
    """Yield the result of a function for each number, in order.

    Args:
        task: function that returns a value that JSON can hold.
        numbers: its arguments.
        parallel: number of processes; 1: in this process.
        apart: True if another process runs even a single task.

    Raises:
        StageTaskError: a task raised an error, or its process was killed.
    """
    slots = min(parallel, len(numbers))
    if slots <= 1 and not (apart and numbers):
        yield from map(task, numbers)
        return
    from tarkit.mapping.pythonpool import PythonPool

    def mapper(sample: Sample) -> Sample:
        # A task makes millions of tuples, none in a cycle, which the collector would visit in vain.
        gc.disable()
        try:
            found = {"result": task(int(sample["__key__"]))}
        except TarkitError as error:
            found = {"error": str(error), "code": error.exit_code, "of_options": needs_other_options(error)}
        return {"__key__": sample["__key__"], "json": json.dumps(found).encode()}

    failed: TarkitError | None = None

    def batches() -> Iterator[Batch]:
        for number in numbers:
            if failed is None:
                yield [{"__key__": str(number)}]

    try:
        with Scratch() as scratch, PythonPool(mapper, scratch.path, slots=slots) as pool:
            for item in ordered_map(batches(), pool, window=_WINDOW):
                if failed is not None or not isinstance(item, tuple):
                    # Tasks that have begun are not killed, since they would leave files.
                    continue
                _, outcome = item
                for output in (outcome.printed.stdout, outcome.printed.stderr):
                    output.show(_show)
                if outcome.failure is not None:
                    failed = StageTaskError(f"{outcome.failure.message}; run the same command again", EXIT_FAILED)
                    continue
                found = json.loads(outcome.made[0][0]["json"])
                if "error" in found:
                    failed = StageTaskError(found["error"], found["code"], of_options=found["of_options"])
                else:
                    yield found["result"]
    finally:
        # Processes that were killed have left their spilled samples.
        sweep(tempfile.gettempdir())
    if failed is not None:
        raise failed
