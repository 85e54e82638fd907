"""Shares of streams: each epoch, batch and lane has them, rounded down or up."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor, gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.trainers.shares import EpochShares, Quotas, even_step, floor_sum

AMOUNTS = st.lists(st.fractions(0, 9, max_denominator=7), min_size=1, max_size=5).filter(any)


@given(st.integers(0, 60), st.integers(1, 50), st.integers(0, 200), st.integers(0, 200))
def test_a_sum_of_floors_is_that_of_a_loop(count: int, modulus: int, step: int, first: int) -> None:
    assert floor_sum(count, modulus, step, first) == sum((first + step * i) // modulus for i in range(count))


@settings(max_examples=20)
@given(AMOUNTS, st.integers(1, 10_000), st.integers(0, 20), st.data())
def test_an_epoch_has_the_shares_and_epochs_add_up(
    amounts: list[Fraction], size: int, begin: int, data: st.DataObject
) -> None:
    """Also of amounts of a hundredth of a sample, and after a change of the amounts at an epoch."""
    used = data.draw(st.lists(st.integers(0, 99), min_size=len(amounts), max_size=len(amounts)))
    quotas = Quotas(amounts, size, epoch=begin, used=used)
    for epoch in range(begin, begin + 5):
        assert quotas.used(epoch) == used
        found = quotas.of(epoch)
        assert sum(found) == size
        for amount, quota in zip(amounts, found, strict=True):
            assert floor(share := amount * size / sum(amounts)) <= quota <= ceil(share) and quota >= 0
        used = [before + quota for before, quota in zip(used, found, strict=True)]


def test_over_epochs_the_mean_is_the_share() -> None:
    quotas = Quotas([Fraction("0.002"), Fraction("0.3"), Fraction("0.698")], 100)
    for stream, share in enumerate((Fraction("0.2"), 30, Fraction("69.8"))):
        assert all(abs(quotas.used(epoch)[stream] - epoch * share) < 3 for epoch in range(0, 3000, 13))


@settings(max_examples=20)
@given(AMOUNTS, st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.integers(0, 10**9))
def test_batches_and_lanes_have_the_shares(
    amounts: list[Fraction], batches: int, lanes: int, turns: int, share: int, begin: int
) -> None:
    quotas = Quotas(amounts, batches * lanes * share)
    shares = EpochShares(quotas.bounds(1), batches=batches, lanes=lanes, turns=turns, begin=begin)
    done, in_stretch = [0] * len(amounts), defaultdict(lambda: [0] * len(amounts))
    for batch in range(batches):
        assert shares.before(batch) == done
        cells = [shares.cells(batch, lane) for lane in range(lanes)]
        for lane, cell in enumerate(cells):
            assert shares.in_stretch(lane, batch % turns, batch // turns) == in_stretch[lane, batch % turns]
            assert sum(cell) == share
            for stream, (found, quota) in enumerate(zip(cell, quotas.of(1), strict=True)):
                assert floor(part := Fraction(quota, batches * lanes)) <= found <= ceil(part)
                time = done[stream] + sum(each[stream] for each in cells[:lane])
                before = [in_stretch[each, turn][stream] for each in range(lanes) for turn in range(turns)]
                assert shares.reached(stream, time) == before
            in_stretch[lane, batch % turns] = [
                sum(pair) for pair in zip(in_stretch[lane, batch % turns], cell, strict=True)
            ]
        whole = [sum(each) for each in zip(*cells, strict=True)]
        for found, quota in zip(whole, quotas.of(1), strict=True):
            assert floor(Fraction(quota, batches)) <= found <= ceil(Fraction(quota, batches))
        done = [sum(pair) for pair in zip(done, whole, strict=True)]
    assert done == quotas.of(1)


@pytest.mark.parametrize("batches", [1, 2, 3, 97, 128, 1000])
def test_shares_do_not_drift_within_an_epoch(batches: int) -> None:
    """Not one composition for all batches: 0.7 of 4 samples is 3, 3, 3, 2, and so on."""
    shares = EpochShares(
        Quotas([Fraction(7), Fraction(3)], 4 * batches).bounds(0), batches=batches, lanes=2, turns=1, begin=5
    )
    running = list(accumulate(sum(shares.cells(batch, lane)[0] for lane in range(2)) for batch in range(batches)))
    assert running[-1] == 28 * batches // 10
    assert all(abs(Fraction(found) - Fraction(28, 10) * at) < 3 for at, found in enumerate(running, 1))
    tenth = batches // 10
    if tenth:
        assert abs(running[tenth - 1] - (running[-1] - running[-tenth - 1])) < 6


def test_steps_are_coprime_and_even() -> None:
    assert all(gcd(even_step(modulus), modulus) == 1 for modulus in range(1, 200))
    assert all(1 <= even_step(modulus) < modulus for modulus in range(2, 200))
