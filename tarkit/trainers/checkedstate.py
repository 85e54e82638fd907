"""The checksum of a data set's state, which finds a state that was edited or damaged."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from tarkit.errors import UsageError, printable
from tarkit.trainers.order import ORDER_VERSION
from tarkit.trainers.sharednumbers import checked_number


def with_checksum(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with its checksum, ``crc``: 8 hexadecimal digits."""
    return {**state, "crc": _checksum(state)}


def check_state(state: Any) -> tuple[int, int]:
    """Check the version and checksum of a state, and return its epoch and its next batch.

    Raises:
        UsageError: it is not a state, is of another version of the order, or was changed.
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"this is not the state of a data set of shards, but a {type(state).__name__}")
    if "version" not in state:
        names = ", ".join(map(printable, map(repr, state))) or "nothing"
        what = "this is not the state of a data set of shards, which state_dict() of its loader returns"
        raise UsageError(f"{what}: it has {names[:200]}")
    if (version := state["version"]) != ORDER_VERSION:
        hint = "resume with the version of tarkit that wrote it, or begin an epoch by set_epoch()"
        raise UsageError(f"version of the state is {printable(repr(version))}, and here it is {ORDER_VERSION}; {hint}")
    epoch, number = (checked_number(f"{name} of the state", state.get(name)) for name in ("epoch", "next_batch"))
    try:
        is_whole = state.get("crc") == _checksum(state)
    except (TypeError, ValueError, RecursionError):
        is_whole = False  # nothing that a state has
    if not is_whole:
        hint = "load the state of another checkpoint, or begin an epoch by set_epoch()"
        raise UsageError(f"the state was edited or damaged: its checksum (crc) is missing or differs; {hint}")
    return epoch, number


def _checksum(state: Mapping[str, Any]) -> str:
    """Return the CRC-32 of a state's JSON with sorted names: it may come back in another order."""
    fields = {name: value for name, value in state.items() if name != "crc"}
    return f"{crc32(json.dumps(fields, sort_keys=True, default=_plain).encode()):08x}"


def _plain(value: Any) -> Any:
    """Return what a library made of a dict or a whole number as such."""
    return dict(value) if isinstance(value, Mapping) else operator.index(value)
