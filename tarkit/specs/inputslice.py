"""Plan one slice of the inputs of a run, without making the names of the other slices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tarkit.errors import UsageError, printable
from tarkit.names.braces import Choice
from tarkit.names.outputnames import FEW, are_distinct, plan_outputs
from tarkit.specs.inputset import InputSet
from tarkit.specs.shardspec import MOST_NAMES, expand, patterns_of, take_slice
from tarkit.specs.slicedlist import SlicedList, changed, open_list, sha256_of
from tarkit.store.entries import pinned


def parse_slice(text: str) -> tuple[int, int]:
    """Parse ``"I/W"`` into (I, W): slice I, counted from 0, of W slices.

    Raises:
        UsageError: the text is not two whole numbers with 0 <= I < W.
    """
    match = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text)
    if match is None:
        raise UsageError(f"slice {printable(text)!r} must be I/W, such as 0/4 for the first of four slices")
    index, count = int(match[1]), int(match[2])
    if not index < count:
        raise UsageError(f"slice {text!r}: slices are counted from 0, so the first number must be below the second")
    return index, count


def plan_slice(
    specs: Sequence[str],
    folder: str,
    index: int,
    w: int,
    *,
    list_sha256: str | None = None,
    allow_pipe_in_lists: bool = False,
) -> tuple[list[tuple[str, str]], InputSet]:
    """Return the inputs of slice ``index`` of ``w`` with their outputs, and all inputs.

    No two slices make the same output. Where that follows from the patterns, and where it was
    checked when a list was planned, only the names of this slice are made; otherwise all of them
    are.

    Args:
        specs: shard specs of the inputs.
        folder: path or URL of the output folder.
        index: number of the slice, from 0.
        w: number of slices.
        list_sha256: digest in hex for which the slices were planned: ``SlicedList.offsets_sha256``
            if the input is one list whose slices were planned, or else
            ``tarkit.specs.slicedlist.sha256_of`` all names.
        allow_pipe_in_lists: True if a list may have ``pipe:`` commands.

    Raises:
        UsageError: a spec, or the name of an output, is not valid (``expand`` and
            ``plan_outputs``).
        DataError: a list was changed after it was planned.
    """
    specs = [*map(pinned, specs)]
    planned = _planned(specs, w)
    if planned is not None:
        if list_sha256 not in (None, planned.offsets_sha256):
            raise changed(planned.url)
        if not planned.checked:
            for _ in plan_outputs(expand(specs), folder):
                pass
        return list(plan_outputs(planned.shards(index), folder)), InputSet.of_list(planned)
    patterns = patterns_of(specs)
    is_pinned = list_sha256 is not None
    together = Choice(tuple(patterns or ()))
    if is_pinned or together.count <= FEW or not are_distinct(specs):
        names = list(expand(specs, allow_pipe_in_lists=allow_pipe_in_lists))
        if is_pinned and sha256_of(names) != list_sha256:
            raise changed(" ".join(specs))
        pairs = list(plan_outputs(names, folder))
        return [pairs[number] for number in take_slice(len(pairs), index, w)], all_inputs(specs, names)
    # All inputs of a pattern are in one folder: the first of them shows if that is the folder of
    # the outputs.
    for _ in plan_outputs((next(pattern.items(0, 1)) for pattern in patterns or ()), folder):
        pass
    wanted = take_slice(together.count, index, w)
    if wanted.stop - wanted.start > MOST_NAMES:
        raise UsageError(f"slice {index}/{w} has more than {MOST_NAMES} inputs; check the patterns, or make it smaller")
    pairs = list(plan_outputs(together.items(wanted.start, wanted.stop), folder))
    return pairs, InputSet.of_patterns(specs, patterns or ())


def all_inputs(specs: Sequence[str], names: Sequence[str]) -> InputSet:
    """Return the set of a run's inputs, for its record.

    Args:
        specs: shard specs of the inputs.
        names: all names that the specs stand for.
    """
    specs = [*map(pinned, specs)]
    patterns = patterns_of(specs)
    return InputSet.of_names(names) if patterns is None else InputSet.of_patterns(specs, patterns)


def _planned(specs: Sequence[str], w: int) -> SlicedList | None:
    """Return the one list that is the input, if it was planned in ``w`` slices."""
    if len(specs) != 1 or not specs[0].startswith("@") or specs[0].startswith("@pipe:"):
        return None
    found = open_list(specs[0][1:])
    return found if found is not None and found.w == w else None
