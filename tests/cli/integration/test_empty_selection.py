"""Verbs that write the selected samples: none selected, and --dry-run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter

Run = Callable[..., Any]

VERBS = [
    ["cat", "a.tar", "-o", "o.tar"],
    ["select", "a.tar", "-o", "o.tar"],
    ["select", "a.tar", "-O", "out"],
    ["split", "a.tar", "-o", "o-%d.tar"],
    ["sample", "a.tar", "--fraction", "1", "-o", "o.tar"],
    ["mix", "a.tar", "b.tar", "--weights", "1,1", "-o", "o.tar"],
    ["pick", "a1", "--from", "a.tar", "-o", "o.tar"],
    ["pick", "a1", "--from", "a.tar", "-O", "out"],
    ["export", "a.tar", "--to", "folder", "-o", "out"],
    ["export", "a.tar", "--to", "csv", "-o", "o.csv"],
    ["export", "a.tar", "--to", "jsonl", "--files", "media", "-o", "o.jsonl"],
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        with TarWriter(f"{name}.tar") as writer:
            for number in range(3):
                writer.write({"__key__": f"{name}{number}", "txt": name, "bin": b"x"})
    return tmp_path


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_selection_of_no_sample_is_not_a_success(words: list[str], here: Path, run: Run) -> None:
    result = run("tarkit", *words, "--match", "^nothing", "-q")
    assert result.code == 3 and "no sample is selected; samples dropped by --match" in result.stderr
    result = run("tarkit", *words, "--match", "^nothing", "-q", "--allow-empty", *["--force"] * ("out" in words))
    assert (result.code, result.stderr) == (0, "")


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_dry_run_says_so_and_writes_nothing(words: list[str], here: Path, run: Run) -> None:
    before = sorted(os.listdir(here))
    result = run("tarkit", *words, "--dry-run")
    assert result.code == 0 and "nothing was written (--dry-run)" in result.stderr
    assert sorted(os.listdir(here)) == before
    assert "nothing was written" not in run("tarkit", *words).stderr
