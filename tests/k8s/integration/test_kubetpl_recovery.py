"""Real shards from the run to its retry: one is poison, one is killed each time, one is flaky."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubetplrun import alone, kubetpl

from tarkit import TarWriter
from tarkit.samples.read import read_samples

PROGRAMS = Path(sys.executable).parent
SHARDS = 10
POISON, KILLED = 3, 5
# $PPID is the pod's own process: tarproc. The flaky one fails once; the causes of the others are
# files outside.
COMMAND = """
case $(cat __key__) in
  s005*) test -e MENDED || kill -9 $PPID ;;
  s007*) test -e SEEN || { touch SEEN; exit 1; } ;;
esac
tr a-z A-Z < sample.txt > sample.up
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def local(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    env = {"HOME": os.environ["HOME"], "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    words = (str(PROGRAMS / "kubetpl"), "local", *words)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def write_shard(folder: Path, number: int) -> None:
    with TarWriter(str(folder / f"raw-{number:03d}.tar"), encoder=False) as sink:
        for sample in range(3):
            sink.write({"__key__": f"s{number:03d}-{sample}", "txt": b"text of %d" % sample})


@pytest.mark.slow
def test_shards_that_fail_in_three_ways(folder: Path) -> None:
    for number in range(SHARDS):
        write_shard(folder, number)
    whole = (folder / f"raw-{POISON:03d}.tar").read_bytes()
    (folder / f"raw-{POISON:03d}.tar").write_bytes(whole[:1030] + b"garbage" * 20 + whole[1170:])
    command = COMMAND.replace("MENDED", str(folder / "mended")).replace("SEEN", str(folder / "seen"))
    words = ["indexed", "-n", "many", "-c", command, "--shards", f"{folder}/raw-{{000..009}}.tar", "--retries", "2"]
    # Two slices may fail before the rest is given up. A failed sample is to fail its shard.
    rendered = kubetpl(
        *words, "--max-failed", "2", "-O", f"{folder}/out", "-I", "image", "--", "--errors", "abort", "-q"
    )
    assert rendered.code == 0
    # In a cluster it would be a folder of the pod.
    assert rendered.err.count("\n") == 1 and f"'{folder}/out' is in no volume" in rendered.err
    (folder / "many.yaml").write_text(rendered.out)

    ran = local("-f", "many.yaml", "-j", "4", "--retry-delay", "0.1", code=1)
    assert "is in no volume" not in ran.stderr, "here the path is this machine's"
    # Poison ends its index at once; what is killed counts, and is tried again twice; the flaky one
    # failed once.
    end = "completedIndexes 0-2,4,6-9; failedIndexes 3,5; 5 pods failed"
    assert f"many: Failed (FailedIndexes): done 8 of 10; {end}" in ran.stderr

    found = kubetpl("status", "many", "-f", "many.yaml", "--json")
    assert found.code == 1 and "raw-003.tar" in found.out and "raw-005.tar" in found.out
    assert len(list((folder / "out").glob("raw-*.tar"))) == 8

    (folder / f"raw-{POISON:03d}.tar").write_bytes(whole)
    (folder / "mended").touch()
    again = kubetpl("retry", "many", "-f", "many.yaml")
    assert again.code == 0 and "name: many-r2" in again.out
    (folder / "again.yaml").write_text(again.out)
    assert "completedIndexes 0,1" in local("-f", "again.yaml").stderr
    assert kubetpl("status", "many", "-f", "many.yaml").code == 0
    for number in range(SHARDS):
        samples = list(read_samples(str(folder / "out" / f"raw-{number:03d}.tar")))
        assert [sample["up"] for sample in samples] == [b"TEXT OF %d" % each for each in range(3)]


def test_another_command_over_the_same_shards_is_not_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done records of another command are not those of this one."""
    for number in range(2):
        write_shard(folder, number)
    words = ["--shards", f"{folder}/raw-{{000..001}}.tar", "-O", f"{folder}/out"]
    local("indexed", "-n", "one", "-c", "true # $$", *words)
    (folder / "m.py").write_text("def same(sample):\n    return sample\n")
    # A variable of this machine is not one of the pods.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    for name, more, code, line in (
        ("one", ["-c", "true # $$"], 0, "shards: 2 of 2 done"),
        ("map", ["--", "--map", f"{folder}/m.py:same"], 0, "note: shards made by any command are counted"),
        ("two", ["-c", "rm sample.txt; echo > sample.x"], 1, "made by another command"),
    ):
        (folder / f"{name}.yaml").write_text(kubetpl("indexed", "-n", name, "-I", "image", *words, *more).out)
        found = kubetpl("status", name, "-f", f"{name}.yaml")
        assert (found.code, line in found.out) == (code, True), found.out
    again = kubetpl("retry", "two", "-f", "two.yaml")
    assert (again.code, "name: two-r2" in again.out) == (0, True), again.err
    (folder / "again.yaml").write_text(again.out)
    local("-f", "again.yaml")
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert kubetpl("status", "two", "-f", "two.yaml").code == 0


def test_the_same_names_in_another_folder_are_not_done(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        with TarWriter(str(folder / name / "s-0.tar")) as writer:
            writer.write({"__key__": "k", "txt": name.encode()})
        # As unpacked from an archive: size and time tell nothing.
        os.utime(folder / name / "s-0.tar", (0, 0))
        words = [
            "indexed",
            "-n",
            name,
            "-O",
            f"{folder}/out",
            "-c",
            "true",
            "--shards",
            f"{folder}/{name}/s-{{0..0}}.tar",
        ]
        (folder / "job.yaml").write_text(kubetpl(*words, "-I", "i:1").out)
        status = kubetpl("status", name, "-f", "job.yaml")
        assert status.code == 1, "nothing is done yet"
        assert (f"stale shard s-0.tar: it was made of {folder}/a/s-0.tar" in status.out) == (name == "b")
        local(*words)
        assert kubetpl("status", name, "-f", "job.yaml").code == 0
        (sample,) = read_samples([str(folder / "out/s-0.tar")])
        assert sample["txt"] == name.encode()
