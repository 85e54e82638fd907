"""Shards that earlier versions made, and runs over them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import warmprogram

import tarkit

STORED = Path(__file__).resolve().parents[1] / "data"
CASES: dict[str, list[str]] = json.loads((STORED / "cases.json").read_text(encoding="utf-8"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The stored runs, their input being as old as when they were made."""
    folder = tmp_path / "runs"
    shutil.copytree(STORED, folder)
    os.utime(folder / "in.tar", (10**9, 10**9))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_shards_of_an_earlier_version_are_done(stored: Path, name: str) -> None:
    record = json.loads((stored / name / "in.tar.done.json").read_text(encoding="utf-8"))
    before = {path.name: path.read_bytes() for path in (stored / name).iterdir()}
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    # Then, the last status was the only one that counted.
    flags = ["--shell-flags", ""] if "-c" in CASES[name] else []
    for folder, done in ((name, "done 0, done before 1, failed 0"), ("new", "done 1, done before 0, failed 0")):
        words = ["tarproc", *CASES[name], *flags, "-O", folder, "in.tar"]
        result = warmprogram.run(words, stored, environment, None)
        assert result.returncode == record["exit_code"], result.stderr
        assert done in result.stderr.decode()
    # Nothing is written anew, and what is made anew is the same, byte for byte; the record has
    # three fields more.
    assert {path.name: path.read_bytes() for path in (stored / name).glob("[!.]*")} == before
    made = {path.name: path.read_bytes() for path in (stored / "new").glob("[!.]*")}
    assert json.loads(made.pop("in.tar.done.json")) == {
        **json.loads(before.pop("in.tar.done.json")),
        **{"files": [], "emptied_fields": 0, "pending": None},
    }
    assert made == before


def test_shards_made_when_only_the_last_status_counted_are_made_again(stored: Path) -> None:
    for made in (1, 0):
        counts = tarkit.process(str(stored / "in.tar"), outdir=stored / "command", command=CASES["command"][1])
        assert (counts.shards_done, counts.shards_before) == (made, 1 - made)
