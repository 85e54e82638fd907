"""Slices of an exchange in a folder that has the outputs of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from exchangeruns import exchange, files_of, keys_of, left_in, numbered_inputs

from tarkit.errors import TemporaryStreamError, UsageError
from tarkit.exchange.exchange import SlicesFailedError
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


def test_a_replaced_input_is_entered_into_the_plan_by_slice_0(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [10] * 3)
    good, out = Path(urls[2]).read_bytes(), tmp_path / "out"
    Path(urls[2]).write_bytes(good[:3000])
    for number in range(2):
        sliced(urls, out, 0).scatter(number, 3)
    with pytest.raises(SlicesFailedError, match="with --stage, slice 0 of the scatter first"):
        sliced(urls, out, 0).scatter(2, 3)
    Path(urls[2]).write_bytes(good)
    with pytest.raises(SlicesFailedError, match=r"the input was changed.*slice 0 of the scatter first") as raised:
        sliced(urls, out, 0).scatter(2, 3)
    assert raised.value.exit_code == 75, "slice 0 may be about to do it"
    assert sliced(urls, out, 0).scatter(0, 3).done_before == 1
    assert sliced(urls, out, 0).scatter(2, 3).done == 1
    sliced(urls, out, 0).gather(0, 1)
    exchange(urls, tmp_path / "right", shards=4).run()
    assert files_of(out) == files_of(tmp_path / "right")


def test_hints_say_what_to_do_instead_of_force_with_stages(other: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use another folder, or --force, .* \(with --stage, remove them by hand\)"):
        sliced(other, tmp_path / "out", 1).scatter(0, 2)
    sliced(other, tmp_path / "new", 0).scatter(0, 2)
    for urls, seed in ((other, 1), (other[:3], 0)):
        with pytest.raises(
            UsageError, match=r"use --work for another folder, or --force.*with --stage, remove them by"
        ):
            sliced(urls, tmp_path / "new", seed).scatter(1, 2)


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
