"""Where a training is, as it was saved: a state may come from another program, version or data set, or be edited."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tarkit.errors import UsageError
from tarkit.trainers.order import Segment
from tarkit.trainers.sharednumbers import checked_number


def saved_place(state: Mapping[str, Any], dealt: Sequence[str]) -> tuple[int, int, list[Segment], list[int]]:
    """Of a state: epoch, next batch, first batches that were of other sizes, and the settings named in ``dealt``.

    Raises:
        UsageError: one of them is missing or cannot be.
    """
    epoch, number = (checked_number(f"{name} of the state", state.get(name)) for name in ("epoch", "next_batch"))
    try:
        segments = [Segment(*map(operator.index, each)) for each in state.get("segments", ())]
    except TypeError:
        raise UsageError("segments of the state must each have four whole numbers") from None
    if any(min(each) < 1 for each in segments) or sum(each.batches for each in segments) > number:
        raise UsageError(f"segments of the state are {segments}, and cannot be before batch {number}")
    return epoch, number, segments, [checked_number(f"{name} of the state", state.get(name), 1) for name in dealt]
