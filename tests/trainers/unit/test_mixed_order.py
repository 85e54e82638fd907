"""The order of mixed streams: the page's numbers, and no sample again before its pass ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from itertools import chain
from math import ceil, floor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.trainers import mixedorder
from tarkit.trainers.mixedorder import MixtureOrder, ShuffledOrder, StratifiedOrder, StreamPart
from tarkit.trainers.order import OrderSettings, Place, ShuffledBlock
from tarkit.trainers.shares import Quotas

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "mixing.md").read_text("utf-8")
EXAMPLE = OrderSettings(6, seed=1, run=4, block=6)


def order_of(
    counts: Sequence[Sequence[int]], amounts: Sequence[object], settings: OrderSettings, epoch: int = 0,
    *, names: Sequence[str] = "abcdef", stratified: bool = True, used: Sequence[int] | None = None,
) -> MixtureOrder:  # fmt: skip
    """Amounts of samples; ``used`` before this epoch, or what the epochs before use."""
    exact = [Fraction(str(amount)) for amount in amounts]
    samples = floor(sum(exact)) // settings.batch * settings.batch
    quotas = Quotas(exact, samples)
    firsts = [sum(map(len, counts[:number])) for number in range(len(counts))]
    before = quotas.used(epoch) if used is None else used
    parts = [StreamPart(*each) for each in zip(names, firsts, counts, before, quotas.of(epoch), strict=False)]
    if stratified:
        return StratifiedOrder(parts, settings, epoch, quotas.bounds(epoch))
    return ShuffledOrder(parts, settings, epoch)


def batches_of(order: MixtureOrder) -> list[list[Place]]:
    return [order.batch(number) for number in range(order.batches)]


def words(order: MixtureOrder, number: int) -> str:
    firsts = [part.shard for part in order.parts]
    streams = [order.stream_of(place) for place in order.batch(number)]
    return " ".join(
        f"{order.parts[stream].name}{place.shard - firsts[stream]}.{place.sample}"
        for stream, place in zip(streams, order.batch(number), strict=True)
    )


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_the_pages_example(epoch: int) -> None:
    """On each Python, and each machine."""
    rows = re.findall(r"^\| (\d) \| ([\w. ]+) \| ([\w. ]+) \| ([\w. ]+) \|$", PAGE, re.MULTILINE)
    order = order_of([[4] * 4, [5]], [16.8, 7.2], EXAMPLE, epoch, names="wc")
    assert [(str(number), words(order, number)) for number in range(order.batches)] == [
        (row[0], row[1 + epoch]) for row in rows
    ]


@pytest.mark.parametrize(("stratified", "digest"), [(True, "0f15ed86d9b28188"), (False, "6d12a2b2ca85eeaf")])
def test_the_order_is_the_same_on_each_python(stratified: bool, digest: str) -> None:
    """With lanes, turns, several passes and amounts that are no floats of two's powers."""
    amounts = ["333.3", Fraction(700, 3), "0.7"]
    order = order_of([[250, 250], [100], [7]], amounts, OrderSettings(16, 5, 4, 2, 10, 40), 3, stratified=stratified)
    text = " ".join(f"{place.shard}.{place.sample}" for place in chain(*batches_of(order)))
    assert blake2b(text.encode(), digest_size=8).hexdigest() == digest


@st.composite
def trainings(draw: st.DrawFn) -> tuple[list[list[int]], list[Fraction], OrderSettings, bool]:
    streams = draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any)
    given = [draw(counts) for _ in range(streams)]
    lanes = draw(st.integers(1, 3))
    batch = lanes * draw(st.integers(1, 6))
    amounts = [draw(st.fractions(0, 70, max_denominator=5)) for _ in range(streams)]
    amounts[0] += batch
    sizes = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 40))
    seed = draw(st.one_of(st.none(), st.integers(0, 99)))
    return given, amounts, OrderSettings(batch, seed, lanes, *sizes), draw(st.sampled_from([True, True, False]))


@settings(max_examples=25)
@given(trainings(), st.integers(1, 4), st.data())
def test_each_sample_comes_once_before_any_comes_again(
    training: tuple[list[list[int]], list[Fraction], OrderSettings, bool], world: int, data: st.DataObject
) -> None:
    """Over epochs, also where lanes and turns change, and the batches are those of any ranks."""
    counts, amounts, given, stratified = training
    seen: list[list[tuple[int, Place]]] = [[] for _ in counts]
    for epoch in range(4):
        if data.draw(st.booleans()):
            lanes = data.draw(st.sampled_from([each for each in (1, 2, 3) if given.batch % each == 0]))
            given = replace(given, lanes=lanes, turns=data.draw(st.integers(1, 3)))
        order = order_of(counts, amounts, given, epoch, stratified=stratified)
        other = order_of(counts, amounts, given, epoch, stratified=stratified)
        begin = data.draw(st.integers(0, order.batches - 1))
        for number in range(order.batches):
            batch = order.batch(number)
            assert len(batch) == given.batch
            if number >= begin:
                assert list(chain(*(other.rank_batch(number, rank, world) for rank in range(world)))) == batch
            for place, each in zip(batch, order.passes(number), strict=True):
                seen[order.stream_of(place)].append((each, place))
            if stratified:
                found = Counter(map(order.stream_of, batch))
                for stream, part in enumerate(order.parts):
                    share = Fraction(part.quota, order.batches)
                    assert floor(share) <= found[stream] <= ceil(share)
    for stream, places in enumerate(seen):
        quantity = Counter(number for number, _ in places)
        assert len(set(places)) == len(places)
        if stratified:
            assert [number for number, _ in places] == sorted(number for number, _ in places)
        assert all(quantity[number] == sum(counts[stream]) for number in range(len(places) // sum(counts[stream])))


@pytest.mark.parametrize("stratified", [True, False])
def test_a_tenth_of_a_stream_each_epoch_is_all_of_it_in_ten(stratified: bool) -> None:
    seen = set()
    for epoch in range(10):
        order = order_of([[500], [640]], [50, 590], OrderSettings(64, 3, 4), epoch, stratified=stratified)
        places = list(chain(*batches_of(order)))
        assert Counter(map(order.stream_of, places)) == {0: 50, 1: 590}
        seen |= {place for place in places if order.stream_of(place) == 0}
    assert len(seen) == 500


def test_one_set_under_two_names_has_two_orders() -> None:
    counts, given = [[100] * 4, [100] * 4], OrderSettings(40, 1, 4, run=10)
    order = order_of(counts, [200, 200], given)
    first, second = (
        [(place.shard % 4, place.sample) for place in chain(*batches_of(order)) if order.stream_of(place) == stream]
        for stream in range(2)
    )
    assert len(first) == len(second) == 200 and first != second
    assert sum(one == other for one, other in zip(first, second, strict=True)) < 20


def test_another_stream_does_not_change_the_order_of_the_others() -> None:
    """With one lane, the samples of each stream come in the same order, at other places."""

    def samples(order: MixtureOrder, stream: int) -> list[Place]:
        return [place for place in chain(*batches_of(order)) if order.stream_of(place) == stream]

    given = OrderSettings(20, 1, run=5, block=1)
    two = order_of([[50, 50], [80]], [40, 60], given)
    three = order_of([[50, 50], [80], [30]], [40, 60, 20], given)
    assert all(samples(two, stream) == samples(three, stream) for stream in range(2))


def test_a_stream_of_three_samples_is_half_of_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its passes costs a shuffle of three numbers, and not one for each lane."""
    shuffles: list[int] = []

    def noted(size: int, *words: object) -> ShuffledBlock:
        shuffles.append(size)
        return ShuffledBlock(size, *words)

    monkeypatch.setattr(mixedorder, "ShuffledBlock", noted)
    order = order_of([[1000] * 10, [3]], [1280, 1280], OrderSettings(256, 0, 8))
    first, second = order.batch(0), order.batch(1)
    found = Counter(place.sample for place in second if order.stream_of(place) == 1)
    assert sorted(found.values()) == [42, 43, 43] and len(first) == 256
    assert shuffles.count(3) <= 2 * 43 + 1


def test_lanes_and_streams_do_not_begin_their_blocks_in_one_batch() -> None:
    """The shards that are first needed in a batch are about one block's."""
    order = order_of([[100] * 200, [100] * 400], [20_000, 20_000], OrderSettings(40, 0, 8, run=100, block=1000))
    seen: set[int] = set()
    new = []
    for batch in batches_of(order):
        new.append(len({place.shard for place in batch} - seen))
        seen |= {place.shard for place in batch}
    assert len(seen) == 400 and max(new[1:]) <= 20


def test_the_first_batch_of_a_rank_draws_its_lanes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(
        mixedorder, "ShuffledBlock", lambda size, *words: (drawn.append(size), ShuffledBlock(size, *words))[1]
    )
    order = order_of([[1000] * 40, [1000] * 20], [40_000, 20_000], OrderSettings(256, 0, 8, block=8000))
    order.rank_batch(0, 0, 8)
    assert sum(drawn) <= 1000, "the first block of lane 0, of both streams"


@pytest.mark.parametrize("stratified", [True, False])
def test_a_gap_is_filled_from_its_own_stream(stratified: bool) -> None:
    order = order_of([[100], [100]], [30, 10], OrderSettings(4, 1), stratified=stratified)
    for number in range(order.batches):
        for slot, place in enumerate(order.batch(number)):
            found = list(order.replacements(number, slot))
            assert {order.stream_of(each) for each in found} == {order.stream_of(place)}
            own = [each for each in order.batch(number) if order.stream_of(each) == order.stream_of(place)]
            at = own.index(place)
            assert found[: len(own) - 1] == own[at + 1 :] + own[:at]
            assert len(found) == len({*found}) and place not in found


def test_a_rank_of_one_sample_has_the_shares_of_streams_over_batches() -> None:
    """And each half of the batches, which a worker of two has."""
    order = order_of([[500], [500]], [700, 300], OrderSettings(10, 1, lanes=2))
    for rank in range(10):
        streams = [order.stream_of(order.rank_batch(number, rank, 10)[0]) for number in range(order.batches)]
        assert all(20 <= sum(streams[begin::2]) * 2 <= 40 for begin in range(2))


def test_batches_that_are_not() -> None:
    order = order_of([[100], [100]], [30, 10], OrderSettings(4, 1))
    for number in (-1, 10):
        with pytest.raises(IndexError):
            order.batch(number)
