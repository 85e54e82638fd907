"""What becomes of an error: functions from it to True (leave out the sample, go on), or False (end).

The names are those of webdataset. What they pass over is counted and logged, see
:class:`tarkit.samples.dataset.WebDataset`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tarkit.errors import MissingExtraError, UsageError, printable

Handler = Callable[[Exception], object]


def reraise_exception(error: Exception) -> bool:
    """Raise it."""
    raise error


def ignore_and_continue(error: Exception) -> bool:
    """Go on."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Warn and go on."""
    warnings.warn(_text(error), stacklevel=2)
    return True


def ignore_and_stop(error: Exception) -> bool:
    """End the samples."""
    return False


def warn_and_stop(error: Exception) -> bool:
    """Warn and end the samples."""
    warnings.warn(_text(error), stacklevel=2)
    return False


def _text(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")


def handled(
    items: Iterable[Any],
    each: Callable[..., Iterable[Any]],
    arguments: tuple[Any, ...],
    handler: Handler,
    counts: Counter[str],
) -> Iterator[Any]:
    """What the step ``each`` makes of one item after the other; an error of it goes to the handler.

    What is not an error of the data is raised: a library that is missing, an argument that is wrong."""
    for item in items:
        try:
            yield from each((item,), *arguments)
        except (MissingExtraError, UsageError):
            raise
        except Exception as error:
            counts[type(error).__name__] += 1
            if not handler(error):
                return
