"""What of a data set is not done, as JSON text that a trainer keeps beside its model.

An object with the keys of DLRover's: ``dataset_name``, ``epoch`` (epochs begun), ``todo`` and ``doing`` (shards,
``[start, end]``), ``splitter`` (null). Shards of a file, of shuffled records, or of an epoch before are longer,
``[start, end, indices, name, epoch]``. tarkit adds ``dead``, such shards too, and ``fingerprint``, of the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tarkit.errors import UsageError, printable, quoted
from tarkit.service.dataset import DataSet
from tarkit.service.ledger import Ledger, Outstanding

_LISTS = ("doing", "todo", "dead")


def checkpoint(ledger: Ledger) -> str:
    """What is not done. Shards of which a part is done count as not done."""
    dataset, epoch = ledger.dataset, max(ledger.epoch, 1)
    states: dict[str, list[tuple[int, int]]] = {name: [] for name in _LISTS}
    for entry in ledger.in_order():
        state = "dead" if entry.ended else "todo" if entry.worker is None else "doing"
        states[state].append((entry.epoch, entry.place))
    states["todo"] += ((epoch, place) for place in range(ledger.place, dataset.shards))
    return json.dumps(
        {
            "dataset_name": dataset.name,
            **{name: [_written(dataset, *each, epoch) for each in states[name]] for name in _LISTS},
            "epoch": epoch,
            "splitter": None,
            "fingerprint": dataset.fingerprint(),
        },
        separators=(",", ":"),
    )


def restore(ledger: Ledger, content: str, now: float) -> None:
    """Make a checkpoint the state of a ledger: what was todo or doing is to be done, nothing is leased.

    Raises:
        UsageError: not a checkpoint, one of another data set, or shards that this data set does not have.
    """
    dataset, saved = ledger.dataset, _object(content)
    epoch = saved.get("epoch")
    shards = {name: saved.get(name, []) for name in _LISTS}
    fingerprint = saved.get("fingerprint", dataset.fingerprint())
    if saved.get("dataset_name", dataset.name) != dataset.name or fingerprint != dataset.fingerprint():
        raise UsageError(
            f"the checkpoint is of data set {quoted(str(saved.get('dataset_name')))} as it was declared then; "
            f"{quoted(dataset.name)} has other shards now"
        )
    if type(epoch) is not int or epoch < 1 or (dataset.epochs and epoch > dataset.epochs):
        raise UsageError(f"the checkpoint is of epoch {printable(repr(epoch))}; the data set has {dataset.epochs}")
    todo = list(dict.fromkeys(_read(dataset, (*shards["doing"], *shards["todo"]), epoch)))
    # Those at the end of the epoch's order were never handed out: they need not be held one by one.
    place = dataset.shards
    while todo and todo[-1] == (epoch, place - 1):
        todo.pop()
        place -= 1
    entries = [Outstanding(*key) for key in todo]
    entries += [Outstanding(*key, ended="dead in the checkpoint") for key in _read(dataset, shards["dead"], epoch)]
    ledger.resume(epoch, place, entries, now)


def name_in(content: str) -> str:
    """The data set that a checkpoint is of. UsageError: not a checkpoint."""
    return str(_object(content).get("dataset_name", ""))


def _object(content: str) -> dict[str, Any]:
    try:
        saved = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a checkpoint of a data set: {printable(str(error))}") from error
    if not isinstance(saved, dict) or not all(isinstance(saved.get(name, []), list) for name in _LISTS):
        raise UsageError("this is not a checkpoint of a data set: it must be a JSON object with lists of shards")
    return saved


def _written(dataset: DataSet, epoch: int, place: int, current: int) -> list[Any]:
    shard = dataset.shard(epoch, place)
    short = [shard.start, shard.end]
    if not dataset.files and not shard.indices and epoch == current:
        return short
    return [*short, list(shard.indices), shard.name, epoch]


def _read(dataset: DataSet, shards: Iterable[Any], current: int) -> Iterator[tuple[int, int]]:
    for shard in shards:
        try:
            start, end, _, name, epoch = (*shard, [], dataset.name, current) if len(shard) == 2 else shard
            place = dataset.place_of(epoch, name, start)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the checkpoint has {printable(repr(shard))} for a shard") from error
        if place is None or dataset.shard(epoch, place).end != end:
            raise UsageError(f"the checkpoint has a shard {printable(repr(shard))}, which the data set does not have")
        yield epoch, place
