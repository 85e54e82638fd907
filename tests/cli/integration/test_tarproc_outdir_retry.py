"""--retry-failed over a folder of shards: in the end the bytes of a run in which nothing failed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarproc_support import contents, numbered, tar_bytes

Run = Callable[..., Any]
BATCH = "for d in */; do {each}; done"


@pytest.fixture
def run(spawn: Run) -> Run:
    """Not in this process, since each run forks the shells of its commands from it."""
    return spawn


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two shards of ten samples, k0 to k9; none fails in the first one."""
    folder = tmp_path / "in"
    folder.mkdir()
    paths = [folder / "a.tar", folder / "b.tar"]
    for path in paths:
        path.write_bytes(tar_bytes([(f"{path.stem}{key}", fields) for key, fields in numbered(10)]))
    return paths


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def failing(keys: str, tmp_path: Path, rest: str = "") -> str:
    """A command that fails for these samples until the file ``mended`` is there."""
    return f"case $(cat __key__) in {keys}) [ -e {tmp_path}/mended ] || exit 4;; esac; {rest or 'true'}"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".json")}


def record(out: Path, name: str = "b.tar") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.done.json").read_bytes())
    return found


POSITIONS = {
    "both ends": "bk0|bk9",
    "neighbours": "bk3|bk4|bk5",
    "every other": "bk[02468]",
}


@pytest.mark.parametrize("keys", POSITIONS.values(), ids=POSITIONS)
def test_positions(keys: str, run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    check(run, shards, out, tmp_path, ["-p", "3", "-c", failing(keys, tmp_path)])


MEANS = {
    "failed and their neighbours become nothing": ["-c", "case $(cat __key__) in *k[02346]) rm sample.*;; esac"],
    "subdirs": ["--subdirs", "-c", "mkdir x y; cp sample.cls x; cp sample.dat y"],
    "log": ["--add-log", "log", "-c", "cat __key__"],
    "source": ["-c", "cp __source__ sample.source"],
    "count": ["--count", "9", "-c", "true"],
    "renamed": ["-c", "echo x$(cat __key__) > key; mv key __key__"],
}


@pytest.mark.parametrize("means", MEANS.values(), ids=MEANS)
def test_means(means: list[str], run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    command = [*means[:-1], failing("bk2|bk4|bk8", tmp_path, means[-1])]
    check(run, shards, out, tmp_path, command)


def test_batches(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    each = f"cat $d/__key__; case $(cat $d/__key__) in bk2|bk9) [ -e {tmp_path}/mended ] || exit 4;; esac"
    check(run, shards, out, tmp_path, ["--batch", "3", "--add-log", "log", "-c", BATCH.format(each=each)], failed=4)


def check(
    run: Run, shards: list[Path], out: Path, tmp_path: Path, command: list[str], failed: int | None = None
) -> None:
    """Fail, be mended, retry: as if it had never failed."""
    assert run("tarproc", "-O", out, *command, *shards).code == 3
    assert len(record(out)["failed"]) == (failed or record(out)["samples"]["failed"]) > 0
    before = (out / "a.tar").stat().st_ino
    (tmp_path / "mended").touch()
    result = run("tarproc", "-O", out, *command, "--retry-failed", out)
    assert result.code == 0, result.stderr
    assert (out / "a.tar").stat().st_ino == before
    assert run("tarproc", "-O", tmp_path / "never", *command, *shards).code == 0
    assert files(out) == files(tmp_path / "never")
    mine, theirs = record(out), record(tmp_path / "never")
    assert len(mine.pop("retried")) == 1 and theirs.pop("retried") == []
    assert mine.pop("files") == [] and theirs.pop("files") != [], "the file was not there yet, and is named"
    assert mine == theirs
    assert "done before 2" in run("tarproc", "-O", out, *command, *shards).stderr
    assert "done 0, done before 2" in run("tarproc", "-O", out, *command, "--retry-failed", out).stderr


def test_failed_samples_are_kept_and_retried_under_another_key_rule(
    run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    """Their reports come back in no field, and as no sample."""
    for path in shards:
        path.write_bytes(tar_bytes([(f"{path.stem}_0.{key[1:]}", fields) for key, fields in numbered(10)]))
    command = ["--key-rule", "last-dot", "-c", failing("b_0.[13]", tmp_path)]
    check(run, shards, out, tmp_path, command, failed=2)
    (tmp_path / "mended").unlink()
    assert run("tarproc", "-O", tmp_path / "more", *command, shards[1], shards[0]).code == 3
    kept = contents(tmp_path / "more" / "b.tar.failed.tar")
    assert sorted(kept) == [f"b_0.{number}.{field}" for number in (1, 3) for field in ("__error__", "cls", "dat")]
    assert kept["b_0.1.__error__"] == b"exit code 4\n"


def test_a_sample_that_cannot_be_kept_fails_its_shard_and_no_other(
    run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    """By this rule no name of a report is passed over."""
    command = ["--key-rule", r"(.+)\.(cls|dat|.).*", "-c", failing("ak3", tmp_path)]
    result = run("tarproc", "-O", out, *command, *shards)
    assert result.code == 1
    assert "a.tar: failed: " in result.stderr and "'ak3.__error__' would be read back as" in result.stderr
    assert sorted(files(out)) == ["b.tar"]


def test_some_fail_again(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    command = ["-c", f"[ -e {tmp_path}/$(cat __key__) ]"]
    for number in range(10):
        (tmp_path / f"ak{number}").touch()
    (tmp_path / "bk5").touch()
    assert run("tarproc", "-O", out, *command, *shards).code == 3
    for mended in ("bk0", "bk9", "bk4 bk6", "bk1 bk2 bk3 bk7"):
        for key in mended.split():
            (tmp_path / key).touch()
        assert run("tarproc", "-O", out, *command, "--retry-failed", out).code == 3
        inside = {name.partition(".")[0] for name in contents(out / "b.tar")}
        aside = {name.partition(".")[0] for name in contents(out / "b.tar.failed.tar")}
        assert {key for key in os.listdir(tmp_path) if key.startswith("bk")} == inside
        assert inside | aside == {f"bk{number}" for number in range(10)} and not inside & aside
    (tmp_path / "bk8").touch()
    assert run("tarproc", "-O", out, *command, "--retry-failed", out).code == 0
    assert run("tarproc", "-O", tmp_path / "never", *command, *shards).code == 0
    assert files(out) == files(tmp_path / "never")
    assert len(record(out)["retried"]) == 5


def test_another_command(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    command = ["-c", failing("bk4", tmp_path)]
    assert run("tarproc", "-O", out, *command, *shards).code == 3
    first = record(out)
    assert run("tarproc", "-O", out, "-c", "echo mended > sample.cls", "--retry-failed", out).code == 0
    assert contents(out / "b.tar")["bk4.cls"] == b"mended\n"
    assert contents(out / "b.tar")["bk5.cls"] == b"5"
    assert record(out)["work"] == first["work"], "most samples are of the first command"
    assert len(record(out)["retried"]) == 1 and record(out)["retried"] != [first["work"]]
    assert "done before 2" in run("tarproc", "-O", out, *command, *shards).stderr


def test_a_limit_of_samples_loses_none_of_the_failed(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    assert run("tarproc", "-O", out, "-c", failing("bk*[02468]", tmp_path), *shards).code == 3
    assert run("tarproc", "-O", out, "--count", "1", "-c", "true", "--retry-failed", out).code == 0
    assert len(contents(out / "b.tar")) == 20


def test_too_many_errors_change_nothing(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    assert run("tarproc", "-O", out, "-c", failing("bk[02468]", tmp_path), *shards).code == 3
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run("tarproc", "-O", out, "--max-errors", "2", "-c", "false", "--retry-failed", out).code == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("change", ["gone", "other", "fewer", "more"])
def test_failed_samples_that_are_not_those_of_the_record(
    change: str, run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    assert run("tarproc", "-O", out, "-c", failing("bk2|bk5", tmp_path), *shards).code == 3
    failed = out / "b.tar.failed.tar"
    keys = {"other": ["bk2", "bk6"], "fewer": ["bk2"], "more": ["bk2", "bk5", "bk6"]}.get(change)
    failed.unlink()
    if keys is not None:
        failed.write_bytes(tar_bytes([(key, {"cls": b"1"}) for key in keys]))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    result = run("tarproc", "-O", out, "-c", "true", "--retry-failed", out)
    assert result.code == (66 if change == "gone" else 65), result.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_samples_that_were_skipped_can_not_be_retried(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    assert run("tarproc", "-O", out, "-e", "skip", "-c", failing("bk2", tmp_path), *shards).code == 3
    result = run("tarproc", "-O", out, "-c", "true", "--retry-failed", out)
    assert result.code == 66
    assert "were not kept (--errors skip)" in result.stderr


def test_shards_that_failed_as_a_whole_are_told(run: Run, shards: list[Path], out: Path) -> None:
    shards[0].write_bytes(b"no tar")
    assert run("tarproc", "-O", out, "-c", "true", *shards).code == 65
    (out / "c.tar.done.json").write_text("damaged")
    result = run("tarproc", "-O", out, "-c", "true", "--retry-failed", out)
    assert result.code == 65
    assert "a.tar: failed:" in result.stderr and "run it anew, without --retry-failed" in result.stderr
    assert "c.tar: failed:" in result.stderr


def test_folders_with_patterns_in_their_names(run: Run, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "o[1]{a"
    assert run("tarproc", "-O", out, "-c", failing("bk2", tmp_path), *shards).code == 3
    assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", out).code == 0


def test_misuse(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", tmp_path).code == 2
    assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", out).code == 66
    out.mkdir()
    result = run("tarproc", "-O", out, "-c", "true", "--retry-failed", out)
    assert result.code == 66 and "holds no done record" in result.stderr
    assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", out, shards[0]).code == 2
    assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", out, "--slice", "0/2").code == 2
