"""``tarkit.runs.stream`` with a pool that does as it is told: books, limits, sinks."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import StreamError, UsageError
from tarkit.mapping.output import Output, Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.runs.account import ERROR_FIELD, Policy, Sinks, TooManyErrorsError
from tarkit.runs.counts import Books, Limit
from tarkit.runs.stream import run
from tarkit.samples.sample import Sample


class TellTale:
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

    def advanced(self, books: Books) -> None:
        assert books.balanced()


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


def _run(folder: Path, text: str, policy: Policy | None = None, **options: Any) -> tuple[Books, list[str]]:
    teller = TellTale()
    sinks = Sinks(str(folder / "out.tar"), str(folder / "out.tar.failed.tar"), {})
    options.setdefault("window", 1_000_000)
    books = run(_samples(text), Backwards(), sinks, policy=policy or Policy(), reporter=teller, **options)
    return books, teller.said


def _names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def test_books(tmp_path: Path) -> None:
    books, said = _run(tmp_path, "ok fail drop double print ok")
    assert (books.read, books.out, books.added, books.filtered, books.failed) == (6, 5, 1, 1, 1)
    assert books.failures == {"exit": 1} and books.balanced()
    assert said == ["k1 failed: exit code 5", "k4 printed hi"]
    assert _names(tmp_path / "out.tar") == ["k0.do", "k3-0.do", "k3-1.do", "k4.do", "k5.do"]
    assert _names(tmp_path / "out.tar.failed.tar") == [f"k1.{ERROR_FIELD}", "k1.do"]


@pytest.mark.parametrize("window", [1, 3000, 10**9])
def test_order_is_kept_whatever_the_window(tmp_path: Path, window: int) -> None:
    _run(tmp_path, "ok " * 50, window=window)
    assert _names(tmp_path / "out.tar") == [f"k{number}.do" for number in range(50)]


def test_window_of_one_byte_runs_one_at_a_time(tmp_path: Path) -> None:
    pool = Backwards(8)
    sinks = Sinks(None, None, {})
    run(_samples("ok " * 9), pool, sinks, policy=Policy(), reporter=TellTale(), window=1)
    assert pool.most == 1


def test_no_sample_is_drawn_too_many(tmp_path: Path) -> None:
    """A slow command must not make the reader run ahead."""
    drawn = 0

    def source() -> Any:
        nonlocal drawn
        for sample in _samples("ok " * 10 + "fail " + "ok " * 1000):
            drawn += 1
            yield sample

    policy = Policy("abort")
    with pytest.raises(TooManyErrorsError):
        run(source(), Backwards(4), Sinks(None, None, {}), policy=policy, reporter=TellTale(), window=6000)
    assert drawn <= 11 + 7


def test_failures_of_a_batch_are_of_all_its_samples(tmp_path: Path) -> None:
    books, _ = _run(tmp_path, "ok ok ok fail ok", batch_size=2)
    assert (books.read, books.out, books.failed) == (5, 3, 2)


def test_without_output(tmp_path: Path) -> None:
    books = run(_samples("ok fail"), Backwards(), Sinks(None, None, {}), policy=Policy(), reporter=TellTale(), window=9)
    assert (books.out, books.failed) == (1, 1) and os.listdir(tmp_path) == []


def test_nothing_is_published_on_an_error(tmp_path: Path) -> None:
    def source() -> Any:
        yield from _samples("ok fail ok")
        raise StreamError("the line is dead")

    sinks = Sinks(str(tmp_path / "out.tar"), str(tmp_path / "failed.tar"), {})
    with pytest.raises(StreamError, match="the line is dead"):
        run(source(), Backwards(), sinks, policy=Policy(), reporter=TellTale(), window=10**6)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "policy", "match"),
    [
        ("fail fail", Policy(), "all 2 samples failed"),
        ("ok fail", Policy("abort"), "k1: exit code 5; --errors abort ends the run"),
        ("ok fail fail ok", Policy("skip", Limit(1)), "2 of 3 samples failed; --max-errors is 1"),
        ("ok fail ok ok", Policy("keep", Limit(None, 24.9)), "1 of 4 samples failed; --max-errors is 24.9%"),
    ],
)
def test_too_many_errors(tmp_path: Path, text: str, policy: Policy, match: str) -> None:
    with pytest.raises(TooManyErrorsError, match=match) as caught:
        _run(tmp_path, text, policy)
    assert caught.value.exit_code == 1
    assert os.listdir(tmp_path) == []


def test_unknown_policy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be one of"):
        _run(tmp_path, "ok", Policy("explode"))


def test_log_field(tmp_path: Path) -> None:
    books, said = _run(tmp_path, "print ok", Policy(log_field="log"))
    assert said == [] and books.out == 2
    with tarfile.open(tmp_path / "out.tar") as archive:
        log = archive.extractfile("k0.log")
        assert log is not None and log.read() == b"hi"


def test_log_field_that_the_sample_has(tmp_path: Path) -> None:
    books, said = _run(tmp_path, "double drop", Policy("skip", log_field="log"))
    assert books.failed == 0
    with pytest.raises(TooManyErrorsError, match="all 1 samples failed"):
        _run(tmp_path, "print", Policy(log_field="do"))


@pytest.mark.parametrize(
    ("text", "limit"), [("0", Limit(0)), ("7", Limit(7)), ("2.5%", Limit(None, 2.5)), (" 1% ", Limit(None, 1.0))]
)
def test_limit(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit and Limit.parse(str(limit)) == limit


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "%", "1 %"])
def test_limit_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is no limit"):
        Limit.parse(text)


def test_limit_in_percent_waits_for_enough_samples() -> None:
    limit = Limit(None, 10)
    assert not limit.exceeded(9, 10)
    assert limit.exceeded(9, 10, at_end=True)
    assert limit.exceeded(11, 100) and not limit.exceeded(10, 100)
