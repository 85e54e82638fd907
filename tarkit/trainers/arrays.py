"""Batches of NumPy arrays, for JAX and for custom training loops."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tarkit.extras import library
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.options import SourceOptions
from tarkit.trainers.shardmap import ShardMap
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream


def columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Convert rows to columns: arrays if all values are numbers or of one shape, else lists."""
    return tuple(map(_column, zip(*rows, strict=True)))


def _column(values: tuple[Any, ...]) -> Any:
    import numpy

    if all(isinstance(value, (bool, int, float)) for value in values):
        return numpy.array(values)
    if len({getattr(value, "shape", None) for value in values}) == 1 and isinstance(values[0], numpy.ndarray):
        return numpy.stack(values)
    return list(values)


@keywords_of(SourceOptions)
def batches(
    urls: str | os.PathLike[str] | Iterable[str] | ShardMap | Stream | Sequence[Stream],
    *,
    batch: int,
    fields: str,
    decode: str | None = "rgb",
    collate: Callable[[list[Any]], Any] | None = columns,
    **options: Unpack[SourceOptions],
) -> EpochLoader:
    """Return a loader of batches as NumPy arrays, epoch after epoch, without a trainer's library.

    A batch is a tuple of columns: arrays where all values are arrays of one shape or numbers, else
    lists.

    >>> shards = "train-{0000..0147}.tar"
    >>> for images, labels in batches(shards, batch=64, fields="jpg cls"):  # doctest: +SKIP
    ...     step(images, labels)

    Args:
        urls: a path, URL, shard spec or manifest (``dataset.json``), or several; or a
            :class:`~tarkit.trainers.shardmap.ShardMap`. Each shard has an index beside it (``tarkit
            index``). Or streams, which are mixed: a list of
            :class:`~tarkit.trainers.streams.Stream`.
        batch: samples of a global batch; each rank has its part of it.
        fields: names of the fields, one for each column; ``jpg;png`` takes the first one that a
            sample has.
        decode: form of decoded images: ``rgb`` (float32, 0 to 1) or ``rgb8`` (uint8) for arrays of
            shape (height, width, 3); ``l`` and ``l8`` for grey ones of shape (height, width). None:
            all fields stay bytes.
        collate: function from a list of tuples of fields to a batch; None: the list.
        options: the subset, order, rank and world, errors, cache, service and audit; see
            :class:`~tarkit.trainers.options.SourceOptions`.

    Raises:
        TypeError: an option does not exist.
        UsageError: an option has a wrong value, or a shard has no index.
        MissingExtraError: NumPy is not installed.
    """
    library("numpy", "a batch of arrays", "images")
    return EpochLoader(BatchSource(urls, batch=batch, fields=fields, decode=decode, collate=collate, **options))
