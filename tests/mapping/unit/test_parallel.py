"""The ordered map: order, the bound on bytes, and errors, with a pool that
finishes in any order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.mapping.output import IN_MEMORY, Output, Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome, content_bytes, in_batches, ordered_map
from tarkit.samples.sample import Sample


class RandomPool:
    """Finishes what it holds in random order, one or several at a time."""

    def __init__(self, slots: int, seed: int, growth: int = 1) -> None:
        self.slots, self.growth, self.chance = slots, growth, random.Random(seed)
        self.running: list[tuple[int, Batch]] = []
        self.tickets: list[int] = []
        self.largest = 0

    def has_room(self) -> bool:
        return len(self.running) < self.slots

    def submit(self, ticket: int, batch: Batch) -> None:
        assert self.has_room()
        self.running.append((ticket, batch))
        self.tickets.append(ticket)

    def collect(self) -> list[tuple[int, Outcome]]:
        assert self.running, "waits for ever"
        self.chance.shuffle(self.running)
        count = self.chance.randint(1, len(self.running))
        done, self.running = self.running[:count], self.running[count:]
        made = [
            (ticket, [[{**s, "x": s["x"] * self.growth} for s in [one]] for one in batch]) for ticket, batch in done
        ]
        self.largest = max([self.largest, *(sum(map(content_bytes, result)) for _, result in made)])
        return [(ticket, Outcome(result, Printed())) for ticket, result in made]


class LastFirstPool(RandomPool):
    """Finishes the first batch only when nothing else is left to do."""

    def collect(self) -> list[tuple[int, Outcome]]:
        assert self.running, "waits for ever"
        self.running.sort(key=lambda item: item[0] == 0)
        ticket, batch = self.running.pop(0)
        return [(ticket, Outcome([[one] for one in batch], Printed()))]


def sample(number: int, size: int = 10) -> Sample:
    return {"__key__": f"{number}", "x": bytes(size)}


@given(
    sizes=st.lists(st.integers(0, 5000), max_size=40),
    slots=st.integers(1, 8),
    seed=st.integers(0, 1000),
    window=st.sampled_from([1, 1500, 6000, 20_000, 10**9]),
    per_batch=st.integers(1, 3),
    growth=st.sampled_from([0, 1, 3]),
)
def test_order_is_kept_and_nothing_is_lost(
    sizes: list[int], slots: int, seed: int, window: int, per_batch: int, growth: int
) -> None:
    samples = [sample(number, size) for number, size in enumerate(sizes)]
    pool = RandomPool(slots, seed, growth)
    found = list(ordered_map(in_batches(iter(samples), per_batch), pool, window=window))
    assert [one for batch, _ in found for one in batch] == samples
    made = [one for _, outcome in found for results in outcome.made for one in results]
    assert [one["__key__"] for one in made] == [one["__key__"] for one in samples]
    assert pool.tickets == list(range(len(found)))
    assert pool.running == []


@given(seed=st.integers(0, 1000), slots=st.integers(1, 6), window=st.integers(2000, 20_000))
def test_what_is_held_stays_within_the_window(seed: int, slots: int, window: int) -> None:
    chance = random.Random(seed)
    drawn, given_back, largest = 0, 0, 0
    peak = 0

    def source() -> Iterator[Batch]:
        nonlocal drawn, largest, peak
        for number in range(60):
            batch = [sample(number, chance.randint(0, 3000))]
            drawn += content_bytes(batch)
            largest = max(largest, content_bytes(batch))
            peak = max(peak, drawn - given_back)
            yield batch

    pool = LastFirstPool(slots, seed)
    for batch, _ in ordered_map(source(), pool, window=window):
        given_back += content_bytes(batch)
    assert peak <= max(window, largest) + largest


def test_a_slow_first_batch_holds_the_reader_back() -> None:
    drawn = itertools.count()

    def endless() -> Iterator[Batch]:
        for number in drawn:
            yield [sample(number, 1000)]

    answers = ordered_map(endless(), LastFirstPool(4, 0), window=20_000)
    first, _ = next(answers)
    assert first[0]["__key__"] == "0"
    # 2,000 bytes each, and as much for each result.
    assert next(drawn) <= 12


def test_an_endless_source_is_drawn_no_further_than_the_window() -> None:
    drawn = itertools.count()
    answers = ordered_map(([sample(number, 1000)] for number in drawn), RandomPool(50, 1), window=10_000)
    for number, (batch, _) in enumerate(itertools.islice(answers, 200)):
        assert batch[0]["__key__"] == str(number)
    assert next(drawn) <= 200 + 6


def test_nothing_is_drawn_before_it_is_asked_for() -> None:
    drawn = itertools.count()
    ordered_map(([sample(number)] for number in drawn), RandomPool(3, 0), window=10**6)
    assert next(drawn) == 0


@pytest.mark.parametrize("window", [1, 2000])
def test_a_batch_larger_than_the_window_still_runs(window: int) -> None:
    batches = [[sample(number, 100_000)] for number in range(5)]
    pool = RandomPool(4, 0)
    found = []
    for batch, _ in ordered_map(iter(batches), pool, window=window):
        found.append(batch)
        assert pool.running == [], "only one at a time fits"
    assert found == batches


def test_results_count_as_well() -> None:
    """Results a hundred times as large as their samples keep the reader from going on."""

    class Growing(LastFirstPool):
        def collect(self) -> list[tuple[int, Outcome]]:
            return [(ticket, Outcome([[sample(0, 100_000)]], Printed())) for ticket, _ in super().collect()]

    drawn = itertools.count()
    answers = ordered_map(([sample(number, 0)] for number in drawn), Growing(4, 0), window=300_000)
    next(answers)
    assert next(drawn) <= 3 + 4 + 1


def test_an_error_of_the_source_comes_through() -> None:
    def source() -> Iterator[Batch]:
        yield [sample(0)]
        yield [sample(1)]
        raise ValueError("cut")

    with pytest.raises(ValueError, match="cut"):
        list(ordered_map(source(), RandomPool(1, 0), window=10**6))


def test_an_error_of_the_pool_comes_through() -> None:
    class Broken(RandomPool):
        def collect(self) -> list[tuple[int, Outcome]]:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(ordered_map(iter([[sample(0)]]), Broken(1, 0), window=10**6))


def test_failures_keep_their_place() -> None:
    class Failing(RandomPool):
        def collect(self) -> list[tuple[int, Outcome]]:
            return [
                (ticket, Outcome([], Printed(), Failure("exit", "1", 1)) if ticket % 2 else outcome)
                for ticket, outcome in super().collect()
            ]

    found = list(ordered_map(in_batches(map(sample, range(9)), 1), Failing(4, 3), window=10**6))
    assert [outcome.failure is None for _, outcome in found] == [number % 2 == 0 for number in range(9)]


@given(items=st.lists(st.booleans(), max_size=30), slots=st.integers(1, 5), seed=st.integers(0, 1000))
def test_marks_keep_their_place_among_the_batches(items: list[bool], slots: int, seed: int) -> None:
    stream = [[sample(number)] if is_batch else number for number, is_batch in enumerate(items)]
    pool = RandomPool(slots, seed)
    found = [item[0] if isinstance(item, tuple) else item for item in ordered_map(stream, pool, window=5000)]
    assert found == stream
    assert pool.tickets == list(range(sum(items))), "a mark takes no ticket"


def test_a_mark_comes_before_anything_behind_it_is_drawn_if_nothing_runs() -> None:
    drawn: list[Batch | str] = []

    def source() -> Iterator[Batch | str]:
        for item in ("begins", [sample(0)], "ends", "begins", "ends"):
            drawn.append(item)
            yield item

    answers = ordered_map(source(), RandomPool(1, 0), window=10**6)
    assert (next(answers), len(drawn)) == ("begins", 1)
    batch, _ = next(answers)
    assert (batch, len(drawn)) == ([sample(0)], 2)
    assert [(next(answers), len(drawn)) for _ in range(3)] == [("ends", 3), ("begins", 4), ("ends", 5)]
    assert list(answers) == []


def test_no_batches() -> None:
    assert list(ordered_map(iter([]), RandomPool(2, 0), window=1)) == []
    assert list(in_batches(iter([]), 3)) == []
    assert [len(batch) for batch in in_batches(map(sample, range(7)), 3)] == [3, 3, 1]


# ---- what commands print


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY, IN_MEMORY + 1, 3_000_000])
def test_output_is_kept_whole_and_its_file_is_gone_afterwards(size: int, tmp_path: Path) -> None:
    text = random.Random(size).randbytes(size)
    path = tmp_path / "out"
    path.write_bytes(text)
    output = Output.of_file(str(path))
    assert path.exists() == (size > IN_MEMORY)
    if path.exists():
        with open(path, "ab") as file:
            file.write(b"of something left running")
    assert (output.size, output.read(), output.tail(7)) == (size, text, text[-7:])
    assert all(0 < len(piece) <= 1 << 20 for piece in output.pieces())
    shown: list[bytes] = []
    output.show(shown.append)
    assert b"".join(shown) == text
    assert list(tmp_path.iterdir()) == []
    output.discard()


def test_output_is_removed_even_if_it_can_not_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(bytes(IN_MEMORY + 1))

    def closed(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Output.of_file(str(path)).show(closed)
    assert list(tmp_path.iterdir()) == []
