"""Checkpoints of a data set: its unfinished shards, as JSON text.

A trainer keeps a checkpoint beside its model. It is an object with ``dataset_name``;
``fingerprint`` of the declaration; ``epoch``, the number of epochs begun; ``handed_out``, the
number of shards handed out in that epoch; ``records``, the number of records done; and ``todo``,
``doing`` and ``dead``, the shards that were handed out and are not done, as ``[epoch, position]``.
"""

from __future__ import annotations

import json
from reprlib import repr as short_repr
from typing import Any

from tarkit.errors import UsageError, printable, quoted
from tarkit.service.dataset import INT32, MOST_RECORDS
from tarkit.service.leases import OpenTask, covered_records
from tarkit.service.ledger import Ledger

_STATES = {"doing": "leased", "todo": "todo", "dead": "dead"}
"""Key -> the ledger's name of the state of such shards."""
_KEYS = {
    "dataset_name": str,
    "fingerprint": str,
    "epoch": int,
    "handed_out": int,
    "records": int,
    **dict.fromkeys(_STATES, list),
}
MOST_BYTES = 16 << 20
"""Largest size in bytes of a checkpoint that is restored."""
_DEAD = "it was not tried any more when the checkpoint was made"


def checkpoint(ledger: Ledger) -> str:
    """Return the checkpoint of a ledger.

    Partly done shards count as not done.
    """
    tasks = ledger.in_order()
    saved = {
        "dataset_name": ledger.dataset.name,
        "fingerprint": ledger.dataset.fingerprint,
        "epoch": ledger.epoch,
        "handed_out": ledger.handed_out,
        "records": ledger.records - sum(covered_records(task.ranges) for task in tasks),
    }
    shards = {key: [task.key for task in tasks if task.state == state] for key, state in _STATES.items()}
    return json.dumps(saved | shards, separators=(",", ":"))


def restore(ledger: Ledger, content: str, now: float) -> None:
    """Restore a ledger from a checkpoint.

    Shards that were todo or doing are to be done, and none is leased.

    Raises:
        UsageError: the text is not a checkpoint, or is one of another data set, or has shards that
            this data set does not have.
    """
    dataset, saved = ledger.dataset, _object(content)
    if saved["dataset_name"] != dataset.name:
        name = printable(short_repr(saved["dataset_name"]))
        raise UsageError(f"the checkpoint is of data set {name}, not of {quoted(dataset.name)}")
    if saved["fingerprint"] != dataset.fingerprint:
        raise UsageError(
            f"data set {quoted(dataset.name)} was declared in another way when the checkpoint was made; declare it as "
            "it was, or reset it"
        )
    epoch, handed_out, records = saved["epoch"], saved["handed_out"], saved["records"]
    # Where epochs have no end: so many that counts of shards and records fit in messages.
    last = dataset.epochs or min(INT32, MOST_RECORDS // dataset.size)
    most = dataset.shards if epoch else 0
    if not (0 <= epoch <= last and 0 <= handed_out <= most and 0 <= records <= MOST_RECORDS):
        raise UsageError(
            f"the checkpoint is of epoch {short_repr(epoch)}, with {short_repr(handed_out)} shards handed out and "
            f"{short_repr(records)} records done, which data set {quoted(dataset.name)} cannot have"
        )
    room = ledger.rules.outstanding + ledger.rules.dead
    if (listed := sum(len(saved[key]) for key in _STATES)) > room:
        raise UsageError(f"the checkpoint lists {listed} shards; the service holds {room} one by one at most")
    tasks: dict[tuple[int, int], OpenTask] = {}
    for key in _STATES:
        for shard in saved[key]:
            if not _is_shard(shard, epoch, handed_out, dataset.shards) or tuple(shard) in tasks:
                shown = printable(short_repr(shard))
                raise UsageError(f"the checkpoint lists a shard {shown} twice, or the data set does not have it")
            tasks[tuple(shard)] = OpenTask(shard[0], shard[1], ended=_DEAD if key == "dead" else "")
    ledger.resume(epoch, handed_out, records, tasks.values(), now)


def name_in(content: str) -> str:
    """Return the name of the data set that a checkpoint is of.

    Raises:
        UsageError: the text is not a checkpoint.
    """
    return str(_object(content)["dataset_name"])


def _object(content: str) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise UsageError(f"the checkpoint has {len(content)} bytes; the limit is {MOST_BYTES}")
    try:
        saved = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a checkpoint of a data set: {printable(str(error))}") from error
    if not isinstance(saved, dict) or not all(type(saved.get(name)) is kind for name, kind in _KEYS.items()):
        raise UsageError(f"this is not a checkpoint of a data set: it must be a JSON object with {', '.join(_KEYS)}")
    return saved


def _is_shard(shard: Any, epoch: int, handed_out: int, shards: int) -> bool:
    if not (isinstance(shard, list) and [type(number) for number in shard] == [int, int]):
        return False
    known = handed_out if shard[0] == epoch else shards
    return bool(1 <= shard[0] <= epoch and 0 <= shard[1] < known)
