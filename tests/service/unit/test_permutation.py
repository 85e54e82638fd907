"""The order of a permutation: the same everywhere, each number once, no order or neighbour more
often than others.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import factorial, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.service.dataset import Permutation


def whole(order: Permutation) -> list[int]:
    return [order[position] for position in range(len(order))]


GOLDEN = [
    ((1, "a"), [0]),
    ((10, 0, 1, "shards"), [4, 0, 6, 3, 2, 7, 1, 8, 9, 5]),
    ((10, 0, 2, "shards"), [9, 3, 7, 2, 5, 1, 0, 6, 4, 8]),
    ((10, 1, 1, "shards"), [7, 8, 5, 2, 6, 0, 3, 1, 9, 4]),
    ((1000, 7, 1, "records"), [854, 264, 439, 859]),
    ((2_000_000, 7, 1, "records"), [427167, 1819234, 271383, 1120327]),
    ((2**62, 7, 1, "records"), [236424687057644545, 3299135705877578510, 1361904431441429167, 968721899443559635]),
]


@pytest.mark.parametrize(("arguments", "begins"), GOLDEN)
def test_orders_never_change(arguments: tuple[Any, ...], begins: list[int]) -> None:
    order = Permutation(*arguments)
    assert [order[position] for position in range(len(begins))] == begins


@given(n=st.integers(1, 700), seed=st.integers(-(2**63), 2**63 - 1), epoch=st.integers(1, 2**31))
def test_each_number_once(n: int, seed: int, epoch: int) -> None:
    numbers = whole(Permutation(n, seed, epoch, "shards"))
    assert sorted(numbers) == list(range(n))


@pytest.mark.parametrize("position", [-1, 10, 2**70])
def test_what_is_not_in_it(position: int) -> None:
    with pytest.raises(IndexError):
        Permutation(10, 1)[position]


def is_even(counts: Counter[Any], cells: int) -> bool:
    """Whether the chi-square statistic is within four standard deviations of its mean for an even
    distribution.
    """
    expected = counts.total() / cells
    statistic = sum((count - expected) ** 2 / expected for count in counts.values())
    statistic += (cells - len(counts)) * expected
    return abs(statistic - (cells - 1)) < 4 * sqrt(2 * (cells - 1))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_of_few_things_all_orders_are_as_frequent(n: int) -> None:
    counts: Counter[object] = Counter(
        tuple(whole(Permutation(n, seed, 1, "shards"))) for seed in range(20 * factorial(n))
    )
    assert is_even(counts, factorial(n))


@pytest.mark.parametrize("n", [8, 20, 48])
def test_positions_and_neighbours_are_even_over_seeds_and_over_epochs(n: int) -> None:
    orders = [whole(Permutation(n, seed, 1, "shards")) for seed in range(300)]
    orders += [whole(Permutation(n, 0, epoch, "shards")) for epoch in range(300)]
    assert is_even(Counter(order[0] for order in orders), n)
    assert is_even(Counter((at * 4 // n, each * 4 // n) for order in orders for at, each in enumerate(order)), 16)
    assert is_even(Counter((second - first) % n for order in orders for first, second in pairwise(order)), n - 1)


def test_a_large_order_has_no_runs() -> None:
    n = 2_000_000
    order = Permutation(n, 1, 1, "records")
    begins = [order[position] for position in range(20_000)]
    assert is_even(Counter(number * 100 // n for number in begins), 100)
    for apart in (1, 2, 1414, 1415):  # also a row of its table
        pairs = zip(begins, begins[apart:], strict=False)
        assert is_even(Counter((second - first) % n * 100 // n for first, second in pairs), 100)
