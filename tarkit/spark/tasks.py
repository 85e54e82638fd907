"""Run functions as tasks on a Spark cluster; their errors become one line with an exit code."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tarkit.errors import EXIT_FAILED, MissingInputError, TarkitError, UsageError, exit_code_of_all, printable
from tarkit.extras import library
from tarkit.names.url import is_stream, local_path
from tarkit.store.entries import entries, remove_left_behind
from tarkit.store.temporary import is_temporary_name

T = TypeVar("T")
R = TypeVar("R")


_KILLED_AFTER = 3.0
"""Seconds after which Spark has killed the Python process of a task that is no longer needed; its
default is two.
"""
_PATIENCE = 30.0
"""Seconds to wait for files that such a process still writes."""
_BETWEEN = 0.2
"""Seconds between two checks of these files."""


class TaskError(TarkitError):
    """A task on a Spark cluster failed.

    Args:
        exit_code: exit code of the task's error.
    """

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def new_context(name: str) -> Iterator[Any]:
    """Create a SparkContext, and stop it at the end.

    Its settings are those of spark-submit, or Spark's defaults.

    Raises:
        MissingExtraError: pyspark is not installed.
        UsageError: the context cannot be created.
    """
    pyspark = library("pyspark", "a job on Spark", "spark")
    try:
        context = pyspark.SparkContext(conf=pyspark.SparkConf().setAppName(name))
    except Exception as error:
        reason = printable(str(error).strip().partition("\n")[0]) or type(error).__name__
        hint = "; Spark 4 needs Java 17 or newer: install it, or set JAVA_HOME" if "JAVA_GATEWAY" in reason else ""
        raise UsageError(f"Spark cannot be started: {reason}{hint}") from error
    try:
        yield _with_this_python(context)
    finally:
        context.stop()


def current_context() -> Any:
    """Return the SparkContext of this process; make one if there is none.

    Raises:
        MissingExtraError: pyspark is not installed.
    """
    return _with_this_python(library("pyspark", "a run on Spark", "spark").SparkContext.getOrCreate())


def _with_this_python(context: Any) -> Any:
    """Make local tasks run this Python, instead of the first python3 on the path."""
    if context.master.startswith("local"):
        context.pythonExec = sys.executable
    return context


def run_tasks(context: Any, function: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
    """Call a function in a task for each argument; return the results in order.

    A task that Spark loses is run again, as often as ``spark.task.maxFailures`` says. An error of
    tarkit in a task would occur again, so the task is not repeated: the other tasks are run to
    their end, then the error is raised.

    Args:
        function: pickled, as its arguments and results are.

    Raises:
        TaskError: tarkit's errors in tasks, with the message of the first one, or Spark aborted the
            job.
    """
    if not arguments:
        return []
    pieces = context.parallelize(list(arguments), len(arguments))
    return task_outcomes(pieces.mapPartitions(partial(_guarded, function)))


def task_outcomes(pieces: Any) -> list[Any]:
    """Run the tasks of an RDD of (0, result) or (exit code, message); return the results in order.

    Raises:
        TaskError: see :func:`run_tasks`.
    """
    try:
        results = pieces.collect()
    except Exception as error:
        java = getattr(error, "java_exception", None)
        if java is None:
            raise
        raise TaskError(_reason(str(java))) from None
    failed = [found for found in results if found[0]]
    if failed:
        others = f" ({len(failed)} tasks failed; this is the first)" if len(failed) > 1 else ""
        raise TaskError(f"{failed[0][1]}{others}", exit_code_of_all(code for code, _ in failed))
    return [result for _, result in results]


def _guarded(function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[tuple[int, Any]]:
    """Return (0, result) or (exit code, message), as not all exceptions can be pickled."""
    for argument in arguments:
        try:
            yield 0, function(argument)
        except TarkitError as error:
            yield error.exit_code, str(error)


def _reason(text: str) -> str:
    """Return one line of Spark's report: the last of a Python traceback, else the first."""
    head, found, traceback = text.partition("Traceback (most recent call last):\n")
    lines = traceback.splitlines() if found else head.splitlines()[:1]
    # A traceback is indented, but for the exception that ends it; what follows is Java's.
    reason = next((line for line in lines if line.strip() and not line.startswith(" ")), head.strip())
    reason = reason.rpartition("most recent failure: ")[2]
    hint = "; install tarkit, and what the model file needs, on all machines" if "ModuleNotFoundError" in reason else ""
    return f"a task failed on the Spark cluster: {reason}{hint}"


def seconds_after_end(context: Any) -> float:
    """Return the time for which attempts that are no longer needed may keep running."""
    return _KILLED_AFTER if context.getConf().get("spark.speculation", "false") == "true" else 0.0


def remove_left_by_tasks(folder: str, lingering: float) -> None:
    """Remove the temporary files that killed tasks left in a folder.

    No other program writes to it.

    Args:
        lingering: result of :func:`seconds_after_end`.
    """
    time.sleep(lingering)
    end = time.monotonic() + _PATIENCE
    try:
        while True:
            for _ in remove_left_behind(folder, older_than=0, now=time.time()):
                pass
            # A local file stays while its writer lives.
            if time.monotonic() >= end or not any(is_temporary_name(entry.name) for entry in entries(folder)):
                return
            time.sleep(_BETWEEN)
    except MissingInputError:
        # Nothing was written.
        return


def on_all_machines(url: str) -> str:
    """Return a local path as an absolute path, since tasks have their own working folders.

    Other URLs are returned as they are.

    Raises:
        UsageError: the URL is standard input or output.
    """
    if url == "-":
        raise UsageError("standard input and output are not on the cluster; name a file, a folder or a URL")
    path = None if is_stream(url) else local_path(url)
    return url if path is None else os.path.abspath(path)
