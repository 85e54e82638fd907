"""Ranges of a shard's records: what is done, what is left."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.service.leases import add_range, covered_records, merged_ranges, missing_ranges

SIZE = 12
PAIRS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).filter(lambda pair: pair[0] < pair[1]))


def records(ranges: list[tuple[int, int]]) -> list[int]:
    return [at for first, end in ranges for at in range(first, end)]


@given(PAIRS)
def test_ranges_are_the_set_of_their_records(pairs: list[tuple[int, int]]) -> None:
    union = merged_ranges((), pairs, SIZE)
    assert records(union) == sorted(set(records(pairs)))
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(union))
    assert covered_records(union) == len(set(records(pairs)))
    assert records(missing_ranges(union, SIZE)) == sorted({*range(SIZE)} - set(records(pairs)))


def test_a_range_that_is_not_in_the_shard_changes_nothing() -> None:
    done = [(0, 2)]
    with pytest.raises(UsageError, match="records 3 to 9 are not in a shard of 8 records"):
        merged_ranges(done, [(2, 3), (3, 9)], 8)
    assert done == [(0, 2)]


def test_records_in_any_order_take_no_time_that_grows_with_their_number() -> None:
    order = list(range(20_000))
    random.Random(1).shuffle(order)
    done: list[tuple[int, int]] = []
    start = time.process_time()
    for at in order:
        add_range(done, at, at + 1)
    assert (done, time.process_time() - start < 2.0) == ([(0, 20_000)], True)
