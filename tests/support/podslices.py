"""What a pod takes of the inputs, by what tarproc itself calls."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.specs.inputslice import plan_slice
from tarkit.specs.slicedlist import open_list


def slice_inputs(specs: Sequence[str], index: int, w: int) -> list[str]:
    """The inputs of slice ``index`` of ``w``."""
    return [url for url, _ in plan_slice(specs, "memory://outputs", index, w)[0]]


def slice_of(url: str, index: int) -> list[str]:
    """The shards in a slice of a list that was planned."""
    found = open_list(url)
    assert found is not None
    return found.shards(index)


def names_of(n: int) -> list[str]:
    """Of different lengths, so that slices have different numbers of bytes."""
    return [f"s3://b/raw/{number:x}{'y' * (number % 7)}.tar" for number in range(n)]
