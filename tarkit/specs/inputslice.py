"""One slice of the inputs of a run, without making the names of all the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tarkit.specs.braces import Choice, Product, expand_braces
from tarkit.specs.outputnames import FAILED_SUFFIX, plan_outputs
from tarkit.specs.shardspec import expand, fixed_names, output_name, take_slice
from tarkit.specs.slicedlist import SlicedList, changed, open_list, sha256_of

FEW = 100_000
"""So many inputs are looked at one by one: that takes less than a second."""

_NUMBERED = re.compile(
    r"(?:[^{}\\#]*/)?(?P<head>[^{}\\#/]*)\{-?[0-9]+\.\.-?[0-9]+(?:\.\.-?[0-9]+)?\}(?P<end>[^{}\\#/]*)"
)


def plan_slice(
    specs: Sequence[str],
    folder: str,
    index: int,
    w: int,
    *,
    list_sha256: str | None = None,
    allow_pipe_in_lists: bool = False,
) -> list[tuple[str, str]]:
    """Inputs with their outputs, of slice ``index`` of ``w``.

    No two slices make the same output. Where that follows from the patterns, and where it was checked
    when a list was planned, only the names of this slice are made; otherwise all of them are.

    Args:
        list_sha256: what the slices were planned for, in hex: ``SlicedList.offsets_sha256`` if the input is one list
            whose slices were planned, else ``tarkit.specs.slicedlist.sha256_of`` all names.

    Raises:
        UsageError: as ``expand`` and ``plan_outputs``. DataError: a list was changed after it was planned.
    """
    planned = _planned(specs, w)
    if planned is not None:
        if list_sha256 not in (None, planned.offsets_sha256):
            raise changed(planned.url)
        if not planned.checked:
            for _ in plan_outputs(expand(specs), folder):
                pass
        return list(plan_outputs(planned.shards(index), folder))
    patterns = patterns_of(specs)
    is_pinned = list_sha256 is not None
    together = Choice(tuple(patterns or ()))
    if is_pinned or together.count <= FEW or not are_distinct(specs):
        names = list(expand(specs, allow_pipe_in_lists=allow_pipe_in_lists))
        if is_pinned and sha256_of(names) != list_sha256:
            raise changed(" ".join(specs))
        pairs = list(plan_outputs(names, folder))
        return [pairs[number] for number in take_slice(len(pairs), index, w)]
    # All inputs of a pattern are in one folder: whether it is that of the outputs, the first of them tells.
    for _ in plan_outputs((next(pattern.items(0, 1)) for pattern in patterns or ()), folder):
        pass
    wanted = take_slice(together.count, index, w)
    return list(plan_outputs(together.items(wanted.start, wanted.stop), folder))


def patterns_of(specs: Sequence[str]) -> list[Product] | None:
    """The names of each spec, if nothing has to be listed or read to know them all; else None.

    Raises:
        UsageError: unbalanced braces.
    """
    found: list[Product] = []
    for spec in specs:
        pattern = fixed_names(spec)
        if pattern is None:
            return None
        found.append(pattern)
    return found


def _planned(specs: Sequence[str], w: int) -> SlicedList | None:
    """The one list that is the input, if it was planned in ``w`` slices."""
    if len(specs) != 1 or not specs[0].startswith("@") or specs[0].startswith("@pipe:"):
        return None
    found = open_list(specs[0][1:])
    return found if found is not None and found.w == w else None


def are_distinct(specs: Sequence[str]) -> bool:
    """Whether it is plain that all outputs have names, and different ones.

    It is where each spec is ``FOLDER/HEAD{FIRST..LAST}END``, with braces in one place only, and no HEAD begins
    another one. False: all names must be looked at.

    Raises:
        UsageError: the first name of a spec is not that of a file.
    """
    heads = []
    for spec in specs:
        match = _NUMBERED.fullmatch(spec)
        if match is None or match["end"].endswith(FAILED_SUFFIX):
            return False
        output_name(next(expand_braces(spec)))
        heads.append(match["head"])
    return not any(second.startswith(first) for first, second in pairwise(sorted(heads)))
