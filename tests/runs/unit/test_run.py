"""``tarkit.runs.account`` with a pool that does what the samples say: counts, limits, sinks."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.mapping.output import Output, Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.runs.account import Sinks, run_samples
from tarkit.runs.counts import Counts, Limit, TooManyErrorsError
from tarkit.runs.engine import ERROR_FIELD, Engine, Reporter
from tarkit.runs.work import Work
from tarkit.samples.sample import Sample


class TellTale(Reporter):
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def printed(self, key: str, printed: Printed) -> None:
        if printed.size:
            self.said.append(f"{key} printed {printed.read().decode()}")

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        self.said.append(f"{key} failed: {failure.message}")

    def stray(self, key: str, names: list[str]) -> None:
        self.said.append(f"{key} left {' '.join(names)}")

    def advanced(self, read: int, failed: int) -> None:
        assert 0 <= failed <= read


class Backwards:
    """A pool that finishes the last batch it was given first."""

    def __init__(self, room: int = 3) -> None:
        self.room = room
        self.held: list[tuple[int, Batch]] = []
        self.most = 0

    def has_room(self) -> bool:
        return len(self.held) < self.room

    def submit(self, ticket: int, batch: Batch) -> None:
        self.held.append((ticket, batch))
        self.most = max(self.most, len(self.held))

    def collect(self) -> list[tuple[int, Outcome]]:
        ticket, batch = self.held.pop()
        return [(ticket, self._outcome(batch))]

    def _outcome(self, batch: Batch) -> Outcome:
        failure = None
        made: list[list[Sample]] = []
        for sample in batch:
            what = sample["do"].decode()
            if what == "fail":
                failure = Failure("exit", "exit code 5", 5)
            copies = {"drop": 0, "double": 2}.get(what, 1)
            key = sample["__key__"]
            made.append([{**sample, "__key__": f"{key}-{n}" if copies > 1 else key} for n in range(copies)])
        return Outcome([] if failure else made, Printed(Output(b"hi" if what == "print" else b"")), failure)


def _samples(text: str) -> list[Sample]:
    return [{"__key__": f"k{number}", "do": what.encode()} for number, what in enumerate(text.split())]


def run(samples: Iterable[Sample], pool: Backwards, sinks: Sinks, reporter: TellTale, **options: Any) -> Counts:
    counts = Counts()
    run_samples(iter(samples), sinks, Engine(Work(**options), pool, reporter), counts)
    return counts


def _run(folder: Path, text: str, **options: Any) -> tuple[Counts, list[str]]:
    teller = TellTale()
    sinks = Sinks(str(folder / "out.tar"), str(folder / "out.tar.failed.tar"), {})
    counts = run(_samples(text), Backwards(), sinks, teller, **{"mem": 1_000_000, **options})
    return counts, teller.said


def _names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def test_counts(tmp_path: Path) -> None:
    counts, said = _run(tmp_path, "ok fail drop double print ok")
    assert (counts.read, counts.out, counts.added, counts.filtered, counts.failed) == (6, 5, 1, 1, 1)
    assert (
        counts.failures == {"exit": 1}
        and counts.add_up()
        and str(counts) == "in 6 + added 1 = out 5 + filtered 1 + failed 1"
    )
    assert said == ["k1 failed: exit code 5", "k4 printed hi"]
    assert _names(tmp_path / "out.tar") == ["k0.do", "k3-0.do", "k3-1.do", "k4.do", "k5.do"]
    assert _names(tmp_path / "out.tar.failed.tar") == [f"k1.{ERROR_FIELD}", "k1.do"]


@pytest.mark.parametrize("window", [1, 3000, 10**9])
def test_order_is_kept_whatever_the_window(tmp_path: Path, window: int) -> None:
    _run(tmp_path, "ok " * 50, mem=window)
    assert _names(tmp_path / "out.tar") == [f"k{number}.do" for number in range(50)]


def test_window_of_one_byte_runs_one_at_a_time(tmp_path: Path) -> None:
    pool = Backwards(8)
    sinks = Sinks(None, None, {})
    run(_samples("ok " * 9), pool, sinks, TellTale(), mem=1)
    assert pool.most == 1


def test_no_sample_is_drawn_too_many(tmp_path: Path) -> None:
    """A slow command must not make the reader run ahead."""
    drawn = 0

    def source() -> Any:
        nonlocal drawn
        for sample in _samples("ok " * 10 + "fail " + "ok " * 1000):
            drawn += 1
            yield sample

    with pytest.raises(TooManyErrorsError):
        run(source(), Backwards(4), Sinks(None, None, {}), TellTale(), errors="abort", mem=6000)
    assert drawn <= 11 + 7


def test_failures_of_a_batch_are_of_all_its_samples(tmp_path: Path) -> None:
    counts, _ = _run(tmp_path, "ok ok ok fail ok", batch=2)
    assert (counts.read, counts.out, counts.failed) == (5, 3, 2)


@pytest.mark.parametrize(
    ("text", "limit"), [("0", Limit(0)), ("7", Limit(7)), ("2.5%", Limit(None, 2.5)), (" 1% ", Limit(None, 1.0))]
)
def test_limit(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit and Limit.parse(str(limit)) == limit


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "%", "1 %"])
def test_limit_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not a limit"):
        Limit.parse(text)


def test_limit_in_percent_waits_for_enough_samples() -> None:
    limit = Limit(None, 10)
    assert not limit.exceeded(9, 10)
    assert limit.exceeded(9, 10, at_end=True)
    assert limit.exceeded(11, 100) and not limit.exceeded(10, 100)
