"""tarkit dedup: options, summary, exit codes, stages, and a killed run."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dedupruns import dedup, files_of, of_webdataset, repeating_inputs, write_tar
from installed import program_path
from waiting import wait_for

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return repeating_inputs(tmp_path_factory.mktemp("inputs"))


def test_the_summary_counts_what_stays_and_goes(run: Run, inputs: list[str], tmp_path: Path) -> None:
    out, listing = tmp_path / "out", tmp_path / "gone.jsonl"
    words = ("dedup", *inputs, "-O", out, "--by", "bin", "--report", listing)
    dry = run("tarkit", *words, "--dry-run")
    assert (dry.code, out.exists()) == (0, False)
    lines = listing.read_text()
    gone = lines.count("\n")
    counts = f"samples: in 237 = out {237 - gone} + filtered {gone} + failed 0; duplicates: {gone}"
    assert dry.stderr == f"tarkit dedup: nothing was written (--dry-run); {counts}\n"
    done = run("tarkit", *words, "-p", "2")
    size = sum(path.stat().st_size for path in out.glob("*.tar"))
    assert (done.code, done.stdout) == (0, b"")
    assert done.stderr == f"tarkit dedup: 5 shards, {size} bytes; {counts}\n"
    assert listing.read_text() == lines
    again = run("tarkit", *words[:-2], "--json")
    assert again.stderr == f"tarkit dedup: 0 shards, 5 done before, {size} bytes; {counts}\n"
    found = json.loads(again.stdout)
    assert (found["done_before"], found["samples"]["filtered"], found["dropped"]) == (5, gone, {"duplicates": gone})
    status = run("tarkit", "status", out)
    assert status.code == 0 and b"done 5, missing 0, stale 0, failed 0" in status.stdout


def test_failed_samples_end_with_3_and_kept_ones_are_counted(run: Run, tmp_path: Path) -> None:
    samples = [("a", {"x": b"1"}), ("b", {"y": b"1"}), ("c", {"x": b"1"})]
    shard, rest = write_tar(tmp_path / "in.tar", samples), write_tar(tmp_path / "rest.tar", [("d", {"x": b"1"})])
    failed = run("tarkit", "dedup", shard, rest, "-O", tmp_path / "a", "--by", "x")
    assert failed.code == 3
    counts = f"in 4 = out 1 + filtered 2 + failed 1; failed samples are in {tmp_path}/a/*.failed.tar; duplicates: 2"
    assert failed.stderr.endswith(f"{counts}; shards that are empty now: 1, the first rest.tar\n")
    assert (tmp_path / "a" / "in.tar.failed.tar").exists()
    assert run("tarkit", "status", tmp_path / "a").code == 3
    kept = run("tarkit", "dedup", shard, "-O", tmp_path / "b", "--by", "x", "--missing", "keep")
    assert kept.code == 0
    assert kept.stderr.endswith(f"duplicates: 1; kept without x: 1, the first b of {shard}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--by", "bin", "--perceptual", "jpg"), "compared by the content of fields, or by a perceptual hash, not by"),
        (("--stage", "match"), "--stage and --slice go together"),
        (("--wait", "3"), "--wait goes with --stage"),
        (("--stage", "match", "--slice", "0/1", "--dry-run"), "--dry-run does not go with --stage"),
        (("--by", "bin,,cls"), "must be names of fields"),
        (("--report", "-", "--json"), "would both go to standard output"),
        (("--report", "no/such/folder.jsonl"), "the folder no/such is missing"),
    ],
)
def test_usage_errors_of_dedup(
    run: Run, inputs: list[str], tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    found = run("tarkit", "dedup", *inputs, "-O", tmp_path / "out", *words)
    assert (found.code, found.stderr.count("\n")) == (2, 1) and reason in found.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_killed_resumes_to_the_same_bytes(inputs: list[str], tmp_path: Path) -> None:
    # So many that a run is not over before it is killed.
    samples = of_webdataset(inputs[0])
    shards = [
        write_tar(tmp_path / f"x-{number:03d}.tar", [(f"{number}/{key}", fields) for key, fields in samples])
        for number in range(60)
    ]
    dedup(shards, tmp_path / "whole", "bin").run()
    expected = files_of(tmp_path / "whole")
    out = tmp_path / "out"
    words = [program_path("tarkit"), "dedup", *shards, "-O", str(out), "--by", "bin", "-p", "2"]
    killed = []
    for pattern in ("_exchange/run-*.tar", "x-000.tar", "x-04*.tar.done.json"):
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda pattern=pattern, process=process: [*out.glob(pattern)] or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        killed.append(process.wait())
    assert -signal.SIGKILL in killed
    assert subprocess.run(words, capture_output=True, check=True).stdout == b""
    assert files_of(out) == expected
    assert not (out / "_exchange").exists()


def test_the_stages_run_one_by_one(run: Run, inputs: list[str], tmp_path: Path) -> None:
    words = ("tarkit", "dedup", *inputs, "-O", tmp_path / "out", "--by", "bin")
    early = run(*words, "--stage", "match", "--slice", "0/1")
    assert (early.code, early.stderr.count("\n")) == (75, 1) and "has not made the plan yet" in early.stderr
    for stage, count, unit in (("scatter", 2, "run file"), ("match", 1, "run file"), ("gather", 2, "shard")):
        for number in range(count):
            done = run(*words, "--stage", stage, "--slice", f"{number}/{count}")
            assert done.code == 0 and f" {unit}" in done.stderr
    dedup(inputs, tmp_path / "whole", "bin").run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
