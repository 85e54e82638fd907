"""tarkit status: what is known of a folder of shards from its records alone."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from s3_client import s3_bucket
from tarproc_support import numbered, tar_bytes

Run = Callable[..., Any]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "in"
    folder.mkdir()
    paths = [folder / f"s{number}.tar" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(tar_bytes([(f"s{number}{key}", fields) for key, fields in numbered(3)]))
    return paths


@pytest.fixture
def out(tmp_path: Path, run: Run, shards: list[Path]) -> Path:
    folder = tmp_path / "out"
    assert run("tarproc", "-O", folder, "-c", "[ $(cat __key__) != s0k1 ] || rm sample.*", *shards).code == 0
    return folder


def test_complete(run: Run, out: Path, shards: list[Path]) -> None:
    size = sum(path.stat().st_size for path in out.glob("*.tar"))
    counts = "samples of those done: in 12 = out 11 + filtered 1 + failed 0"
    line = f"shards: done 4, missing 0, stale 0, failed 0; {counts}; {size} bytes\n"
    for inputs in ([], shards):
        assert run("tarkit", "status", out, *inputs) == (0, line.encode(), "")


def test_no_sample_of_all_shards_came_out(run: Run, out: Path, shards: list[Path]) -> None:
    empty = out.with_name("empty")
    for number in range(2):
        assert run("tarproc", "-O", empty, "-c", "rm sample.*", "--slice", f"{number}/2", *shards).code == 0
    result = run("tarkit", "status", empty)
    line = "empty: 12 samples came in, and none came out; pass --allow-empty if that is meant"
    assert (result.code, result.lines[0]) == (3, line)
    assert json.loads(run("tarkit", "status", empty, "--json").stdout)["empty"] is True
    assert run("tarkit", "status", empty, "--allow-empty").code == 0
    (empty / "s0.tar").unlink()
    assert run("tarkit", "status", empty).code == 1


def test_fields_that_became_empty_are_counted(run: Run, out: Path, shards: list[Path]) -> None:
    cut = out.with_name("cut")
    assert run("tarproc", "-O", cut, "-c", ": > sample.dat", *shards[:2]).code == 0
    result = run("tarkit", "status", cut)
    assert result.code == 0 and result.lines[0].endswith("; fields of 0 bytes that had content, or are new: 6")


def test_it_all(run: Run, out: Path, shards: list[Path]) -> None:
    shards[0].write_bytes(tar_bytes(numbered(50)))
    (out / "s1.tar").unlink()
    os.truncate(out / "s2.tar", 5)
    (out / "s3.tar.done.json").unlink()
    assert run("tarkit", "status", out).lines == [
        "missing s3.tar",
        "stale s1.tar: the output is gone",
        "stale s2.tar: the output has another size",
        "shards: done 1, missing 1, stale 2, failed 0; "
        "samples of those done: in 3 = out 2 + filtered 1 + failed 0; 10240 bytes",
    ]
    result = run("tarkit", "status", out, *shards)
    assert result.code == 1
    assert result.lines[:3] == [
        "missing s3.tar",
        "stale s0.tar: the input changed",
        "stale s1.tar: the output is gone",
    ]
    shards[0].unlink()
    assert "stale s0.tar: the input is gone" in run("tarkit", "status", out, *shards).lines
    assert len(run("tarkit", "status", out, shards[3]).lines) == 2, "of what was asked for"


def test_json(run: Run, out: Path, shards: list[Path]) -> None:
    (out / "s1.tar").unlink()
    result = run("tarkit", "status", out, *shards, shards[0].with_name("new.tar"), "--json")
    assert result.code == 1
    assert json.loads(result.stdout) == {
        "outdir": str(out),
        "exit_code": 1,
        "done": 3,
        "missing": ["new.tar"],
        "stale": {"s1.tar": "the output is gone"},
        "failed": {},
        "set_aside": {},
        "damaged": [],
        "empty": False,
        "emptied_fields": 0,
        "runs": [],
        "not_compared": {},
        "samples": {"in": 9, "added": 0, "out": 8, "filtered": 1, "failed": 0, "ignored": 0},
        "bytes": 30720,
        "exchange": None,
    }


def test_what_a_killed_run_has_not_made_is_missing(run: Run, out: Path, shards: list[Path]) -> None:
    """The inputs need not be named: the run wrote them down when it began."""
    for name in ("s1", "s2", "s3"):
        (out / f"{name}.tar.done.json").unlink()
    (record,) = out.glob(".tarkit-run-*.json")
    result = run("tarkit", "status", out)
    assert result.code == 1 and result.lines[:3] == ["missing s1.tar", "missing s2.tar", "missing s3.tar"]
    assert "done 1, missing 3" in result.lines[-1]
    found = json.loads(run("tarkit", "status", out, "--json").stdout)
    assert found["runs"] == [{"record": record.name, "asked": 4, "missing": 3}]
    assert found["missing"] == ["s1.tar", "s2.tar", "s3.tar"]


def test_a_folder_without_a_record_of_a_run(run: Run, out: Path, shards: list[Path]) -> None:
    """As earlier versions left it."""
    next(out.glob(".tarkit-run-*.json")).unlink()
    result = run("tarkit", "status", out)
    assert result.code == 0
    assert result.lines[0].startswith("what was asked is unknown: the folder has no record of a run; name its inputs")
    assert result.lines[1].startswith("shards: done 4, missing unknown, stale 0")
    assert json.loads(run("tarkit", "status", out, "--json").stdout)["missing"] is None
    assert "unknown" not in run("tarkit", "status", out, *shards).lines[-1]


def test_several_runs_and_files_that_are_not_compared(run: Run, out: Path, shards: list[Path], tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("true")
    shards[0].rename(shards[0].with_name("t.tar"))
    assert run("tarproc", "-O", out, "-c", f"sh {script}", shards[0].with_name("t.tar")).code == 0
    script.unlink()
    (out / "s3.tar.done.json").unlink()
    lines = run("tarkit", "status", out).lines
    runs = [line for line in lines if line.startswith("run .tarkit-run-")]
    assert sorted(line.partition(": ")[2] for line in runs) == [
        "1 shard, 0 missing", "4 shards, 1 missing",
    ]  # fmt: skip
    reason = f"{script} is not on this machine"
    assert f"files that the work uses are not compared for 1 shard: {reason}" in lines


def test_set_aside_and_damaged(run: Run, tmp_path: Path, shards: list[Path]) -> None:
    content = bytearray(shards[1].read_bytes())
    content[1024:1034] = b"\xff" * 10
    shards[1].write_bytes(content)
    out = tmp_path / "out"
    command = ["-c", "case $(cat __key__) in s2k[01]) exit 1;; esac", "--on-damage", "skip"]
    assert run("tarproc", "-O", out, *command, *shards).code == 3
    result = run("tarkit", "status", out, *shards)
    assert result.code == 3
    assert result.lines[:2] == [
        "set aside s2.tar: 2 samples",
        "damaged s1.tar: the input had damage or dropped fields",
    ]
    assert "done 4, missing 0" in result.lines[2]


def test_failed_damaged_and_old_records(run: Run, tmp_path: Path, out: Path, shards: list[Path]) -> None:
    (out / "s1.tar.done.json").write_bytes(b"nonsense")
    found = json.loads((out / "s2.tar.done.json").read_bytes())
    (out / "s2.tar.done.json").write_text(json.dumps({**found, "format": "tarkit-done-0"}))
    shards[3].write_bytes(b"no tar at all")
    assert run("tarproc", "-O", out, "-c", "true", shards[3]).code == 65
    result = run("tarkit", "status", out)
    assert result.code == 1
    assert result.lines[0] == "stale s2.tar: its record is of another version"
    assert result.lines[1].startswith("failed s1.tar: ") and "not a done record" in result.lines[1]
    assert result.lines[2].startswith(f"failed s3.tar: {shards[3]}")


def test_long_lists_are_cut(run: Run, out: Path) -> None:
    spec = "n/{0000..9999}.tar"
    result = run("tarkit", "status", out, spec)
    assert result.code == 1
    assert len(result.lines) == 22
    assert result.lines[0] == "missing 0000.tar"
    assert result.lines[20] == "… and 9980 more missing"
    assert len(run("tarkit", "status", "-v", out, spec).lines) == 10_001
    assert len(json.loads(run("tarkit", "status", "--json", out, spec).stdout)["missing"]) == 10_000


def test_no_folder(run: Run, tmp_path: Path, shards: list[Path]) -> None:
    result = run("tarkit", "status", tmp_path / "gone")
    assert result.code == 66 and result.stdout == b""
    result = run("tarkit", "status", tmp_path / "gone", *shards)
    assert result.code == 1 and result.lines[0] == "missing s0.tar"
    assert run("tarkit", "status", tmp_path / "gone", "--clean").code == 66


def test_a_folder_without_records_is_not_complete(run: Run, tmp_path: Path, shards: list[Path]) -> None:
    """A mistyped folder, or one that split has written, is not "done 0", exit code 0."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "s0.tar").touch()
    for options in ([], ["--json"]):
        result = run("tarkit", "status", folder, *options)
        assert (result.code, result.stdout) == (66, b"")
        assert "this folder has no done record" in result.stderr
    assert run("tarkit", "status", folder, *shards).code == 1
    left = folder / ".s9.tar.tarkit-0123abcd"
    left.touch()
    assert run("tarkit", "status", folder, "--clean").code == 0
    assert not left.exists()


def test_misuse(run: Run, out: Path) -> None:
    assert run("tarkit", "status").code == 2
    assert run("tarkit", "status", "-").code == 2
    assert run("tarkit", "status", "pipe:ls").code == 2
    assert run("tarkit", "status", out, "--older-than", "5").code == 2
    assert run("tarkit", "status", out, "pipe:ls").code == 2


def test_clean(run: Run, out: Path) -> None:
    dead, alive, mine = out / ".s1.tar.tarkit-0123abcd", out / ".s2.tar.tarkit-0123abcd", out / ".hidden"
    for path in (dead, alive, mine):
        path.write_bytes(b"part of a shard")
    (out / ".s3.tar.tarkit-folder").mkdir()
    with alive.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run("tarkit", "status", out, "--clean")
    assert result.code == 0
    assert result.stderr == f"tarkit status: removed {dead}\n"
    assert not dead.exists() and alive.exists() and mine.exists()
    assert run("tarkit", "status", out, "--clean").stderr == f"tarkit status: removed {alive}\n"
    assert run("tarkit", "status", out, "--clean").stderr == ""


def test_what_cannot_be_cleaned_is_an_error(run: Run, out: Path) -> None:
    # A link has no lock of its own; it may be anybody's.
    (out / ".s1.tar.tarkit-0123abcd").symlink_to("elsewhere")
    result = run("tarkit", "status", out, "--clean")
    assert result.code == 1
    assert f"{out}/.s1.tar.tarkit-0123abcd: cannot be removed: too many levels of symbolic links" in result.stderr


def test_in_a_bucket(run: Run, s3_endpoint: str, shards: list[Path]) -> None:
    """Runs, status, and uploads that a killed run left."""
    with s3_bucket(s3_endpoint) as s3:
        out = s3.url("out")
        client = s3.client()
        stale = client.create_multipart_upload(Bucket=s3.bucket, Key=f"{s3.folder}/out/s1.tar")["UploadId"]
        client.create_multipart_upload(Bucket=s3.bucket, Key=f"{s3.folder}/other/s1.tar")
        assert stale
        result = run("tarkit", "status", out, *shards)
        assert result.code == 1 and "missing 4" in result.lines[-1]
        assert "removed" not in run("tarkit", "status", out, "--clean").stderr, "it is young"
        command = ["-p", "2", "-c", "[ $(cat __key__) != s1k1 ] || [ -e mended ]"]
        assert run("tarproc", "-O", out, *command, *shards).code == 3
        assert "done before 4" in run("tarproc", "-O", out, *command, *shards).stderr
        assert run("tarkit", "status", out, *shards).code == 3
        assert run("tarproc", "-O", out, "-c", "true", "--retry-failed", out).code == 0
        result = run("tarkit", "status", out, *shards, "--clean", "--older-than", "0")
        assert result.code == 0, result
        assert f"removed {out}/s1.tar (an unfinished upload)" in result.stderr
        assert s3.uploads() == ["other/s1.tar"]
        made = sorted(f"out/s{n}.tar{end}" for n in range(4) for end in ("", ".done.json"))
        records = sorted(name for name in s3.names() if name.startswith("out/.tarkit-run-"))
        assert len(records) == 1 and sorted(s3.names()) == records + made
