"""``tarkit status`` of an exchange: its stages, from the work folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exchangeruns import exchange, numbered_inputs
from tarkit.cli.tarkit import main

from tarkit.errors import TarkitError, TemporaryStreamError
from tarkit.exchange.dedupslices import DedupSlice
from tarkit.exchange.digests import Digests
from tarkit.exchange.gather import Gather
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.slices import ExchangeSlice
from tarkit.exchange.workstatus import work_status


def status(capfd: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, list[str]]:
    code = main(["status", str(folder), *words])
    return code, capfd.readouterr().out.splitlines()


def test_of_a_scatter_that_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    urls = numbered_inputs(tmp_path / "in", [2] * 9)
    out, work = tmp_path / "out", tmp_path / "work"
    for folder, named, words in ((out, out / "_exchange", {}), (work, work, {"work": str(work)})):
        run = ExchangeSlice(Shuffle(0), urls, str(out), ExchangeSettings(shards=2), **words)
        run.scatter(0, 9)
        run.scatter(4, 9)
        code, lines = status(capfd, folder)
        assert code == 1
        assert f"shuffle in {named}: scatter 2 of 9 slices done (missing 1, 2, 3, 5, 6, …)" in lines
        assert not any("what was asked is unknown" in line for line in lines)


def test_of_a_scatter_that_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    good = Path(urls[1]).read_bytes()
    Path(urls[1]).write_bytes(good[:3000])
    with pytest.raises(TarkitError):
        exchange(urls, tmp_path / "out", slices=3).run()
    code, lines = status(capfd, tmp_path / "out")
    failed, found, shards = lines
    assert code == 1
    assert failed.startswith("failed slice 1 of scatter: ") and "in-001.tar" in failed
    assert found.endswith("_exchange: scatter 2 of 3 slices done (missing 1)")
    assert shards.startswith("shards: done 0, missing unknown")
    _, (line,) = status(capfd, tmp_path / "out", "--json")
    assert json.loads(line)["exchange"]["stages"]["scatter"]["missing"] == [1]
    # Of the replaced input, it has not failed yet.
    Path(urls[1]).write_bytes(good)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tarkit.exchange.exchange.Scatter", None)
        with pytest.raises(TypeError):
            exchange(urls, tmp_path / "out").run()
    state = work_status(str(tmp_path / "out"))
    assert state is not None and state.stages["scatter"] == ([1], {})


def test_of_a_gather(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4])
    real = Gather.run
    seen: list[list[str]] = []

    def run(self: Gather, numbers: Any) -> Any:
        for record in real(self, numbers):
            seen.append(status(capfd, tmp_path / "out")[1])
            yield record

    monkeypatch.setattr(Gather, "run", run)
    exchange(urls, tmp_path / "out", slices=2).run()
    lines = seen[0]
    assert f"shuffle in {tmp_path}/out/_exchange: scatter 2 of 2 slices done" in lines
    assert "missing shard-000002.tar" in lines
    code, lines = status(capfd, tmp_path / "out")
    assert code == 0 and lines[0].startswith("shards: done 3, ")


def test_of_a_dedup(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 2])
    run = DedupSlice(Digests(("cls",)), urls, str(tmp_path / "out"))
    for number in range(2):
        run.scatter(number, 2)
    found = work_status(str(tmp_path / "out"))
    assert found is not None and found.stages == {"scatter": ([], {})}
    run.match(0, 2)
    with pytest.raises(TemporaryStreamError, match=r"1 part of 2 not matched yet \(1\)"):
        run.gather(0, 1)


def test_before_any_slice_and_in_folders_of_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    urls = numbered_inputs(tmp_path / "in", [2, 2])
    exchange(urls, tmp_path / "out", slices=2)
    assert status(capfd, tmp_path / "out")[1][0] == f"shuffle in {tmp_path}/out/_exchange: no slice has begun"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "plan.json").write_text("{}")
    assert work_status(str(tmp_path / "other")) is None
    assert main(["status", str(tmp_path / "other")]) == 66
    assert "--work DIR" in capfd.readouterr().err
