"""What of a data set is not done, as JSON text that a trainer keeps beside its model.

An object with the keys of DLRover's: ``dataset_name``; ``epoch``, how many have begun; ``todo`` and ``doing``, shards
``[start, end]``; ``splitter``, null. Shards of files, and of an epoch before, are ``[start, end, [], name, epoch,
position]``. tarkit adds ``dead``, such shards too; ``unlisted``, how many shards at the end of the epoch's order are to
be done beside those in ``todo``; and ``fingerprint``, of the declaration.
"""

from __future__ import annotations

import json
from reprlib import repr as short_repr
from typing import Any

from tarkit.errors import UsageError, counted, printable, quoted
from tarkit.service.dataset import INT32, MOST_RECORDS, DataSet
from tarkit.service.leases import Outstanding
from tarkit.service.ledger import Ledger

_STATES = {"doing": "leased", "todo": "todo", "dead": "dead"}
"""Key -> the ledger's word for such shards."""
MOST_LISTED = 10_000
"""Shards that were never handed out in a checkpoint; of a data set with millions, all would take seconds."""
MOST_BYTES = 16 << 20
"""Of a checkpoint that is restored."""
_DEAD = "it was not tried any more when the checkpoint was made"
_DLROVER_SHARDS = 50_000
"""DLRover's checkpoint of a data set with more of them does not have them all."""


def checkpoint(ledger: Ledger) -> str:
    """What is not done. Shards of which a part is done count as not done."""
    dataset, entries = ledger.dataset, ledger.in_order()
    shards = {
        key: [_written(dataset, entry.key, ledger.epoch) for entry in entries if entry.state == state]
        for key, state in _STATES.items()
    }
    never = dataset.shards if ledger.epoch else 0
    listed = min(never, ledger.handed_out + MOST_LISTED)
    shards["todo"] += (_written(dataset, (ledger.epoch, at), ledger.epoch) for at in range(ledger.handed_out, listed))
    return json.dumps(
        {
            "dataset_name": dataset.name,
            **shards,
            "unlisted": never - listed,
            "epoch": ledger.epoch,
            "splitter": None,
            "fingerprint": dataset.fingerprint,
        },
        separators=(",", ":"),
    )


def restore(ledger: Ledger, content: str, now: float) -> None:
    """Make a checkpoint the state of a ledger: what was todo or doing is to be done, nothing is leased.

    Raises:
        UsageError: not a checkpoint, one of another data set, or shards that this data set does not have.
    """
    dataset, saved = ledger.dataset, _object(content)
    _check_dataset(dataset, saved)
    epoch = saved.get("epoch")
    # Where epochs have no end: so many that counts of shards and records fit in messages.
    last = dataset.epochs or min(INT32, MOST_RECORDS // dataset.size)
    if type(epoch) is not int or not 0 <= epoch <= last:
        of = counted(last, "epoch") if dataset.epochs else f"no last epoch, and {last} at most can be counted"
        raise UsageError(
            f"the checkpoint is of epoch {printable(short_repr(epoch))}; data set {quoted(dataset.name)} has {of}"
        )
    unlisted, most = saved.get("unlisted", 0), dataset.shards if epoch else 0
    if type(unlisted) is not int or not 0 <= unlisted <= most:
        raise UsageError(f"the checkpoint has {printable(short_repr(unlisted))} unlisted shards; the epoch has {most}")
    listed = sum(len(saved.get(key, ())) for key in _STATES)
    room = ledger.rules.outstanding + ledger.rules.dead + MOST_LISTED
    if listed > room:
        raise UsageError(f"the checkpoint lists {listed} shards; the service holds {room} one by one at most")
    handed_out = most - unlisted
    todo, dead = (
        [_read(dataset, shard, epoch, handed_out) for name in names for shard in saved.get(name, ())]
        for names in (("doing", "todo"), ("dead",))
    )
    if len({*todo, *dead}) < len(todo) + len(dead):
        raise UsageError("the checkpoint lists a shard twice")
    if dataset.strict_epochs and any(key[0] < epoch for key in todo):
        raise UsageError("the checkpoint has shards of two epochs that are to be done; the data set has strict epochs")
    # Those at the end of the epoch's order were never handed out: they need not be held one by one.
    while todo and todo[-1] == (epoch, handed_out - 1):
        todo.pop()
        handed_out -= 1
    entries = [Outstanding(*key) for key in todo] + [Outstanding(*key, ended=_DEAD) for key in dead]
    ledger.resume(epoch, handed_out, entries, now)


def name_in(content: str) -> str:
    """The data set that a checkpoint is of. UsageError: not a checkpoint."""
    return str(_object(content).get("dataset_name", ""))


def _object(content: str) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise UsageError(f"the checkpoint has {len(content)} bytes; the limit is {MOST_BYTES}")
    try:
        saved = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a checkpoint of a data set: {printable(str(error))}") from error
    if not isinstance(saved, dict) or not all(isinstance(saved.get(name, []), list) for name in _STATES):
        raise UsageError("this is not a checkpoint of a data set: it must be a JSON object with lists of shards")
    return saved


def _check_dataset(dataset: DataSet, saved: dict[str, Any]) -> None:
    name, fingerprint = saved.get("dataset_name", dataset.name), saved.get("fingerprint")
    if name != dataset.name:
        raise UsageError(f"the checkpoint is of data set {printable(short_repr(name))}, not of {quoted(dataset.name)}")
    if fingerprint not in (None, dataset.fingerprint):
        raise UsageError(
            f"data set {quoted(name)} was declared in another way when the checkpoint was made; declare it as it was, "
            f"or reset it"
        )
    if saved.get("splitter") is not None or (fingerprint is None and dataset.shards > _DLROVER_SHARDS):
        raise UsageError(
            f"a checkpoint of DLRover does not list all shards of a data set that has more than {_DLROVER_SHARDS} or "
            f"a splitter"
        )


def _written(dataset: DataSet, key: tuple[int, int], current: int) -> list[Any]:
    epoch, position = key
    shard = dataset.bounds(epoch, position)
    if not dataset.files and epoch == current:
        return [shard.start, shard.end]
    return [shard.start, shard.end, [], shard.name, epoch, position]


def _read(dataset: DataSet, shard: Any, current: int, handed_out: int) -> tuple[int, int]:
    """Epoch and position of a shard in a checkpoint."""
    refused = UsageError(f"the checkpoint has a shard {printable(short_repr(shard))}, which the data set does not have")
    if not isinstance(shard, list) or len(shard) not in (2, 3, 6):
        raise refused
    defaults: list[Any] = [[], dataset.name, current, -1]
    start, end, indices, name, epoch, position = [*shard, *defaults[len(shard) - 2 :]]
    if not all(type(number) is int for number in (start, end, epoch, position)) or not 1 <= epoch <= current:
        raise refused
    if len(shard) < 6:
        position = dataset.position_of(epoch, start)
    if position is None or not 0 <= position < (handed_out if epoch == current else dataset.shards):
        raise refused
    found = dataset.bounds(epoch, position)
    if (found.name, found.start, found.end) != (name, start, end):
        raise refused
    # Their number first: the order of a shard takes time.
    count = len(indices) if isinstance(indices, list) else -1
    if indices and (count != end - start or indices != list(dataset.shard(epoch, position).indices)):
        raise UsageError(f"the checkpoint's shard {start} to {end} has its records in another order than the data set")
    return epoch, position
