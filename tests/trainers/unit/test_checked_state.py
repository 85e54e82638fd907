"""The checksum of a state: what was edited is refused, and what a library stores is not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from trainshards import write_shards

from tarkit.errors import UsageError
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream

REFUSED = r"^the state was edited or damaged: its checksum \(crc\) is missing or differs; load the state of another"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams")
    for name in "ab":
        write_shards(found, (25, 16), name=name)
    return found


def mixed(folder: Path) -> EpochLoader:
    streams = [Stream(f"{folder}/{name}-*.tar", name=name, proportion=1) for name in "ba"]
    return EpochLoader(BatchSource(streams, batch=6, seed=None, shuffle=False, stratified=False, epoch_size=30))


def state_of(folder: Path) -> dict[str, Any]:
    """A state of an epoch after the first one, of which samples were used."""
    each = mixed(folder)
    list(each)
    next(iter(each))
    return each.state_dict()


def others(value: Any) -> list[Any]:
    """What each part of a state may be in place of a value, each a small change."""
    if isinstance(value, dict):
        changed = [{**value, name: other} for name, each in value.items() for other in others(each)]
        return changed + [{name: value[name] for name in value if name != gone} for gone in value]
    if isinstance(value, list):
        return [[*value[:at], other, *value[at + 1 :]] for at, each in enumerate(value) for other in others(each)]
    if isinstance(value, str):
        return [value + "0", value[1:]]
    return [not value] if isinstance(value, bool) else [0] if value is None else [value + 1, value + 4, str(value)]


def test_any_change_is_refused(folder: Path) -> None:
    """Otherwise samples would be left out or come again, as with another number of used ones."""
    state = state_of(folder)
    assert state["streams"]["a"][2] == 15 and state["next_batch"] == 1
    changed = [each for each in others(state) if each.get("version") == 3]
    assert len(changed) > 30
    for each in changed:
        loader = mixed(folder)
        with pytest.raises(UsageError, match=f"{REFUSED}|^(epoch|next_batch) of the state is (None|'.')"):
            loader.load_state_dict(each)
        assert loader.state_dict() == mixed(folder).state_dict()
    circular = {**state, "more": []}
    circular["more"].append(circular)
    for each in (circular, {**state, 1: 2}, {**state, "run": object()}):
        with pytest.raises(UsageError, match=REFUSED):
            mixed(folder).load_state_dict(each)


def numbers(value: Any, kind: Any) -> Any:
    """The same values, whole numbers of another type."""
    if isinstance(value, dict):
        return {name: numbers(each, kind) for name, each in value.items()}
    if isinstance(value, list):
        return [numbers(each, kind) for each in value]
    return kind(value) if type(value) is int else value


def test_what_a_library_stores_is_the_state(folder: Path) -> None:
    state = state_of(folder)
    kinds = [numbers(state, kind) for kind in (np.int64, np.int32, np.array)]
    copies = [pickle.loads(pickle.dumps(state)), json.loads(json.dumps(state, sort_keys=True)), MappingProxyType(state)]
    for each in (*kinds, *copies):
        loader = mixed(folder)
        loader.load_state_dict(each)
        assert loader.state_dict() == state
        assert list(loader)


def test_a_state_is_short(folder: Path) -> None:
    assert len(json.dumps(state_of(folder), separators=(",", ":"))) < 290
    plain = EpochLoader(BatchSource(f"{folder}/a-0.tar", batch=6))
    assert len(json.dumps(plain.state_dict(), separators=(",", ":"))) < 200
