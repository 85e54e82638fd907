"""tarkit salvage: one shard, a series, a folder, standard streams, exit codes."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted import SPAN, flipped, plain_samples, shard

from tarkit import read_samples

Run = Callable[..., Any]
LINE = "a.tar: offset 4096 to 5120, between key a-0 and key a-3: damaged header: its checksum does not match"


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.chdir(tmp_path)
    data = flipped(shard(plain_samples("a", 6)), 2 * SPAN)
    Path("a.tar").write_bytes(data)
    return data


def keys(*names: str) -> list[str]:
    return [sample["__key__"] for sample in read_samples(names)]


def test_one_shard(run: Run, damaged: bytes) -> None:
    result = run("tarkit", "salvage", "a.tar", "-o", "good.tar")
    assert (result.code, result.lines) == (3, [LINE])
    assert result.stderr.startswith("tarkit salvage: 4 samples, 80 bytes of content; skipped members: ")
    assert keys("good.tar") == ["a-0", "a-3", "a-4", "a-5"]
    with tarfile.open("good.tar") as tar:
        assert [name.rpartition(".")[0] for name in tar.getnames()][::2] == keys("good.tar")
    again = run("tarkit", "salvage", "good.tar", "-o", "better.tar")
    assert (again.code, again.stdout) == (0, b"")
    assert again.stderr == "tarkit salvage: 4 samples, 80 bytes of content\n"
    assert Path("good.tar").read_bytes() == Path("better.tar").read_bytes()


def test_a_series_and_json(run: Run, damaged: bytes) -> None:
    result = run("tarkit", "salvage", "a.tar", "-o", "good-%d.tar", "--maxcount", "3", "--json")
    assert result.code == 3
    loss, summary = map(json.loads, result.lines)
    assert loss == {
        "shard": "a.tar", "start": 4096, "end": 5120, "reason": "damaged header: its checksum does not match",
        "samples": 2, "after": "a-0", "before": "a-3",
    }  # fmt: skip
    assert summary["samples"] == 4 and summary["shards"] == ["good-0.tar", "good-1.tar"]
    assert keys("good-0.tar", "good-1.tar") == ["a-0", "a-3", "a-4", "a-5"]


def test_a_folder(run: Run, damaged: bytes) -> None:
    Path("b.tar").write_bytes(b"<html>")
    os.mkdir("good")
    result = run("tarkit", "salvage", "a.tar", "b.tar", "-O", "good")
    assert result.code == 3 and result.lines[0] == LINE
    assert result.lines[1].startswith("b.tar: offset 0 to the end, between the beginning and the end: not a tar: ")
    assert os.listdir("good") == ["a.tar"] and len(keys("good/a.tar")) == 4
    assert result.stderr.startswith("tarkit salvage: 4 samples, 80 bytes of content; skipped members: ")
    *_, summary = run("tarkit", "salvage", "a.tar", "b.tar", "-O", "good", "--json", "-q").lines
    assert json.loads(summary) == {"samples": 4, "bytes": 80, "shards": ["good/a.tar"], "removed": []}


def test_standard_streams(run: Run, damaged: bytes) -> None:
    result = run("tarkit", "salvage", "-", "-o", "-", stdin=damaged)
    assert result.code == 3 and result.stderr.splitlines()[0] == f"tarkit salvage: {LINE.replace('a.tar', '-')}"
    Path("good.tar").write_bytes(result.stdout)
    assert keys("good.tar") == ["a-0", "a-3", "a-4", "a-5"]


def test_dry_run_writes_nothing(run: Run, damaged: bytes) -> None:
    os.mkdir("good")
    assert run("tarkit", "salvage", "a.tar", "-o", "good.tar", "--dry-run").code == 3
    assert run("tarkit", "salvage", "a.tar", "-O", "good", "--dry-run").code == 3
    assert os.listdir(".") == ["a.tar", "good"] or os.listdir(".") == ["good", "a.tar"]
    assert os.listdir("good") == []


def test_usage_errors_and_missing_input(run: Run, damaged: bytes) -> None:
    for words, code, message in (
        (["a.tar"], 2, "name an output"),
        (["a.tar", "-o", "b.tar", "-O", "x"], 2, "name an output"),
        (["a.tar", "-o", "a.tar"], 2, "a.tar"),
        (["a.tar", "-o", "-", "--json"], 2, "--json"),
        (["a.tar", "-O", "x", "--maxcount", "3"], 2, "--maxcount"),
        (["no.tar", "-o", "b.tar"], 66, "no.tar"),
        (["no.tar", "-O", "x"], 66, "no.tar"),
    ):
        result = run("tarkit", "salvage", *words)
        assert (result.code, result.stdout) == (code, b"") and message in result.stderr, words
    assert os.listdir(".") == ["a.tar"]


def test_a_series_never_replaces_its_inputs(run: Run, damaged: bytes) -> None:
    Path("p-0.tar").write_bytes(damaged)
    Path("p-1.tar").write_bytes(shard(plain_samples("b")))
    result = run("tarkit", "salvage", "p-*.tar", "-o", "p-%d.tar", "--force")
    assert (result.code, "is an input" in result.stderr) == (2, True)
    result = run("tarkit", "salvage", "p-0.tar", "p-1.tar", "-O", ".")
    assert (result.code, "would be replaced by its own output" in result.stderr) == (2, True)
    assert Path("p-0.tar").read_bytes() == damaged


def test_nothing_is_written_without_a_whole_sample(run: Run, damaged: bytes) -> None:
    Path("b.tar").write_bytes(b"<html>")
    result = run("tarkit", "salvage", "b.tar", "-o", "good.tar")
    assert result.code == 3 and not Path("good.tar").exists()
    assert result.stderr == "tarkit salvage: 0 samples in 0 shards, 0 bytes of content\n"
