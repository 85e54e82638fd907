"""After an error that needs other options, an exchange leaves nothing that refuses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from exchangeruns import exchange, keys_of, numbered_inputs, write_shard

from tarkit.errors import TarkitError
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.join import Join
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.slices import ExchangeSlice
from tarkit.exchange.sort import Sort
from tarkit.exchange.tableside import TableColumns
from tarkit.runs.status import progress_of


@pytest.mark.parametrize("parallel", [1, 2])
def test_rekey_after_repeated_keys(tmp_path: Path, parallel: int) -> None:
    urls = [write_shard(tmp_path / f"{name}.tar", [("same", {name: b"1"})]) for name in "ab"]
    with pytest.raises(TarkitError, match=r"--rekey puts") as raised:
        exchange(urls, tmp_path / "out", slices=2, shards=1, parallel=parallel).run()
    assert raised.value.exit_code == 65
    assert exchange(urls, tmp_path / "out", shards=1, rekey=True).run().counts.out == 2


def test_fewer_shards_after_too_many(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 1])
    with pytest.raises(TarkitError, match="3 samples cannot fill 4 shards"):
        exchange(urls, tmp_path / "out", slices=2, shards=4).run()
    assert exchange(urls, tmp_path / "out", shards=3).run().outputs == 3


def test_another_value_after_one_that_no_sample_has(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 1])
    with pytest.raises(TarkitError, match="3 of 3 samples failed"):
        exchange(urls, tmp_path / "out", Sort("nope"), shards=1).run()
    assert exchange(urls, tmp_path / "out", Sort("key"), shards=1).run().counts.out == 3


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_side_after_a_conflict(tmp_path: Path, parallel: int) -> None:
    sides = [
        write_shard(tmp_path / f"{name}.tar", [(f"k{each}", {"txt": name.encode()}) for each in range(4)])
        for name in "lr"
    ]

    def join(on_conflict: str) -> Exchange:
        step = Join(sides[:1], sides[1:], on_conflict=on_conflict)
        return exchange(sides, tmp_path / "out", step, shards=2, parallel=parallel)

    with pytest.raises(TarkitError, match="--on-conflict"):
        join("error").run()
    for path in (tmp_path / "out").glob("shard-*"):  # of a task that had begun
        path.unlink()
    assert join("right").run().counts.out == 4


def test_another_column_after_one_that_is_missing(tmp_path: Path) -> None:
    left = write_shard(tmp_path / "l.tar", [("a", {"txt": b"1"})])
    (tmp_path / "r.csv").write_text("id,n\na,5\n")

    def join(key: str) -> Exchange:
        urls = [left, str(tmp_path / "r.csv")]
        return exchange(urls, tmp_path / "out", Join(urls[:1], urls[1:], table=TableColumns(key)), shards=1)

    with pytest.raises(TarkitError, match="no column 'nope'"):
        join("nope").run()
    assert join("id").run().counts.out == 1


def test_a_slice_that_is_scattered_is_kept(tmp_path: Path) -> None:
    """Only the slice with the error is made again."""
    urls = numbered_inputs(tmp_path / "in", [2, 1])
    data = Path(urls[1]).read_bytes()
    Path(urls[1]).write_bytes(data[:700])
    with pytest.raises(TarkitError, match=r"tarkit cat --on-damage skip.*run the same command again"):
        exchange(urls, tmp_path / "out", slices=2, shards=1).run()
    assert "run-000000.tar" in os.listdir(tmp_path / "out" / "_exchange")
    Path(urls[1]).write_bytes(data)
    assert keys_of(tmp_path / "out") == []
    assert exchange(urls, tmp_path / "out", shards=1).run().counts.out == 3


def test_an_option_within_a_table_is_named(tmp_path: Path) -> None:
    left = write_shard(tmp_path / "l.tar", [("a", {"txt": b"1"})])
    (tmp_path / "r.csv").write_text("id,n\na,5\n")
    urls = [left, str(tmp_path / "r.csv")]
    common: dict[str, Any] = {"settings": ExchangeSettings(shards=1), "work": str(tmp_path / "work")}
    for key in ("id", "n"):
        step = Join(urls[:1], urls[1:], table=TableColumns(key))
        found = ExchangeSlice(step, urls, str(tmp_path / "out"), **common)
        if key == "id":
            found.scatter(0, 2)
        else:
            with pytest.raises(TarkitError, match=r"\(key: 'id', now 'n'\)"):
                found.scatter(0, 2)


def test_the_folder_of_a_scatter_lists_missing_slices(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 1])
    settings = ExchangeSettings(shards=1)
    work = str(tmp_path / "work")
    ExchangeSlice(Shuffle(0), urls, str(tmp_path / "out"), settings, work=work).scatter(0, 2)
    found = progress_of(work, of_runs=True, compare_files=True)
    assert (found.missing, found.not_compared, len(found.done)) == (["run-000001.tar"], {}, 1)
