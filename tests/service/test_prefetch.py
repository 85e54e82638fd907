"""How many shards a worker has ahead, by the time that its shards take."""

from __future__ import annotations

import pytest

from tarkit.service.prefetch import Prefetch


class Worker:
    """A caller with a clock of its own."""

    def __init__(self, fixed: int | None = None) -> None:
        self.prefetch, self.now = Prefetch(fixed), 0.0

    def fetch(self, wait: float = 0.0, shards: int = 1) -> None:
        self.prefetch.asked(self.now)
        self.now += wait
        self.prefetch.answered(self.now, shards)

    def work(self, *seconds: float, wait: float = 0.0) -> int:
        """Fetch shards, and use each for so long; how many it has ahead then."""
        for each in seconds:
            self.fetch(wait)
            self.now += each
        self.fetch(wait)
        return self.prefetch.number


@pytest.mark.parametrize(
    ("seconds", "number"), [(0.0, 64), (0.001, 64), (0.0021, 47), (0.01, 10), (0.07, 1), (1.0, 1), (600.0, 1)]
)
def test_a_tenth_of_a_second_of_work_is_ahead(seconds: float, number: int) -> None:
    worker = Worker()
    assert worker.prefetch.number == 1
    assert worker.work(*[seconds] * 20) in (number - 1, number, number + 1)
    assert worker.prefetch.number >= 1


def test_the_time_of_waiting_is_not_work() -> None:
    assert Worker().work(*[0.01] * 20, wait=5.0) == Worker().work(*[0.01] * 20)


def test_an_answer_without_a_shard_is_not_work() -> None:
    worker = Worker()
    worker.work(*[1.0] * 20)
    for _ in range(100):
        worker.fetch(wait=1.0, shards=0)
    assert worker.prefetch.number == 1


def test_it_follows_the_work() -> None:
    worker = Worker()
    assert worker.work(10.0) == 1  # the first one takes longer: something is compiled
    assert worker.work(*[0.001] * 40) == 64
    assert worker.work(10.0) == 1


def test_shards_of_a_batch_that_come_at_once_count_with_their_step() -> None:
    worker = Worker()
    assert worker.work(*[0.0, 0.0, 0.0, 10.0] * 5) == 1
    assert worker.work(0.0, 0.0, 0.0) == 1


def test_a_fixed_number_stays() -> None:
    assert Worker(0).work(*[0.0] * 20) == 0
    assert Worker(5).work(*[10.0] * 20) == 5


def test_threads_use_shards_together() -> None:
    prefetch, now = Prefetch(None), 0.0
    for _ in range(200):  # four threads: each takes 40 ms, one ends every 10 ms
        prefetch.asked(now)
        prefetch.answered(now, 1)
        now += 0.01
    assert prefetch.number in (9, 10)
    for _ in range(100):  # one of them waits for a shard most of the time, so more of them are wanted
        prefetch.asked(now)
        prefetch.asked(now + 0.005)
        prefetch.answered(now + 0.009, 1)
        prefetch.answered(now + 0.009, 1)
        now += 0.01
    assert prefetch.number > 20
