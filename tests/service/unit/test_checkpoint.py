"""A checkpoint has what is not done; restoring one refuses, in one line, all that cannot be."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.readers.reader import Shard
from tarkit.service.checkpoint import MOST_BYTES, checkpoint, name_in, restore
from tarkit.service.dataset import DataSet
from tarkit.service.leases import Lease, LeaseRules, NoShard
from tarkit.service.ledger import Ledger


def the_rest(ledger: Ledger) -> Counter[tuple[int, str, int]]:
    """Epoch, file and number of all records that are still handed out."""
    found: Counter[tuple[int, str, int]] = Counter()
    while isinstance(lease := ledger.lease("w", 0.0), Lease):
        shard = lease.shard
        found.update((lease.epoch, shard.name, record) for record in shard.indices or range(shard.start, shard.end))
        ledger.complete(lease.token, 0.0)
    assert lease is NoShard.END
    return found


def leases(ledger: Ledger, number: int) -> list[Lease]:
    given = [ledger.lease("w", 0.0) for _ in range(number)]
    return [lease for lease in given if isinstance(lease, Lease)]


def test_what_is_in_a_checkpoint() -> None:
    ledger = Ledger(DataSet("d", 6, 2, 2))
    first, _ = leases(ledger, 2)
    ledger.complete(first.token, 0.0)
    assert json.loads(checkpoint(ledger)) == {
        "dataset_name": "d",
        "fingerprint": ledger.dataset.fingerprint,
        "epoch": 1,
        "handed_out": 2,
        "records": 2,
        "todo": [],
        "doing": [[1, 1]],
        "dead": [],
    }
    assert name_in(checkpoint(ledger)) == "d"


@pytest.mark.parametrize("shuffled", [{}, {"shuffle_shards": True}, {"shuffle_records": True}])
@pytest.mark.parametrize("files", [(), (Shard("a", 0, 5), Shard("a", 5, 5), Shard("b", 3, 4))])
@pytest.mark.parametrize("remainder", ["", "drop", "fill"])
def test_what_is_left_comes_back_and_nothing_else(
    shuffled: dict[str, bool], files: tuple[Shard, ...], remainder: str
) -> None:
    """Also of a file that has two ranges, and of two epochs at once."""
    more: dict[str, Any] = shuffled
    ledger = Ledger(DataSet("d", 14, 3, 2, files, remainder=remainder, seed=3, **more))
    first = leases(ledger, ledger.dataset.shards + 2)
    for lease in first[1:-1:2]:
        ledger.complete(lease.token, 0.0)
    for _ in range(3):
        for lease in leases(ledger, ledger.available):
            if lease.shard == first[0].shard or lease.epoch == 2:
                ledger.fail(lease.token, 0.0, "bad")
    ledger.release("w")
    other = Ledger(ledger.dataset)
    restore(other, checkpoint(ledger), 0.0)
    assert (other.progress(), len(other.dead())) == (ledger.progress(), len(ledger.dead()))
    assert the_rest(other) == the_rest(ledger)


def test_the_rest_of_millions_is_a_number() -> None:
    ledger = Ledger(DataSet("d", 16_000_000, 8, shuffle_records=True))
    held = leases(ledger, 3)
    ledger.complete(held[1].token, 0.0)
    assert len(checkpoint(ledger)) < 300
    other = Ledger(ledger.dataset)
    restore(other, checkpoint(ledger), 0.0)
    assert (other.progress().todo, other.progress().done, len(other.tasks)) == (1_999_999, 1, 2)
    assert other.progress().records == 8


SAVED = {**json.loads(checkpoint(Ledger(DataSet("d", 6, 2, 2)))), "epoch": 1, "handed_out": 2}
LACKS = "it must be a JSON object with dataset_name, fingerprint, epoch, handed_out, records, doing, todo, dead"
REFUSED = [
    ("", "this is not a checkpoint of a data set: "),
    ("[]", LACKS),
    ("{}", LACKS),
    ('{"dataset_name":"d","todo":[[2,4],[4,6]],"doing":[[0,2]],"epoch":1,"splitter":null}', LACKS),
    ("[" * 100_000, "this is not a checkpoint of a data set: "),
    ("1" * 5000, "this is not a checkpoint of a data set: "),
    ("too long", f"the checkpoint has {MOST_BYTES + 1} bytes; the limit is {MOST_BYTES}"),
    ({"todo": {}}, LACKS),
    ({"epoch": True}, LACKS),
    ({"dataset_name": "e"}, "the checkpoint is of data set 'e', not of 'd'"),
    ({"fingerprint": "0"}, "was declared in another way when the checkpoint was made"),
    ({"epoch": 3}, "epoch 3, with 2 shards handed out and 0 records done, which data set 'd' cannot have"),
    ({"epoch": -1}, "epoch -1"),
    ({"epoch": 10**4000}, "which data set 'd' cannot have"),
    ({"epoch": 0}, "epoch 0, with 2 shards handed out"),
    ({"handed_out": 4}, "with 4 shards handed out"),
    ({"handed_out": -1}, "with -1 shards handed out"),
    ({"records": 2**62 + 1}, "and 4611686018427387905 records done"),
    ({"records": -1}, "and -1 records done"),
    ({"todo": [[1, 2]]}, "lists a shard [1, 2] twice, or the data set does not have it"),
    ({"todo": [[1, -1]]}, "lists a shard [1, -1] twice"),
    ({"todo": [[2, 0]]}, "lists a shard [2, 0] twice"),
    ({"todo": [[0, 0]]}, "lists a shard [0, 0] twice"),
    ({"todo": [[1, 1.0]]}, "lists a shard [1, 1.0] twice"),
    ({"todo": [[1]]}, "lists a shard [1] twice"),
    ({"dead": ["ab"]}, "lists a shard 'ab' twice"),
    ({"todo": [[1, 0]], "dead": [[1, 0]]}, "lists a shard [1, 0] twice"),
    ({"todo": [[1, 0]] * 7}, "the checkpoint lists 7 shards; the service holds 6 one by one at most"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(content: str | dict[str, Any], message: str) -> None:
    ledger = Ledger(DataSet("d", 6, 2, 2), LeaseRules(outstanding=4, dead=2))
    ledger.lease("w", 0.0)
    restore(Ledger(ledger.dataset), json.dumps(SAVED), 0.0)
    with pytest.raises(UsageError) as caught:
        text = " " * (MOST_BYTES + 1) if content == "too long" else content
        restore(ledger, text if isinstance(text, str) else json.dumps(SAVED | text), 0.0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert (ledger.progress().leased, ledger.progress().todo) == (1, 2)


@pytest.mark.parametrize("epoch", [2**31, 2**62, 10**30])
def test_an_epoch_that_cannot_be_counted_is_refused(epoch: int) -> None:
    for dataset, last in ((DataSet("d", 6, 2, 0), 2**31 - 1), (DataSet("d", 2**60, 2**31 - 1, 0), 4)):
        ledger = Ledger(dataset)
        saved = json.loads(checkpoint(ledger))
        with pytest.raises(UsageError, match="which data set 'd' cannot have"):
            restore(ledger, json.dumps(saved | {"epoch": epoch}), 0.0)
        restore(ledger, json.dumps(saved | {"epoch": last}), 0.0)
