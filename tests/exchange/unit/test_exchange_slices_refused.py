"""Slices of an exchange in a folder that has the outputs of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, keys_of, left_in, numbered_inputs

from tarkit.errors import TemporaryStreamError, UsageError
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.slices import ExchangeSlice


def sliced(urls: list[str], out: Path, seed: int) -> ExchangeSlice:
    return ExchangeSlice(Shuffle(seed), urls, str(out), ExchangeSettings(shards=4))


@pytest.fixture
def other(tmp_path: Path) -> list[str]:
    """Inputs, with the outputs of seed 0."""
    urls = numbered_inputs(tmp_path / "in", [10] * 4)
    exchange(urls, tmp_path / "out", Shuffle(0), shards=4).run()
    return urls


def test_a_gather_before_its_scatter_does_not_take_the_outputs_of_another_seed(
    other: list[str], tmp_path: Path
) -> None:
    assert sliced(other, tmp_path / "out", 0).gather(1, 2).done_before == 2
    with pytest.raises(TemporaryStreamError, match="has not made the plan yet"):
        sliced(other, tmp_path / "out", 1).gather(0, 2)


def test_outputs_of_another_seed_are_not_mixed_in(other: list[str], tmp_path: Path) -> None:
    before = files_of(tmp_path / "out")
    with pytest.raises(UsageError, match="has 4 shards of another run"):
        sliced(other, tmp_path / "out", 1).scatter(0, 2)
    # Nor if they come in between.
    (tmp_path / "out").rename(tmp_path / "aside")
    for number in range(2):
        sliced(other, tmp_path / "out", 1).scatter(number, 2)
    (tmp_path / "out" / "_exchange").rename(tmp_path / "aside" / "_exchange")
    (tmp_path / "out").rmdir()
    (tmp_path / "aside").rename(tmp_path / "out")
    with pytest.raises(UsageError, match="has 4 shards of another run"):
        sliced(other, tmp_path / "out", 1).gather(0, 2)
    found = files_of(tmp_path / "out")
    assert {name: found[name] for name in before} == before


def test_slices_give_the_bytes_of_one_run(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [10] * 4)
    exchange(urls, tmp_path / "right", Shuffle(3), shards=4).run()
    out = tmp_path / "out"
    with pytest.raises(TemporaryStreamError):
        sliced(urls, out, 3).gather(0, 3)
    for number in range(5):
        sliced(urls, out, 3).scatter(number, 5)
    for number in (2, 0, 1):
        sliced(urls, out, 3).gather(number, 3)
    assert files_of(out) == files_of(tmp_path / "right")
    assert left_in(out) == [] and len({*keys_of(out)}) == 40
    assert sliced(urls, out, 3).gather(1, 3).done_before > 0
