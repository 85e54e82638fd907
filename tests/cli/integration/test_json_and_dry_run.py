"""--json and --dry-run of the verbs that copy, remove, index and convert."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter
from tarkit.formats.registry import FORMATS

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two shards and a bad one."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.tar", "b.tar"):
        with TarWriter(name, encoder=False) as writer:
            for number in range(3):
                writer.write({"__key__": f"{name[0]}{number}", "txt": b"x" * 10})
    Path("bad.tar").write_bytes(Path("a.tar").read_bytes()[:700])
    Path("empty").mkdir()
    return tmp_path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.lines]


@pytest.mark.parametrize(
    "words",
    [
        ["rm", "-r", "a.tar", "empty"],
        ["put", "a.tar", "b.tar", "new/"],
        ["get", "a.tar", "b.tar", "empty"],
        ["index", "a.tar", "b.tar", "--manifest", "m.json"],
        ["convert", "a.tar", "b.tar", "-o", "out.recordio"],
        *(["convert", "a.tar", "-o", f"out.{name}", "--to", name] for name in ("har", "parquet", "sequencefile")),
    ],
    ids=lambda words: "-".join(words[:4]).replace("/", ""),
)
def test_a_dry_run_changes_nothing(words: list[str], here: Path, run: Run) -> None:
    before = tree(here)
    result = run("tarkit", *words, "--dry-run")
    assert result.code == 0, result.stderr
    assert tree(here) == before and sorted(path.name for path in here.iterdir()) == [
        "a.tar",
        "b.tar",
        "bad.tar",
        "empty",
    ]
    assert run("tarkit", *words).code == 0
    assert tree(here) != before


def test_rm(here: Path, run: Run) -> None:
    result = run("tarkit", "rm", "--dry-run", "-r", "a.tar", "empty", "no.tar")
    assert (result.code, result.lines) == (66, ["a.tar", "empty/"])
    assert "no.tar" in result.stderr
    assert run("tarkit", "rm", "--dry-run", "empty").code == 2
    result = run("tarkit", "rm", "--json", "-r", "a.tar", "empty")
    assert objects(result) == [{"url": "a.tar", "removed": True}, {"url": "empty/", "removed": True}]
    assert sorted(tree(here)) == ["b.tar", "bad.tar"]
    assert run("tarkit", "rm", "b.tar").stdout == b""


def test_put_and_get(here: Path, run: Run) -> None:
    (here / "empty" / "b.tar").write_bytes((here / "b.tar").read_bytes())
    (here / "empty" / "a.tar").write_bytes(b"longer")
    words = ["put", "--no-clobber", "a.tar", "b.tar", "bad.tar", "empty"]
    result = run("tarkit", *words, "--dry-run")
    assert result.code == 1
    assert sorted(result.lines) == ["b.tar -> empty/b.tar (kept)", "bad.tar -> empty/bad.tar"]
    assert "tarkit put: 1 file, 700 bytes would be copied, 1 kept, 1 failed\n" in result.stderr
    found = {each["source"]: each for each in objects(run("tarkit", *words, "--dry-run", "--json"))}
    assert {name: each["state"] for name, each in found.items()} == {
        "a.tar": "failed", "b.tar": "kept", "bad.tar": "not copied",
    }  # fmt: skip
    assert "already exists with 6 bytes" in found["a.tar"]["error"]
    assert found["bad.tar"] == {
        "source": "bad.tar", "target": "empty/bad.tar", "size": 700, "state": "not copied", "error": None,
    }  # fmt: skip
    result = run("tarkit", "get", "--json", "a.tar", "no.tar", "new/")
    assert result.code == 66
    assert {each["source"]: each["state"] for each in objects(result)} == {"a.tar": "copied", "no.tar": "failed"}


def test_index(here: Path, run: Run) -> None:
    assert run("tarkit", "index", "a.tar").code == 0
    result = run("tarkit", "index", "--dry-run", "--json", "a.tar", "b.tar", "bad.tar")
    assert result.code == 65
    assert [(each["url"], each["state"], each["samples"]) for each in objects(result)] == [
        ("a.tar", "fresh", 3), ("b.tar", "made", 3), ("bad.tar", "failed", 0),
    ]  # fmt: skip
    assert "bad.tar" in objects(result)[2]["error"] and not Path("b.tar.idx").exists() and not Path("b.idx").exists()
    assert "3 shards, nothing written: made 1, renewed 0, fresh 1, failed 1" in result.stderr
    result = run("tarkit", "index", "--check", "--dry-run", "a.tar")
    assert result.code == 2 and "--check writes nothing" in result.stderr


def test_convert(here: Path, run: Run) -> None:
    result = run("tarkit", "convert", "--json", "a.tar", "b.tar", "-o", "out.tfrecord")
    assert objects(result) == [
        {
            "output": "out.tfrecord", "written": True, "records": 6, "skipped_members": {}, "missing_fields": {},
            "duplicate_fields_dropped": 0, "repeated_keys": 0, "damage": [],
        }
    ]  # fmt: skip
    result = run("tarkit", "convert", "--json", "--dry-run", "a.tar", "-o", "o.parquet")
    assert (objects(result)[0]["written"], result.stderr) == (False, "tarkit convert: 3 records, not written\n")
    assert run("tarkit", "convert", "--dry-run", "bad.tar", "-o", "o.recordio").code == 65
    for words, why in (
        (["--json", "-o", "-", "--to", "recordio"], "--json and the output would both go to standard output"),
        (["--dry-run", "--verify", "-o", "o.recordio"], "--dry-run writes none"),
    ):
        result = run("tarkit", "convert", "a.tar", *words)
        assert result.code == 2 and why in result.stderr
    assert set(FORMATS) == {"har", "parquet", "recordio", "sequencefile", "tfrecord"}
