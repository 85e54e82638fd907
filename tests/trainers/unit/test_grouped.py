"""Batches of several workers, some in each message, against the same batches in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainshards import write_shards

from tarkit.trainers.grouped import GroupedBatches, batches_at_once, in_order
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream


class Numbers(Iterator[int]):
    """The numbers of a worker's batches; number ``bad`` raises, each time that it is asked for."""

    def __init__(self, numbers: Iterable[int], bad: int) -> None:
        self._left, self._bad = list(numbers), bad

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        if self._left[0] == self._bad:
            raise ValueError(f"number {self._bad}")
        return self._left.pop(0)


def read_in_turn(workers: list[GroupedBatches]) -> Iterator[tuple[int, list[Any]]]:
    """Yield messages as a DataLoader does: of one worker after the other, without ended ones."""
    while workers:
        for worker in list(workers):
            try:
                yield next(worker)
            except StopIteration:
                workers.remove(worker)


@given(
    workers=st.integers(1, 5),
    at_once=st.integers(1, 8),
    first=st.integers(0, 9),
    batches=st.integers(0, 60),
    bad=st.none() | st.integers(0, 60),
)
def test_batches_come_in_their_order_up_to_an_error(
    workers: int, at_once: int, first: int, batches: int, bad: int | None
) -> None:
    numbers = range(first, first + batches)
    wrong = -1 if bad is None or bad >= batches else numbers[bad]
    made = [GroupedBatches(Numbers(numbers[worker::workers], wrong), worker, at_once) for worker in range(workers)]
    found: list[int] = []
    if wrong < 0:
        found += in_order(read_in_turn(made), workers)
    else:
        with pytest.raises(ValueError, match=f"^number {wrong}$"):
            found.extend(in_order(read_in_turn(made), workers))
    assert found == list(numbers if wrong < 0 else numbers[:bad])


@given(workers=st.integers(1, 5), at_once=st.integers(1, 8), taken=st.integers(1, 100))
def test_no_message_is_asked_for_before_it_is_needed(workers: int, at_once: int, taken: int) -> None:
    made = [GroupedBatches(Numbers(range(worker, 600, workers), -1), worker, at_once) for worker in range(workers)]
    asked: list[int] = []

    def noted() -> Iterator[tuple[int, list[Any]]]:
        for message in read_in_turn(made):
            asked.append(len(message[1]))
            yield message

    assert list(islice(in_order(noted(), workers), taken)) == list(range(taken))
    sizes = [size for size in (1, 2, 4, *[8] * 100) for _ in range(workers)]
    sizes = [min(size, at_once) for size in sizes]
    needed, begun = 0, 0
    while begun < taken:
        begun += min(workers * sizes[needed], taken - begun)
        needed += workers
    assert asked == sizes[: len(asked)] and needed - workers < len(asked) <= needed


def test_the_stream_with_the_largest_samples_decides_on_the_size_of_a_message(tmp_path: Path) -> None:
    small = write_shards(tmp_path, [0, 200], name="small")
    large = write_shards(tmp_path, [0, 9], lambda shard, number: {"bin": bytes(100_000)}, name="large")

    def most(*urls: str) -> int:
        streams = [Stream(url, name=url) for url in urls]
        return batches_at_once(BatchSource(streams if urls[1:] else urls[0], batch=4))

    assert (most(small), most(large), most(small, large), most(large, small)) == (8, 3, 3, 3)
    one_of_ten = BatchSource(BatchSource(large, batch=1).samples.subset(slice(None, None, 9)), batch=1)
    assert batches_at_once(one_of_ten) == 8, "the samples that are left out have no part in the size"
