"""Steps that make batches of samples, and samples of batches. Names and values follow webdataset 1.0.2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tarkit.errors import DataError, UsageError, library

Collation = Callable[[list[Any]], Any]


def collated(samples: Sequence[Any]) -> Any:
    """One dict or tuple of a list of them: numbers become an array, arrays and tensors are stacked, the rest is a list.

    Raises:
        DataError: the samples have different fields, or arrays of different shapes.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        for sample in samples:
            if not isinstance(sample, Mapping) or sample.keys() != first.keys():
                has = list(sample) if isinstance(sample, Mapping) else type(sample).__name__
                raise DataError(f"batched: samples have different fields: {list(first)} and {has}", key=_key(sample))
        return {name: _stacked([sample[name] for sample in samples], name) for name in first}
    if isinstance(first, (tuple, list)):
        for sample in samples:
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise DataError(f"batched: tuples have different lengths; the first has {len(first)} values")
        return tuple(_stacked([sample[number] for sample in samples], number) for number in range(len(first)))
    return _stacked(list(samples), "sample")


def _key(sample: object) -> str | None:
    return sample.get("__key__") if isinstance(sample, Mapping) else None


def _stacked(values: list[Any], name: object) -> Any:
    torch, first = sys.modules.get("torch"), values[0]
    is_tensor = torch is not None and isinstance(first, torch.Tensor)
    if not is_tensor and not isinstance(first, (int, float)) and type(first).__module__ != "numpy":
        return values
    try:
        if torch is not None and is_tensor:
            return torch.stack(values)
        numpy = library("numpy", "batched", "images")
        return numpy.stack(values) if isinstance(first, numpy.ndarray) else numpy.array(values)
    except (TypeError, ValueError, RuntimeError) as error:  # what numpy and torch raise
        raise DataError(f"batched: the values of {name!r} do not make one array: {error}") from error


def lists(samples: Iterable[Any], size: int, partial: bool = True) -> Iterator[list[Any]]:
    """Lists of ``size`` samples; partial: the last one may have fewer, else it is left out.
    Raises: UsageError: size is below 1."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UsageError(f"a batch has {size!r} samples; it must be a number, 1 or more")
    return _listed(samples, size, partial)


def _listed(samples: Iterable[Any], size: int, partial: bool) -> Iterator[list[Any]]:
    source = iter(samples)
    while batch := list(islice(source, size)):
        if partial or len(batch) == size:
            yield batch


def batched(samples: Iterable[Any], size: int, collation: Collation | None, partial: bool) -> Iterator[Any]:
    """What ``collation`` makes of each list of ``size`` samples; None: the list."""
    made = lists(samples, size, partial)
    # Unlike map(), it does not take a StopIteration of the function for the end of the samples.
    return made if collation is None else (collation(each) for each in made)


def unlisted(batches: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """The samples of lists."""
    return (sample for batch in batches for sample in batch)


def unbatched(batches: Iterable[Any]) -> Iterator[Any]:
    """The samples of batches, which are tuples or dicts of columns.
    Raises: DataError: a batch is neither, or its columns have different lengths."""
    for batch in batches:
        columns = list(batch.values()) if isinstance(batch, Mapping) else batch
        if not isinstance(columns, (tuple, list)):
            raise DataError(f"unbatched: a batch is {type(batch).__name__}; it must be a tuple or dict of columns")
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise DataError(f"unbatched: the columns of a batch have different lengths: {sorted(lengths)}")
        for row in range(*lengths):
            values = (column[row] for column in columns)
            yield dict(zip(batch, values, strict=True)) if isinstance(batch, Mapping) else tuple(values)
