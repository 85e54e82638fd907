"""tarproc -O: a shard for each input, done records, what is made again and what is left alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarproc_support import contents, numbered, tar_bytes

Run = Callable[..., Any]
DOUBLE = "cat sample.cls sample.cls > x; mv x sample.cls"


@pytest.fixture
def run(spawn: Run) -> Run:
    """Not in this process, since each run forks the shells of its commands from it."""
    return spawn


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards of four samples."""
    folder = tmp_path / "in"
    folder.mkdir()
    paths = [folder / f"s{number}.tar" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(tar_bytes([(f"s{number}{key}", fields) for key, fields in numbered(4)]))
    return paths


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def record(out: Path, name: str = "s0.tar") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.done.json").read_bytes())
    return found


def test_a_shard_without_a_field_that_was_asked_for_fails_alone(run: Run, tmp_path: Path, out: Path) -> None:
    kinds = {"all": [{"a": b"1"}] * 2, "some": [{"a": b"1"}, {"b": b"1"}], "none": [{"b": b"1"}] * 2, "empty": []}
    for name, kind in kinds.items():
        (tmp_path / f"{name}.tar").write_bytes(tar_bytes([(f"k{at}", fields) for at, fields in enumerate(kind)]))
    paths = [tmp_path / f"{name}.tar" for name in kinds]
    for again in (0, 1):
        result = run("tarproc", "-f", "a", "-c", "true", "-O", out, *paths, "--report", tmp_path / "report.json")
        assert result.code == 65
        assert "none.tar: failed: " in result.stderr
        assert "no sample has the field 'a' that was asked for; the samples have b" in result.stderr
        assert sorted(path.name for path in out.glob("*.tar")) == ["all.tar", "empty.tar", "some.tar"]
        assert ("samples without a field of --fields: a 1" in result.stderr) == (not again)
        assert json.loads((tmp_path / "report.json").read_text())["missing_fields"] == ({} if again else {"a": 1})
        assert record(out, "some.tar")["missing_fields"] == {"a": 1}
        assert record(out, "none.tar")["state"] == "failed" and record(out, "none.tar")["exit_code"] == 65


def inodes(out: Path) -> dict[str, int]:
    """A file that was published again has another inode, or at least another time."""
    return {path.name: hash((path.stat().st_ino, path.stat().st_mtime_ns)) for path in out.glob("[!.]*")}


def listed(out: Path) -> list[str]:
    """All names but those of the records of runs, which programs take for hidden files."""
    return sorted(name for name in os.listdir(out) if not name.startswith(".tarkit-run-"))


def redone(before: dict[str, int], after: dict[str, int]) -> list[str]:
    return sorted(name for name in after if name.endswith(".tar") and before.get(name) != after[name])


def test_outputs_and_records(run: Run, shards: list[Path], out: Path) -> None:
    result = run("tarproc", "-O", out, "-p", "2", "-c", DOUBLE, *shards)
    assert result.code == 0
    assert "done 3, done before 0, failed 0; samples: in 12 = out 12" in result.stderr
    assert listed(out) == sorted([f"s{n}.tar" for n in range(3)] + [f"s{n}.tar.done.json" for n in range(3)])
    for number, path in enumerate(shards):
        assert contents(out / path.name)[f"s{number}k3.cls"] == b"33"
        found = record(out, path.name)
        content = (out / path.name).read_bytes()
        output = {"name": path.name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert (found["state"], found["output"], found["failed"]) == ("done", output, [])
        assert found["samples"] == {"in": 4, "added": 0, "out": 4, "filtered": 0, "failed": 0, "ignored": 0}
        assert (found["input"]["url"], found["input"]["size"]) == (str(path), path.stat().st_size)


def test_the_same_bytes_as_alone_and_with_any_number_of_slots(run: Run, shards: list[Path], tmp_path: Path) -> None:
    for slots in ("1", "3"):
        assert run("tarproc", "-O", tmp_path / slots, "-p", slots, "-c", DOUBLE, *shards).code == 0
    for path in shards:
        assert run("tarproc", "-o", tmp_path / path.name, "-c", DOUBLE, path).code == 0
        alone = (tmp_path / path.name).read_bytes()
        assert (tmp_path / "1" / path.name).read_bytes() == (tmp_path / "3" / path.name).read_bytes() == alone


def test_a_second_run_does_nothing(run: Run, shards: list[Path], out: Path) -> None:
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    before = inodes(out)
    # How many at once, and how much memory, changes no output.
    result = run("tarproc", "-v", "-O", out, "-p", "2", "--mem", "1M", "-c", DOUBLE, *shards)
    assert result.code == 0
    assert "done 0, done before 3, failed 0" in result.stderr
    assert f"{out}/s1.tar: done before" in result.stderr
    assert inodes(out) == before


def _touch_input(shards: list[Path], out: Path) -> None:
    os.utime(shards[1], ns=(1, 1))


def _other_input(shards: list[Path], out: Path) -> None:
    shards[1].write_bytes(tar_bytes(numbered(9)))


def _remove_output(shards: list[Path], out: Path) -> None:
    (out / "s1.tar").unlink()


def _cut_output(shards: list[Path], out: Path) -> None:
    os.truncate(out / "s1.tar", 512)


def _remove_record(shards: list[Path], out: Path) -> None:
    (out / "s1.tar.done.json").unlink()


def _other_version(shards: list[Path], out: Path) -> None:
    (out / "s1.tar.done.json").write_text(json.dumps({**record(out, "s1.tar"), "tarkit": "0.0.1"}))


def _other_format(shards: list[Path], out: Path) -> None:
    (out / "s1.tar.done.json").write_text(json.dumps({**record(out, "s1.tar"), "format": "tarkit-done-0"}))


@pytest.mark.parametrize(
    "change", [_touch_input, _other_input, _remove_output, _cut_output, _remove_record, _other_version, _other_format]
)
def test_what_is_stale_is_made_again_and_nothing_else(
    change: Callable[..., None], run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    change(shards, out)
    before = inodes(out)
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    assert redone(before, inodes(out)) == ["s1.tar"]
    assert run("tarproc", "-o", tmp_path / "alone.tar", "-c", DOUBLE, shards[1]).code == 0
    assert (out / "s1.tar").read_bytes() == (tmp_path / "alone.tar").read_bytes()
    before = inodes(out)
    assert "done before 3" in run("tarproc", "-O", out, "-c", DOUBLE, *shards).stderr
    assert inodes(out) == before


def test_another_command_makes_all_again(run: Run, shards: list[Path], out: Path) -> None:
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    for other in (["-c", "true"], ["-c", "true", "-f", "cls"], ["-c", "true", "--mtime", "5"]):
        before = inodes(out)
        assert run("tarproc", "-O", out, *other, *shards).code == 0
        assert redone(before, inodes(out)) == ["s0.tar", "s1.tar", "s2.tar"]


def test_the_content_of_scripts_counts_and_their_name_does_not(
    run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.sh"
    script.write_text("true\n")
    assert run("tarproc", "-O", out, "-S", script, *shards).code == 0
    script.rename(tmp_path / "renamed.sh")
    assert "done before 3" in run("tarproc", "-O", out, "-S", tmp_path / "renamed.sh", *shards).stderr
    script.write_text("rm sample.dat\n")
    assert "done 3, done before 0" in run("tarproc", "-O", out, "-S", script, *shards).stderr


@pytest.mark.parametrize("changed", ["mapper.py", "setup.py"])
def test_the_content_of_mapper_and_setup_files_counts(
    changed: str, run: Run, shards: list[Path], out: Path, tmp_path: Path
) -> None:
    (tmp_path / "mapper.py").write_text("def f(sample, state):\n    return sample\n")
    (tmp_path / "setup.py").write_text("def g():\n    return 1\n")
    command = ["--map", f"{tmp_path}/mapper.py:f", "--setup", f"{tmp_path}/setup.py:g"]
    assert run("tarproc", "-O", out, *command, *shards).code == 0
    assert "done before 3" in run("tarproc", "-O", out, *command, *shards).stderr
    with open(tmp_path / changed, "a") as file:
        file.write("# another version\n")
    assert "done 3, done before 0" in run("tarproc", "-O", out, *command, *shards).stderr


def test_the_time_stamp_from_the_environment_counts(
    run: Run, shards: list[Path], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("tarproc", "-O", out, "-c", "true", *shards).code == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert "done 3, done before 0" in run("tarproc", "-O", out, "-c", "true", *shards).stderr


def test_a_damaged_record_is_an_error_and_stays(run: Run, shards: list[Path], out: Path) -> None:
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    for text in (b"{}", b"[1]", b"not json", b'{"format": "tarkit-done-1", "state": "done"}', b"\xff\xfe"):
        (out / "s1.tar.done.json").write_bytes(text)
        result = run("tarproc", "-O", out, "-c", DOUBLE, *shards)
        assert result.code == 65
        assert "s1.tar.done.json: this is not a done record; remove it, and the shard is made again" in result.stderr
        assert "done before 2, failed 1" in result.stderr
        assert (out / "s1.tar.done.json").read_bytes() == text
    _remove_record(shards, out)
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0


def test_a_corrupt_shard_among_good_ones(run: Run, shards: list[Path], out: Path) -> None:
    whole = shards[1].read_bytes()
    shards[1].write_bytes(whole[:5000])
    for _ in range(2):
        result = run("tarproc", "-O", out, "-p", "2", "-c", DOUBLE, *shards)
        assert result.code == 65
        assert f"{out}/s1.tar: failed: {shards[1]}" in result.stderr
        found = record(out, "s1.tar")
        assert (found["state"], found["exit_code"], found["output"]) == ("failed", 65, None)
        assert not (out / "s1.tar").exists()
        assert contents(out / "s2.tar")["s2k0.cls"] == b"00"
    assert "in 0 = out 0" in result.stderr, "what was read of a shard that failed is not counted"
    shards[1].write_bytes(whole)
    assert run("tarproc", "-O", out, "-c", DOUBLE, *shards).code == 0
    assert record(out, "s1.tar")["state"] == "done"


def test_missing_shards_are_counted_and_leave_no_record(run: Run, shards: list[Path], out: Path) -> None:
    shards[1].unlink()
    spec = f"{shards[0].parent}/s{{0..9}}.tar"
    result = run("tarproc", "-O", out, "-c", DOUBLE, spec)
    assert result.code == 66
    names = ", ".join(f"{shards[0].parent}/s{number}.tar" for number in (1, 3, 4))
    assert f"tarproc: 8 shards are missing, for example {names}\n" in result.stderr
    assert len(result.stderr.splitlines()) == 3
    assert listed(out) == ["s0.tar", "s0.tar.done.json", "s2.tar", "s2.tar.done.json"]


def test_too_many_errors_end_the_run_and_published_shards_stay(run: Run, shards: list[Path], out: Path) -> None:
    fails = "case $(cat __key__) in s0*) ;; *) exit 1;; esac"
    result = run("tarproc", "-O", out, "--max-errors", "2", "-c", fails, *shards)
    assert result.code == 1
    assert "3 of 7 samples failed; --max-errors is 2; this shard is not published" in result.stderr
    assert listed(out) == ["s0.tar", "s0.tar.done.json"]


def test_a_shard_of_which_all_failed(run: Run, shards: list[Path], out: Path) -> None:
    fails = "case $(cat __key__) in s1*) exit 1;; esac"
    result = run("tarproc", "-O", out, "-c", fails, *shards)
    assert result.code == 1
    assert f"{out}/s1.tar: failed: all 4 samples failed; this shard is not published" in result.stderr
    assert "done 2, done before 0, failed 1; samples: in 8 = out 8" in result.stderr
    assert not (out / "s1.tar").exists() and not (out / "s1.tar.failed.tar").exists()
    assert record(out, "s1.tar")["state"] == "failed"


def test_a_limit_in_percent_waits_for_enough_samples(run: Run, shards: list[Path], out: Path) -> None:
    result = run("tarproc", "-O", out, "--max-errors", "10%", "-c", "[ $(cat __key__) != s0k1 ]", *shards)
    assert result.code == 3
    assert "done 3, done before 0, failed 0; samples: in 12 = out 11 + filtered 0 + failed 1" in result.stderr


def test_samples_set_aside_by_a_run_that_was_resumed_count(run: Run, shards: list[Path], out: Path) -> None:
    command = ["-c", "[ $(cat __key__) != s0k1 ]"]
    assert run("tarproc", "-O", out, *command, *shards).code == 3
    (out / "s2.tar.done.json").unlink()
    assert run("tarproc", "-O", out, *command, *shards).code == 3, "as if it had never been interrupted"


def test_failed_samples_of_an_earlier_command_are_removed(run: Run, shards: list[Path], out: Path) -> None:
    assert run("tarproc", "-O", out, "-c", "[ $(cat __key__) != s0k1 ]", *shards).code == 3
    assert (out / "s0.tar.failed.tar").exists()
    assert run("tarproc", "-O", out, "-c", "true", *shards).code == 0
    assert not (out / "s0.tar.failed.tar").exists()


def test_damage_that_was_skipped_is_in_the_record(run: Run, shards: list[Path], out: Path) -> None:
    content = bytearray(shards[1].read_bytes())
    content[1024:1034] = b"\xff" * 10
    shards[1].write_bytes(content)
    result = run("tarproc", "-O", out, "--on-damage", "skip", "-c", "true", *shards)
    assert result.code == 3
    (damage,) = record(out, "s1.tar")["damage"]
    assert damage["url"] == str(shards[1]) and damage["start"] <= 1024 < damage["end"]


# Names


def test_two_inputs_of_the_same_name(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "s0.tar").write_bytes(shards[0].read_bytes())
    result = run("tarproc", "-O", out, "-c", "true", *shards, tmp_path / "other" / "s0.tar")
    assert result.code == 2
    assert "would both become s0.tar" in result.stderr
    assert not out.exists(), "known before the first shard is begun"


@pytest.mark.parametrize("reverse", [False, True])
def test_an_input_with_the_name_of_anothers_failed_samples(
    reverse: bool, run: Run, shards: list[Path], out: Path
) -> None:
    failed = shards[0].with_name("s0.tar.failed.tar")
    failed.write_bytes(shards[1].read_bytes())
    inputs = [failed, shards[0]] if reverse else [shards[0], failed]
    result = run("tarproc", "-O", out, "-c", "true", *inputs)
    assert result.code == 2
    assert "s0.tar.failed.tar is where failed samples of s0.tar go" in result.stderr
    assert run("tarproc", "-O", out, "-c", "true", failed).code == 0


def test_inputs_are_not_replaced(run: Run, shards: list[Path], tmp_path: Path) -> None:
    before = shards[0].read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for folder in (tmp_path / "in", f"{tmp_path}/in/", tmp_path / "link", f"file://{tmp_path}/in"):
        result = run("tarproc", "-O", folder, "-c", DOUBLE, *shards)
        assert result.code == 2
        assert "would be replaced by its own output" in result.stderr
    assert shards[0].read_bytes() == before


def test_streams_have_no_name(run: Run, shards: list[Path], out: Path) -> None:
    for spec in ("-", "pipe:cat x.tar"):
        result = run("tarproc", "-O", out, "-c", "true", spec, stdin=shards[0].read_bytes())
        assert result.code == 2 and "no file name" in result.stderr


def test_outdir_that_is_a_file(run: Run, shards: list[Path], tmp_path: Path) -> None:
    result = run("tarproc", "-O", shards[0], "-c", "true", shards[1])
    assert result.code == 2 and "cannot be made: file exists" in result.stderr


def test_one_output_or_many(run: Run, shards: list[Path], out: Path) -> None:
    assert run("tarproc", "-O", out, "-o", f"{out}.tar", "-c", "true", *shards).code == 2
    assert run("tarproc", "-o", f"{out}.tar", "--slice", "0/2", "-c", "true", *shards).code == 2


# Slices


@pytest.mark.parametrize("pieces", [1, 2, 3, 5])
def test_slices_are_disjoint_and_complete(pieces: int, run: Run, shards: list[Path], out: Path) -> None:
    seen: list[str] = []
    for index in range(pieces):
        before = set(os.listdir(out)) if out.exists() else set()
        assert run("tarproc", "-O", out, "-c", DOUBLE, "--slice", f"{index}/{pieces}", *shards).code == 0
        seen += [name for name in set(os.listdir(out)) - before if name.endswith(".tar")]
    assert sorted(seen) == ["s0.tar", "s1.tar", "s2.tar"]
    assert "done before 3" in run("tarproc", "-O", out, "-c", DOUBLE, *shards).stderr


def test_the_index_from_kubernetes(run: Run, shards: list[Path], out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("tarproc", "-O", out, "-c", DOUBLE, "--slice", "3", *shards)
    assert result.code == 2 and "JOB_COMPLETION_INDEX" in result.stderr
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert run("tarproc", "-O", out, "-c", DOUBLE, "--slice", "3", *shards).code == 0
    assert listed(out) == ["s1.tar", "s1.tar.done.json"]
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    assert run("tarproc", "-O", out, "-c", DOUBLE, "--slice", "3", *shards).code == 2


def test_names_of_other_slices_are_looked_at(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "s0.tar").write_bytes(shards[0].read_bytes())
    result = run("tarproc", "-O", out, "-c", "true", "--slice", "0/4", *shards, tmp_path / "other" / "s0.tar")
    assert result.code == 2


# The report


def test_report(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = ["-c", "[ $(cat __key__) != s0k1 ]", "--report", report]
    inputs = [*shards, shards[0].with_name("gone.tar")]
    assert run("tarproc", "-O", out, *command, *inputs).code == 66
    found = json.loads(report.read_bytes())
    assert found["shards"] == {"done": 3, "done_before": 0, "failed": 0, "missing": 1}
    assert found["samples"] == {"in": 12, "added": 0, "out": 11, "filtered": 0, "failed": 1, "ignored": 0}
    assert (found["exit_code"], found["error"], found["failures"]) == (66, None, {"exit": 1})
    assert found["missing_examples"] == [str(inputs[-1])]


def test_report_of_a_run_that_was_given_up(run: Run, shards: list[Path], out: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    fails = "case $(cat __key__) in s2*) exit 1;; esac"
    assert run("tarproc", "-O", out, "-e", "abort", "-c", fails, "--report", report, *shards).code == 1
    found = json.loads(report.read_bytes())
    assert (found["exit_code"], found["shards"]["done"], found["samples"]["out"]) == (1, 2, 8)
    assert "--errors abort ends the run" in found["error"]
