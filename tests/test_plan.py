"""Who reads what: the plan of an epoch is what its consumers read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.trainers.order import EpochOrder, OrderSettings, Segment
from tarkit.trainers.plan import EpochPlan


def order(counts: list[int], batch: int, epoch: int = 0, **options: object) -> EpochOrder:
    return EpochOrder(counts, OrderSettings(batch, **options), epoch)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda counts: sum(counts) >= 12),
    st.sampled_from([1, 2, 3, 4, 6, 12]),
    *[st.integers(1, 4) for _ in range(3)],
    st.integers(1, 9),
    st.integers(1, 20),
    st.sampled_from(["drop", "pad", "repeat"]),
    st.sampled_from([None, 5]),
    st.data(),
)
def test_the_plan_is_what_is_read(
    counts: list[int], lanes: int, turns: int, world: int, workers: int, run: int, block: int, equalize: str,
    seed: int | None, data: st.DataObject,
) -> None:  # fmt: skip
    found = order(counts, 12, 3, seed=seed, lanes=lanes, turns=turns, run=run, block=block, equalize=equalize)
    begin = data.draw(st.integers(0, found.batches - 1))
    plan = EpochPlan(found, world, workers, [count * 512 for count in counts], begin)
    for consumer in plan.consumers:
        numbers = range(begin + consumer.worker, found.batches, workers)
        read = [(number, found.rank_batch(number, consumer.rank, world)) for number in numbers]
        places = [place for _, batch in read for place in batch]
        assert (consumer.batches, consumer.samples) == (len(read), len(places))
        assert plan.size(consumer) == 512 * len(places)
        runs = Counter((place.shard, place.sample // run * run) for place in places)
        ranges = plan.ranges(consumer)
        assert {(shard, first): samples for shard, first, _, samples in ranges} == runs
        assert all(end == min(first + run, counts[shard]) for shard, first, end, _ in ranges)
    assert plan.summary()["samples"] == (found.batches - begin) * 12


def test_the_summary_shows_how_even_it_is_and_what_would_be_better() -> None:
    counts, sizes = [100] * 8, [51_200] * 8
    own = EpochPlan(order(counts, 8, lanes=4, turns=2, run=50), 4, 2, sizes)
    assert own.summary() == {
        "epoch": 0,
        "batches": 100,
        "samples": 800,
        "samples_of_consumer": (100, 100),
        "bytes_of_consumer": (51_200, 51_200),
        "shards_of_consumer": (2, 2),
        "ranges_of_consumer": (2, 2),
        "consumers_of_shard": (2, 2),
        "reading": 1.0,
    }
    assert own.advice == ""
    shared = EpochPlan(order(counts, 8, lanes=2, run=50), 4, 2, sizes)
    assert shared.summary()["reading"] == 4.0
    assert shared.advice == "lanes a multiple of 4 and turns a multiple of 2"
    assert EpochPlan(order(counts, 8, lanes=2), 3, 1, sizes).advice == "", "3 ranks do not divide the batch"
    unknown = EpochPlan(order(counts, 8), 2, 1, [None, *sizes[1:]])
    assert unknown.summary()["bytes_of_consumer"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, [1]), "^world is 0 and workers is 1; both must be at least 1$"),
        ((3, 1, [1]), "^batch is 2, samples of all ranks together, and there are 3 ranks: "),
        ((1, 1, [1], 4), "^the epoch has 4 batches; none has number 4$"),
        ((1, 1, [1], -1), "none has number -1$"),
    ],
)
def test_what_cannot_be(arguments: tuple[int, int, list[int], int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EpochPlan(order([10], 2, equalize="drop", lanes=2) if len(arguments) < 4 else order([8], 2), *arguments)


def test_an_epoch_whose_batch_was_changed_has_no_plan() -> None:
    changed = EpochOrder([20], OrderSettings(5), 0, [Segment(4, 1, 1, 2)])
    assert [changed.size(number) for number in range(changed.batches)] == [4, 4, 5, 5]
    with pytest.raises(UsageError, match="^the batch was changed in the middle of this epoch"):
        EpochPlan(changed, 1, 1, [1])
