"""A checkpoint has what is not done; restoring one refuses, in one line, all that cannot be."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import traced_peak

from tarkit.errors import UsageError
from tarkit.readers.reader import Shard
from tarkit.service.checkpoint import MOST_BYTES, MOST_LISTED, checkpoint, name_in, restore
from tarkit.service.dataset import DataSet
from tarkit.service.leases import Lease, LeaseRules, NoShard
from tarkit.service.ledger import Ledger

DLROVER = '{"dataset_name":"d","todo":[[2,4],[4,6]],"doing":[[0,2]],"epoch":1,"splitter":null}'


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


def test_a_checkpoint_has_the_keys_of_dlrover() -> None:
    ledger = Ledger(DataSet("d", 6, 2, 2))
    assert isinstance(ledger.lease("w", 0.0), Lease)
    saved = json.loads(checkpoint(ledger))
    assert json.loads(DLROVER).items() <= saved.items()
    assert saved.keys() - json.loads(DLROVER).keys() == {"dead", "unlisted", "fingerprint"}
    assert name_in(checkpoint(ledger)) == "d"


def test_a_checkpoint_of_dlrover_is_restored() -> None:
    ledger = Ledger(DataSet("d", 6, 2, 2))
    restore(ledger, DLROVER, 0.0)
    assert (ledger.progress().todo, ledger.epoch) == (3, 1)
    assert the_rest(ledger) == Counter((epoch, "d", record) for epoch in (1, 2) for record in range(6))
    restore(ledger, DLROVER.replace("[2,4],[4,6]", "[4,6]"), 0.0)
    assert (ledger.progress().done, ledger.progress().records) == (1, 2)
    assert the_rest(ledger) == Counter(
        (e, "d", record) for e, ns in ((1, (0, 1, 4, 5)), (2, range(6))) for record in ns
    )
    restore(ledger, '{"dataset_name":"d","todo":[],"doing":[],"epoch":0,"splitter":null}', 0.0)
    assert the_rest(ledger).total() == 12


@pytest.mark.parametrize("shuffled", [{}, {"shuffle_shards": True}, {"shuffle_records": True}])
@pytest.mark.parametrize("files", [(), (Shard("a", 0, 5), Shard("a", 0, 5), Shard("b", 3, 4))])
@pytest.mark.parametrize("remainder", ["", "drop", "fill"])
def test_what_is_left_comes_back_and_nothing_else(
    shuffled: dict[str, bool], files: tuple[Shard, ...], remainder: str
) -> None:
    """Also of a file that is named twice, and of two epochs at once."""
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
    begin = time.process_time()
    text = checkpoint(ledger)
    assert time.process_time() - begin < 2  # 0.06 s on an idle machine
    assert len(text) < 200_000
    assert json.loads(text)["unlisted"] == 2_000_000 - 3 - MOST_LISTED
    other = Ledger(ledger.dataset)
    restore(other, text, 0.0)
    assert (other.progress().todo, other.progress().done, len(other.entries)) == (1_999_999, 1, 1)
    assert other.progress().records == 8


REFUSED = [
    ("", "this is not a checkpoint of a data set: "),
    ("[]", "it must be a JSON object with lists of shards"),
    ('{"todo": {}}', "it must be a JSON object with lists of shards"),
    ("[" * 100_000, "this is not a checkpoint of a data set: "),
    ("1" * 5000, "this is not a checkpoint of a data set: "),
    (" " * (MOST_BYTES + 1), f"the checkpoint has {MOST_BYTES + 1} bytes; the limit is {MOST_BYTES}"),
    (DLROVER.replace('"d"', '"e"'), "the checkpoint is of data set 'e', not of 'd'"),
    (DLROVER.replace('"d"', "7"), "the checkpoint is of data set 7, not of 'd'"),
    (DLROVER.replace(":1", ":3"), "the checkpoint is of epoch 3; data set 'd' has 2 epochs"),
    (DLROVER.replace(":1", ":true"), "the checkpoint is of epoch True"),
    (DLROVER.replace(":1", ":0"), "has a shard [0, 2], which the data set does not have"),
    (DLROVER.replace("[0,2]", "[0,3]"), "has a shard [0, 3], which the data set does not have"),
    (DLROVER.replace("[0,2]", "[1,2]"), "has a shard [1, 2], which the data set does not have"),
    (DLROVER.replace("[0,2]", "[0.0,2]"), "has a shard [0.0, 2], which the data set does not have"),
    (DLROVER.replace("[0,2]", "[2,4]"), "the checkpoint lists a shard twice"),
    (DLROVER.replace("[0,2]", "[0,2,[1,0]]"), "shard 0 to 2 has its records in another order than the data set"),
    (DLROVER.replace("[0,2]", '[0,2,[],"d",2,0]'), "which the data set does not have"),
    (DLROVER.replace("[0,2]", '[0,2,[],"d",1,1]'), "which the data set does not have"),
    (DLROVER.replace("null", "{}"), "does not list all shards of a data set that has more than 50000 or a splitter"),
    (DLROVER.replace("null", 'null,"unlisted":4'), "the checkpoint has 4 unlisted shards; the epoch has 3"),
    (DLROVER.replace("null", 'null,"unlisted":1'), "has a shard [4, 6], which the data set does not have"),
    (DLROVER.replace("null", 'null,"fingerprint":"0"'), "was declared in another way when the checkpoint was made"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(content: str, message: str) -> None:
    ledger = Ledger(DataSet("d", 6, 2, 2))
    ledger.lease("w", 0.0)
    with pytest.raises(UsageError) as caught:
        restore(ledger, content, 0.0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (ledger.progress().leased, ledger.progress().todo) == (1, 2)


@pytest.mark.parametrize("epoch", [2**31, 2**62, 10**30])
def test_an_epoch_that_cannot_be_counted_is_refused(epoch: int) -> None:
    ledger = Ledger(DataSet("d", 6, 2, 0))
    with pytest.raises(UsageError, match="'d' has no last epoch, and 2147483647 at most can be counted"):
        restore(ledger, json.dumps({"epoch": epoch}), 0.0)
    restore(ledger, json.dumps({"epoch": 2**31 - 1}), 0.0)
    large = Ledger(DataSet("d", 2**60, 2**31 - 1, 0))
    with pytest.raises(UsageError, match="and 4 at most"):
        restore(large, json.dumps({"epoch": 5, "fingerprint": large.dataset.fingerprint}), 0.0)


def test_a_checkpoint_lists_no_more_than_a_ledger_holds_one_by_one() -> None:
    dataset, rules = DataSet("d", MOST_LISTED + 9, 1), LeaseRules(outstanding=4, dead=2)
    todo = [[at, at + 1] for at in range(MOST_LISTED + 7)]
    with pytest.raises(UsageError, match=f"lists {MOST_LISTED + 7} shards; the service holds {MOST_LISTED + 6}"):
        restore(Ledger(dataset, rules), json.dumps({"epoch": 1, "todo": todo}), 0.0)
    restore(Ledger(dataset, rules), json.dumps({"epoch": 1, "todo": todo[1:]}), 0.0)


def test_the_order_of_a_shard_is_not_computed_for_a_list_of_another_length(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(DataSet("d", 1_000_000, 1_000_000, shuffle_records=True))
    monkeypatch.delattr(DataSet, "shard")
    with pytest.raises(UsageError, match="its records in another order"):
        restore(ledger, '{"epoch":1,"todo":[[0,1000000,[1]]]}', 0.0)


def test_a_checkpoint_of_dlrover_with_more_than_it_lists() -> None:
    with pytest.raises(UsageError, match="does not list all shards of a data set that has more than 50000"):
        restore(Ledger(DataSet("d", 50_001, 1)), '{"todo":[[0,1]],"epoch":1}', 0.0)


def test_strict_epochs_do_not_overlap_by_a_checkpoint() -> None:
    ledger = Ledger(DataSet("d", 4, 2, 2, strict_epochs=True))
    with pytest.raises(UsageError, match="the data set has strict epochs"):
        restore(ledger, '{"todo":[[0,2,[],"d",1,0],[0,2],[2,4]],"epoch":2}', 0.0)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([0, 1, 2, 4, 6, "d"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
KEYS = ["dataset_name", "todo", "doing", "dead", "epoch", "splitter", "unlisted", "fingerprint"]


@settings(max_examples=60)
@given(saved=st.dictionaries(st.sampled_from(KEYS), values), place=values, at=st.integers(0, 5), files=st.booleans())
def test_any_json_is_a_state_or_one_line(saved: dict[str, Any], place: Any, at: int, files: bool) -> None:
    """As a whole, or as one value of a shard in a checkpoint that is right else."""
    dataset = DataSet("d", 6, 2, 2, (Shard("d", 0, 6),) if files else ())
    shard: list[Any] = [2, 4, [], "d", 1, 1]
    shard[at] = place
    contents = [saved, place, {"epoch": 1, "todo": [shard]}, {"epoch": 1, "dead": [shard[: max(2, at + 1)]]}]
    for content in contents:
        ledger = Ledger(dataset)
        try:
            restore(ledger, json.dumps(content), 0.0)
        except UsageError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
        else:
            counts = ledger.progress()
            assert counts.todo + counts.done + counts.dead == 3 * counts.epoch
            the_rest(ledger)


def test_a_huge_hostile_checkpoint_takes_little_memory() -> None:
    ledger = Ledger(DataSet("d", 2**62, 1))
    shards = ",".join(["[]"] * 100_000)
    text = f'{{"epoch":1,"fingerprint":"{ledger.dataset.fingerprint}","todo":[{shards}]}}'
    with traced_peak() as peak:
        with pytest.raises(UsageError, match=r"has a shard \[\], which the data set does not have"):
            restore(ledger, text, 0.0)
        assert peak() < 60 << 20
    assert len(checkpoint(ledger)) < 1000
    ledger.lease("w", 0.0)
    assert len(checkpoint(ledger)) < 300_000
