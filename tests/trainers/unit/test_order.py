"""The order of an epoch: the page's numbers, and that ranks and workers only deal it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.trainers import order as module
from tarkit.trainers.order import EpochOrder, OrderSettings, Place, ShuffledBlock, hash_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "order.md").read_text("utf-8")
EXAMPLE = OrderSettings(6, seed=1, lanes=3, turns=2, run=4, block=4)


def words(places: list[Place]) -> str:
    return " ".join(f"{place.shard}.{place.sample}" for place in places)


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_pages_example(epoch: int) -> None:
    rows = re.findall(r"^\| (\d) \| ([\d. ]+) \| ([\d. ]+) \|$", PAGE, re.MULTILINE)
    order = EpochOrder([4] * 6, EXAMPLE, epoch)
    assert [(str(number), words(order.batch(number))) for number in range(order.batches)] == [
        (row[0], row[1 + epoch]) for row in rows
    ]


def test_the_pages_consumers() -> None:
    found = re.search(r"worker 0 of rank 0 has (.*) in epoch 0, and worker 1 (.*): each", PAGE)
    assert found is not None
    order = EpochOrder([4] * 6, EXAMPLE, 0)
    for worker, text in enumerate(found.groups()):
        parts = [words(order.rank_batch(number, 0, 3)) for number in range(worker, order.batches, 2)]
        assert text == " and ".join(f"`{part}`" for part in parts)


@st.composite
def orders(draw: st.DrawFn) -> EpochOrder:
    counts = draw(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
    lanes = draw(st.integers(1, 4))
    equalize = draw(st.sampled_from(["drop", "pad", "repeat"]))
    most = max(1, sum(counts) // lanes) if equalize == "drop" else 8
    batch = lanes * draw(st.integers(1, most))
    if equalize == "drop" and batch > sum(counts):
        lanes = batch = 1
    seed = draw(st.one_of(st.none(), st.integers(-(2**70), 2**70)))
    numbers = (draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 12)))
    return EpochOrder(counts, OrderSettings(batch, seed, lanes, *numbers, equalize), draw(st.integers(0, 99)))


@given(orders(), st.integers(1, 5))
def test_consumers_deal_the_global_batches(order: EpochOrder, world: int) -> None:
    for number in range(order.batches):
        parts = [order.rank_batch(number, rank, world) for rank in range(world)]
        assert list(chain(*parts)) == order.batch(number)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(orders())
def test_an_epoch_has_each_sample(order: EpochOrder) -> None:
    settings = order.settings
    dealt = [place for number in range(order.batches) for place in order.batch(number)]
    real = [place[:2] for place in dealt if not place.filler]
    every = {(shard, first + at) for shard, first, length in order.runs for at in range(length)}
    assert len(dealt) == order.batches * settings.batch
    assert set(real) <= every
    if settings.equalize == "repeat":
        assert set(real) == every
    else:
        assert len(set(real)) == len(real)
        assert len(every) - len(real) in (range(settings.batch) if settings.equalize == "drop" else {0})


def left_out(counts: list[int], settings: OrderSettings, epoch: int) -> set[tuple[int, int]]:
    order = EpochOrder(counts, settings, epoch)
    every = {(shard, number) for shard, count in enumerate(counts) for number in range(count)}
    return every - {place[:2] for batch in range(order.batches) for place in order.batch(batch)}


@pytest.mark.parametrize("counts", [[95], [10, 85], [60, 35], [20] * 4 + [15]])
def test_other_samples_are_left_out_in_each_epoch(counts: list[int]) -> None:
    """Also where all are one run, or the last samples of a run are always behind all batches."""
    epochs = [left_out(counts, OrderSettings(64, lanes=8), epoch) for epoch in range(20)]
    assert {len(each) for each in epochs} == {31}
    assert not set.intersection(*epochs[:3])
    assert len(set.union(*epochs)) == 95
    if len(counts) == 1:
        assert not epochs[0] & epochs[1] and len(set.union(*epochs[:4])) == 95
    in_order = [left_out(counts, OrderSettings(64, seed=None), epoch) for epoch in range(3)]
    assert in_order[0] == in_order[1] == in_order[2], "that is the order of the shards"


@pytest.mark.parametrize("equalize", ["pad", "repeat"])
def test_other_samples_fill_the_last_batch_in_each_epoch(equalize: str) -> None:
    """A sample that comes twice in every epoch would weigh more than the others."""
    settings = OrderSettings(64, equalize=equalize)
    twice = []
    for epoch in range(3):
        order = EpochOrder([95], settings, epoch)
        dealt = Counter(place[:2] for batch in range(order.batches) for place in order.batch(batch))
        twice.append({place for place, times in dealt.items() if times > 1})
    assert [len(each) for each in twice] == [33] * 3
    assert not set.intersection(*twice) and len(set.union(*twice)) == 95


def test_lanes_do_not_begin_their_blocks_in_one_batch() -> None:
    """The shards that are first needed in a batch are about one block's, not one of each lane."""
    order = EpochOrder([100] * 400, OrderSettings(40, lanes=8, run=100, block=1000), 0)
    seen: set[int] = set()
    new = []
    for batch in range(order.batches):
        needed = {place.shard for place in order.batch(batch)} - seen
        seen |= needed
        new.append(len(needed))
    assert sum(new) == 400 and max(new[1:]) <= 15


@given(st.integers(1, 3000), st.integers(0, 99), st.data())
def test_a_part_of_a_shuffled_block_is_that_of_the_whole(size: int, seed: int, data: st.DataObject) -> None:
    draw = Random(hash_of(seed, "block")).random
    drawn = [draw() for _ in range(size)]
    whole = sorted(range(size), key=drawn.__getitem__)
    found = ShuffledBlock(size, seed, "block")
    for _ in range(3):
        first = data.draw(st.integers(0, size - 1))
        end = data.draw(st.integers(first, min(size, first + 20)))
        assert found.part(first, end) == whole[first:end]


@pytest.mark.parametrize("number", [0, 5000], ids=["first", "middle"])
def test_the_first_batch_sorts_a_part_of_each_block(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It waits for that; a process in the middle of an epoch has longer blocks."""
    made: list[ShuffledBlock] = []
    monkeypatch.setattr(
        module, "ShuffledBlock", lambda size, *words: (made.append(ShuffledBlock(size, *words)), made[-1])[1]
    )
    order = EpochOrder([1000] * 1000, OrderSettings(64, lanes=8), 0)
    order.batch(number)
    assert len(made) == 8 and max(len(each.sorted) for each in made) < 1200
    after = order.batch(number + 100)
    assert after == EpochOrder([1000] * 1000, OrderSettings(64, lanes=8), 0).batch(number + 100)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"batch": 4, "lanes": 3}, "lanes is 3; it must divide the batch, 4"),
        ({"batch": 4, "turns": 0}, "turns is 0; it must be at least 1"),
        ({"batch": 4, "run": 0}, "run is 0; it must be at least 1"),
        ({"batch": 4, "block": -1}, "block is -1; it must be at least 1"),
        ({"batch": 4, "equalize": "cut"}, "equalize is 'cut'; it must be one of drop, pad, repeat"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        OrderSettings(**settings)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_those_of_python() -> None:
    """A state has them, and json, and torch.load, would refuse another class."""
    numpy = pytest.importorskip("numpy")
    settings = OrderSettings(numpy.int64(6), seed=numpy.int32(1), lanes=numpy.int64(3), turns=2, run=4, block=4)
    assert settings == EXAMPLE
    assert [type(value) for value in vars(settings).values()] == [int] * 6 + [str]


@pytest.mark.parametrize(("counts", "equalize"), [([3], "drop"), ([], "pad"), ([0, 0], "repeat")])
def test_too_few_samples(counts: list[int], equalize: str) -> None:
    hint = ": take a smaller one, or in a training equalize='pad' or 'repeat'" if sum(counts) else ""
    with pytest.raises(UsageError, match=rf"^{sum(counts)} samples do not fill a batch of 4{hint}$"):
        EpochOrder(counts, OrderSettings(4, equalize=equalize), 0)


@pytest.mark.parametrize("number", [-1, 4])
def test_batches_that_are_not(number: int) -> None:
    with pytest.raises(IndexError):
        EpochOrder([4] * 6, EXAMPLE, 0).batch(number)
