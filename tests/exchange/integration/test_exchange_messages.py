"""What the verbs that need all samples at once print, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from exchangeruns import write_shard
from tarkit.cli.tarkit import main


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "in.tar", [("a", {"txt": b"1"}), ("b", {"txt": b"x"}), ("c", {"cls": b"1"})])
    return "in.tar"


@pytest.mark.parametrize(
    ("words", "failed"), [(["sort", "--by", "txt:number", "--shards", "1"], 2), (["dedup", "--by", "txt"], 1)]
)
def test_where_failed_samples_are(
    shard: str, words: list[str], failed: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([words[0], shard, "-O", "out", "-p", "1", *words[1:]]) == 3
    assert f"failed {failed}; failed samples are in out/*.failed.tar" in capsys.readouterr().err
    assert len([*(tmp_path / "out").glob("*.failed.tar")]) == 1


@pytest.mark.parametrize(("more", "code"), [([], 3), (["--allow-empty"], 0)])
def test_a_reduce_without_results(shard: str, more: list[str], code: int) -> None:
    assert main(["reduce", shard, "-O", "out", "--by", "key", "-c", "true", "-p", "1", *more]) == code


def test_a_reduce_of_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "in.tar", [])
    assert main(["reduce", "in.tar", "-O", "out", "--by", "key", "-c", "true", "-p", "1"]) == 0


@pytest.mark.parametrize("verb", ["shuffle", "sort", "join", "reduce", "dedup"])
def test_no_help_offers_standard_input(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    main([verb, "--help"])
    assert "or dataset.json (a manifest)." in " ".join(capfd.readouterr().out.split())


def test_a_dry_run_names_the_unit_of_memory(shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shuffle", shard, "-O", "out", "--dry-run", "--mem", "100M"]) == 0
    assert " bytes of memory for samples; in a store " in capsys.readouterr().err


def test_shards_of_one_name_are_to_be_renamed(shard: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / shard).write_bytes((tmp_path / shard).read_bytes())
    assert main(["dedup", shard, f"more/{shard}", "-O", "out"]) == 2
    assert "rename one, or use separate runs" in capsys.readouterr().err
