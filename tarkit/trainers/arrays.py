"""Batches of NumPy arrays, for JAX and for loops of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tarkit.extras import library
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource


def batches(
    urls: str | os.PathLike[str] | Iterable[str], *, batch: int, fields: str, decode: str | None = "rgb", **options: Any
) -> EpochLoader:
    """Batches as tuples of columns: arrays where all values are arrays of one shape or numbers,
    else lists.

    >>> for images, labels in batches("train-{0000..0147}.tar", batch=64, fields="jpg cls"):  # doctest: +SKIP
    ...     step(images, labels)

    Args:
        urls, batch, fields, decode, options: see :class:`tarkit.trainers.source.BatchSource`.

    Raises:
        UsageError: see there.
        MissingExtraError: NumPy is not installed.
    """
    library("numpy", "a batch of arrays", "images")
    return EpochLoader(BatchSource(urls, batch=batch, fields=fields, decode=decode, **{"collate": columns, **options}))


def columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Rows to columns: arrays where all values are arrays of one shape or numbers, else lists."""
    return tuple(map(_column, zip(*rows, strict=True)))


def _column(values: tuple[Any, ...]) -> Any:
    import numpy

    if all(isinstance(value, (bool, int, float)) for value in values):
        return numpy.array(values)
    if len({getattr(value, "shape", None) for value in values}) == 1 and isinstance(values[0], numpy.ndarray):
        return numpy.stack(values)
    return list(values)
