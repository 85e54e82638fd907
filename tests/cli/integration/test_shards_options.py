"""The options that all verbs have that write samples: --json and --dry-run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text("text")
    return folder


def test_json_is_one_object(run: Run, files: Path, tmp_path: Path) -> None:
    pattern = tmp_path / "o-%d.tar"
    result = run("tarkit", "create", "-C", files, ".", "-o", pattern, "--maxcount", "3", "--json")
    names = [str(tmp_path / f"o-{number}.tar") for number in range(2)]
    assert (result.code, json.loads(result.stdout)) == (
        0,
        {"samples": 5, "bytes": 20, "shards": names, "removed": []},
    )


@pytest.mark.parametrize("name", ["o.tar", "o-%d.tar"])
def test_dry_run_writes_nothing(name: str, run: Run, files: Path, tmp_path: Path) -> None:
    result = run("tarkit", "create", "-C", files, ".", "-o", tmp_path / name, "--dry-run", "--index")
    assert result.code == 0
    assert "5 samples" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_dry_run_keeps_shards_of_an_earlier_run(run: Run, files: Path, tmp_path: Path) -> None:
    pattern = tmp_path / "o-%d.tar"
    assert run("tarkit", "create", "-C", files, ".", "-o", pattern, "--maxcount", "1").code == 0
    result = run("tarkit", "create", "-C", files, ".", "-o", pattern, "--dry-run", "--force")
    assert (result.code, result.lines) == (0, [str(tmp_path / "o-0.tar")])
    assert f"would remove 4 shards of an earlier run, from {tmp_path / 'o-1.tar'} on" in result.stderr
    assert len(list(tmp_path.glob("o-*.tar"))) == 5
