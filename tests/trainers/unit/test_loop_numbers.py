"""What limits a loop, by times of a clock that the tests move."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from trainshards import write_shards

from tarkit.errors import UsageError
from tarkit.samples.indexedshard import ReadCounts
from tarkit.trainers import loopnumbers, stageclock
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.loopnumbers import SHOWN, limit_of
from tarkit.trainers.source import BatchSource
from tarkit.trainers.stageclock import READING, STAGES, StageClock, WorkerNumbers

COUNTS = (10, 0, 13)
BATCH = 4


@pytest.mark.parametrize(
    ("waits", "shares", "limit"),
    [
        (0.0, {"decoding": 0.9, "idle": 0.1}, "loop"),
        (0.029, {"fetching": 1.0}, "loop"),
        (0.03, {"fetching": 0.6, "reading": 0.2, "idle": 0.2}, "network"),
        (0.5, {"fetching": 0.1, "reading": 0.5, "decoding": 0.4}, "reading"),
        (0.9, {"reading": 0.2, "decoding": 0.5, "idle": 0.3}, "decoding"),
        (0.9, {"reading": 0.3, "decoding": 0.2, "idle": 0.5}, "pipe"),
        (1.0, {"ordering": 0.6, "reading": 0.4}, "ordering"),
        (1.0, {"collating": 0.6, "reading": 0.4}, "collating"),
        (1.0, dict.fromkeys(STAGES, 0.0), None),
        (1.0, {}, None),
    ],
)
def test_what_limits_a_loop(waits: float, shares: dict[str, float], limit: str | None) -> None:
    assert limit_of(waits, shares) == limit
    assert limit is None or limit in SHOWN


class Clock:
    """A clock that moves only when it is told to."""

    now = 10**12

    def __call__(self) -> int:
        return self.now

    def move(self, milliseconds: int) -> None:
        self.now += milliseconds * 1_000_000

    def moved(self, milliseconds: int) -> Callable[[Any], Any]:
        """A function that takes so long, and returns its argument."""

        def function(value: Any) -> Any:
            self.move(milliseconds)
            return value

        return function


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (loopnumbers, stageclock):
        monkeypatch.setattr(module, "perf_counter_ns", found)
    return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


def loader(shards: str, **options: Any) -> EpochLoader:
    return EpochLoader(BatchSource(shards, **{"batch": BATCH, **options}))


def test_times_and_rates_leave_the_first_batch_out(shards: str, clock: Clock) -> None:
    found = loader(shards, transform=clock.moved(10), collate=clock.moved(5))
    assert [found.numbers()[name] for name in ("epoch", "samples", "waits", "limit")] == [None, 0, None, None]
    for _ in found:
        clock.move(15)
    numbers = found.numbers()
    assert (numbers["batches"], numbers["samples"], numbers["bytes"]) == (5, 20, 20 * 1024)
    assert (numbers["first_batch_seconds"], numbers["seconds"]) == (0.045, 4 * 0.060)
    assert numbers["samples_per_second"] == pytest.approx(16 / 0.240)
    assert numbers["megabytes_per_second"] == pytest.approx(16 * 1024 / 240_000)
    assert (numbers["waits"], numbers["limit"]) == (0.75, "decoding")
    (worker,) = numbers["workers"]
    assert [worker[stage] for stage in STAGES] == [0, 0, 0, 0.2, 0.025, 4 * 0.015]
    assert worker["idle_share"] == pytest.approx(0.06 / 0.285)


@pytest.mark.parametrize(
    ("transform", "collate", "step", "line"),
    [
        (1, 100, 104, "50 % (limit: collating)"),
        (25, 0, 0, "100 % (limit: decoding)"),
        (1, 0, 996, "0 % (limit: the loop itself)"),
    ],
)
def test_lines_of_the_log(
    shards: str, clock: Clock, caplog: pytest.LogCaptureFixture, transform: int, collate: int, step: int, line: str
) -> None:
    caplog.set_level(logging.INFO, "tarkit.trainers")
    found = loader(shards, transform=clock.moved(transform), collate=clock.moved(collate), log_every=0.15)
    for _ in found:
        clock.move(step)
    lines = [each.getMessage() for each in caplog.records if each.name == "tarkit.trainers"]
    period = 4 * transform + collate + step
    assert len(lines) == 4 // math.ceil(150 / period)
    assert lines[-1].startswith("epoch 0: 20 samples, ") and lines[-1].endswith(f"MB/s, the loop waits {line}")
    assert f" {4000 / period:,.0f} samples/s, " in lines[-1] or 4000 / period < 10
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_lines_that_nothing_would_show(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tarkit.trainers")
    list(loader(shards, log_every=60))
    assert "log_every= writes lines of level INFO, which are not shown: logging.basicConfig(" in caplog.text
    caplog.clear()
    for value in (0, None):
        list(loader(shards, log_every=value))
    assert caplog.text == ""


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "60", True])
def test_times_between_lines_that_cannot_be(shards: str, value: Any) -> None:
    with pytest.raises(UsageError, match=r"^log_every is .*; it must be a number of seconds from 0 on$"):
        loader(shards, log_every=value)


def test_counts_are_those_of_the_batches_that_were_given(shards: str) -> None:
    def odd(sample: dict[str, Any]) -> dict[str, Any] | None:
        return sample if int(sample["cls"]) % 3 else None

    found = loader(shards, transform=odd, on_error="count")
    given = [len(batch) for batch in found]
    numbers = found.numbers()
    assert numbers["samples"] == sum(given) == 20 - numbers["filtered"] + numbers["filled"] and numbers["filtered"]
    assert numbers["read_ahead"] == 0
    running = iter(found)
    early = [len(next(running)) for _ in range(2)]
    running.close()  # type: ignore[attr-defined]
    assert (found.numbers()["epoch"], found.numbers()["batches"], found.numbers()["samples"]) == (1, 2, sum(early))
    total = found.numbers()["total"]
    assert (total["batches"], total["samples"]) == (7, sum(given + early))
    assert total["filtered"] == numbers["filtered"] + found.counts["filtered"]
    assert found.scalars()["tarkit/samples"] == sum(given + early)


def test_scalars_are_of_the_time_since_the_last_call(shards: str, clock: Clock) -> None:
    found = loader(shards, transform=clock.moved(10))
    seen = []
    for number, _ in enumerate(found):
        clock.move(40 if number < 3 else 360)
        seen.append(found.scalars())
    assert "tarkit/loop_waits" not in seen[0]
    assert [each["tarkit/loop_waits"] for each in seen[1:]] == [0.5, 0.5, 0.5, 0.1]
    assert [each["tarkit/samples_per_second"] for each in seen[1:]] == [50, 50, 50, 10]
    assert seen[-1]["tarkit/samples"] == 20 and seen[-1]["tarkit/workers_decoding"] == 1
    assert all(type(value) is float for each in seen for value in each.values())


def test_a_worker_of_an_earlier_iteration_does_not_count() -> None:
    numbers, reads = WorkerNumbers(2), ReadCounts()
    late, now = StageClock(reads), StageClock(reads)
    numbers.begin()
    late.attach(numbers, 1)
    late.finish(0, 7)
    assert [times.samples for times in numbers.times()] == [0, 7]
    numbers.begin()
    assert [times.samples for times in numbers.times()] == [0, 0]
    now.attach(numbers, 1)
    now.finish(3, 2)
    late.finish(3, 7)
    assert [times.samples for times in numbers.times()] == [0, 2] and numbers.size_of(3) == (2, 0)
    sent = pickle.loads(pickle.dumps(numbers))
    assert sent.times() == numbers.times() and sent.size_of(3) == (2, 0)
    pickle.loads(pickle.dumps(now)).finish(4, 1)
    assert numbers.size_of(4) == (0, 0), "a clock that was sent is attached by the worker that gets it"


def test_waiting_for_the_network_is_taken_from_the_stage_in_which_it_was(clock: Clock) -> None:
    numbers, reads = WorkerNumbers(1), ReadCounts()
    watch = StageClock(reads)
    numbers.begin()
    watch.attach(numbers, 0)
    clock.move(30)
    reads.fetching += 20_000_000
    watch.lap(READING)
    clock.move(2)
    watch.lap(READING)
    watch.finish(0, 1)
    assert dict(zip(STAGES, numbers.times()[0].stages, strict=True)) == {
        **dict.fromkeys(STAGES, 0),
        "fetching": 20_000_000,
        "reading": 12_000_000,
    }
